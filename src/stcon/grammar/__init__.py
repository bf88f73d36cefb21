"""Front ends that compile to the control machine.

`compile_json_schema`, `compile_regex` and `compile_grammar` give a `Grammar`, which wraps the `Machine` that every
kernel walks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stcon.grammar.cfg.compile import compile_grammar
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.json_schema.compile import compile_json_schema
    from stcon.grammar.machine import Configuration, Machine
    from stcon.grammar.regex import compile_regex

__all__ = ["Configuration", "Grammar", "Machine", "compile_grammar", "compile_json_schema", "compile_regex"]

_HOMES = {
    "Configuration": "stcon.grammar.machine",
    "Grammar": "stcon.grammar.grammar",
    "Machine": "stcon.grammar.machine",
    "compile_grammar": "stcon.grammar.cfg.compile",
    "compile_json_schema": "stcon.grammar.json_schema.compile",
    "compile_regex": "stcon.grammar.regex",
}


def __getattr__(name: str) -> Any:
    """Import on use: the front ends pull in libraries that a caller of one of them need not have loaded."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
