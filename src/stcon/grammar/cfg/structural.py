r"""Structural tags: free text in which a trigger opens a region with a grammar of its own.

::

    {"triggers": ["<function="],
     "tags": [{"begin": "<function=add>", "end": "</function>", "schema": {…}},
              {"begin": "<function=say>", "end": "</function>", "grammar": "root ::= [a-z]+", "syntax": "gbnf"}],
     "at_least_one": false, "stop_after_first": false}

As soon as free text ends with a trigger, one of the tags that begin with it must follow; its content is a JSON value
(``schema``), a text of a byte-level grammar (``grammar`` with ``syntax`` "gbnf" or "ebnf") or of a regular expression
(``regex``); after its ``end`` the text is free again. Also read: xgrammar's form, ``{"type": "structural_tag",
"format": {"type": "triggered_tags", …}}`` with ``content`` of type ``json_schema``, ``grammar``, ``regex`` or
``any_text`` refused, and the older ``{"structures": [{"begin", "schema", "end"}], "triggers"}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

from stcon.automata import regex
from stcon.errors import InvalidGrammar, TooLarge, Unsupported
from stcon.grammar.cfg.bnf import parse_bnf
from stcon.grammar.cfg.syntax import (
    EMPTY,
    Alternative,
    Choice,
    Embedded,
    Expression,
    Free,
    Pattern,
    Place,
    Reference,
    Repetition,
    Rule,
    Sequence,
    Source,
    check_size,
    literal,
    sequence,
)

MAX_TAGS = 1_000
MAX_TRIGGER = 200

_TOP = Place(1, 1)


def parse_structural_tag(text: str) -> Source:
    """Read a structural tag (JSON). Raises `InvalidGrammar`, `Unsupported`, `TooLarge`."""
    check_size(text)
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise InvalidGrammar(f"the structural tag is not JSON: {error}") from None
    return _Builder(_plain(value)).build()


def _refuse(message: str) -> NoReturn:
    raise InvalidGrammar(f"structural tag: {message}")


def _plain(value: Any) -> Mapping[str, Any]:
    """The one form from the three that are read."""
    if not isinstance(value, dict):
        _refuse("expected an object")
    if value.get("type") == "structural_tag":
        value = value.get("format", value)
    if not isinstance(value, dict) or value.get("type", "triggered_tags") not in ("triggered_tags", "structural_tag"):
        raise Unsupported("a structural tag whose format is not triggered_tags")
    tags = value.get("tags", value.get("structures"))
    return {**value, "tags": tags}


class _Builder:
    def __init__(self, value: Mapping[str, Any]) -> None:
        self.triggers = self._texts(value.get("triggers"), "triggers")
        tags = value.get("tags")
        if not isinstance(tags, list) or not tags or not all(isinstance(tag, dict) for tag in tags):
            _refuse("tags is a list of objects, not empty")
        if len(tags) > MAX_TAGS:
            raise TooLarge("structural tags", given=len(tags), limit=MAX_TAGS)
        self.tags: list[dict[str, Any]] = tags
        self.at_least_one = value.get("at_least_one") is True
        self.stop_after_first = value.get("stop_after_first") is True
        self.source = Source("root")

    @staticmethod
    def _texts(value: Any, name: str) -> list[str]:
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            _refuse(f"{name} is a list of texts, none empty")
        if max(map(len, value)) > MAX_TRIGGER:
            raise TooLarge("characters of a trigger", given=max(map(len, value)), limit=MAX_TRIGGER)
        return [str(text) for text in value]

    def build(self) -> Source:
        bodies: dict[str, list[Expression]] = {}
        for index, tag in enumerate(self.tags):
            begin, end = tag.get("begin"), tag.get("end")
            if not isinstance(begin, str) or not isinstance(end, str):
                _refuse("a tag has a begin and an end")
            # of two triggers, one the beginning of the other, the shorter is met first
            trigger = min((t for t in self.triggers if begin.startswith(t)), key=len, default=None)
            if trigger is None:
                _refuse(f"no trigger is the beginning of {begin!r}")
            rest = [literal(begin[len(trigger) :]), self._content(tag, index), literal(end)]
            bodies.setdefault(trigger, []).append(Sequence(tuple(rest)))
        triggers = tuple(self.triggers)
        options = tuple(Choice(tuple(bodies.get(trigger, ()))) for trigger in triggers)
        self._rule("tag", [Free(triggers, options)])
        free = Free(triggers)
        tagged: Expression = Reference("tag", _TOP)
        if self.stop_after_first:
            self._rule("root", [tagged] if self.at_least_one else [tagged, free])
        else:
            self._rule("root", [Sequence((Repetition(tagged, int(self.at_least_one), None), free))])
        return self.source

    def _rule(self, name: str, options: list[Expression]) -> None:
        self.source.rules[name] = Rule(name, tuple(Alternative(o, name, _TOP) for o in options), _TOP)

    def _content(self, tag: Mapping[str, Any], index: int) -> Expression:
        content = tag.get("content", tag)
        kind = content.get("type") if isinstance(content, dict) else None
        schema = content.get("json_schema", tag.get("schema")) if isinstance(content, dict) else None
        if isinstance(schema, dict | bool):
            self.source.schemas.append(schema)
            return Embedded(len(self.source.schemas) - 1, _TOP)
        pattern = content.get("regex", content.get("pattern")) if isinstance(content, dict) else None
        if isinstance(pattern, str):
            return Pattern(regex.parse(pattern, "python"))
        if isinstance(content, dict) and isinstance(content.get("grammar"), str):
            return self._grammar(content["grammar"], content.get("syntax", "ebnf"), index)
        raise Unsupported(f"structural tag: content of type {kind}; give a schema, a grammar or a regex")

    def _grammar(self, text: str, syntax: str, index: int) -> Expression:
        if syntax not in ("gbnf", "ebnf"):
            raise Unsupported(f"structural tag: a grammar in {syntax}; give gbnf or ebnf")
        inner = parse_bnf(text, syntax=syntax)
        prefix = f"tag-{index}-"
        for name, rule in inner.rules.items():
            renamed = tuple(a._replace(body=_renamed(a.body, prefix)) for a in rule.alternatives)
            self.source.rules[prefix + name] = Rule(prefix + name, renamed, rule.place)
        return Reference(prefix + inner.start, _TOP)


def _renamed(body: Expression, prefix: str) -> Expression:
    if isinstance(body, Reference):
        return Reference(prefix + body.name, body.place)
    if isinstance(body, Sequence):
        return sequence([_renamed(part, prefix) for part in body.parts]) if body.parts else EMPTY
    if isinstance(body, Choice):
        return Choice(tuple(_renamed(option, prefix) for option in body.options))
    if isinstance(body, Repetition):
        return Repetition(_renamed(body.body, prefix), body.low, body.high)
    return body
