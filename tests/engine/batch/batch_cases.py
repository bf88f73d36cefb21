"""What the batch's tests share: models without weights, mixed requests, the output that one stream alone would give."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine_cases import MACHINES, chain, grammar, small_vocabulary  # noqa: F401 (chain: for the tests)

from stcon.engine.batch import Batch, MemoryPlan, Request, SessionRows
from stcon.engine.loop import generate
from stcon.engine.sampling import Sampling
from stcon.errors import LimitTooSmall
from stcon.models.fake import FakeModel, FakeSession, prefer

MACHINE_NAMES = sorted(MACHINES)


class RecurrentSession(FakeSession):
    """A session that cannot go back."""

    @property
    def can_truncate(self):
        return False

    def copy(self):
        other = super().copy()
        other.__class__ = RecurrentSession
        return other


class RecurrentModel(FakeModel):
    """A fake model whose sessions cannot go back."""

    def session(self):
        return RecurrentSession(self)


def fake(seed=1, kind=FakeModel, **options):
    """A fake model over the small vocabulary that likes to end its strings."""
    vocabulary = small_vocabulary()
    return kind(vocabulary, seed, bias=prefer(vocabulary, lambda data: data[:1] in b'",}]', 3.0), **options)


def plan(num_rows=4, *, rows=1 << 20, cache=1 << 16, token=64, row_tokens=4096):
    """A small memory plan."""
    return MemoryPlan(0, cache, 0, rows, 0, num_rows, 0, token, row_tokens)


def batch(model=None, num_rows=4, *, memory=None, **options):
    """A batch over a fake model's sessions."""
    rows = SessionRows(model or fake(), num_rows, token_bytes=64)
    return Batch(rows, memory=memory or plan(num_rows), **options)


def request(number, **changes):
    """The request `number` of an endless mixed list: every grammar and none, every mode, greedy and not."""
    names = [*MACHINE_NAMES, None]
    name = names[number % len(names)]
    options = {
        "prompt_ids": [40 + number % 7, 41, 42, *range(60, 60 + number * 7 % 23)],
        "grammar": None if name is None else grammar(name),
        "max_tokens": 3 + number * 5 % 37,
        "mode": ("canonical", "mask", "any")[number % 3],
        "sampling": Sampling(temperature=(0.0, 1.0)[number % 2], seed=number),
        "budget": number % 4 != 0,
    }
    return Request(**(options | changes))


def alone(model, wanted, index=0):
    """The generation of output `index` of `wanted` by one stream, or None if the request is refused."""
    sampling = wanted.sampling
    seeded = Sampling(
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, (sampling.seed or 0) + index
    )
    try:
        return generate(
            model,
            wanted.prompt_ids,
            wanted.grammar,
            max_tokens=wanted.max_tokens,
            mode=wanted.mode,
            sampling=seeded,
            stop=wanted.stop,
            budget=wanted.budget,
        )
    except LimitTooSmall:
        return None


def essence(generation):
    """What must not depend on neighbours."""
    return (
        generation.tokens,
        generation.text,
        generation.value,
        generation.finish_reason,
        generation.complete,
        generation.sampled,
        generation.forced,
        generation.prompt_tokens,
        generation.seed,
    )
