"""The forced planner: which tokens follow a sampled one without asking the model, and what may be sampled next.

`Planner.plan` takes the configuration before the last sampled token y, and y. It then

1. follows the only live byte while the configuration is forced (the forced text w);
2. takes the pending text, which ends with y and begins where blocks are certain, with w behind it, cut to whole
   characters, and finds how much of it is certain to be split the same way whatever follows (Theorem 20);
3. commits the tokenizer's own tokens of the certain part, and those of the block after it on which every way to go on
   agrees. If the tokens already there do not begin that split, y is encoded again together with w (**healing**), which
   is possible because y was not fed to the model yet;
4. computes the cover of what is held back (how long the next token of the canonical split must be at least) and the
   mask of the configuration it has reached;
5. if that leaves one single token, commits it too and starts again from 1.

Hence at every configuration where the model is asked, it has at least two tokens to choose from, which is what makes
the number of passes minimal (Theorem 19(iii)). The policy depends on the grammar and the tokenizer alone, never on the
model, so whether the tokens of a plan are fed together or one after another changes nothing (Theorem 19(i)).

**When healing happens** (``heal=True``, canonical policy): only if w is not empty, some of it is committed, y ends
inside a block of the text, and y is not where the canonical split of that block ends its tokens. Then `Plan.tokens`
begins with tokens that spell y's bytes and `Plan.replace_last` says so: feed them *instead of* y. If tokens before y,
which the model has read, already depart from the canonical split of their block, y and w are encoded together from y
on, as the paper does; with ``heal=False`` the rest of the block is encoded from the end of y on.

**Where agreement with the canonical split ends**: a token sampled against it stays (healing mends the last one only);
in a block of more than `MAX_PENDING` bytes the pending text is cut; and text that is not UTF-8 has no canonical split.
A vocabulary that is not local (`Vocabulary.locality_note`) gets fewer tokens committed, not wrong ones. No such case
can make the output leave the grammar.

Source: the paper's Sections C.3, C.4 and D.3, Theorems 19 and 20; see `stcon.constraint.segments` for the departures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from stcon.constraint.history_masks import HistoryMasks, MarkedKernel
from stcon.constraint.quiet import Quiet, shared_by
from stcon.constraint.segments import Beginning, Bool, Segmenter, common_prefix, segmenter_for, text_prefix
from stcon.errors import DecodingError, InvalidOption
from stcon.grammar.history import EMPTY, History
from stcon.grammar.machine import STACK_CAP
from stcon.vocab import Vocabulary

Int32 = NDArray[np.int32]
Policy = Literal["canonical", "any", "none"]

UNKNOWN_TOKEN = -1

MAX_PENDING = 4_096
TRIM_PENDING = 256
MAX_FORCED = 1 << 20


class Kernel(MarkedKernel, Protocol):
    """What the planner needs of a kernel: `stcon.kernels.cpu.CpuKernel`, or a stand-in."""

    def accepts(self, config: Int32) -> bool: ...


class Tail(NamedTuple):
    """The end of the output: text since a place where a block is certain to begin and a token does begin.

    Attributes:
        data: its bytes.
        tokens: the tokens that spell it; `UNKNOWN_TOKEN` for a run of bytes that came without tokens.
        sizes: bytes of each.
    """

    data: bytes = b""
    tokens: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    def extended(self, token: int, data: bytes) -> Tail:
        """With one more token, spelled `data`."""
        return Tail(self.data + data, (*self.tokens, token), (*self.sizes, len(data)))

    def replaced(self, keep: int, tokens: Sequence[int], sizes: Sequence[int], data: bytes) -> Tail:
        """The first `keep` tokens, then `tokens`; all of it spells `data`."""
        return Tail(data, (*self.tokens[:keep], *tokens), (*self.sizes[:keep], *sizes))

    def since(self, count: int) -> Tail:
        """Without the first `count` tokens."""
        return Tail(self.data[sum(self.sizes[:count]) :], self.tokens[count:], self.sizes[count:])

    @property
    def edges(self) -> list[int]:
        """Where tokens begin and end: 0, …, ``len(data)``."""
        return [0, *accumulate(self.sizes)]


@dataclass(frozen=True, eq=False)
class Plan:
    """What to feed next, and what may be sampled after it.

    Attributes:
        tokens: to feed after the last sampled token y, or instead of it if `replace_last`.
        replace_last: y was healed: `tokens` spell y's bytes and then `committed`.
        committed: the forced bytes that `tokens` bring.
        config: int32[67], the configuration after `tokens`.
        history: the history after `tokens`.
        cover: the fewest bytes that the next sampled token may have (0: any); already applied to `mask`.
        mask: int32[W], the admissible tokens; at least two, unless `is_done`, the policy is ``"none"``, or more than
            `MAX_FORCED` bytes are forced at once.
        tail: the end of the text so far, for the next plan.
        is_done: the text is complete and nothing can follow; ask the model no more.
        is_kernels: `mask` is the kernel's for `config`, but for the cover: the history takes nothing from it.
        num_admissible: tokens in `mask`; None: not counted.
    """

    tokens: list[int]
    replace_last: bool
    committed: bytes
    config: Int32
    history: History
    cover: int
    mask: Int32
    tail: Tail
    is_done: bool
    is_kernels: bool
    num_admissible: int | None = None


class Planner:
    """Plans forced text for one grammar and vocabulary. Keeps no state of a stream: a `Plan` carries it.

    Args:
        vocabulary: the tokenizer.
        kernel: steps and masks (`stcon.kernels.cpu.CpuKernel`).
        policy: ``"canonical"``: as the tokenizer would split it; ``"any"``: the whole forced text at once, in longest
            tokens; ``"none"``: nothing, the model is asked for every token.
        heal: whether the last sampled token may be replaced; only where it was not fed to the model yet.

    Raises:
        InvalidOption: no such policy.
    """

    def __init__(
        self, vocabulary: Vocabulary, kernel: Kernel, *, policy: Policy = "canonical", heal: bool = True
    ) -> None:
        if policy not in get_args(Policy):
            raise InvalidOption(f"policy is one of {', '.join(get_args(Policy))}, not {policy!r}")
        self.vocabulary = vocabulary
        self.kernel = kernel
        self.histories = HistoryMasks(vocabulary, kernel)
        self.policy = policy
        self.heal = heal
        self.segmenter: Segmenter = segmenter_for(vocabulary)
        self._shared = shared_by(kernel, vocabulary)
        self._ends = np.zeros(vocabulary.num_words * 32, np.uint8)
        self._ends[list(vocabulary.end_ids)] = 1
        self._end_words: Int32 = np.packbits(self._ends, bitorder="little").view(np.int32)

    def start(self) -> Plan:
        """The plan at the prompt's end, from the grammar's start. The prompt's end counts as a block boundary."""
        return self.plan(self.kernel.machine.initial().pack())

    def step(self, plan: Plan, token: int) -> Plan:
        """The plan after sampling `token` (not an end token) where `plan` led.

        Cost: some 20 µs where nothing is forced, and where the same plan was made before; else see `plan`.
        """
        quiet = self._shared.places.after(self.histories, plan, token)
        if quiet is not None:
            return self._quiet(plan, token, quiet)
        depth, tail = int(plan.config[1]), self._tail_under(plan.tail, token)
        key = (self.policy, self.heal, plan.config[: 3 + depth].tobytes(), tail, token, plan.history)
        found = self._shared.plans.find(key)
        if found is None:
            found = self.plan(plan.config, tail, token, plan.history)
            self._shared.plans.keep(key, found)
        return found

    def _tail_under(self, tail: Tail, token: int) -> Tail:
        """What of `tail` matters to the split of `token` and what follows: nothing where a block begins with it.

        So streams that have written other words come to the same plan when a quote ends them.
        """
        if self.policy != "canonical" or not tail.data:
            return tail
        data = self.vocabulary.token_bytes(token) if 0 <= token < self.vocabulary.size else None
        try:
            text = tail.data.decode()
        except UnicodeDecodeError:
            return tail
        return Tail() if data and self.vocabulary.tail_is_stable(text, data[:1]) else tail

    def _quiet(self, last: Plan, token: int, at: Quiet) -> Plan:
        """The plan of a token after which nothing is forced."""
        tail = Tail()
        if self.policy != "any":
            tail = last.tail.extended(token, self.vocabulary.token_bytes(token) or b"")
            tail = self.trimmed(tail) if self.policy == "canonical" else tail
        return Plan([], False, b"", at.config, at.history, 0, at.mask, tail, False, True, at.num_admissible)

    def plan(self, config: Int32, tail: Tail | None = None, last: int | None = None, history: History = EMPTY) -> Plan:
        """What follows `last` without the model.

        Args:
            config: int32[67], the configuration *before* `last`; not changed.
            tail: the end of the text before `last`.
            last: the token sampled there and not fed to the model yet, or None at the prompt's end.
            history: the history at `config`.

        Raises:
            InvalidOption: `last` is not admissible here.
            DecodingError: no token is admissible: the grammar's next bytes have no token, or nesting is at its cap.

        Cost: one mask, one walk along the forced bytes, and where there are any, one `block_starts` and one `encode` of
            the pending text with them.
        """
        draft = _Draft(self, config.copy(), history, Tail() if tail is None else tail, last)
        while True:
            draft.commit_forced()
            mask, only = self._mask(draft)
            if only is None or len(draft.committed) > MAX_FORCED:
                return draft.plan(mask)
            draft.push(only)

    def trimmed(self, tail: Tail) -> Tail:
        """`tail` without what is certain, if it has grown long; plans are the same with it.

        Cost: one `block_starts` past `TRIM_PENDING` bytes.
        """
        if self.policy != "canonical":
            return Tail()
        if len(tail.data) <= TRIM_PENDING:
            return tail
        text = text_prefix(tail.data)
        if not text:
            return Tail()
        starts = self.vocabulary.block_starts(text)
        return _cut(tail, starts, self.segmenter.certain_end(text, starts, live=None))

    def _mask(self, draft: _Draft) -> tuple[Int32, int | None]:
        """The mask under the draft's cover, and the only admissible token, to be committed, if there is just one."""
        mask = np.empty(self.vocabulary.num_words, np.int32)
        draft.is_kernels = self.histories.mask(draft.config, draft.history, mask)
        if draft.cover > 1:
            covering = mask & self.segmenter.at_least(draft.cover)
            if covering.any():  # a cover never leaves nothing: the vocabulary may lack what the tokenizer would emit
                mask = covering
            else:
                draft.cover = 0
        spelled = mask & ~self._end_words
        words = np.flatnonzero(spelled)
        can_end = bool((mask & self._end_words).any())
        if not len(words):
            draft.is_done = can_end or self.kernel.accepts(draft.config)
            if not draft.is_done:
                raise DecodingError(_stuck(draft.config))
        if self.policy == "none" or can_end or len(words) != 1:
            return mask, None
        bits = int(spelled[words[0]]) & 0xFFFFFFFF
        return mask, (32 * int(words[0]) + bits.bit_length() - 1 if bits & (bits - 1) == 0 else None)


