"""The documentation holds: its code runs, its commands have the options it names, its links and pictures are there."""

from __future__ import annotations

import itertools
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml
from click.testing import CliRunner

import stcon
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
_FENCE = re.compile(r"^```([a-z]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$", re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}'
REQUEST = '{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 4}}'
FILES = {  # what commands on the pages read
    "person.json": SCHEMA,
    "question.txt": "Is it?",
    "list.gbnf": 'root ::= "a" ("," "a")*',
    "requests.jsonl": REQUEST,
    "person.doc.json": '{"name": "Ann"}',
}
RUN = {"generate", "explain", "batch", "check"}  # others are parsed: they serve, fetch or measure


class Block(NamedTuple):
    """A block of code: its language, its text, and why it does not run ("" where it does)."""

    language: str
    text: str
    why_not: str


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        reason = _NOT_RUN.search(text[: match.start()])
        yield Block(match.group(1), match.group(2), " ".join(reason.group(1).split()) if reason else "")


@pytest.fixture(scope="module")
def model() -> FakeModel:
    """Stands for the default model: no weights, likes to close what it opened."""
    tokens: list[bytes | None] = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":"', b'","', b'":', b'"}', b'"]', b"true", b", ", None]
    vocabulary = Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))
    bias = prefer(vocabulary, lambda data: data in (b'"', b'","', b"]", b'"]', b'"}', b"}"))
    return FakeModel(vocabulary, seed=5, bias=bias, context_length=4096, chat_template=TEMPLATE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs(page: Path, model: FakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block in order, Python in one namespace a page, commands through the command line itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, source in FILES.items():
        (tmp_path / name).write_text(source, "utf-8")
    monkeypatch.setattr(stcon, "load_model", lambda *_, **__: model, raising=False)
    monkeypatch.setattr("stcon.api.load_model", lambda *_, **__: model)
    monkeypatch.setattr("stcon.commands.generate.load", lambda *_, **__: model)
    namespace: dict[str, Any] = {"__name__": "docs"}
    for setup in _SETUP.findall(page.read_text("utf-8")):
        exec(compile(setup, f"{page} (setup)", "exec"), namespace)
    for block in _blocks(page):
        if block.language == "python":
            code = compile(block.text, str(page), "exec")
            if not block.why_not:
                exec(code, namespace)
        elif block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                _shell(line, runs=not block.why_not)


def _shell(line: str, *, runs: bool) -> None:
    """Run a line of ours, or see that it parses; lines of other programs are left alone."""
    words = shlex.split(line, comments=True)
    if not words or words[0] != "stcon":
        return
    if words[1] in RUN and runs:
        result = CliRunner().invoke(cli, words[1:])
        assert result.exit_code in (0, 1), f"{line}\n{result.output}"  # 1: a model without a mind did not finish
    else:
        _parses(words[1:], line)


def _parses(words: list[str], line: str) -> None:
    """Every option named exists, and every group's command does."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        assert name in command.commands, f"{line}: no command {name!r}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    named = {word.split("=")[0] for word in words if word.startswith("-") and word != "-"}
    assert named <= known | {"--help"}, f"{line}: unknown {sorted(named - known)}"


def test_blocks_that_do_not_run_say_why() -> None:
    """And there are few of them."""
    left_out = [block for page in PAGES for block in _blocks(page) if block.why_not]
    assert all(len(block.why_not) > 20 for block in left_out)
    assert len(left_out) <= 0.25 * sum(block.language in {"python", "sh"} for page in PAGES for block in _blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist; from the docs no link leaves the folder, so that the site has them all."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        file = (page.parent / target.split("#")[0]).resolve()
        assert file.exists(), f"{page.name}: {target}"
        assert (DOCS in page.parents and DOCS in file.parents) or page.name == "README.md", f"{page.name}: {target}"


def test_every_page_is_in_the_site() -> None:
    """The navigation of ``mkdocs.yml`` has each page once."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(part)

    listed = list(pages(config["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_reference_names_exist() -> None:
    """What ``reference.md`` documents can be imported."""
    from importlib import import_module

    for name in re.findall(r"^::: (\S+)$", (DOCS / "reference.md").read_text("utf-8"), re.MULTILINE):
        module, _, member = name.rpartition(".")
        try:
            import_module(name)
        except ModuleNotFoundError:
            assert hasattr(import_module(module), member), name


def test_pictures_are_what_the_code_gives() -> None:
    """The tables they are drawn from have not changed since (their drawing may differ by plotting library)."""
    drawn = runpy.run_path(str(DOCS / "pictures.py"), run_name="pictures")
    graph = drawn["machine_graph"](stcon.compile(drawn["SCHEMA"]), contract=True)
    assert sorted(graph.edges.values()) == sorted(['{"ok":', "fals", "e", "true", ',"size":"', "M", '"', 'S"', "}"])
    picture = (DOCS / "pictures" / "machine.svg").read_text("utf-8")
    assert all((DOCS / "pictures" / name).exists() for name in drawn["PICTURES"])
    assert picture.startswith("<?xml")
    needs = [need for _, need in drawn["needs"]()]
    assert needs[0] == 4
    assert needs[-1] == 0
    assert all(after >= before - 1 for before, after in itertools.pairwise(needs))
