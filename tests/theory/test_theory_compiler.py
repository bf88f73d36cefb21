"""Programs, their configuration graphs, and the fail-closed compiler, against paths enumerated one by one."""

import itertools
from collections import Counter

import pytest

from stcon.theory.check import check_verdict
from stcon.theory.compiler import FailClosed, at_most
from stcon.theory.deciders import ROOT
from stcon.theory.graph import GraphError
from stcon.theory.meters import TooMuchWork
from stcon.theory.program import Program, configuration_graph

# accepts on every position that holds a 1; forgets which
ONES = """
        guess i n
        if i = n goto no
        read b i
        if b = 0 goto no
        set i 0
        accept
no:     reject
"""

# guesses the input bit by bit, right or wrong; a wrong guess dies, so no configuration has two paths
ECHO = """
loop:   if i = n goto yes
        guess g 1
        read b i
        if g != b goto no
        add i 1
        goto loop
yes:    accept
no:     reject
"""

# never halts but by its clock, and doubles its paths at every turn
FORKS = """
loop:   guess g 1
        set g 0
        goto loop
"""

# walks below a square adjacency matrix of 3 vertices, from 0 to 2, forgetting the way
WALK = """
loop:   if v = 2 goto yes
        guess w 2
        set p 0
        set c 0
row:    if c = v goto column
        add p 3
        add c 1
        goto row
column: add p w
        read b p
        if b = 0 goto no
        set v w
        set p 0
        set c 0
        set w 0
        goto loop
yes:    accept
no:     reject
"""

LINEAR = {"bound": lambda n: n + 1, "clock": lambda n: 6 * n + 8}
PROGRAMS = {
    "ones": (Program.parse(ONES, **LINEAR), 4),
    "echo": (Program.parse(ECHO, **LINEAR), 3),
    "forks": (Program.parse(FORKS, bound=lambda n: n, clock=lambda n: 3 * n), 3),
}
WORDS = [word for length in range(5) for word in itertools.product((0, 1), repeat=length)]


def paths(program, word):
    """How many computation paths lead to each configuration, by following every one."""
    counts = Counter()
    stack = [program.start]
    while stack:
        now = stack.pop()
        counts[now] += 1
        stack += program.successors(now, word)
    return counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiled_language(name):
    """L_{M,κ}: all path numbers within budget, and an accepting path; on all words of at most four symbols."""
    program, _ = PROGRAMS[name]
    for word in WORDS:
        counts = paths(program, word)
        accepted = any(program.accepts(configuration) for configuration in counts)
        for cap in (1, 2, 3):
            expected = accepted and max(counts.values()) <= cap
            assert FailClosed(program, at_most(cap), "counts")(word).answer == expected, (word, cap)


@pytest.mark.parametrize("method", ROOT)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_decider_compiles(name, method):
    """Whichever decider is used, the language is the same and the certificate holds."""
    program, _ = PROGRAMS[name]
    for word in [(), (1,), (0, 1), (1, 1), (1, 0, 1)]:
        for cap in (1, 2):
            compiled = FailClosed(program, at_most(cap), method)
            verdict = compiled(word)
            assert verdict.answer == FailClosed(program, at_most(cap), "counts")(word).answer
            assert check_verdict(compiled.instance(word).requirements, verdict)


def test_ones_counts_ones():
    """The first program's budget k gives {words with one to k ones}."""
    program, _ = PROGRAMS["ones"]
    for word in WORDS:
        for cap in (1, 2, 3):
            # word position n and the zeros die apart, so only accepting paths meet
            assert FailClosed(program, at_most(cap))(word).answer == (1 <= sum(word) <= cap)


def test_echo_is_reach_unambiguous():
    """A machine whose guesses are checked at once has one path to every configuration, so budget 1 accepts it."""
    program, _ = PROGRAMS["echo"]
    assert all(max(paths(program, word).values()) == 1 for word in WORDS)
    assert all(FailClosed(program, at_most(1))(word).answer for word in WORDS)


def test_the_clock_makes_every_graph_acyclic():
    """A program that loops for ever has a finite acyclic graph, and exponentially many paths are refused."""
    program, _ = PROGRAMS["forks"]
    graph = configuration_graph(program, (0,) * 40).graph
    assert graph.topological_order() is not None
    verdict = FailClosed(program, at_most(3))((0,) * 40)
    assert not verdict.answer


def test_budgets_may_depend_on_the_configuration():
    """Two ways into the accepting configuration pass if it alone may have two, and not if it alone may not."""
    program = Program.parse(ONES, **LINEAR)
    generous = FailClosed(program, lambda configuration, word: 1 + program.accepts(configuration))
    strict = FailClosed(program, lambda configuration, word: 2 - program.accepts(configuration))
    assert [generous(word).answer for word in [(1, 0, 0), (1, 0, 1), (1, 1, 1)]] == [True, True, False]
    assert [strict(word).answer for word in [(1, 0, 0), (1, 0, 1), (1, 1, 1)]] == [True, False, False]


def test_walks_as_a_program():
    """A program that walks a graph accepts, under budget 1, adjacency matrices whose walks from 0 do not meet."""
    program = Program.parse(WALK, bound=lambda n: n, clock=lambda n: 60)
    matrix = {"path": (0, 1, 0, 0, 0, 1, 0, 0, 0), "none": (0,) * 9, "both": (0, 1, 1, 0, 0, 1, 0, 0, 0)}
    answers = {name: FailClosed(program, at_most(1))(word).answer for name, word in matrix.items()}
    # the direct edge and the detour arrive at different clock times, so even the third is unambiguous
    assert answers == {"path": True, "none": False, "both": True}


@pytest.mark.parametrize(
    "text, reason",
    [
        ("jump x", "line 1: no instruction"),
        ("goto nowhere", "no label 'nowhere'"),
        ("a: set r 0\na: accept", "line 2: the label 'a'"),
        ("set r q", "'q' is neither"),
        ("set 3 0", "no register"),
        ("set n 0", "no register"),
        ("set r 0\nif r ~ 0 goto a\na: accept", "not of the form"),
        ("set r 1" + "0" * 40, "is neither"),
    ],
)
def test_malformed_programs_are_refused(text, reason):
    """What is no program is refused with its line."""
    with pytest.raises(GraphError, match=reason):
        Program.parse(text, **LINEAR)


def test_large_configuration_graphs_are_refused():
    """Past the limit the graph is not built."""
    program = Program.parse("guess a n\nguess b n\nguess c n\naccept", **LINEAR)
    with pytest.raises(TooMuchWork):
        configuration_graph(program, (0,) * 60)
