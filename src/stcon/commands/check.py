"""`stcon check`: do documents belong to a schema, a regular expression or a grammar, and if not, where and why not?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.inputs import INPUT, compile_constraint, json_option, read_bytes, write_json

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.testing import Refusal
    from stcon.vocab.vocabulary import Vocabulary

REFUSED = 1
LINES = (".jsonl", ".ndjson")


@click.command()
@click.argument("files", nargs=-1, type=INPUT, metavar="[SCHEMA] [DOC]...")
@click.option("--regex", metavar="R", help="Regular expression, instead of a schema.")
@click.option(
    "--grammar", "grammar_file", type=INPUT, metavar="FILE", help="Context-free grammar, instead of a schema."
)
@click.option(
    "--syntax",
    type=click.Choice(["gbnf", "ebnf", "lark", "structural_tag"]),
    help="How --grammar is written.  [default: the file's ending]",
)
@click.option(
    "--as-generated",
    is_flag=True,
    help="Read the schema as stcon generate does: compact, names in the schema's order, no others.",
)
@click.option("--lines", is_flag=True, help="A document a line.  [default: for .jsonl and .ndjson]")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Read token by token too: default (the default model's), a .gguf file, a tokenizer.json or its folder.",
)
@json_option
def check(
    *,
    files: tuple[str, ...],
    regex: str | None,
    grammar_file: str | None,
    syntax: str | None,
    as_generated: bool,
    lines: bool,
    tokenizer: str | None,
    json_file: str | None,
) -> int:
    """Check documents against a schema (or --regex, --grammar), offline: no model is needed.

    Documents are files, or - for standard input, which is also read where none is named. One line a refusal goes to
    standard output: file:line:column: what was expected there and what was found. Exit code 0: all are accepted; 1:
    some are not; 2: bad input.

    \b
    stcon check person.schema.json answers.jsonl
    stcon generate ... | stcon check --as-generated person.schema.json
    """
    from stcon.commands.explain import load_vocabulary

    schema, documents = _inputs(files, regex, grammar_file)
    grammar = compile_constraint(
        schema,
        regex,
        grammar_file,
        syntax=syntax,
        whitespace="compact" if as_generated else "flexible",
        key_order="schema" if as_generated else "any",
        open_objects=not as_generated,
    )
    assert grammar is not None, "there is a schema, an expression or a grammar"
    vocabulary = None if tokenizer is None else load_vocabulary(tokenizer)
    checked = [
        _checked(document, grammar, vocabulary)
        for name in documents
        for document in _documents(name, by_line=lines or Path(name).suffix in LINES, is_json=schema is not None)
    ]
    refused = [entry for entry in checked if entry["refusal"] is not None]
    for entry in refused:
        click.echo(f"{entry['document']}:{entry['line']}:{entry['column']}: {entry['reason']}")
    click.echo(f"stcon: {len(checked) - len(refused)} of {len(checked)} accepted", err=True)
    write_json(json_file, {"accepted": len(checked) - len(refused), "documents": checked})
    return REFUSED if refused else 0


@dataclass(frozen=True)
class _Document:
    """A text to check.

    Attributes:
        name: of its file.
        data: the text, without what surrounds it.
        line, column: where it begins in the file, from 1.
    """

    name: str
    data: bytes
    line: int = 1
    column: int = 1


def _inputs(files: Sequence[str], regex: str | None, grammar_file: str | None) -> tuple[str | None, Sequence[str]]:
    """The schema's file, if it is one, and the documents' names."""
    schema = None
    if regex is None and grammar_file is None:
        if not files:
            raise click.UsageError("give a schema, --regex R or --grammar FILE")
        schema, *files = files
    documents = list(files) or ["-"]
    if [schema, grammar_file, *documents].count("-") > 1:
        raise click.UsageError("standard input can hold one thing; name the others")
    return schema, documents


def _documents(name: str, *, by_line: bool, is_json: bool) -> Iterator[_Document]:
    """The documents in a file. Around JSON there may be whitespace; at the end of any other text one line break."""
    data = read_bytes(name)
    shown = "<stdin>" if name == "-" else name
    if by_line:
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                yield _trimmed(_Document(shown, line, number), is_json)
    else:
        yield _trimmed(_Document(shown, data), is_json)


def _trimmed(document: _Document, is_json: bool) -> _Document:
    data = document.data
    if not is_json:
        kept = data.removesuffix(b"\n").removesuffix(b"\r")
        return _Document(document.name, kept, document.line)
    begin = len(data) - len(data.lstrip(b" \n\r\t"))
    before = data[:begin]
    line = document.line + before.count(b"\n")
    return _Document(document.name, data.strip(b" \n\r\t"), line, begin - before.rfind(b"\n"))


def _checked(document: _Document, grammar: Grammar, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """A document's verdict as data."""
    from stcon.testing import accepts

    refusal = accepts(grammar, vocabulary, document.data).refusal
    if refusal is None:
        return {"document": document.name, "line": document.line, "column": document.column, "refusal": None}
    return {
        "document": document.name,
        "line": document.line + refusal.line - 1,
        "column": refusal.column + (document.column - 1 if refusal.line == 1 else 0),
        "reason": refusal.reason + _by_value(document.data, grammar, refusal),
        "refusal": asdict(refusal),
    }


def _by_value(data: bytes, grammar: Grammar, refusal: Refusal) -> str:
    """What the reference validator says of the value, for a schema; nothing where it cannot say."""
    if grammar.kind != "json" or refusal.token is not None:
        return ""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    try:
        error = best_match(Draft202012Validator(_plain(grammar.source)).iter_errors(json.loads(data)))
    except Exception:  # not JSON, a number past Python's range, a reference that it cannot follow, a schema it refuses
        return ""
    if error is None:
        return " (the value satisfies the schema; it is the spelling that is not taken, see docs/departures.md)"
    message = " ".join(error.message.split())
    return f" ({message if len(message) <= 160 else message[:159] + '…'})"


def _plain(schema: Any) -> Any:
    """A schema as the validator takes it: numbers of `stcon.parse_json` as floats."""
    return json.loads(json.dumps(schema, default=float))
