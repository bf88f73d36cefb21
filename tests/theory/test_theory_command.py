"""`stcon theory decide`: answers, exit codes, certificates on standard output."""

import json

import pytest
from click.testing import CliRunner
from theory_cases import complete, diamonds

from stcon.cli import cli
from stcon.commands.theory import METHODS, REGIMES
from stcon.theory import deciders

DIAMOND = "s a\ns b\na t\nb t\n"


def run(tmp_path, text, *options, name="g.edgelist"):
    path = tmp_path / name
    path.write_text(text)
    return CliRunner().invoke(cli, ["theory", "decide", str(path), *options], catch_exceptions=False)


def edgelist(graph):
    return "".join(f"{u} {v}\n" for u, v in graph.edges)


def test_methods_are_those_of_the_library():
    """The command offers each decider of STCON_sf, none else."""
    assert METHODS == deciders.METHODS
    assert tuple(deciders.REGIMES) == REGIMES


@pytest.mark.parametrize("method", [*METHODS, *REGIMES])
@pytest.mark.parametrize("cap, code, kind", [(2, 0, "fits"), (1, 1, "too many walks")])
def test_a_diamond(tmp_path, method, cap, code, kind):
    """Two walks join s and t: yes with exit code 0 at k = 2, no with 1 at k = 1, whatever the method."""
    result = run(tmp_path, DIAMOND, "--s", "s", "--t", "t", "--k", str(cap), "--method", method)
    data = json.loads(result.stdout)
    assert result.exit_code == code
    assert data["answer"] == (code == 0)
    assert data["method"] == method
    assert data["certificate"]["kind"] == kind


def test_all_methods_at_once(tmp_path):
    """`all` prints one verdict a method; they agree."""
    result = run(tmp_path, DIAMOND, "--s", "b", "--t", "a", "--k", "2", "--method", "all")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [verdict["method"] for verdict in data] == list(METHODS)
    assert {verdict["certificate"]["kind"] for verdict in data} == {"unreachable"}


def test_names_and_walks_in_the_certificate(tmp_path):
    """The certificate speaks in the file's names; two parallel edges are two walks with different edge numbers."""
    result = run(tmp_path, "s t\ns t\n", "--s", "s", "--t", "t", "--k", "1")
    walks = json.loads(result.stdout)["certificate"]["walks"]
    assert walks == [{"vertices": ["s", "t"], "edges": [0]}, {"vertices": ["s", "t"], "edges": [1]}]


def test_exponentially_many_walks_with_a_binary_threshold(tmp_path):
    """2^60 walks: within k = 2^60, over k = 2^60 − 1, decided by counting at once."""
    graph = edgelist(diamonds(60))
    yes = run(tmp_path, graph, "--s", "0", "--t", "180", "--k", str(2**60), "--no-certificate")
    assert yes.exit_code == 0
    assert "certificate" not in json.loads(yes.stdout)
    no = run(tmp_path, graph, "--s", "0", "--t", "180", "--k", str(2**60 - 1))
    assert no.exit_code == 1
    assert json.loads(no.stdout)["certificate"]["kind"] == "too many counted"


def test_a_huge_integer_is_printed(tmp_path):
    """The zero test's integer on a cyclic graph has thousands of digits; it is printed in hexadecimal."""
    result = run(tmp_path, edgelist(complete(6)), "--s", "0", "--t", "1", "--k", "15", "--method", "c=l")
    gap = json.loads(result.stdout)["evidence"]["gap"]
    assert int(gap, 16) > 10**1_000


@pytest.mark.parametrize(
    "text, options, reason",
    [
        (DIAMOND, ["--s", "x", "--t", "t", "--k", "1"], "no vertex is named 'x'"),
        (DIAMOND, ["--s", "s", "--t", "t", "--k", "-1"], "-1"),
        (DIAMOND, ["--s", "s", "--t", "t"], "--k"),
        (DIAMOND, ["--s", "s", "--t", "t", "--k", "1", "--method", "guess"], "guess"),
        ("", ["--s", "s", "--t", "t", "--k", "1"], "no vertex"),
        (edgelist(complete(6)), ["--s", "0", "--t", "1", "--k", "9", "--method", "nl", "--max-steps", "9"], "steps"),
    ],
)
def test_bad_input(tmp_path, text, options, reason):
    """Bad input and refused work exit with 2 and say why in one line on standard error."""
    result = run(tmp_path, text, *options)
    assert result.exit_code == 2
    assert not result.stdout
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1
