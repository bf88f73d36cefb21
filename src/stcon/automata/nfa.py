"""Syntax trees to position automata (Glushkov), sets of positions being Python integers used as bit sets.

A position is one occurrence of a leaf of the tree, a character set or an assertion. Reading a text is a walk over
positions: from a start position, along ``follow``, to a last one; a character position reads one character of its set,
an assertion position reads nothing but must hold where it is passed. So assertions are letters like any other while
the automaton is built, and `Positions.expand` passes them afterwards.

What an assertion other than a lookaround asks of its place is decided by the *kinds* of the character before and after
it: a kind says whether the character is a word character and whether it ends a line; two more kinds stand for the start
and the end of the text. Leaves are split so that each position has one kind.

Source: V. M. Glushkov, The abstract theory of automata (1961); A. Brüggemann-Klein, Regular expressions into finite
automata (1993), for star normal form, of which we use that ε may be dropped from the body of a repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stcon.automata import charset
from stcon.automata.budget import Budget
from stcon.automata.charset import CharSet
from stcon.automata.regex import Alternation, Anchor, AnchorKind, Characters, Concatenation, Look, Node, Repeat
from stcon.errors import Unsupported

# Kinds 0 … 3 are characters: bit 0 says word character, bit 1 says line end.
WORD, LINE = 1, 2
END_KIND = 4
START_KIND = 5
ALL_RIGHT_KINDS = 0b11111

Looks = frozenset[int]
NO_LOOKS: Looks = frozenset()


@dataclass(slots=True)
class Fragment:
    """A subtree's positions: its first and last ones as bit sets, whether it matches the empty text, its range."""

    first: int
    last: int
    nullable: bool
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Expansion:
    """What can come next once assertions are passed.

    Attributes:
        edges: lookarounds that must hold here → the character positions that may come next.
        ends: (right kinds, lookarounds) under which the automaton may end here.
    """

    edges: dict[Looks, int]
    ends: frozenset[tuple[int, Looks]]


@dataclass
class Positions:
    """All positions of a pattern: those of the pattern itself and of every lookaround in it.

    Attributes:
        follow: position → bit set of the positions that may come right after it.
        charsets: position → its character set (empty for an assertion).
        kinds: position → kind of its characters (0 for an assertion).
        assertions: position → the assertion there.
        looks: the lookarounds, as assertions number them.
        roots: the fragment of the pattern, then that of each lookaround.
        last: bit set of the positions at which their automaton may end.
        tail: bit set of positions from which every rest of the text is accepted.
    """

    budget: Budget
    follow: list[int] = field(default_factory=list)
    charsets: list[CharSet] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    assertions: dict[int, Anchor | int] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    roots: list[Fragment] = field(default_factory=list)
    last: int = 0
    tail: int = 0
    assertion_mask: int = 0
    kind_masks: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def expand(self, left: int, targets: int, last: bool) -> Expansion:
        """Pass the assertions among `targets`.

        Args:
            left: kind of the character read last.
            targets: positions that may come next.
            last: whether the automaton may also end here.

        Cost: one visit for each (assertion, right kinds, lookarounds) that can be reached.
        """
        edges: dict[Looks, int] = {}
        ends: set[tuple[int, Looks]] = set()
        stack = [(targets, last, ALL_RIGHT_KINDS, NO_LOOKS)]
        seen: set[tuple[int, int, Looks]] = set()
        while stack:
            targets, last, right, looks = stack.pop()
            assertions = targets & self.assertion_mask
            self.budget.spend(8 + (14 + len(looks)) * assertions.bit_count())
            characters = self._of_kinds(targets, right)
            if characters:
                edges[looks] = edges.get(looks, 0) | characters
            if last:
                ends.add((right, looks))
            for position in bits(assertions):
                assertion = self.assertions[position]
                if isinstance(assertion, int):
                    key = (position, right, looks | {assertion})
                else:
                    key = (position, right & right_kinds(assertion.kind, left), looks)
                if key[1] and key not in seen:
                    seen.add(key)
                    stack.append((self.follow[position], self._is_last(position), *key[1:]))
        return Expansion(edges, frozenset(ends))

    def expand_position(self, position: int) -> Expansion:
        """What can come after character position `position`."""
        return self.expand(self.kinds[position], self.follow[position], self._is_last(position))

    def expand_root(self, root: int, left: int) -> Expansion:
        """What the automaton `root` (0: the pattern, i + 1: lookaround i) can begin with after a `left` character."""
        fragment = self.roots[root]
        return self.expand(left, fragment.first, fragment.nullable)

    def _is_last(self, position: int) -> bool:
        return bool(self.last >> position & 1)

    def _of_kinds(self, targets: int, right: int) -> int:
        """The character positions among `targets` whose kind is in `right`."""
        allowed = 0
        for kind in range(4):
            if right >> kind & 1:
                allowed |= self.kind_masks[kind]
        return targets & allowed


