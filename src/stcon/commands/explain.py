"""`stcon explain`: what a schema, a regular expression or a grammar became, and what it costs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.explain_segments import print_segments, segment_facts
from stcon.commands.inputs import compile_constraint, constraint_options, json_option, write_json
from stcon.errors import ModelUnavailable, RequestError, TooLarge, Unsupported

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

# the vocabulary of Qwen3.5, which the paper measures with; used where --vocabulary names no other
REFERENCE_VOCABULARY = 248_077
SHOWN_CHAINS = 12


@click.command()
@constraint_options
@click.option(
    "--vocabulary",
    metavar="NAME",
    help="Whose tokens to compare with: default (the default model's), a .gguf file, a tokenizer.json or its folder.",
)
@click.option("--dot", type=click.Path(dir_okay=False), metavar="FILE", help="Write the machine's graph (Graphviz).")
@json_option
def explain(
    *,
    schema_file: str | None,
    regex: str | None,
    grammar_file: str | None,
    syntax: str | None,
    whitespace: str,
    key_order: str,
    open_objects: bool,
    vocabulary: str | None,
    dot: str | None,
    json_file: str | None,
) -> None:
    """Show the machine of a schema, an expression or a grammar: its size, its memory, the text it forces."""
    grammar = compile_constraint(
        schema_file,
        regex,
        grammar_file,
        syntax=syntax,
        whitespace=whitespace,
        key_order=key_order,
        open_objects=open_objects,
    )
    if grammar is None:
        raise click.UsageError("give --schema FILE, --regex R or --grammar FILE")
    source = regex if regex is not None else str(grammar_file or schema_file)
    tokens = None if vocabulary is None else load_vocabulary(vocabulary)
    facts = describe(grammar, source, tokens)
    _print(facts)
    if dot is not None:
        _write_dot(grammar, dot)
    write_json(json_file, facts)


def describe(grammar: Grammar, source: str, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """The facts of a grammar as data; sizes in bytes.

    Where the whole machine is past its state budget, ``complete`` is false: it serves decoding, which builds what it
    meets, but only the part built so far is described.
    """
    from stcon.grammar.analysis import Sizes, forced_chains, sizes
    from stcon.grammar.machine import BEGIN

    machine = grammar.machine
    if grammar.conflict is not None:
        return _describe_stacks(grammar, source)
    try:
        size, chains, complete = sizes(machine), forced_chains(machine), True
    except TooLarge:
        counts = (machine.num_states, 0, machine.num_classes, machine.num_symbols, machine.num_actions, 0)
        size, chains, complete = Sizes(*counts, machine.nbytes), [], False
    tokens = REFERENCE_VOCABULARY if vocabulary is None else vocabulary.size
    return {
        "constraint": source,
        "complete": complete,
        **{key: value for key, value in size._asdict().items() if key != "nbytes"},
        "remembers_elements": any(mark & BEGIN for mark in machine.marks.values()),
        "machine_nbytes": size.nbytes,
        "vocabulary_size": tokens,
        "token_table_nbytes": size.token_table_nbytes(tokens),
        "packed_vocabulary_nbytes": None if vocabulary is None else vocabulary.packed_nbytes,
        "shortest": _shortest(grammar) if complete else None,
        "forced_chains": [chain.decode("utf-8", "backslashreplace") for chain in chains],
        "segments": segment_facts(machine) if complete else None,
    }


def _describe_stacks(grammar: Grammar, source: str) -> dict[str, Any]:
    """The facts of a grammar without a deterministic machine."""
    assert grammar.conflict is not None, "it has none"
    return {
        "constraint": source,
        "deterministic": False,
        "conflict": str(grammar.conflict),
        "prefix": grammar.conflict.prefix.decode("utf-8", "backslashreplace"),
        "shortest": _shortest(grammar),
        "forced_chains": [],
    }


def _shortest(grammar: Grammar) -> str | None:
    try:
        return grammar.shortest()
    except (TooLarge, Unsupported):  # bounds that only a long search would meet; sets of stacks with a lexer
        return None


def load_vocabulary(name: str) -> Vocabulary:
    """A vocabulary by name, without loading a model.

    Raises:
        RequestError: no such file, or not a tokenizer.
    """
    from stcon.vocab.vocabulary import Vocabulary

    if name == "default":
        from stcon.models.pull import default_model_path

        return Vocabulary.from_gguf(default_model_path())
    path = Path(name).expanduser()
    if path.is_dir():
        path /= "tokenizer.json"
    if not path.is_file():
        raise RequestError(f"{path}: no such file; give default, a .gguf file, a tokenizer.json or its folder")
    if path.suffix == ".gguf":
        return Vocabulary.from_gguf(path)
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelUnavailable(f"{path}: not a tokenizer ({error})") from None
    return Vocabulary.from_tokenizer(tokenizer)


def _print(facts: dict[str, Any]) -> None:
    """The facts as two columns, then the forced texts; at most 80 columns where stdout is not a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(facts):
        table.add_row(Text(name, style="bold"), Text(value))
    console = Console(width=None if sys.stdout.isatty() else 80, highlight=False)
    console.print(table)
    if facts.get("segments"):
        print_segments(console, facts["segments"])
    chains = facts["forced_chains"]
    if chains:
        console.print(Text(f"\nforced text ({len(chains)} chains, the longest first)", style="bold"))
        for chain in chains[:SHOWN_CHAINS]:
            console.print(Text(f"  {_visible(chain)}", overflow="ellipsis", no_wrap=True))
        if len(chains) > SHOWN_CHAINS:
            console.print(f"  … and {len(chains) - SHOWN_CHAINS} more (--json FILE has all)")


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if not facts.get("deterministic", True):
        shortest = [] if facts["shortest"] is None else [("shortest text", _visible(facts["shortest"]))]
        return [
            ("constraint", _visible(facts["constraint"])),
            ("deterministic", "no: sets of stacks, on the CPU only"),
            ("conflict", facts["conflict"]),
            *shortest,
        ]
    states = f"{facts['states']:,}" + ("" if facts["complete"] else " so far (the whole is past the state budget)")
    table, machine, size = facts["token_table_nbytes"], facts["machine_nbytes"], facts["vocabulary_size"]
    rows = [
        ("constraint", _visible(facts["constraint"])),
        ("states", states),
        ("  with one live byte", f"{facts['forced']:,}"),
        ("byte classes", f"{facts['classes']:,}"),
        ("return symbols", f"{facts['symbols']:,}"),
        ("actions", f"{facts['actions']:,}"),
        ("labels", f"{facts['labels']:,}"),
        ("machine", _bytes(machine)),
        ("token table", f"{_bytes(table)}: 3·Q·V for V = {size:,}; {table / machine:,.0f} times the machine"),
    ]
    if facts["remembers_elements"]:
        rows.append(("history", "remembers items or names, so that none repeats"))
    if facts["packed_vocabulary_nbytes"] is not None:
        rows.append(("vocabulary", f"{_bytes(facts['packed_vocabulary_nbytes'])}, shared by all grammars"))
    if facts["shortest"] is not None:
        rows.append(("shortest text", _visible(facts["shortest"])))
    return rows


def _bytes(count: int) -> str:
    """A size with three significant digits: ``9.71 kB``."""
    size, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{count} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 100 else f"{size:.0f} {unit}"


def _visible(text: str) -> str:
    """One line: what does not print is escaped, and a long text is cut in the middle."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return line if len(line) <= 400 else f"{line[:250]} … {line[-100:]} ({len(line):,} characters)"


def _write_dot(grammar: Grammar, path: str) -> None:
    from stcon.grammar.analysis import to_dot

    try:
        Path(path).write_text(to_dot(grammar.machine), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None
    click.echo(f"wrote {path}; draw it with: dot -Tsvg {path}", err=True)
