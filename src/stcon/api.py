"""The functions of `import stcon`: schemas, pydantic models, patterns and grammars in; a `Grammar` or a model out.

Heavy modules are imported inside the functions, so that importing this one is cheap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stcon.errors import InvalidOption, InvalidSchema

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

Whitespace = Literal["compact", "json", "pretty", "flexible"]
KeyOrder = Literal["schema", "any"]
GrammarSyntax = Literal["gbnf", "ebnf", "lark", "structural_tag"]


def compile(  # the public name is stcon.compile
    schema: str | bytes | bool | Mapping[str, Any] | type,
    *,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    closed: bool = True,
    **options: Any,
) -> Grammar:
    """Compile a JSON Schema into the grammar of the JSON texts that satisfy it.

    Args:
        schema: a schema as Python data (a dict, or a boolean), as JSON text, or a pydantic model class.
        whitespace: ``"compact"`` writes none; ``"json"`` writes one space after each comma and colon, as `json.dumps`
            does; ``"pretty"`` a line a member (``indent=2``); ``"flexible"`` allows any bounded run.
        key_order: ``"schema"`` fixes the order of declared keys to the schema's, ``"any"`` lets the model choose.
        closed: an object that lists ``properties`` and says nothing of additional ones takes none.
        **options: passed on to `stcon.grammar.compile_json_schema` (``escapes``, ``format``,
            ``documents``, ``max_states``).

    Returns:
        A `Grammar`; every text it accepts satisfies the schema.

    Raises:
        GrammarError: the schema is not one, cannot be satisfied, uses what is not enforced exactly, or is too large.
    """
    _require_choice("whitespace", whitespace, ("compact", "json", "pretty", "flexible"))
    _require_choice("key_order", key_order, ("schema", "any"))
    plain = _as_schema(schema)
    from stcon.grammar import compile_json_schema

    return compile_json_schema(plain, whitespace=whitespace, key_order=key_order, closed=closed, **options)


def compile_regex(pattern: str, **options: Any) -> Grammar:
    """Compile a regular expression into the grammar of the texts it matches in full.

    Args:
        pattern: the expression, in Python's syntax.
        **options: passed on to `stcon.grammar.compile_regex` (``dialect``, ``max_states``).

    Raises:
        GrammarError: the pattern is not one, matches nothing, is not regular, or is too large.
    """
    from stcon.grammar import compile_regex as build

    return build(pattern, **options)


def compile_grammar(text: str, *, syntax: GrammarSyntax, start: str | None = None, **options: Any) -> Grammar:
    """Compile a context-free grammar into the grammar of its texts.

    Args:
        text: the grammar.
        syntax: ``"gbnf"`` (llama.cpp), ``"ebnf"`` (as xgrammar has it), ``"lark"`` (as llguidance has it) or
            ``"structural_tag"`` (JSON).
        start: the start rule; None: ``root``, in Lark ``start``.
        **options: passed on to `stcon.grammar.compile_grammar` (``strategy``, ``whitespace``, ``max_states``).

    Returns:
        A `Grammar`. Where its `conflict` is not None it is not deterministic, and runs on the CPU only.

    Raises:
        GrammarError: the grammar is not one, has no text, uses what is refused, or is too large.
    """
    from stcon.grammar import compile_grammar as build

    return build(text, syntax=syntax, start=start, **options)


def load_model(name: str | PathLike[str] = "default", **options: Any) -> Model:
    """Load a model; see `stcon.models.load.load_model` for the options (``device``, ``dtype``, ``progress``).

    Args:
        name: ``"default"`` (``$STCON_MODEL``, else the model that `stcon pull` fetches), a directory, a .gguf file, or
            a hub id.

    Raises:
        ModelUnavailable: there is no such model, or it cannot be fetched or read.
    """
    from stcon.models.load import load_model as load

    return load(name if isinstance(name, str) else Path(name), **options)


def parse_json(text: str | bytes, source: str = "the schema") -> Any:
    """Parse JSON strictly (RFC 8259: UTF-8, no NaN or Infinity). Numbers with a point or an exponent become `Decimal`s.

    Raises:
        InvalidSchema: with line and column. `source` says what was being read.
    """
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(decoded, parse_constant=_refuse_constant, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"{source} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise InvalidSchema(f"{source} is not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise InvalidSchema(f"{source} is nested too deeply to be read") from None
    except (ValueError, ArithmeticError) as error:  # a constant; a number past every range
        raise InvalidSchema(f"{source} is not JSON: {error}") from None


def _as_schema(schema: object) -> Any:
    """A schema as plain Python data."""
    if isinstance(schema, str | bytes):
        return parse_json(schema)
    if isinstance(schema, type) and callable(export := getattr(schema, "model_json_schema", None)):
        return export()
    return schema


def _require_choice(option: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise InvalidOption(f"{option} is one of {', '.join(choices)}, not {given!r}")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
