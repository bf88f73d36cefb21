"""What a text means by a JSON Schema, from the library jsonschema; and random walks of a machine."""

from __future__ import annotations

import decimal
import json
import random
import re
from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from stcon.grammar.history import EMPTY
from stcon.grammar.liveness import advance
from stcon.grammar.machine import STACK_CAP, Configuration, Machine

WHITESPACE = {
    "compact": {"separators": (",", ":")},
    "json": {},
    "pretty": {"indent": 2},
    "flexible": {"indent": 1},
}

_CLOSERS = b'"}],:0e l'


def validator(schema: Any, **options: Any) -> Any:
    """The validator of the draft that ``$schema`` names, 2020-12 without one; nothing is fetched.

    Numbers are exact: floats of the schema become decimals, and instances may hold decimals (see `parse`). Patterns
    mean what they mean in ECMA's dialect.
    """
    chosen = validator_for(schema, default=jsonschema.Draft202012Validator)
    if chosen is not jsonschema.Draft4Validator:  # where 1.0 is an integer
        checker = chosen.TYPE_CHECKER.redefine("integer", _is_integer)
        chosen = jsonschema.validators.extend(chosen, type_checker=checker)
    return chosen(exact(with_ecma_patterns(schema)), **options)


def _is_integer(checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def with_ecma_patterns(schema: Any) -> Any:
    """`schema` with its patterns rewritten so that Python reads them as ECMA does."""
    if isinstance(schema, list):
        return [with_ecma_patterns(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    done = {}
    for keyword, value in schema.items():
        if keyword == "pattern" and isinstance(value, str):
            done[keyword] = ecma(value)
        elif keyword == "patternProperties":
            done[keyword] = {ecma(pattern): with_ecma_patterns(part) for pattern, part in value.items()}
        elif keyword in ("properties", "$defs", "definitions", "dependencies", "dependentSchemas"):
            done[keyword] = {name: with_ecma_patterns(part) for name, part in value.items()}
        else:
            done[keyword] = value if keyword in ("const", "enum", "default") else with_ecma_patterns(value)
    return done


_ECMA = {".": r"[^\n\r\u2028\u2029]", "$": r"\Z", r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[A-Za-z0-9_]"}
_ECMA_IN_CLASS = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
_TOKEN = re.compile(r"\\.|\[\^?|\]|.", re.DOTALL)


def ecma(pattern: str) -> str:
    """`pattern` with what the two dialects read differently spelled out: dot, end, digits, word characters."""
    done, in_class = [], False
    for token in _TOKEN.findall(pattern):
        if not in_class:
            in_class = token in ("[", "[^")
            done.append(_ECMA.get(token, token))
        else:
            in_class = token != "]"
            done.append(_ECMA_IN_CLASS.get(token, "\\[" if token == "[" else "\\[^" if token == "[^" else token))
    return "".join(done)


def exact(value: Any) -> Any:
    """`value` with its floats as the decimals that they print as."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    return [exact(inner) for inner in value] if isinstance(value, list) else value


def parse(text: str | bytes) -> Any:
    """The JSON value of a text, fractions and exponents as decimals."""
    return json.loads(text, parse_float=Decimal)


def is_valid(oracle: Any, value: Any) -> bool | None:
    """jsonschema's verdict; None where it gives none (endless recursion)."""
    try:
        with decimal.localcontext() as context:
            context.prec = 1_500
            return bool(oracle.is_valid(exact(value)))
    except RecursionError:
        return None


def spell(value: Any, whitespace: str) -> str:
    """The canonical text of `value` in a whitespace setting."""
    return json.dumps(value, ensure_ascii=False, **WHITESPACE[whitespace])  # type: ignore[arg-type]


def has_integral_float(value: Any) -> bool:
    """Whether a number in `value` prints as 1.0 or the like, which may be refused where 1 is meant."""
    if isinstance(value, float):
        return value == int(value)
    if isinstance(value, dict):
        return any(map(has_integral_float, value.values()))
    return isinstance(value, list) and any(map(has_integral_float, value))


class DeadEnd(AssertionError):
    """A place that neither accepts nor has a live byte."""


def walk(machine: Machine, source: random.Random, *, steps: int = 60, patience: int = 400) -> bytes | None:
    """A random text, under history constraints too: `steps` free bytes, then closing ones where they are live.

    Returns:
        an accepted text, or None if after `patience` bytes none has ended.

    Raises:
        DeadEnd: neither accepting nor live.
    """
    config, history = machine.initial(), EMPTY
    text = bytearray()
    for step in range(patience):
        accepting = machine.accepts(config)
        if accepting and (step >= steps or source.random() < 0.3):
            return bytes(text)
        for byte in _order(source, closing=step >= steps):
            following = advance(machine, config, history, byte)
            if following is not None:
                config, history = following
                text.append(byte)
                break
        else:
            if accepting:
                return bytes(text)
            if len(config.stack) > STACK_CAP - 4:
                return None  # the language is cut at the stack's cap, not trim there
            raise DeadEnd(bytes(text))
    return None


def _order(source: random.Random, *, closing: bool) -> Iterator[int]:
    """All bytes: the closing ones first (or often so), then printable ones, then the rest."""
    closers, letters = list(_CLOSERS), [*range(0x20, 0x7F)]
    source.shuffle(letters)
    if not closing:
        source.shuffle(closers)
    if closing or source.random() < 0.6:
        yield from closers
    yield from letters
    rest = [*range(0x20), *range(0x7F, 256)]
    source.shuffle(rest)
    yield from rest
    yield from closers


def paths(machine: Machine, limit: int) -> Iterator[tuple[bytes, Configuration]]:
    """Every text of at most `limit` bytes that can be read, with where it leads."""
    level = [(b"", machine.initial())]
    for _ in range(limit + 1):
        yield from level
        level = [
            (text + bytes([byte]), following)
            for text, config in level
            for byte in machine.live(config)
            if (following := machine.step(config, byte)) is not None
        ]


def repeated_names(text: str) -> set[str]:
    """Names that some object in a JSON text holds more than once."""
    found: set[str] = set()

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        found.update(name for name in names if names.count(name) > 1)
        return dict(pairs)

    json.loads(text, object_pairs_hook=collect)
    return found


def differing_text(first: Machine, second: Machine, limit: int) -> bytes | None:
    """A text after which one machine can go on or end and the other cannot; None if none is found.

    Breadth first over pairs of configurations, one byte of each class of both; at most `limit` pairs.
    """
    start = (first.initial(), second.initial())
    seen = {start}
    pending = deque([(start, b"")])
    while pending:
        (left, right), text = pending.popleft()
        if first.accepts(left) != second.accepts(right):
            return text
        tried: set[tuple[int, int]] = set()
        for byte in range(256):
            classes = (int(first.byte_class[byte]), int(second.byte_class[byte]))
            if classes in tried:
                continue
            after = (first.step(left, byte), second.step(right, byte))
            tried.add((int(first.byte_class[byte]), int(second.byte_class[byte])))  # building may have split a class
            if (after[0] is None) != (after[1] is None):
                return text + bytes([byte])
            if after[0] is not None and after[1] is not None and after not in seen and len(seen) < limit:
                pair = (after[0], after[1])
                seen.add(pair)
                pending.append((pair, text + bytes([byte])))
    return None
