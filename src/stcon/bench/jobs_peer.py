"""The peer of `stcon bench jobs`: transformers' ``generate`` in static batches, its logits masked by llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stcon.bench.masks_engines import Session

PEER = "transformers + llguidance"


class Outcome(NamedTuple):
    """What an engine made of the jobs."""

    seconds: float
    cpu_s: float
    texts: list[str]
    tokens: int
    forced: int


class Job(NamedTuple):
    """One record to extract."""

    schema: dict[str, Any]
    with_keys: str
    with_schema: str


def peer(model: Any, work: Sequence[Job], ids: Sequence[list[int]], slots: int, max_tokens: int) -> Outcome:
    """The jobs in groups of `slots` rows, each group until its longest row ends; prompts padded on the left."""
    sessions = _sessions(model, work)
    tokens: list[list[int]] = []
    started, worked = perf_counter(), process_time()
    for first in range(0, len(work), slots):
        part = slice(first, first + slots)
        tokens += _group(model, ids[part], [start() for start in sessions[part]], max_tokens)
    seconds, cpu_s = perf_counter() - started, process_time() - worked
    texts = [model.vocabulary.decode(row).decode("utf-8", "replace") for row in tokens]
    return Outcome(seconds, cpu_s, texts, sum(map(len, tokens)), 0)


def _sessions(model: Any, work: Sequence[Job]) -> list[Callable[[], Session]]:
    """A compiled matcher for each job; compiling is not timed, as ours is not."""
    from stcon.bench.masks_corpus import Case
    from stcon.bench.masks_engines import Settings
    from stcon.bench.masks_peers import LlguidanceEngine

    engine = LlguidanceEngine(model.vocabulary, Settings())
    return [engine.compile(Case(str(i), json.dumps(job.schema), ())) for i, job in enumerate(work)]


def _group(model: Any, ids: Sequence[list[int]], sessions: Sequence[Session], max_tokens: int) -> list[list[int]]:
    """One static batch: the tokens of each row, up to its end token, which counts."""
    import torch

    ends, device = list(model.end_ids), model.network.device
    longest = max(map(len, ids))
    with torch.inference_mode():
        found = model.network.generate(
            input_ids=torch.tensor([[ends[0]] * (longest - len(row)) + row for row in ids], device=device),
            attention_mask=torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids], device=device),
            logits_processor=[_Masked(sessions, longest, ends)],
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
    rows = [row[longest:].tolist() for row in found]
    stops = [next((i for i, token in enumerate(row) if token in ends), len(row) - 1) for row in rows]
    return [row[: stop + 1] for row, stop in zip(rows, stops, strict=True)]


class _Masked:
    """A logits processor with one matcher a row."""

    def __init__(self, sessions: Sequence[Session], num_prompt: int, ends: Sequence[int]) -> None:
        self._sessions = sessions
        self._num_prompt = num_prompt
        self._ends = ends
        self._is_over = [False] * len(sessions)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """float[B, V] with -inf where a row's matcher forbids the token."""
        import torch

        from stcon.engine.sampling import unpack_bitmask

        for row, session in enumerate(self._sessions):
            if input_ids.shape[1] > self._num_prompt and not self._is_over[row]:
                token = int(input_ids[row, -1])
                self._is_over[row] = token in self._ends or not session.accept(token)
            if not self._is_over[row]:
                session.fill()
                allowed = torch.from_numpy(unpack_bitmask(session.mask, scores.shape[1]).copy())
                scores[row, ~allowed.to(scores.device)] = -torch.inf
        return scores
