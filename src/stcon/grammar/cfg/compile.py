"""`compile_grammar`: a context-free grammar to a `Grammar`."""

from __future__ import annotations

from typing import Literal, get_args

from stcon.errors import InvalidGrammar, InvalidOption, Unsupported
from stcon.grammar.cfg.brackets import with_brackets
from stcon.grammar.cfg.conflict import describe
from stcon.grammar.cfg.determine import Undecided, determine
from stcon.grammar.cfg.embedded import bytes_after, compile_embedded, first_bytes
from stcon.grammar.cfg.emit import emit
from stcon.grammar.cfg.frames import Task
from stcon.grammar.cfg.grammar import StackSetGrammar
from stcon.grammar.cfg.lexer import Lexer
from stcon.grammar.cfg.networks import Networks
from stcon.grammar.cfg.normal import normalize, open_calls, set_first
from stcon.grammar.cfg.pushdown import Pushdown
from stcon.grammar.cfg.regular import collapse
from stcon.grammar.cfg.stacks import StackSetMachine
from stcon.grammar.cfg.syntax import Source
from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import DEFAULT_MAX_STATES, Machine

Syntax = Literal["gbnf", "ebnf", "lark", "structural_tag"]
Strategy = Literal["auto", "deterministic", "stacks"]


def compile_grammar(
    text: str,
    *,
    syntax: Syntax,
    start: str | None = None,
    strategy: Strategy = "auto",
    whitespace: Literal["compact", "json", "pretty", "flexible"] = "flexible",
    max_states: int = DEFAULT_MAX_STATES,
) -> Grammar:
    """Compile a context-free grammar; the whole output is one of its texts.

    Args:
        text: the grammar.
        syntax: "gbnf" (llama.cpp), "ebnf" (W3C, as xgrammar has it), "lark" (as llguidance has it), or
            "structural_tag" (JSON: triggers, and tags with their own grammars).
        start: the start rule; None: ``root``, in Lark ``start``.
        strategy: "auto": the deterministic machine where there is one, else sets of stacks (CPU only);
            "deterministic": refuse where there is none; "stacks": sets of stacks in any case.
        whitespace: of embedded JSON values (``%json``), as in `compile_json_schema`.
        max_states: state budget of the machine.

    Returns:
        A `Grammar`; its `conflict` says why it is not deterministic, or is None.

    Raises:
        InvalidGrammar: not a grammar of the syntax, with line and column.
        Unsupported: a construct that is refused; with "deterministic", the conflict.
        Unsatisfiable: no text belongs to the language.
        TooLarge: past a limit.

    Cost: milliseconds for everyday grammars, a few seconds at most for any.
    """
    _require("syntax", syntax, get_args(Syntax))
    _require("strategy", strategy, get_args(Strategy))
    if not isinstance(text, str):
        raise InvalidGrammar(f"expected a grammar (a string), got {type(text).__name__}")
    return compile_source(
        parse(text, syntax, start), strategy=strategy, whitespace=whitespace, max_states=max_states, text=text
    )


def parse(text: str, syntax: Syntax, start: str | None = None) -> Source:
    """The grammar as read. Raises as `compile_grammar`."""
    if syntax in ("gbnf", "ebnf"):
        from stcon.grammar.cfg.bnf import parse_bnf

        return parse_bnf(text, syntax=syntax, start=start or "root")
    if syntax == "lark":
        from stcon.grammar.cfg.lark import parse_lark

        return parse_lark(text, start=start or "start")
    from stcon.grammar.cfg.structural import parse_structural_tag

    return parse_structural_tag(text)


def compile_source(
    source: Source,
    *,
    strategy: Strategy,
    whitespace: str,
    max_states: int = DEFAULT_MAX_STATES,
    text: object = None,
    embedded: list[Machine] | None = None,
) -> Grammar:
    """As `compile_grammar`, of a grammar as read; `embedded` has the machines of its schemas if they are compiled."""
    lexer = Lexer(source)
    if embedded is None:
        embedded = compile_embedded(source.schemas, whitespace)
    first = [first_bytes(machine) for machine in embedded]
    pushdown = _normal(source, lexer, first)
    undecided = Undecided("asked", None)
    if strategy != "stacks":
        more = [bytes_after(machine) for machine in embedded]
        plain = Task(_collapsed(pushdown, lexer, first), lexer, first, more)
        changed = with_brackets(source)
        bracketed = plain
        if changed is not source:
            opened = _normal(changed, lexer, first)
            open_calls(opened)
            bracketed = plain._replace(pushdown=_collapsed(opened, lexer, first))
        found = determine(plain, bracketed)
        if not isinstance(found, Undecided):
            return Grammar(emit(found, embedded, max_states), kind="grammar", source=text)
        undecided = found
    conflict = describe(undecided, pushdown, StackSetMachine(pushdown, lexer))
    if strategy == "deterministic":
        raise Unsupported(
            f"the grammar is not deterministic: {conflict}", advice="make its alternatives differ earlier"
        )
    if embedded:
        raise Unsupported(
            f"JSON values in a grammar that is not deterministic: {conflict}",
            advice="make its alternatives differ before the value",
        )
    return StackSetGrammar(pushdown, lexer, conflict, source=text, max_states=max_states)


def _normal(source: Source, lexer: Lexer, first: list[int]) -> Pushdown:
    networks = Networks(source)
    pushdown = normalize(networks, networks.number[source.start], lexer.nullable)
    set_first(pushdown, lexer.first, first)
    return pushdown


def _collapsed(pushdown: Pushdown, lexer: Lexer, first: list[int]) -> Pushdown:
    collapse(pushdown, lexer)
    set_first(pushdown, lexer.first, first)
    return pushdown


def _require(option: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise InvalidOption(f"{option} is one of {', '.join(choices)}, not {given!r}")
