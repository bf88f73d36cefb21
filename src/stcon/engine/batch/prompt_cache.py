"""Which rows hold which prefixes: a radix tree over tokens, so that a prompt read before is not read again.

The tree holds no caches itself, only the numbers of rows: rows that are writing now, and rows that were *parked* when
their output was over. A new prompt is looked up; if a row holds the same first tokens, they are copied from it.

**Attention** caches can be cut anywhere, so a hit may be part of what a row holds. **Recurrent** states exist only
where they were saved, so there only a row whose tokens are all the beginning of the prompt is a hit.

Parked rows are bounded by bytes (and by `MAX_PARKED`); the one not used for the longest time goes first.

Source: the paper's App. D.7; the tree as in SGLang's RadixAttention (Zheng et al. 2024), with whole rows as leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

MAX_PARKED = 1024


class Hit(NamedTuple):
    """A row that holds the first `length` tokens of what was asked for."""

    row: int
    length: int


class _Node:
    """A run of tokens after its parent's, and the rows whose tokens end with it."""

    __slots__ = ("children", "num_below", "parent", "rows", "tokens")

    def __init__(self, tokens: tuple[int, ...], parent: _Node | None) -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.rows: set[int] = set()
        self.num_below = 0  # rows here and below


class PrefixTree:
    """Rows by their tokens.

    Args:
        cuts: whether a row can serve a part of its tokens.
    """

    def __init__(self, *, cuts: bool) -> None:
        self.cuts = cuts
        self._root = _Node((), None)
        self._place: dict[int, _Node] = {}

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, row: int) -> bool:
        return row in self._place

    def length(self, row: int) -> int:
        """Tokens that `row` was inserted with."""
        node: _Node | None = self._place[row]
        total = 0
        while node is not None:
            total += len(node.tokens)
            node = node.parent
        return total

    def insert(self, tokens: Sequence[int], row: int) -> None:
        """`row` holds `tokens`. Cost: O(tokens)."""
        assert row not in self._place, "a row is in the tree once"
        node, done, tokens = self._root, 0, tuple(tokens)
        while done < len(tokens):
            child = node.children.get(tokens[done])
            if child is None:
                child = node.children[tokens[done]] = _Node(tokens[done:], node)
                node, done = child, len(tokens)
                break
            same = _common(child.tokens, tokens, done)
            if same < len(child.tokens):
                child = _split(child, same)
            node, done = child, done + same
        node.rows.add(row)
        self._place[row] = node
        _count(node, 1)

    def remove(self, row: int) -> None:
        """Forget `row`. Cost: O(depth of the tree)."""
        node = self._place.pop(row)
        node.rows.discard(row)
        _count(node, -1)
        while node.parent is not None and not node.num_below:
            del node.parent.children[node.tokens[0]]
            node = node.parent
        if node.parent is not None and not node.rows and len(node.children) == 1:
            _merge(node)

    def find(self, tokens: Sequence[int]) -> Hit | None:
        """The row that holds most of the beginning of `tokens`; None if none holds any. Cost: O(tokens)."""
        node, done, hit = self._root, 0, None
        while done < len(tokens):
            child = node.children.get(tokens[done])
            if child is None:
                break
            same = _common(child.tokens, tokens, done)
            done += same
            if same < len(child.tokens):
                return Hit(_any_row(child), done) if self.cuts else hit
            node = child
            if node.rows:
                hit = Hit(next(iter(node.rows)), done)
        if self.cuts and node is not self._root:
            return Hit(_any_row(node), done)
        return hit