def right_kinds(kind: AnchorKind, left: int) -> int:
    """Bit set of the kinds that may follow an assertion of `kind` after a character of kind `left`."""
    before_word = left <= 3 and bool(left & WORD)
    after_word = 1 << WORD | 1 << (WORD | LINE)
    if kind is AnchorKind.START:
        return ALL_RIGHT_KINDS if left == START_KIND else 0
    if kind is AnchorKind.END:
        return 1 << END_KIND
    if kind is AnchorKind.LINE_START:
        return ALL_RIGHT_KINDS if left == START_KIND or (left <= 3 and left & LINE) else 0
    if kind is AnchorKind.LINE_END:
        return 1 << END_KIND | 1 << LINE | 1 << (WORD | LINE)
    assert kind in (AnchorKind.WORD_BOUNDARY, AnchorKind.NO_WORD_BOUNDARY), "FINAL_END is built from others"
    wants_word = before_word == (kind is AnchorKind.NO_WORD_BOUNDARY)
    return after_word if wants_word else ALL_RIGHT_KINDS & ~after_word


def bits(mask: int) -> Iterator[int]:
    """The positions in a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def build(node: Node, budget: Budget, *, tail: bool) -> Positions:
    """The positions of `node` and of all lookarounds in it.

    Args:
        node: the tree.
        budget: bounds positions (by its states) and work.
        tail: whether any text may follow what `node` matches.

    Raises:
        TooLarge: a budget is spent.
    """
    return _Builder(budget).build(node, tail)


class _Builder:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.result = Positions(budget)
        self.word: CharSet | None = None
        self.line: CharSet | None = None

    def build(self, node: Node, tail: bool) -> Positions:
        self._find_kinds(node)
        self._root(node, tail)
        done = 0
        while done < len(self.result.looks):
            look = self.result.looks[done]
            any_text = Repeat(Characters(charset.ANY), 0, None)
            body = Concatenation((any_text, look.body)) if look.behind else look.body
            self._root(body, not look.behind)
            done += 1
        return self.result

    def _root(self, node: Node, tail: bool) -> None:
        """Add an automaton, followed by any text if `tail`."""
        result = self.result
        fragment = self._fragment(node)
        if tail:
            anything = self._star(self._leaf(Characters(charset.ANY)))
            result.tail |= anything.first
            fragment = self._concatenate([fragment, anything])
        result.last |= fragment.last
        result.roots.append(fragment)

    def _find_kinds(self, node: Node) -> None:
        """What counts as a word character and as a line end, where any assertion asks."""
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, Anchor) and node.kind in (AnchorKind.WORD_BOUNDARY, AnchorKind.NO_WORD_BOUNDARY):
                self.word = _same(self.word, node.members)
            elif isinstance(node, Anchor) and node.kind in (AnchorKind.LINE_START, AnchorKind.LINE_END):
                self.line = _same(self.line, node.members)
            stack.extend(_children(node))
            if isinstance(node, Look):
                stack.append(node.body)

    # ------------------------------------------------------------------------------------------------- fragments

    def _fragment(self, root: Node) -> Fragment:
        """Post-order without recursion, for trees may be deep."""
        pending: list[tuple[Node, bool]] = [(root, False)]
        values: list[Fragment] = []
        while pending:
            node, children_done = pending.pop()
            children = _children(node)
            if children and not children_done:
                pending.append((node, True))
                pending.extend((child, False) for child in reversed(children))
                continue
            arguments = values[len(values) - len(children) :]
            del values[len(values) - len(children) :]
            values.append(self._combine(node, arguments))
        return values[0]

    def _combine(self, node: Node, arguments: list[Fragment]) -> Fragment:
        if isinstance(node, Anchor) and node.kind is AnchorKind.FINAL_END:
            return arguments[0]
        if isinstance(node, Characters | Anchor | Look):
            return self._leaf(node)
        if isinstance(node, Concatenation):
            return self._concatenate(arguments)
        if isinstance(node, Repeat):
            return self._repeat(arguments[0], node.low, node.high)
        assert isinstance(node, Alternation)
        first = last = 0
        for argument in arguments:
            first |= argument.first
            last |= argument.last
        nullable = any(argument.nullable for argument in arguments)
        return Fragment(first, last, nullable, arguments[0].low, arguments[-1].high)

    def _leaf(self, node: Characters | Anchor | Look) -> Fragment:
        """New positions: one for an assertion, one for each kind of a character set."""
        result = self.result
        low = len(result.follow)
        if isinstance(node, Characters):
            for kind, part in self._by_kind(node.charset):
                result.kind_masks[kind] |= 1 << len(result.follow)
                self._position(part, kind)
        else:
            result.assertion_mask |= 1 << low
            result.assertions[low] = len(result.looks) if isinstance(node, Look) else node
            if isinstance(node, Look):
                result.looks.append(node)
            self._position(charset.EMPTY, 0)
        high = len(result.follow)
        mask = (1 << high) - (1 << low)
        return Fragment(mask, mask, False, low, high)

    def _position(self, characters: CharSet, kind: int) -> None:
        self.result.follow.append(0)
        self.result.charsets.append(characters)
        self.result.kinds.append(kind)
        self.budget.check_positions(len(self.result.follow))

    def _by_kind(self, characters: CharSet) -> list[tuple[int, CharSet]]:
        """The non-empty parts of a set, by kind."""
        parts = [(0, characters)]
        for bit, members in ((WORD, self.word), (LINE, self.line)):
            if members is not None:
                parts = [
                    piece
                    for kind, part in parts
                    for piece in (
                        (kind, charset.difference(part, members)),
                        (kind | bit, charset.intersection(part, members)),
                    )
                ]
        return [(kind, part) for kind, part in parts if part]

    def _concatenate(self, parts: list[Fragment]) -> Fragment:
        here = len(self.result.follow)
        result = Fragment(0, 0, True, here, here)
        for index, part in enumerate(parts):
            if index == 0:
                result.low = part.low
            self._connect(result.last, part.first)
            if result.nullable:
                result.first |= part.first
            result.last = part.last | (result.last if part.nullable else 0)
            result.nullable = result.nullable and part.nullable
            result.high = part.high
        return result

    def _connect(self, sources: int, targets: int) -> None:
        follow = self.result.follow
        count = 0
        for position in bits(sources):
            follow[position] |= targets
            count += 1
        self.budget.spend(count * (2 + len(follow) // 256))

    def _star(self, body: Fragment) -> Fragment:
        self._connect(body.last, body.first)
        return Fragment(body.first, body.last, True, body.low, body.high)

    def _repeat(self, body: Fragment, low: int, high: int | None) -> Fragment:
        """Copies in a row. A body that matches ε needs none of its copies; ε itself is dropped from the copies."""
        least = 0 if body.nullable else low
        copies = max(low, 1) if high is None else high
        if copies == 0 or body.first == 0:
            # no copy, or a body that matches ε at most
            return Fragment(0, 0, least == 0 or body.nullable, body.low, body.high)
        if high is None and least == 0:
            return self._star(body)
        size = body.high - body.low
        self.budget.check_positions(len(self.result.follow) + size * (copies - 1))
        result = Fragment(body.first, body.last if least <= 1 else 0, least == 0, body.low, body.high)
        previous = body
        template = self.result.follow[body.low : body.high]
        for index in range(1, copies):
            copy = self._copy(body, template, index * size)
            self._connect(previous.last, copy.first)
            if index + 1 >= least:
                result.last |= copy.last
            previous = copy
        if high is None:
            self._connect(previous.last, previous.first)
        result.high = previous.high
        return result

    def _copy(self, body: Fragment, template: list[int], shift: int) -> Fragment:
        """The positions of `body` once more, `shift` further; `template` is its ``follow`` before any connection."""
        result = self.result
        low, size = body.low, body.high - body.low
        assert len(result.follow) == low + shift, "copies stand right after the body"
        self.budget.spend(size * (3 + len(result.follow) // 256))
        mask = (1 << body.high) - (1 << low)
        result.follow.extend(targets << shift for targets in template)
        result.charsets.extend(result.charsets[low : body.high])
        result.kinds.extend(result.kinds[low : body.high])
        for kind, members in enumerate(result.kind_masks):
            result.kind_masks[kind] |= (members & mask) << shift
        for position in bits(result.assertion_mask & mask):
            result.assertions[position + shift] = result.assertions[position]
        result.assertion_mask |= (result.assertion_mask & mask) << shift
        return Fragment(body.first << shift, body.last << shift, body.nullable, low + shift, low + shift + size)


def _children(node: Node) -> tuple[Node, ...]:
    """Subtrees whose positions belong to the same automaton (a lookaround's body has its own)."""
    if isinstance(node, Concatenation):
        return node.parts
    if isinstance(node, Alternation):
        return node.options
    if isinstance(node, Anchor) and node.kind is AnchorKind.FINAL_END:
        return _FINAL_END
    return (node.body,) if isinstance(node, Repeat) else ()


_END = Anchor(AnchorKind.END)
_FINAL_NEWLINE = Look(Concatenation((Characters(charset.NEWLINE), _END)), behind=False, negative=False)
_FINAL_END = (Alternation((_END, _FINAL_NEWLINE)),)


def _same(known: CharSet | None, members: CharSet) -> CharSet:
    if known is not None and known != members:
        raise Unsupported("word boundaries (or line ends) of two meanings in one pattern")
    return members
