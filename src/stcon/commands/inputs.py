"""What the commands share: constraint and input options, strict reading of files, writing of results."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stcon.errors import RequestError

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar

F = TypeVar("F", bound=Callable[..., Any])

INPUT = click.Path(allow_dash=True, dir_okay=True)


def constraint_options(function: F) -> F:
    """Adds ``--schema``, ``--regex``, ``--grammar`` and their settings."""
    for option in (
        click.option("--open", "open_objects", is_flag=True, help="Objects may have keys the schema does not name."),
        click.option(
            "--key-order",
            type=click.Choice(["schema", "any"]),
            default="schema",
            show_default=True,
            help="Order of the declared keys.",
        ),
        click.option(
            "--whitespace",
            type=click.Choice(["compact", "json", "pretty", "flexible"]),
            default="compact",
            show_default=True,
            help="None; one space after comma and colon; or any bounded run.",
        ),
        click.option(
            "--syntax",
            type=click.Choice(["gbnf", "ebnf", "lark", "structural_tag"]),
            help="How --grammar is written.  [default: the file's ending]",
        ),
        click.option(
            "--grammar", "grammar_file", type=INPUT, metavar="FILE", help="Context-free grammar, or - for stdin."
        ),
        click.option("--regex", metavar="R", help="Regular expression for the whole output."),
        click.option("--schema", "schema_file", type=INPUT, metavar="FILE", help="JSON Schema file, or - for stdin."),
    ):
        function = option(function)
    return function


def runner_option(function: F) -> F:
    """Adds ``--runner``."""
    return click.option(
        "--runner",
        type=click.Choice(["auto", "lean", "transformers", "llama.cpp", "mlx"]),
        default="auto",
        show_default=True,
        help="Who computes; auto: our own definitions where they know the model, else transformers.",
    )(function)


def json_option(function: F) -> F:
    """Adds ``--json FILE``."""
    return click.option(
        "--json", "json_file", type=click.Path(dir_okay=False), metavar="FILE", help="Also write the result as JSON."
    )(function)


def compile_constraint(
    schema_file: str | None,
    regex: str | None,
    grammar_file: str | None = None,
    *,
    syntax: str | None = None,
    whitespace: str,
    key_order: str,
    open_objects: bool,
) -> Grammar | None:
    """The grammar that the options ask for, or None if they ask for none.

    Raises:
        click.UsageError: more than one of schema, regex and grammar; or no syntax for the grammar.
        RequestError: unreadable, not JSON, or not a constraint that compiles.
    """
    import stcon

    if sum(given is not None for given in (schema_file, regex, grammar_file)) > 1:
        raise click.UsageError("give one of --schema, --regex and --grammar, not both")
    if regex is not None:
        return stcon.compile_regex(regex)
    if grammar_file is not None:
        return stcon.compile_grammar(read_text(grammar_file), syntax=_syntax(grammar_file, syntax))  # type: ignore[arg-type]
    if syntax is not None:
        raise click.UsageError("--syntax needs --grammar")
    if schema_file is None:
        return None
    source = "standard input" if schema_file == "-" else schema_file
    schema = stcon.parse_json(read_bytes(schema_file), source)
    return stcon.compile(schema, whitespace=whitespace, key_order=key_order, closed=not open_objects)  # type: ignore[arg-type]


def _syntax(grammar_file: str, syntax: str | None) -> str:
    """`syntax`, or what the file's ending says."""
    found = syntax or {".gbnf": "gbnf", ".ebnf": "ebnf", ".lark": "lark"}.get(Path(grammar_file).suffix)
    if found is None:
        raise click.UsageError("say with --syntax how the grammar is written: gbnf, ebnf, lark or structural_tag")
    return found


def read_bytes(path: str) -> bytes:
    """The content of a file, or of standard input for ``-``. Raises `RequestError` with what to do."""
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise RequestError(f"{path} is a directory where a file is expected") from None
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def read_text(path: str) -> str:
    """As `read_bytes`, decoded as UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """Write a command's result for ``--json``; nothing if the option was not given."""
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def environment() -> dict[str, str]:
    """The machine and the versions, as every measurement names them."""
    found = {
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}",
        "python": platform.python_version(),
    }
    for package in ("stcon", "numpy", "numba", "torch", "transformers", "tokenizers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    import os

    name = platform.processor()
    if sys.platform == "linux" and (info := Path("/proc/cpuinfo")).exists():
        lines = info.read_text("utf-8", "replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"{name or 'unknown processor'}, {os.cpu_count()} cores"
