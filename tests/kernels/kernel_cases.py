"""Machines and vocabularies on which every kernel must agree, small enough to try everything."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from stcon.grammar.machine import COUNT, DEAD, RESET, STACK_CAP, UNBOUNDED, Configuration, Machine
from stcon.vocab.vocabulary import Vocabulary

A, B, C, D = b"abcd"
QUOTE, BACKSLASH = 0x22, 0x5C

PLAIN_ASCII = [b for b in range(0x20, 0x80) if b not in (QUOTE, BACKSLASH)]

# lead bytes, second byte, bytes after the lead: well-formed UTF-8
UTF8 = [
    (0xC2, 0xDF, 0x80, 0xBF, 1),
    (0xE0, 0xE0, 0xA0, 0xBF, 2),
    (0xE1, 0xEC, 0x80, 0xBF, 2),
    (0xED, 0xED, 0x80, 0x9F, 2),
    (0xEE, 0xEF, 0x80, 0xBF, 2),
    (0xF0, 0xF0, 0x90, 0xBF, 3),
    (0xF1, 0xF3, 0x80, 0xBF, 3),
    (0xF4, 0xF4, 0x80, 0x8F, 3),
]


# ------------------------------------------------------------------------------------------------- small alphabets


def dfa() -> Machine:
    """(a|bc)* d?, without a stack."""
    m = Machine()
    start, inside, end = m.new_state(label=0), m.new_state(), m.new_state(label=0, final=True)
    m.set_edges(start, {A: start, B: inside, D: end})
    m.set_edges(inside, {C: start})
    return m


def brackets() -> Machine:
    """S = a S* b: nested, eager returns, two call sites."""
    m = Machine()
    start, body, again, done = m.new_state(), m.new_state(), m.new_state(), m.new_state(label=0, final=True)
    m.set_edges(start, {A: body})
    first, later = m.return_symbol([again]), m.return_symbol([body])
    m.set_edges(body, {A: m.action(body, (first,)), B: done})
    m.set_edges(again, {A: m.action(body, (later,)), B: done})
    return m


def lazy_numbers() -> Machine:
    """V = c+ | a V (b V)* d: numbers (runs of c) end only when the next byte is not theirs."""
    m = Machine()
    value, number, comma = m.new_state(), m.new_state(label=0), m.new_state()
    end = m.new_state(label=0, final=True)
    opened = m.new_state()
    after = m.return_symbol([comma])
    m.set_edges(value, {C: number, A: opened})
    m.set_edges(number, {C: number})
    inner = {C: m.action(number, (after,)), A: m.action(opened, (after,))}
    m.set_edges(opened, inner)
    m.set_edges(comma, {B: opened, D: end})
    return m


def two_labels() -> Machine:
    """A callee that ends eagerly or lazily with label 0 or 1; the caller goes on elsewhere, or nowhere."""
    m = Machine()
    start, even, odd = m.new_state(), m.new_state(label=0), m.new_state(label=1)
    stop0, stop1 = m.new_state(label=0, final=True), m.new_state(label=1, final=True)
    x, y = m.new_state(), m.new_state(label=1)
    symbols = [m.return_symbol([x, y]), m.return_symbol([DEAD, x]), m.return_symbol([y, DEAD])]
    m.set_edges(even, {A: odd, D: stop1})
    m.set_edges(odd, {A: even, D: stop0})
    m.set_edges(start, {A: m.action(even, symbols[:1]), B: m.action(odd, symbols[1:2]), C: m.action(even, symbols[2:])})
    m.set_edges(x, {B: stop0, C: m.action(odd, symbols[:2])})
    m.set_edges(y, {B: stop1, C: start})
    return m


def counters() -> Machine:
    """Runs of a bounded on both sides, twice, with a call between them and a reset on return."""
    m = Machine()
    start = m.new_state(effect=RESET)
    run = m.new_state(effect=COUNT, counter_hi=4)
    close = m.new_state(label=0, counter_lo=2, counter_hi=3, final=True)
    back = m.new_state(effect=RESET)
    late = m.new_state(effect=COUNT, counter_lo=1, label=0)
    symbol, keep = m.return_symbol([back]), m.return_symbol([late])
    m.set_edges(start, {A: run, C: m.action(run, (symbol,)), D: m.action(run, (keep,))})
    m.set_edges(run, {A: run, B: close, C: m.action(run, (keep,))})
    m.set_edges(back, {A: run, B: close})
    m.set_edges(late, {A: late, B: close})
    return m


def many_pushes() -> Machine:
    """Edges that push two and three symbols, popped one after another by one byte."""
    m = Machine()
    start, body, done = m.new_state(), m.new_state(), m.new_state(label=0, final=True)
    lazy = m.new_state(label=0)
    one, two = m.return_symbol([body]), m.return_symbol([lazy])
    m.set_edges(start, {A: m.action(body, (one, two)), B: m.action(lazy, (two, one, two))})
    m.set_edges(body, {A: m.action(body, (two,)), B: done, C: m.action(lazy, (one, one))})
    m.set_edges(lazy, {C: lazy, D: done})
    return m


def built_on_the_way() -> Machine:
    """`lazy_numbers` with its rows built on demand, each from single bytes, so that classes split during walks."""
    template = lazy_numbers()
    rows = {
        state: {byte: edge for byte in range(256) if (edge := template.edge(state, byte)) != DEAD}
        for state in range(template.num_states)
    }

    def build(state: int) -> None:
        edges = {}
        for byte, edge in rows[state].items():
            edges[byte] = m.action(*template.decode(edge))
        m.set_edges(state, edges)

    m = Machine(row_builder=build)
    for state in range(template.num_states):
        m.new_state(label=template.label(state), final=template.is_final(state))
    for symbol in range(template.num_symbols):
        m.return_symbol(template.resume_targets(symbol))
    return m


SMALL: dict[str, Callable[[], Machine]] = {
    f.__name__: f for f in (dfa, brackets, lazy_numbers, two_labels, counters, many_pushes, built_on_the_way)
}


def strings(alphabet: bytes, longest: int) -> list[bytes]:
    """All byte strings over `alphabet` of length 1 … `longest`."""
    return [bytes(s) for n in range(1, longest + 1) for s in itertools.product(alphabet, repeat=n)]


def vocabulary(size: int, seed: int, alphabet: bytes = b"abcd", longest: int = 3) -> Vocabulary:
    """`size` tokens: a random choice of short strings, one of them twice, one without bytes, two end tokens."""
    chosen: list[bytes | None] = list(random.Random(seed).sample(strings(alphabet, longest), size - 4))
    tokens = [*chosen[:5], None, *chosen[5:], chosen[0], None, None]
    return Vocabulary.from_bytes(tokens, [size - 1, 2])


def full_vocabulary(alphabet: bytes = b"abcd", longest: int = 4) -> Vocabulary:
    """Every string up to a length, and an end token."""
    tokens: list[bytes | None] = [*strings(alphabet, longest), None]
    return Vocabulary.from_bytes(tokens, [len(tokens) - 1])


def configurations(machine: Machine, depth: int, counters: tuple[int, ...] = (0,)) -> Iterator[Configuration]:
    """Every state with every stack up to `depth` symbols, reachable or not."""
    for state in range(machine.num_states):
        for height in range(depth + 1):
            for stack in itertools.product(range(machine.num_symbols), repeat=height):
                for counter in counters:
                    yield Configuration(state, stack, counter)


def near_the_cap(machine: Machine, seed: int, count: int) -> Iterator[Configuration]:
    """Random configurations with a stack that is nearly full."""
    rng = random.Random(seed)
    for _ in range(count if machine.num_symbols else 0):
        height = rng.randint(STACK_CAP - 4, STACK_CAP)
        stack = tuple(rng.randrange(machine.num_symbols) for _ in range(height))
        yield Configuration(rng.randrange(machine.num_states), stack, rng.randint(0, 5))


# ------------------------------------------------------------------------------------------------- strings


def text(
    *,
    low: int = 0,
    high: int = UNBOUNDED,
    inside_high: int | None = None,
    prefix: int = 0,
    ascii_only: bool = False,
    odd: bytes = b"",
) -> Machine:
    """The rest of a JSON string after its quote: plain characters and ``\\n``; ``b`` for ``]`` follows in a call.

    Args:
        low, high: characters allowed, by the counter.
        inside_high: the counter's bound inside a character (default: what trim needs).
        prefix: this many characters are states of their own first.
        ascii_only: no characters past ASCII.
        odd: plain characters that are refused, so that characters differ.
    """
    m = Machine()
    inside = (
        high - 1 if inside_high is None and high < UNBOUNDED else (UNBOUNDED if inside_high is None else inside_high)
    )
    counting = COUNT if high < UNBOUNDED or low > 0 else 0
    bodies = [m.new_state(effect=0 if i == 0 else counting, counter_hi=high) for i in range(prefix + 1)]
    if prefix == 0:
        bodies.append(m.new_state(effect=counting, counter_hi=high))
    close = m.new_state(label=0, final=True, counter_lo=low)
    after = m.new_state(label=0)
    m.return_symbol([after])
    escape: dict[int, int] = {}
    for body, following in itertools.pairwise([*bodies, bodies[-1]]):
        escape[body] = m.new_state(counter_hi=inside)
        edges = {byte: following for byte in PLAIN_ASCII if byte not in odd}
        edges |= {QUOTE: close, BACKSLASH: escape[body]}
        if not ascii_only:
            edges |= character_edges(m, following, inside)
        m.set_edges(body, edges)
        m.set_edges(escape[body], {ord("n"): following, QUOTE: following})
    m.set_edges(after, {ord("]"): close, ord(","): m.action(bodies[0], (0,))})
    return m


def character_edges(m: Machine, target: int, inside_high: int, effect: int = 0) -> dict[int, int]:
    """Edges on the lead bytes of every character past ASCII, which lead to `target`, bounded inside."""
    tails = [target]
    for _ in range(2):
        state = m.new_state(counter_hi=inside_high, effect=effect)
        m.set_edges(state, dict.fromkeys(range(128, 192), tails[-1]))
        tails.append(state)
    edges = {}
    for first, last, low, high, count in UTF8:
        state = m.new_state(counter_hi=inside_high, effect=effect)
        m.set_edges(state, dict.fromkeys(range(low, high + 1), tails[count - 1]))
        edges |= dict.fromkeys(range(first, last + 1), state)
    return edges


TEXTS: dict[str, Callable[[], Machine]] = {
    "unbounded": text,
    "at_most_3": lambda: text(high=3),
    "at_most_0": lambda: text(high=0),
    "from_2_to_5": lambda: text(low=2, high=5),
    "at_least_2": lambda: text(low=2),
    "untrimmed_inside": lambda: text(high=3, inside_high=UNBOUNDED),
    "refused_inside": lambda: text(high=4, inside_high=1),
    "two_by_states": lambda: text(prefix=2),
    "two_by_states_at_most_4": lambda: text(prefix=2, high=4),
    "ascii_only": lambda: text(ascii_only=True),
    "one_refused": lambda: text(odd=b"k"),
    "ascii_refused": lambda: text(odd=bytes(PLAIN_ASCII)),
}


def text_vocabulary(size: int = 0) -> Vocabulary:
    """Plain tokens of several lengths and widths, and all that is not quite plain; cut or padded to `size`."""
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(0x1E, 0x83)]
    tokens += [
        s.encode() for s in ("ab", "abc", "k", "akb", "é", "éa", "€", "😀", "a€😀é", "\u07ff\u0800", "x" * 7, "  ")
    ]
    tokens += [
        b'a"',
        b'"]',
        b'"],',
        b'",a',
        b"\\n",
        b'\\"',
        b"a\\",
        b"ab\\n",
        b'abcd"',
        b'"]]',
        b'"],a"',
        b"\x7f",
        b"n",
    ]
    tokens += [b"\xc3", b"\xa9", b"a\xe2", b"\x82\xac", b"\xe2\x82", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc0\x80", b"\xff"]
    tokens += [b"\xf4\x90\x80\x80", "\U0010ffff".encode(), b'\xa9"', b"a\nb", "éé€€".encode(), None]
    if size:
        tokens = [*tokens[-size:]]
    return Vocabulary.from_bytes(tokens, [len(tokens) - 1])


def json_values() -> Machine:
    """V = string | integer | [ V (, V)* ], compact: free text, lazy and eager returns, recursion."""
    m = text()
    close = next(s for s in range(m.num_states) if m.is_final(s))
    value, integer, zero, minus = m.new_state(), m.new_state(label=0), m.new_state(label=0), m.new_state()
    opened, after = m.new_state(), m.new_state()
    symbol = m.return_symbol([after])
    digits = {**dict.fromkeys(b"123456789", integer), ord("0"): zero, ord("-"): minus}
    first = {QUOTE: 0, ord("["): opened, **digits}
    m.set_edges(value, first)
    m.set_edges(integer, dict.fromkeys(b"0123456789", integer))
    m.set_edges(zero, {})
    m.set_edges(minus, {byte: to for byte, to in digits.items() if byte != ord("-")})
    calls = {byte: m.action(to, (symbol,)) for byte, to in first.items()}
    m.set_edges(opened, calls)
    again = m.new_state()
    m.set_edges(again, calls)
    m.set_edges(after, {ord(","): again, ord("]"): close})
    m.start = value
    return m