class PromptCache:
    """A `PrefixTree` with parked rows bounded by bytes.

    Args:
        limit_bytes: for parked rows; 0 parks none.
        cuts: whether a row can serve a part of its tokens.

    Attributes:
        num_asked, num_found: prompt tokens looked up, and those of them that a row held.
    """

    def __init__(self, limit_bytes: int, *, cuts: bool) -> None:
        self.limit_bytes = limit_bytes
        self.tree = PrefixTree(cuts=cuts)
        self.num_asked = 0
        self.num_found = 0
        self._parked: OrderedDict[int, int] = OrderedDict()  # row → bytes, least recently used first
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the parked rows."""
        return self._num_bytes

    @property
    def num_parked(self) -> int:
        """Rows parked."""
        return len(self._parked)

    @property
    def hit_share(self) -> float:
        """Prompt tokens found among those looked up."""
        return self.num_found / max(self.num_asked, 1)

    def look_up(self, tokens: Sequence[int], *, most: int) -> Hit | None:
        """The best hit for a prompt, at most its first `most` tokens."""
        self.num_asked += len(tokens)
        hit = self.tree.find(tokens[:most])
        if hit is None:
            return None
        if hit.row in self._parked:
            self._parked.move_to_end(hit.row)
        self.num_found += hit.length
        return hit

    def share(self, tokens: Sequence[int], row: int) -> None:
        """`row`, which is active, holds `tokens` and may be copied from."""
        self.tree.insert(tokens, row)

    def forget(self, row: int) -> None:
        """`row` is not to be copied from any more."""
        if row in self.tree:
            self.tree.remove(row)
        self._num_bytes -= self._parked.pop(row, 0)

    def park(self, tokens: Sequence[int], row: int, num_bytes: int) -> list[int]:
        """Keep `row`, which holds `tokens` in `num_bytes`.

        Returns:
            Rows to give back: those that had to make room, those that `row` serves as well, and `row` itself if it is
            larger than the limit or an equal one is parked.
        """
        if num_bytes > self.limit_bytes or not self.limit_bytes:
            return [row]
        given_back = []
        same = self.tree.find(tokens)
        if same is not None and same.length == len(tokens) and same.row in self._parked:
            self._parked.move_to_end(same.row)
            return [row]
        if same is not None and self.tree.cuts and same.row in self._parked and self._holds(same, tokens):
            self.forget(same.row)
            given_back.append(same.row)
        while self._num_bytes + num_bytes > self.limit_bytes or len(self._parked) >= MAX_PARKED:
            given_back.append(self.evict())
        self.tree.insert(tokens, row)
        self._parked[row] = num_bytes
        self._num_bytes += num_bytes
        return given_back

    def evict(self) -> int:
        """Forget the parked row not used for the longest time; the caller gives it back."""
        oldest = next(iter(self._parked))
        self.forget(oldest)
        return oldest

    def _holds(self, hit: Hit, tokens: Sequence[int]) -> bool:
        """Whether all that the row of `hit` holds is the beginning of `tokens`."""
        return self.tree.length(hit.row) == hit.length <= len(tokens)


def _common(run: tuple[int, ...], tokens: Sequence[int], start: int) -> int:
    """How many tokens of `run` stand in `tokens` at `start`."""
    size = min(len(run), len(tokens) - start)
    if run[:size] == tuple(tokens[start : start + size]):
        return size
    return next(i for i in range(size) if run[i] != tokens[start + i])


def _split(node: _Node, size: int) -> _Node:
    """Part `node` after `size` tokens; the new upper part."""
    parent = node.parent
    assert parent is not None, "the root has no tokens"
    upper = _Node(node.tokens[:size], parent)
    upper.num_below = node.num_below
    parent.children[upper.tokens[0]] = upper
    node.tokens = node.tokens[size:]
    node.parent = upper
    upper.children[node.tokens[0]] = node
    return upper


def _merge(node: _Node) -> None:
    """Join `node`, which no row ends at, with its only child."""
    (child,) = node.children.values()
    assert node.parent is not None, "the root stays"
    child.tokens = node.tokens + child.tokens
    child.parent = node.parent
    node.parent.children[child.tokens[0]] = child


def _any_row(node: _Node) -> int:
    while not node.rows:
        node = next(iter(node.children.values()))
    return next(iter(node.rows))


def _count(node: _Node | None, change: int) -> None:
    while node is not None:
        node.num_below += change
        node = node.parent
