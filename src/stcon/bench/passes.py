"""What a pass of the model costs: by the tokens it is fed, by the context behind it, and in memory.

Each pass is timed on a session of its own prefix: appended, then taken back where the model can do that, else copied
before. Rounds are interleaved over widths and contexts, and times are medians. Memory is what the process (on a GPU:
torch's allocator) held at most above what it held with the model loaded and warm.

Source: the paper's Figures 1, 10 and 11 (left), Tables 30 and 31. We depart in the model (any) and in random prompts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stcon.models.base import Model, Session

WIDTHS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (128, 512, 1024, 2048, 4096)
PREFIX = 212  # tokens behind the passes of WIDTHS
CHUNKS = (1024, 512, 256, 128)
PROMPT = 1360  # tokens of the longest prompt of Table 31
REGIMES = ((1, 256), (8, 64), (8, 256))  # streams × tokens, after the paper's 1 × 4096 … 6 × 16384


@dataclass(frozen=True)
class Pass:
    """One kind of pass.

    Attributes:
        tokens: fed in it.
        context: tokens cached before it.
        ms: median.
        relative: to the first row's pass.
    """

    tokens: int
    context: int
    ms: float
    relative: float


@dataclass(frozen=True)
class Peak:
    """Memory above the model.

    Attributes:
        what: the regime.
        rows, tokens: streams, and tokens of each.
        chunk: prompt tokens of a pass; None: as the engine chooses.
        above_bytes: the most held above the loaded model; None where the system does not say.
        rate: tokens a second.
    """

    what: str
    rows: int
    tokens: int
    chunk: int | None
    above_bytes: int | None
    rate: float


def time_passes(
    model: Model,
    *,
    widths: Sequence[int] = WIDTHS,
    contexts: Sequence[int] = CONTEXTS,
    rounds: int = 7,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Pass], list[Pass]]:
    """By width at `PREFIX` tokens of context, and by context at one token; contexts past the model's are left out."""
    contexts = [context for context in contexts if context + 1 <= model.context_length]
    by_width = _time(model, [(width, PREFIX) for width in widths], rounds, progress)
    return by_width, _time(model, [(1, context) for context in contexts], rounds, progress)


def measure_peaks(
    model: Model,
    *,
    regimes: Sequence[tuple[int, int]] = REGIMES,
    chunks: Sequence[int] = CHUNKS,
    prompt: int = PROMPT,
    batches: Sequence[int] = (1, 8),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Peak]:
    """Decoding by streams and tokens, then reading one long prompt (and several at once) by chunk."""
    prompt = min(prompt, model.context_length - 2)
    found = []
    for rows, tokens in regimes:
        progress(f"{rows} streams of {tokens} tokens")
        found.append(_decode(model, rows, tokens))
    for rows in batches:
        for chunk in chunks:
            progress(f"{rows} prompts of {prompt} tokens, {chunk} a pass")
            found.append(_prefill(model, rows, prompt, chunk))
    return found


def failures(model: Model) -> list[str]:
    """What is red: a pass over S tokens that does not give what S passes give (up to the rounding of its type)."""
    prompt, tokens = _tokens(model, 24, 3), _tokens(model, 8, 4)
    wide, narrow = model.session(), model.session()
    wide.append(prompt)
    narrow.append(prompt)
    at_once = wide.append(tokens, all_positions=True)
    one_by_one = np.stack([narrow.append([token]) for token in tokens])
    gap = float(np.abs(at_once - one_by_one).max() / max(1e-6, float(np.abs(one_by_one).max())))
    return [f"a pass over 8 tokens differs from 8 passes by {gap:.2%} of the largest logit"] if gap > 0.05 else []


def as_json(
    widths: Sequence[Pass], contexts: Sequence[Pass], peaks: Sequence[Peak], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The measurement as data."""
    return {
        **about,
        "widths": [asdict(row) for row in widths],
        "contexts": [asdict(row) for row in contexts],
        "peaks": [asdict(row) for row in peaks],
    }


def _time(model: Model, kinds: Sequence[tuple[int, int]], rounds: int, progress: Callable[[str], None]) -> list[Pass]:
    sessions: dict[int, Session] = {}
    for _, context in kinds:
        if context not in sessions:
            progress(f"a prompt of {context} tokens")
            sessions[context] = model.session()
            sessions[context].append(_tokens(model, context, 1))
    times: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):  # the first warms up
        for width, context in kinds:
            session = sessions[context]
            if not session.can_truncate:
                session = session.copy()
            tokens = _tokens(model, width, 2 + number)
            started = perf_counter()
            session.append(tokens)
            seconds = perf_counter() - started
            if session.can_truncate:
                session.truncate(context)
            if number:
                times[width, context].append(seconds)
    first = median(times[kinds[0]])
    return [
        Pass(width, context, 1e3 * median(times[width, context]), median(times[width, context]) / first)
        for width, context in kinds
    ]


def _decode(model: Model, rows: int, tokens: int) -> Peak:
    from stcon.engine.batch import Batch, Request
    from stcon.engine.batch.choose import rows_for

    with _Watch(model) as watch:
        batch = Batch(rows_for(model, rows), cache_bytes=0)
        # a prompt each; free text goes on until the limit where no end token is drawn
        requests = [Request(_tokens(model, 32, 10 + row), max_tokens=tokens) for row in range(rows)]
        started = perf_counter()
        answers = batch.generate(requests)
        seconds = perf_counter() - started
        written = sum(len(answer[0].tokens) for answer in answers)
    return Peak("decode", rows, tokens, None, watch.above, written / seconds)


def _prefill(model: Model, rows: int, prompt: int, chunk: int) -> Peak:
    """`rows` prompts side by side, `chunk` tokens of each a pass, each in a session of its own."""
    with _Watch(model) as watch:
        sessions = [model.session() for _ in range(rows)]
        prompts = [_tokens(model, prompt, 20 + row) for row in range(rows)]
        started = perf_counter()
        for first in range(0, prompt, chunk):
            for session, tokens in zip(sessions, prompts, strict=True):
                session.append(tokens[first : first + chunk])
        seconds = perf_counter() - started
    return Peak("prefill", rows, prompt, chunk, watch.above, rows * prompt / seconds)


class _Watch:
    """The most memory held inside, above what was held on entering."""

    def __init__(self, model: Model) -> None:
        self.above: int | None = None
        self._device = getattr(model, "device", None)

    def __enter__(self) -> _Watch:
        from stcon.bench.masks_memory import reset_peak, resident_bytes

        gc.collect()
        if self._on_gpu:
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before: int | None = torch.cuda.memory_allocated()
        else:
            reset_peak()
            self._before = resident_bytes()
        return self

    def __exit__(self, *error: object) -> None:
        from stcon.bench.masks_memory import peak_bytes

        if self._on_gpu:
            import torch

            peak: int | None = torch.cuda.max_memory_allocated()
        else:
            peak = peak_bytes()
        self.above = None if peak is None or self._before is None else max(0, peak - self._before)

    @property
    def _on_gpu(self) -> bool:
        return self._device is not None and str(self._device).startswith("cuda")


def _tokens(model: Model, count: int, seed: int) -> list[int]:
    """Random ordinary tokens."""
    rng = np.random.default_rng(seed)
    special = set(model.vocabulary.special_ids) | set(model.end_ids)
    found = [int(token) for token in rng.integers(0, model.vocabulary.size, 2 * count + 16) if token not in special]
    return found[:count]
