"""What a machine expects after a text, for people: bytes, names, kinds of values. And where in a JSON text that is.

Nothing here decides anything: it words what `Machine.live` and the text say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stcon.grammar.history import History, observe
from stcon.grammar.machine import Configuration, Machine

MAX_SHOWN = 8
MAX_CHAIN = 48
MAX_SEARCHED = 2_000
MAX_BRANCHES = 64
NEARLY_ALL = 90  # of the 95 ASCII characters that print

SPACES = b" \n\r\t"
_KINDS = (
    (b"-0123456789", "a number"),
    (b"{", "an object"),
    (b"[", "an array"),
    (b"t", "true"),
    (b"f", "false"),
    (b"n", "null"),
)


class Point(NamedTuple):
    """Where a reading stands."""

    config: Configuration
    history: History


@dataclass
class _Open:
    """An open container: an object with the name it is at (None: before a name), or an array with an index.

    Attributes:
        is_past: the value there is over.
    """

    is_object: bool
    name: str | None = None
    index: int = 0
    is_past: bool = False


class JsonPlace(NamedTuple):
    """Where the end of a JSON text's beginning is.

    Attributes:
        pointer: JSON pointer of the value that is being written or comes next; between values and before a name, of the
            object or array that they are in.
        token: offset at which the string, number or literal begins that is not over yet; None between those.
        is_name: that token, or the next, is a name.
    """

    pointer: str
    token: int | None
    is_name: bool


def json_place(prefix: bytes) -> JsonPlace:
    """Where `prefix`, the beginning of a JSON text, ends. Cost: linear."""
    containers: list[_Open] = []
    token: int | None = None
    in_string = is_escaped = False
    for at, byte in enumerate(prefix):
        if in_string:
            if is_escaped or byte == ord("\\"):
                is_escaped = not is_escaped
            elif byte == ord('"'):
                assert token is not None, "a string begins somewhere"
                if _at_name(containers):
                    containers[-1].name = _name(prefix[token : at + 1])
                else:
                    _end_value(containers)
                in_string, token = False, None
            continue
        if byte in b"{}[],: \n\r\t":
            if token is not None:
                _end_value(containers)
            token = None
            _punctuate(containers, byte)
        elif token is None:
            token, in_string = at, byte == ord('"')
    parts = [step for container in containers if not container.is_past and (step := _step(container)) is not None]
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
    return JsonPlace(pointer, token, _at_name(containers))


def _punctuate(containers: list[_Open], byte: int) -> None:
    if byte in b"{[":
        containers.append(_Open(byte == ord("{")))
    elif byte in b"}]" and containers:
        containers.pop()
        _end_value(containers)
    elif byte == ord(",") and containers:
        last = containers[-1]
        last.name, last.index, last.is_past = None, last.index + 1, False


def _end_value(containers: list[_Open]) -> None:
    if containers:
        containers[-1].is_past = True


def _at_name(containers: Sequence[_Open]) -> bool:
    return bool(containers) and containers[-1].is_object and containers[-1].name is None


def _step(container: _Open) -> str | None:
    return container.name if container.is_object else str(container.index)


def _name(text: bytes) -> str:
    try:
        return str(json.loads(text))
    except ValueError:  # half a surrogate pair, or bytes that are not text
        return text.decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------------- what may follow


def live_bytes(machine: Machine, point: Point) -> list[int]:
    """The bytes that may follow `point`, ascending; those that end what repeats an element are none."""
    return [byte for byte in machine.live(point.config) if observe(machine, *point, (byte,)) is not None]


def forced_text(machine: Machine, point: Point, limit: int = MAX_CHAIN) -> bytes:
    """The text that must follow `point`: at most `limit` bytes, to where there is a choice or an end."""
    chain = bytearray()
    while len(chain) < limit and not machine.accepts(point.config):
        live = live_bytes(machine, point)
        following = observe(machine, *point, live) if len(live) == 1 else None
        if following is None:
            break
        chain += bytes(live)
        point = Point(*following)
    return bytes(chain)


def expected_bytes(machine: Machine, point: Point, *, ignored: bytes = b"") -> list[str]:
    """What may follow `point`, by bytes; those in `ignored` are left out where there are others."""
    chain = forced_text(machine, point)
    if chain:
        return [shown(chain)]
    live = live_bytes(machine, point)
    found = list(_ranges([byte for byte in live if byte not in ignored] or live))
    found = found if len(found) <= MAX_SHOWN else [*found[:MAX_SHOWN], "…"]
    return found + (["the end"] if machine.accepts(point.config) else [])


def expected_values(machine: Machine, point: Point, *, is_name: bool, in_number: bool = False) -> list[str]:
    """What may follow `point`, which is between the tokens of a JSON text, by kinds and names.

    Args:
        is_name: a name may come there.
        in_number: it is behind a number or a word, of which more is not looked for.
    """
    live = [byte for byte in live_bytes(machine, point) if not in_number or byte in b",:}]"]
    found: list[str] = []
    if ord('"') in live:
        strings = finite_strings(machine, point)
        plain = "a name" if is_name else "a string"
        found += [plain] if strings is None else [shown(text) for text in strings]
    found += [kind for members, kind in _KINDS if any(byte in members for byte in live)]
    found += [_mark(machine, point, byte, live) for byte in live if byte in b",:}]"]
    if not found:
        return expected_bytes(machine, point)
    return found + (["the end"] if machine.accepts(point.config) else [])


def _mark(machine: Machine, point: Point, byte: int, live: Sequence[int]) -> str:
    """A mark between tokens; a comma that must come, with the names that must follow it, if they are few."""
    mark = bytes((byte,))
    after = observe(machine, *point, mark) if byte == ord(",") and not {ord("}"), ord("]")} & set(live) else None
    chain = b"" if after is None else forced_text(machine, Point(*after))
    if after is None or (chain and chain[0] != ord('"')):
        return shown(mark)
    names = finite_strings(machine, Point(*after)) if ord('"') in live_bytes(machine, Point(*after)) else None
    return shown(mark) if names is None else f"{shown(mark)} and then {' or '.join(map(shown, names))}"


def finite_strings(machine: Machine, point: Point, most: int = MAX_SHOWN) -> list[bytes] | None:
    """The JSON strings that may begin at `point`; None if they are more than `most`, or too long to be searched."""
    found: list[bytes] = []
    stack = [(point, b"")]
    for _ in range(MAX_SEARCHED):
        if not stack:
            return sorted(found)
        here, text = stack.pop()
        if len(text) > 1 and text.endswith(b'"') and json_place(text).token is None:
            found.append(text)
            if len(found) > most:
                return None
            continue
        live = live_bytes(machine, here) if text else [ord('"')]
        if len(live) > MAX_BRANCHES:
            return None
        for byte in live:
            following = observe(machine, *here, (byte,))
            if following is not None:
                stack.append((Point(*following), text + bytes((byte,))))
    return None


def _ranges(live: Sequence[int]) -> Iterator[str]:
    """Sets of bytes for people: runs of ASCII, and everything else as one."""
    rest = [byte for byte in live if byte < 0x80]
    if sum(0x20 <= byte < 0x7F for byte in rest) >= NEARLY_ALL:
        yield "another character"
        return
    while rest:
        last = 0
        while last + 1 < len(rest) and rest[last + 1] == rest[last] + 1:
            last += 1
        first, end = (shown(bytes((rest[index],))) for index in (0, last))
        if last < 2:
            yield from (shown(bytes((byte,))) for byte in rest[: last + 1])
        else:
            yield f"{first} to {end}"
        del rest[: last + 1]
    if any(byte >= 0x80 for byte in live):
        yield "a character past ASCII" if any(byte >= 0xC0 for byte in live) else "the rest of a character"


def shown(data: bytes) -> str:
    """`data` in single quotes, on one line; JSON strings as they are."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in _decoded(data))
    text = text if len(text) <= MAX_CHAIN else text[: MAX_CHAIN - 1] + "…"
    return text if len(text) > 1 and text[0] == text[-1] == '"' else f"'{text}'"


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def is_space(byte: int) -> bool:
    """Whether `byte` is JSON's whitespace."""
    return byte in SPACES