class _Draft:
    """A plan in the making: the configuration, the pending text, and the tokens not fed yet (`run`)."""

    def __init__(self, planner: Planner, config: Int32, history: History, tail: Tail, last: int | None) -> None:
        self.planner = planner
        self.config = config
        self.history = history
        self.tail = tail
        self.last = last
        self.run: list[int] = []
        self.committed = bytearray()
        self.cover = 0
        self.is_done = False
        self.is_kernels = False
        if last is not None:
            known = 0 <= last < planner.vocabulary.size
            data = planner.vocabulary.token_bytes(last) if known else None
            after = None if data is None else planner.histories.advance(config, history, data)
            if data is None or after is None:
                raise InvalidOption(f"token {last} is not admissible here")
            self.history = after
            self.run.append(last)
            self.tail = tail.extended(last, data)

    def plan(self, mask: Int32) -> Plan:
        """The finished plan."""
        kept = self.last is None or self.run[:1] == [self.last]
        tokens = self.run[1:] if kept and self.last is not None else self.run
        committed = bytes(self.committed)
        return Plan(
            tokens=tokens,
            replace_last=not kept,
            committed=committed,
            config=self.config,
            history=self.history,
            cover=self.cover,
            mask=mask,
            tail=self.tail,
            is_done=self.is_done,
            is_kernels=self.is_kernels,
        )

    def push(self, token: int) -> None:
        """Commit `token`, the only one admissible here."""
        data = self.planner.vocabulary.token_bytes(token)
        assert data is not None, "a mask admits only tokens with bytes and end tokens"
        self._write(data)
        self.run.append(token)
        self.tail = self.tail.extended(token, data)

    def commit_forced(self) -> None:
        """Commit what the policy licenses of the forced text, and set the cover of the rest."""
        planner = self.planner
        self.cover = 0
        if planner.policy == "none":
            return
        forced = planner.histories.forced(self.config, self.history, MAX_FORCED)
        if planner.policy == "any":
            self._commit_any(forced)
            return
        if forced:
            self._commit_canonical(forced)
        self.tail = planner.trimmed(self.tail)

    def _commit_any(self, forced: bytes) -> None:
        for token in self.planner.segmenter.greedy(forced):
            self.push(token)
        self.tail = Tail()  # the split of text is nothing to this policy

    def _commit_canonical(self, forced: bytes) -> None:
        segmenter, written = self.planner.segmenter, len(self.tail.data)
        text = text_prefix(self.tail.data + forced)
        if text is None:  # a grammar of bytes that are not text: there is no canonical split
            self.tail = Tail()
            return
        data = text.encode()
        if len(data) <= written:
            return
        live = self._live_after(forced) if len(data) == written + len(forced) else None
        starts = self.planner.vocabulary.block_starts(text)
        end = segmenter.certain_end(text, starts, live=live)
        if (end <= written or self._rewrite(data[:end], starts)) and end == starts[-1] and live is not None:
            self._begin_block(end, segmenter.beginning(data[end:].decode(), live))
        self.tail = _cut(self.tail, starts, end)

    def _begin_block(self, start: int, beginning: Beginning) -> None:
        """Commit what is certain of the last block, which begins at `start`, and set the cover of the next token."""
        edges = self.tail.edges
        if start not in edges:
            return
        first = edges.index(start)
        agree = len(common_prefix(self.tail.tokens[first:], beginning.tokens))
        data = self.tail.data[:start] + self.planner.vocabulary.decode(beginning.tokens)
        if len(data) > len(self.tail.data) and first + agree >= len(self.tail.tokens) - self._replaceable(first):
            self._replace(first + agree, list(beginning.tokens[agree:]), data)
        if self.tail.tokens[first:] == beginning.tokens:
            self.cover = beginning.cover

    def _rewrite(self, data: bytes, starts: Sequence[int]) -> bool:
        """Commit tokens so that the pending text becomes `data`, whose end is certain. False if no split spells it."""
        tail, segmenter = self.tail, self.planner.segmenter
        edges, starting = tail.edges, set(starts)
        first = max(i for i, edge in enumerate(edges) if edge in starting)
        canonical = segmenter.canonical(data[edges[first] :])
        if canonical is None:
            return False
        agree = len(common_prefix(tail.tokens[first:], canonical))
        replaceable = self._replaceable(first)
        if first + agree >= len(tail.tokens) - replaceable:
            self._replace(first + agree, canonical[agree:], data)
            return True
        # tokens the model has read depart from the canonical split of this block: the rest of the block by itself
        for keep in sorted({len(tail.tokens) - replaceable, len(tail.tokens)}):
            tokens = self._encode_from(data, starts, edges[keep])
            if tokens is not None:
                same = len(common_prefix(tail.tokens[keep:], tokens))
                self._replace(keep + same, tokens[same:], data)
                return True
        return False

    def _encode_from(self, data: bytes, starts: Sequence[int], begin: int) -> list[int] | None:
        """The split of ``data[begin:]``: the rest of the block that contains `begin`, then the blocks after it."""
        following = bisect_right(starts, begin)
        middle = min(starts[following], len(data)) if following < len(starts) else len(data)
        head = self.planner.segmenter.canonical(data[begin:middle])
        rest = self.planner.segmenter.canonical(data[middle:])
        return None if head is None or rest is None else head + rest

    def _replace(self, keep: int, tokens: list[int], data: bytes) -> None:
        """Make the pending tokens the first `keep` and then `tokens`, which together spell `data`."""
        dropped = len(self.tail.tokens) - keep
        self._write(data[len(self.tail.data) :])
        self.run[len(self.run) - dropped :] = tokens
        pieces = [self.planner.vocabulary.token_bytes(token) or b"" for token in tokens]
        self.tail = self.tail.replaced(keep, tokens, [len(piece) for piece in pieces], data)

    def _replaceable(self, first: int) -> int:
        """How many of the pending tokens from `first` on may still be replaced."""
        return min(len(self.run), len(self.tail.tokens) - first) if self.planner.heal else 0

    def _live_after(self, forced: bytes) -> Bool:
        """bool[256]: the bytes that may follow the forced text."""
        after = self.config.copy()
        advanced = self.planner.kernel.advance(after, forced)
        assert advanced, "forced text can be read"
        return self.planner.kernel.live_bytes(after).astype(np.bool_)

    def _write(self, data: bytes) -> None:
        after = self.planner.histories.follow(self.config, self.history, data)
        assert after is not None, "what is committed is forced"
        self.history = after
        self.committed += data


def _cut(tail: Tail, starts: Sequence[int], end: int) -> Tail:
    """`tail` from the last block boundary on, up to the certain `end`, at which a token begins."""
    certain = {start for start in starts if start <= end} | {0, end}
    cut = tail.since(max(i for i, edge in enumerate(tail.edges) if edge in certain))
    return cut if len(cut.data) <= MAX_PENDING else Tail()


def _stuck(config: Int32) -> str:
    """Why no token is admissible, as far as the configuration tells."""
    depth = int(config[1])
    if depth >= STACK_CAP - 1:
        return f"no token is admissible: the text is nested {depth} deep where {STACK_CAP} is the limit"
    return "no token is admissible: no token of the vocabulary begins with a byte that the grammar allows here"
