"""`compile_pattern`: a regular expression as a complete minimal DFA over code points."""

from __future__ import annotations

from typing import get_args

from stcon.automata import charset
from stcon.automata.budget import DEFAULT_MAX_STATES, Budget
from stcon.automata.determinize import determinize
from stcon.automata.dfa import CharDfa
from stcon.automata.lookaround import determinize_lookaround
from stcon.automata.minimize import minimize
from stcon.automata.nfa import build
from stcon.automata.regex import (
    ANY_TEXT,
    Alternation,
    Anchor,
    AnchorKind,
    Characters,
    Concatenation,
    Dialect,
    Node,
    Repeat,
    parse,
)
from stcon.errors import InvalidOption


def compile_pattern(
    pattern: str, *, search: bool = False, max_states: int = DEFAULT_MAX_STATES, dialect: Dialect = "ecma"
) -> CharDfa:
    """The minimal complete DFA of `pattern`, labels 0 and -1.

    Args:
        pattern: the regular expression, on code points.
        search: False: the texts that `pattern` matches as a whole. True: the texts in which it matches somewhere, as
            JSON Schema's ``pattern`` means it.
        max_states: limit on the DFA's states before minimisation, and on the length of the expanded pattern.
        dialect: which syntax and character classes (see `stcon.automata.regex`).

    Raises:
        InvalidPattern: not a regular expression of the dialect; the message gives the position.
        Unsupported: a construct that is not regular or not handled.
        TooLarge: past a limit on states, nesting or work.

    Cost: milliseconds for everyday patterns; bounded by about two seconds for hostile ones.
    """
    if dialect not in get_args(Dialect):
        raise InvalidOption(f"dialect {dialect!r}: expected one of {', '.join(get_args(Dialect))}")
    budget = Budget(max_states)
    return minimize(compile_tree(parse(pattern, dialect), search, budget))


def compile_tree(node: Node, search: bool, budget: Budget) -> CharDfa:
    """The DFA, not minimised, of a syntax tree. Raises as `compile_pattern`."""
    node = _settle_final_end(node, search)
    if search and not _starts_at_start(node):
        node = Concatenation((ANY_TEXT, node))
    positions = build(node, budget, tail=search)
    return determinize_lookaround(positions, budget) if positions.looks else determinize(positions, budget)


def _starts_at_start(node: Node) -> bool:
    """Whether a match of `node` can only begin at the start of the text."""
    while isinstance(node, Concatenation) and node.parts:
        node = node.parts[0]
    return isinstance(node, Anchor) and node.kind is AnchorKind.START


_SETTLE_DEPTH = 8


def _settle_final_end(node: Node, search: bool, depth: int = 0) -> Node:
    r"""Replace a last ``$`` of Python, which also stands before a newline that ends the text, by what it means there.

    In a search ``$`` and any rest is ``\n?`` and the end; in a full match the rest is empty. A ``$`` elsewhere (or
    deeper than anyone writes it) stays: the automaton's builder turns it into a lookahead, which costs more.
    """
    if isinstance(node, Anchor) and node.kind is AnchorKind.FINAL_END:
        end = Anchor(AnchorKind.END)
        return Concatenation((Repeat(Characters(charset.NEWLINE), 0, 1), end)) if search else end
    if depth < _SETTLE_DEPTH and isinstance(node, Concatenation) and node.parts:
        return Concatenation((*node.parts[:-1], _settle_final_end(node.parts[-1], search, depth + 1)))
    if depth < _SETTLE_DEPTH and isinstance(node, Alternation):
        return Alternation(tuple(_settle_final_end(option, search, depth + 1) for option in node.options))
    return node
