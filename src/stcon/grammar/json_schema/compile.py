"""`compile_json_schema`: a JSON Schema to a `Grammar`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from stcon.errors import GrammarError, InvalidOption, InvalidSchema, TooLarge
from stcon.grammar.grammar import Grammar
from stcon.grammar.json_schema.builder import KeyOrder, MachineBuilder, Options
from stcon.grammar.json_schema.check import check_reachable
from stcon.grammar.json_schema.formats import FORMATS
from stcon.grammar.json_schema.formula import Formulas
from stcon.grammar.json_schema.keywords import Expander
from stcon.grammar.json_schema.layout import MAX_WHITESPACE, Layout, Whitespace
from stcon.grammar.json_schema.places import crowded
from stcon.grammar.json_schema.residual import Residuals
from stcon.grammar.json_schema.satisfy import Satisfiability
from stcon.grammar.json_schema.schema import MAX_EXPONENT, SchemaNode, Schemas, check_json
from stcon.grammar.json_schema.strings import Escapes, StringLanguages
from stcon.grammar.machine import DEFAULT_MAX_STATES

ROWS_AHEAD = 300
STEPS_AHEAD = 2_000


def compile_json_schema(
    schema: str | bytes | bool | Mapping[str, Any],
    *,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    closed: bool = True,
    escapes: Escapes = "minimal",
    format: Literal["assert", "annotation"] = "assert",
    documents: Mapping[str, Any] | None = None,
    indent: int = 2,
    max_whitespace: int = MAX_WHITESPACE,
    whitespace_pattern: str | None = None,
    max_states: int = DEFAULT_MAX_STATES,
    words: tuple[bytes, bytes, bytes] = (b"null", b"true", b"false"),
) -> Grammar:
    """Compile a JSON Schema (2020-12, and older drafts by ``$schema`` or by shape) to a grammar.

    Every keyword that constrains is enforced exactly or refused. Texts that spell a valid value otherwise than the
    options say may be refused (docs/departures.md); an invalid value is never accepted.

    Args:
        schema: the schema, as text or parsed. Text keeps numbers exact; parsed floats mean their shortest spelling.
        whitespace: "compact" ``{"a":1}``, "json" ``{"a": 1}``, "pretty" (a line a member, as `json.dumps` with an
            indent), or "flexible" (bounded, wherever JSON allows it before the end).
        key_order: "schema" (the order of ``properties``; then other names in any order), or "any".
        closed: an object that lists ``properties`` and says nothing of other names takes none. Narrower than the
            schema, never wider; leave it off to check documents.
        escapes: "minimal", or "any": every character may also be written ``\\uXXXX``.
        format: whether known formats are enforced; unknown ones never are.
        documents: URI → schema, for references to other documents. Nothing is fetched.
        indent: spaces a level of "pretty".
        max_whitespace: the longest run of "flexible" whitespace.
        whitespace_pattern: a regular expression that every gap matches, instead of a named style.
        max_states: state budget of the machine.
        words: how null, true and false are written, for notations that are JSON but for them. Texts are not JSON then:
            the grammar is for embedding.

    Raises:
        InvalidSchema, InvalidPattern, Unsupported, Unsatisfiable, TooLarge: with the JSON pointer of the place.

    Cost: the schema is looked at once; states are built when first read.
    """
    _require(key_order in ("schema", "any"), "key_order", key_order, "schema or any")
    _require(escapes in ("minimal", "any"), "escapes", escapes, "minimal or any")
    _require(format in ("assert", "annotation"), "format", format, "assert or annotation")
    _require(isinstance(closed, bool), "closed", closed, "True or False")
    _require(
        isinstance(max_states, int) and max_states > 0 and not isinstance(max_states, bool),
        "max_states",
        max_states,
        "a positive integer",
    )
    _require_documents(documents)
    layout = Layout.of(whitespace, indent=indent, pattern=whitespace_pattern, longest_run=max_whitespace)
    options = Options(layout, key_order, escapes, closed, max_states, words)
    contents = _parse(schema)
    try:
        check_json(contents)
        schemas = Schemas(contents, documents)
        formulas = Formulas()
        expander = Expander(formulas, schemas, frozenset(FORMATS) if format == "assert" else frozenset())
        sat = Satisfiability(Residuals(expander), StringLanguages(formulas, escapes), closed=closed)
        nodes = check_reachable(sat, schemas.root)
        builder, root = MachineBuilder(sat, options), expander.schema(schemas.root)
        machine = builder.build(root)
        place = crowded(sat, nodes)
        if place is not None:
            _look_ahead(builder, place)
        sat.effort.strict = False
    except RecursionError:
        raise TooLarge("nesting of the schema", given=1000, limit=200, pointer="", advice="flatten it") from None
    except GrammarError as error:
        if error.pointer is None:
            error.at("")
        raise
    return Grammar(machine, kind="json", source=contents, renew=lambda: MachineBuilder(sat, options).build(root))


def _look_ahead(builder: MachineBuilder, place: SchemaNode) -> None:
    """Build rows of a machine in which something might be too large at `place`, and refuse it if something is."""
    try:
        builder.build_ahead(ROWS_AHEAD, STEPS_AHEAD)
    except GrammarError as error:
        raise error if error.pointer is not None else error.at(place.pointer) from None


def _parse(schema: str | bytes | bool | Mapping[str, Any]) -> Any:
    if isinstance(schema, (str, bytes)):
        try:
            return json.loads(schema, parse_float=Decimal, parse_int=_integer, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise InvalidSchema(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
        except UnicodeDecodeError as error:
            raise InvalidSchema(f"not UTF-8: {error.reason} at byte {error.start}") from None
        except RecursionError:
            raise TooLarge("nesting of the schema", given=1000, limit=400, pointer="") from None
        except ValueError as error:
            raise InvalidSchema(f"not JSON: {error}") from None
    if isinstance(schema, (bool, dict)):
        return schema
    if isinstance(schema, Mapping):
        return dict(schema)
    raise InvalidSchema(f"expected a schema (an object or a boolean), got {type(schema).__name__}", pointer="")


def _integer(text: str) -> int:
    if len(text) > 2 * MAX_EXPONENT:  # Python refuses to read much longer ones
        raise TooLarge("digits of a number", given=len(text), limit=2 * MAX_EXPONENT, pointer="")
    return int(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _require_documents(documents: object) -> None:
    """Refuse supplied documents that are not schemas by URI."""
    if documents is None:
        return
    if not isinstance(documents, Mapping) or not all(isinstance(uri, str) for uri in documents):
        raise InvalidOption(f"documents must map URIs to schemas, not be {type(documents).__name__}")
    for uri, document in documents.items():
        if not isinstance(document, (dict, bool)):
            raise InvalidOption(f"documents[{uri!r}] must be a schema (an object or a boolean)")
        check_json(document)


def _require(condition: bool, option: str, given: object, expected: str) -> None:
    if not condition:
        raise InvalidOption(f"{option} must be {expected}, not {given!r}")
