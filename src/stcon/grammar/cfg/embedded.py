"""JSON values inside a grammar: machines of `compile_json_schema`, built whole and copied into its machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stcon.errors import Unsupported
from stcon.grammar.machine import DEAD, END, Machine

MAX_STATES = 20_000
PYTHON_WORDS = (b"None", b"True", b"False")


def compile_embedded(
    schemas: list[Mapping[str, Any] | bool], whitespace: str, *, as_python: bool = False
) -> list[Machine]:
    """The machines of the schemas, whole.

    Args:
        schemas: of the values.
        whitespace: as in `compile_json_schema`.
        as_python: values are Python's literals, which are JSON but for three words.

    Raises:
        GrammarError: as `compile_json_schema`; `TooLarge` past `MAX_STATES`.
    """
    more: dict[str, Any] = {"words": PYTHON_WORDS} if as_python else {}
    from stcon.grammar.json_schema.compile import compile_json_schema

    machines = []
    for schema in schemas:
        machine = compile_json_schema(schema, whitespace=whitespace, max_states=MAX_STATES, **more).machine  # type: ignore[arg-type]
        machine.build_all()
        if as_python and any(mark & END for mark in machine.marks.values()):
            raise Unsupported(  # what was written is remembered as JSON
                "a schema whose items or names may not repeat, in a call that is written as Python's",
                advice="name the properties and close the object (additionalProperties: false)",
            )
        machines.append(machine)
    return machines


def first_bytes(machine: Machine) -> int:
    """The bytes with which a text can begin, as a bit set; spaces before it are the grammar's."""
    row = machine.row(machine.start)[machine.byte_class]
    return sum(1 << byte for byte in range(256) if row[byte] != DEAD and byte not in b" \t\n\r")


def bytes_after(machine: Machine) -> int:
    """Bytes with which a text that could end may go on (too many, rather than too few)."""
    more = 0
    for state in range(machine.num_states):
        if machine.label(state) >= 0 and not machine.is_final(state):
            row = machine.row(state)[machine.byte_class]
            more |= sum(1 << byte for byte in range(256) if row[byte] != DEAD)
    return more
