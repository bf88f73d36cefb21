"""`compile_regex`: a regular expression to a `Grammar`."""

from __future__ import annotations

from typing import Literal

from stcon.automata import compile_pattern, encode_utf8
from stcon.errors import InvalidPattern, Unsatisfiable
from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import DEFAULT_MAX_STATES, Machine


def compile_regex(
    pattern: str, *, dialect: Literal["ecma", "python"] = "python", max_states: int = DEFAULT_MAX_STATES
) -> Grammar:
    """Compile a regular expression; the whole output matches it.

    Args:
        pattern: the expression. Lookaround is supported where the language stays regular; backreferences are refused.
        dialect: what ``\\d \\w \\s . $`` mean: "python" (Unicode, as `re`) or "ecma" (ASCII, as JSON Schema).
        max_states: state budget.

    Raises:
        InvalidPattern, Unsupported, TooLarge: with the position in the pattern.
        Unsatisfiable: no text matches.
    """
    if not isinstance(pattern, str):
        raise InvalidPattern(f"expected a pattern (a string), got {type(pattern).__name__}")
    characters = compile_pattern(pattern, search=False, dialect=dialect)
    if not (characters.labels >= 0).any():
        raise Unsatisfiable("no text matches the pattern")
    dfa = encode_utf8(characters)
    if dfa.num_states == 0 or not (dfa.labels >= 0).any():
        raise Unsatisfiable("no text matches the pattern")
    machine = Machine(max_states=max_states)
    machine.start = machine.add_dfa(dfa) + dfa.start
    return Grammar(machine, kind="regex", source=pattern)
