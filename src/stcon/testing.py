"""The offline accept test: does a text, or a model's output, belong to a grammar, and if not, where and why not?

>>> import stcon
>>> from stcon.testing import accepts
>>> grammar = stcon.compile({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]})
>>> bool(accepts(grammar, None, '{"age":34}'))
True
>>> print(accepts(grammar, None, '{"age":"old"}'))
line 1, column 8: expected a number, found "old", at #/age

No model is needed. With a tokenizer the text is also read as decoding would write it, token by token under masks, so
that a test of an integration need not borrow another engine's helpers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption

_MARKS = (b"", *(bytes((byte,)) for byte in b"{}[],: \n\r\t"))

if TYPE_CHECKING:
    from stcon.grammar.expected import Point
    from stcon.grammar.grammar import Grammar
    from stcon.grammar.machine import Machine
    from stcon.vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Refusal:
    """Where a text leaves the grammar.

    Attributes:
        offset: the first byte that may not follow; the text's length where it ends too soon.
        line, column: the same for people, from 1; columns count characters.
        found: what is there.
        expected: what may be there: names, kinds of values, bytes.
        pointer: JSON pointer of the place in the document; None where the grammar is not one of JSON.
        reason: one line, without the place in the file.
        token: index of the token that is not admitted; None without a tokenizer, or where the text itself is refused.
    """

    offset: int
    line: int
    column: int
    found: str
    expected: tuple[str, ...]
    pointer: str | None
    reason: str
    token: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}"


@dataclass(frozen=True)
class Verdict:
    """The answer of `accepts`; true if the text is accepted.

    Attributes:
        refusal: why not; None if it is.
        tokens: the tokens it was read as, if there was a tokenizer; an end token is not among them.
    """

    refusal: Refusal | None
    tokens: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return self.refusal is None

    def __str__(self) -> str:
        return "accepted" if self.refusal is None else str(self.refusal)


def accepts(grammar: Any, tokenizer: Any, text: str | bytes | Sequence[int]) -> Verdict:
    """Whether `text` belongs to `grammar`.

    Args:
        grammar: a `Grammar`, or a JSON Schema as `stcon.compile` takes it (then read as for generation).
        tokenizer: a fast tokenizer of transformers, a `tokenizers.Tokenizer`, or a `Vocabulary`: the text is also read
            token by token, in the tokenizer's split. None: only as bytes.
        text: the text, or the ids that a model wrote (needs a tokenizer); end tokens at their end are left out.

    Raises:
        GrammarError: the schema does not compile.
        InvalidOption: ids without a tokenizer, or ids that the vocabulary does not have.

    Cost: one or two steps of the machine a byte; with a tokenizer, a mask a token.
    """
    from stcon.vocab.shared import vocabulary_of

    grammar = _grammar(grammar)
    vocabulary = None if tokenizer is None else vocabulary_of(tokenizer)
    if isinstance(text, str | bytes):
        data, tokens = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, None
    else:
        data, tokens = _spelled(text, vocabulary)
    refusal = refusal_of(grammar, data)
    if refusal is None and vocabulary is not None:
        tokens = _encoded(vocabulary, data) if tokens is None else tokens
        if tokens is None:
            return Verdict(_refusal(data, 0, "the text", (), None, "the vocabulary has no tokens that spell the text"))
        refusal = _token_refusal(grammar, vocabulary, data, tokens)
    return Verdict(refusal, None if tokens is None else tuple(tokens))


def refusal_of(grammar: Grammar, data: bytes) -> Refusal | None:
    """Where `data` leaves `grammar`, read as bytes; None if it belongs to it."""
    from stcon.grammar.expected import Point
    from stcon.grammar.history import EMPTY, observe

    machine = grammar.machine
    point = Point(machine.initial(), EMPTY)
    for offset, byte in enumerate(data):
        following = observe(machine, *point, (byte,))
        if following is None:
            return _explained(grammar, machine, data, offset, point)
        point = Point(*following)
    return None if machine.accepts(point.config) else _explained(grammar, machine, data, len(data), point)


def _explained(grammar: Grammar, machine: Machine, data: bytes, offset: int, point: Point) -> Refusal:
    """The refusal of ``data[offset]`` (or of the end) at `point`, where the reading stands before it."""
    from stcon.grammar.expected import SPACES, expected_bytes, expected_values, finite_strings, json_place, shown

    if grammar.kind != "json":
        found = _found(data, offset, offset)
        expected = tuple(expected_bytes(machine, point))
        return _refusal(data, offset, found, expected, None, f"expected {_either(expected)}, found {found}")
    place = json_place(data[:offset])
    start = offset if place.token is None else place.token
    found = _found(data, start, offset)
    where = f", at #{place.pointer}"
    if offset < len(data) and machine.step(point.config, data[offset]) is not None:
        what = "name" if place.is_name else "item"
        reason = f"the {what} {found} is there a second time{where}"
        return _refusal(data, offset, found, (), place.pointer, reason)
    is_word = place.token is not None and data[start] != ord('"')
    if place.token is None or (is_word and data[offset : offset + 1] in _MARKS):
        expected = tuple(expected_values(machine, point, is_name=place.is_name, in_number=is_word))
        found = _found(data, offset, offset)
        reason = f"expected {_either(expected)}, found {found}{where}"
        return _refusal(data, offset, found, expected, place.pointer, reason)
    if place.is_name and offset < len(data) and data[offset] == ord('"'):
        reason = f"the name {found} may not come here: it is there already, or not allowed{where}"
        return _refusal(data, offset, found, (), place.pointer, reason)
    strings = finite_strings(machine, _point_at(machine, data[:start])) if data[start : start + 1] == b'"' else None
    if strings is not None:
        expected = tuple(map(shown, strings))
        reason = f"expected {_either(expected)}, found {found}{where}"
    else:
        ignored = SPACES if is_word else b""
        expected = tuple(expected_bytes(machine, point, ignored=ignored))
        reason = f"in {found}: expected {_either(expected)} after {shown(data[start:offset])}{where}"
    return _refusal(data, offset, found, expected, place.pointer, reason)


def _point_at(machine: Machine, prefix: bytes) -> Point:
    """Where the reading of `prefix`, the beginning of a text, stands."""
    from stcon.grammar.expected import Point
    from stcon.grammar.history import EMPTY, observe

    reached = observe(machine, machine.initial(), EMPTY, prefix)
    assert reached is not None, "what was read once can be read again"
    return Point(*reached)


def _token_refusal(grammar: Grammar, vocabulary: Vocabulary, data: bytes, tokens: Sequence[int]) -> Refusal | None:
    """Where the masks do not admit `tokens`, which spell the accepted text `data`; None if they do."""
    from stcon.constraint.matcher import Matcher

    matcher, offset = Matcher(grammar, vocabulary, policy="none"), 0
    for index, token in enumerate(tokens):
        words = matcher.bitmask()
        piece = vocabulary.token_bytes(token) or b""
        if not words[token >> 5] >> (token & 31) & 1 or not matcher.accept(token):
            reason = f"token {index} ({token}, {piece!r}) is not admitted, though the text is accepted"
            return _refusal(data, offset, repr(piece), (), None, reason, index)
        offset += len(piece)
    if not any(matcher.bitmask()[end >> 5] >> (end & 31) & 1 for end in vocabulary.end_ids):
        return _refusal(data, offset, "the end of the text", (), None, "no end token is admitted here", len(tokens))
    return None


# ------------------------------------------------------------------------------------------------- inputs


def _grammar(given: Any) -> Grammar:
    import stcon

    if isinstance(given, stcon.Grammar):
        return given
    if isinstance(given, bool | Mapping | type):
        return stcon.compile(given)
    raise InvalidOption(f"a grammar or a JSON Schema is expected, not {type(given).__name__}; compile it first")


def _spelled(tokens: Sequence[int], vocabulary: Vocabulary | None) -> tuple[bytes, list[int]]:
    """The bytes of a model's output, and its tokens without those that end it."""
    if vocabulary is None:
        raise InvalidOption("ids are read with a tokenizer; give one")
    kept = [int(token) for token in tokens]
    if wrong := [token for token in kept if not 0 <= token < vocabulary.size]:
        raise InvalidOption(f"token {wrong[0]} is not in 0..{vocabulary.size - 1}")
    while kept and kept[-1] in vocabulary.end_ids:
        kept.pop()
    return vocabulary.decode(kept), kept


