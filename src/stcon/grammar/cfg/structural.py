r"""Structural tags: free text in which a trigger opens a region with a grammar of its own.

::

    {"triggers": ["<function="],
     "tags": [{"begin": "<function=add>", "end": "</function>", "schema": {…}},
              {"begin": "<function=say>", "end": "</function>", "grammar": "root ::= [a-z]+", "syntax": "gbnf"}],
     "at_least_one": false, "stop_after_first": false}

As soon as free text ends with a trigger, one of the tags that begin with it must follow; its content is a JSON value
(``schema``), a text of a byte-level grammar (``grammar`` with ``syntax`` "gbnf" or "ebnf") or of a regular expression
(``regex``); after its ``end`` the text is free again. Also read: xgrammar's form, ``{"type": "structural_tag",
"format": …}`` (below), and the older ``{"structures": [{"begin", "schema", "end"}], "triggers"}``.

Of xgrammar's formats these are read: ``triggered_tags`` at the top, and anywhere ``const_string``, ``json_schema``,
``grammar``, ``regex``, ``sequence``, ``or``, ``optional``, ``star``, ``plus``, ``repeat``, ``tag`` and
``tags_with_separator``; ``any_text`` as the content of a tag, where it ends with the first of the tag's ``end``.
Others, tokens in place of texts, and JSON in other clothes (``style``, ``excludes``, ``any_order``) are refused.
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
    MAX_NESTING,
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
_TIMES: dict[str | None, tuple[int, int | None]] = {"optional": (0, 1), "star": (0, None), "plus": (1, None)}


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
    """The format, or the one form from the two others that are read."""
    if not isinstance(value, dict):
        _refuse("expected an object")
    if value.get("type") == "structural_tag":
        value = value.get("format", value)
    if not isinstance(value, dict):
        _refuse("format is an object")
    return {**value, "tags": value.get("tags", value.get("structures"))}


class _Builder:
    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value
        self.source = Source("root")

    @staticmethod
    def _texts(value: Any, name: str) -> list[str]:
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            _refuse(f"{name} is a list of texts, none empty")
        if max(map(len, value)) > MAX_TRIGGER:
            raise TooLarge("characters of a trigger", given=max(map(len, value)), limit=MAX_TRIGGER)
        return [str(text) for text in value]

    def build(self) -> Source:
        if self.value.get("type", "triggered_tags") in ("triggered_tags", "structural_tag"):
            self._triggered(self.value)
        else:
            self._rule("root", [self._format(self.value, 0)])
        return self.source

    def _triggered(self, value: Mapping[str, Any]) -> None:
        triggers = tuple(self._texts(value.get("triggers"), "triggers"))
        at_least_one, stop_after_first = value.get("at_least_one") is True, value.get("stop_after_first") is True
        excluded = tuple(self._texts(value["excludes"], "excludes")) if value.get("excludes") else ()
        bodies: dict[str, list[Expression]] = {}
        for tag in self._tags(value):
            begin = tag.get("begin")
            if not isinstance(begin, str):
                _refuse("a tag has a begin and an end")
            # of two triggers, one the beginning of the other, the shorter is met first
            trigger = min((t for t in triggers if begin.startswith(t)), key=len, default=None)
            if trigger is None:
                _refuse(f"no trigger is the beginning of {begin!r}")
            bodies.setdefault(trigger, []).append(self._tag({**tag, "begin": begin[len(trigger) :]}, 0))
        # nothing may follow a text that is excluded, so it cannot come
        met = tuple(dict.fromkeys((*triggers, *excluded)))
        options = tuple(Choice(() if text in excluded else tuple(bodies.get(text, ()))) for text in met)
        self._rule("tag", [Free(met, options)])
        free = Free(met)
        tagged: Expression = Reference("tag", _TOP)
        if stop_after_first:
            self._rule("root", [tagged] if at_least_one else [tagged, free])
        else:
            self._rule("root", [Sequence((Repetition(tagged, int(at_least_one), None), free))])

    def _tags(self, value: Mapping[str, Any]) -> list[dict[str, Any]]:
        tags = value.get("tags")
        if not isinstance(tags, list) or not tags or not all(isinstance(tag, dict) for tag in tags):
            _refuse("tags is a list of objects, not empty")
        if len(tags) > MAX_TAGS:
            raise TooLarge("structural tags", given=len(tags), limit=MAX_TAGS)
        return tags

    def _format(self, value: Any, depth: int) -> Expression:
        """xgrammar's formats, but for `_triggered`."""
        if depth > MAX_NESTING:
            raise TooLarge("formats in formats", given=depth, limit=MAX_NESTING)
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "const_string" and isinstance(value.get("value"), str):
            return literal(value["value"])
        if kind in ("sequence", "or"):
            elements = value.get("elements")
            if not isinstance(elements, list) or not elements:
                _refuse(f"the elements of {kind} are a list, not empty")
            parts = tuple(self._format(element, depth + 1) for element in elements)
            return Sequence(parts) if kind == "sequence" else Choice(parts)
        if kind in _TIMES or kind == "repeat":
            low, high = _TIMES[kind] if kind in _TIMES else _times(value)
            return Repetition(self._format(value.get("content"), depth + 1), low, high)
        if kind == "tag":
            return self._tag(value, depth + 1)
        if kind == "tags_with_separator":
            return self._separated(value, depth + 1)
        return self._content(value)

    def _tag(self, tag: Mapping[str, Any], depth: int) -> Expression:
        begin, end = tag.get("begin"), tag.get("end")
        ends: list[Any] = end if isinstance(end, list) and end else [end]
        if not isinstance(begin, str) or not all(isinstance(text, str) for text in ends):
            if isinstance(begin, dict) or any(isinstance(text, dict) for text in ends):
                raise Unsupported("structural tag: a token as begin or end; give its text")
            _refuse("a tag has a begin and an end")
        content = tag.get("content", tag)
        if isinstance(content, dict) and content.get("type") == "any_text" and all(ends):
            if any(content.get(name) for name in ("excludes", "max_tokens", "max_chars")):
                raise Unsupported("structural tag: excludes, max_tokens and max_chars of any_text")
            return Sequence((literal(begin), Free(tuple(ends), (EMPTY,) * len(ends))))
        inner = self._content(content) if content is tag else self._format(content, depth + 1)
        closing = [literal(text) for text in ends]
        return Sequence((literal(begin), inner, closing[0] if len(closing) == 1 else Choice(tuple(closing))))

    def _separated(self, value: Mapping[str, Any], depth: int) -> Expression:
        separator = value.get("separator", "")
        if not isinstance(separator, str):
            _refuse("separator is a text")
        tag: Expression = Choice(tuple(self._tag(tag, depth) for tag in self._tags(value)))
        if value.get("stop_after_first") is not True:
            more = Sequence((literal(separator), tag)) if separator else tag
            tag = Sequence((tag, Repetition(more, 0, None)))
        return tag if value.get("at_least_one") is True else Repetition(tag, 0, 1)

    def _rule(self, name: str, options: list[Expression]) -> None:
        self.source.rules[name] = Rule(name, tuple(Alternative(o, name, _TOP) for o in options), _TOP)

    def _content(self, content: Any) -> Expression:
        if not isinstance(content, dict):
            _refuse("content is an object")
        schema = content.get("json_schema", content.get("schema"))
        if isinstance(schema, dict | bool):
            if content.get("style", "json") != "json" or content.get("excludes") or content.get("any_order"):
                raise Unsupported("structural tag: a schema with a style other than json, excludes or any_order")
            self.source.schemas.append(schema)
            return Embedded(len(self.source.schemas) - 1, _TOP)
        pattern = content.get("regex", content.get("pattern"))
        if isinstance(pattern, str):
            return Pattern(regex.parse(pattern, "python"))
        if isinstance(content.get("grammar"), str):
            return self._grammar(content["grammar"], content.get("syntax", "ebnf"), len(self.source.rules))
        kind = content.get("type")
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


def _times(value: Mapping[str, Any]) -> tuple[int, int | None]:
    low, high = value.get("min"), value.get("max")
    if not isinstance(low, int) or not isinstance(high, int) or low < 0 or (high != -1 and high < low):
        _refuse("repeat has a min and a max, which is -1 for none")
    return low, None if high == -1 else high


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
