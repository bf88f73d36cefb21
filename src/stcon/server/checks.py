"""``/v1/grammar/check``: what a body's constraint became, and how far a text keeps to it. The model is not asked.

The constraint is compiled anew and built as far as a budget goes, so that looking at it changes nothing for the
requests that decode under it. With ``text``, a JSON Schema is read as for checking documents (any order of names, any
whitespace, names that it does not list), so that a text is not blamed for how it is laid out.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from stcon.errors import GrammarError, RequestError
from stcon.server.grammars import Grammars
from stcon.server.refusals import BadRequest
from stcon.server.requests import body_constraints, body_grammar

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

MAX_BUILT = 50_000  # states
MAX_BUILD_S = 2.0
MAX_TEXT = 1 << 20  # bytes


def grammar_report(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """The facts of a body's constraint.

    Args:
        body: of a chat or text completion; ``text`` may be added.
        model: its chat template decides how tools are called.

    Returns:
        ``kind``; ``states`` and ``bytes`` of the machine as built so far, ``whole`` if that is all of it; ``shortest``,
        a shortest text (None where the machine is not whole); with ``text``: ``valid``, and ``characters``, how many of
        its characters can begin a valid text.

    Raises:
        BadRequest: there is no constraint, it does not compile, or `text` is no text.

    Cost: at most `MAX_BUILT` states and `MAX_BUILD_S` seconds beside the compilation; a step a byte of the text.
    """
    grammar = body_grammar(body, model, Grammars(1))
    if grammar is None:
        raise BadRequest("no constraint: give response_format, tools, structured_outputs or guided_…", None)
    whole = _build(grammar)
    report: dict[str, Any] = {"object": "grammar", "kind": grammar.kind}
    report |= {"states": grammar.num_states, "bytes": grammar.nbytes}
    report |= {"whole": whole, "shortest": _shortest(grammar) if whole else None}
    if body.get("text") is not None:
        report["text"] = _reading(body, grammar)
    return report


def _build(grammar: Grammar) -> bool:
    """Build rows within the budget; whether that was all of them."""
    if grammar.conflict is not None:
        return False
    machine, state, started = grammar.machine, 0, perf_counter()
    while state < machine.num_states:
        if machine.num_states > MAX_BUILT or perf_counter() - started > MAX_BUILD_S:
            return False
        machine.build(state)
        state += 1
    return True


def _shortest(grammar: Grammar) -> str | None:
    try:
        return grammar.shortest()
    except RequestError:  # a bound that only a long search would meet
        return None


def _reading(body: Mapping[str, Any], grammar: Grammar) -> dict[str, Any]:
    text = body["text"]
    if not isinstance(text, str):
        raise BadRequest(f"text: expected a text, got {type(text).__name__}", "text")
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_TEXT:
        raise BadRequest(f"text: at most {MAX_TEXT:,} bytes", "text")
    grammar = _for_documents(body) or grammar
    return {"valid": grammar.accepts(data), "characters": _live_characters(grammar, data)}


def _for_documents(body: Mapping[str, Any]) -> Grammar | None:
    """The body's JSON Schema as it is meant for checking documents; None where there is none."""
    from stcon.api import compile as compile_schema

    found = [] if body.get("tools") else body_constraints(body)
    if len(found) != 1 or found[0][1] != "schema":
        return None
    try:
        return compile_schema(found[0][2], whitespace="flexible", key_order="any", closed=False)
    except GrammarError:  # what is enforced in one order of names need not be in any
        return None


def _live_characters(grammar: Grammar, data: bytes) -> int:
    """How many characters of `data` can begin a text of the grammar."""
    machine = grammar.machine
    config, length = machine.initial(), 0
    for byte in data:
        following = machine.step(config, byte)
        if following is None:
            break
        config, length = following, length + 1
    return len(data[:length].decode("utf-8", "ignore"))