def _encoded(vocabulary: Vocabulary, data: bytes) -> list[int] | None:
    """The tokenizer's split of `data`; None if no tokens spell it."""
    try:
        tokens = vocabulary.encode_bytes(data)
    except (ValueError, InvalidOption):  # not UTF-8, or a byte without a token
        return None
    return tokens if vocabulary.spells(tokens, data) else None


# ------------------------------------------------------------------------------------------------- wording


def _refusal(
    data: bytes,
    offset: int,
    found: str,
    expected: tuple[str, ...],
    pointer: str | None,
    reason: str,
    token: int | None = None,
) -> Refusal:
    line_start = data.rfind(b"\n", 0, offset) + 1
    column = len(data[line_start:offset].decode("utf-8", "replace")) + 1
    return Refusal(offset, data.count(b"\n", 0, offset) + 1, column, found, expected, pointer, reason, token)


def _found(data: bytes, start: int, offset: int) -> str:
    """The string, number or word that begins at `start` and is wrong at `offset`; else the character there."""
    from stcon.grammar.expected import is_space, shown

    if offset >= len(data):
        return "the end of the text"
    if data[start : start + 1] == b'"':
        end = _string_end(data, start)
        return shown(data[start:end])
    end = start
    while end < len(data) and data[end] not in b'{}[],:"' and not is_space(data[end]):
        end += 1
    if start < end and not any(byte >= 0x80 for byte in data[start:end]):
        return shown(data[start:end])
    end = offset + 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return shown(data[offset:end])


def _string_end(data: bytes, start: int) -> int:
    at = start + 1
    while at < len(data) and data[at] != ord('"'):
        at += 2 if data[at] == ord("\\") else 1
    return min(at + 1, len(data))


def _either(expected: Sequence[str]) -> str:
    if not expected:  # a grammar leaves a way on, but for its bound of nesting
        return "an end (no text goes on here: values are nested too deeply)"
    return expected[0] if len(expected) == 1 else ", ".join(expected[:-1]) + " or " + expected[-1]
