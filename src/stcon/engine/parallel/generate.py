"""`generate`: what `stcon.engine.loop.generate` does, over the rows of a batch (`stcon.engine.parallel.decoder`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

from stcon.constraint.sharing import machine_of
from stcon.engine.adjust import Adjustment
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.model import BatchModel
from stcon.engine.control import LimitedControl, Mode, PlannedControl
from stcon.engine.output import Generation, Output
from stcon.engine.parallel.decoder import Decoder, Settings
from stcon.engine.sampling import Sampling
from stcon.engine.stream import Token
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.constraint.forced import Planner
    from stcon.engine.control import Control
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Model

NUM_ROWS = 32
LEAST_TOKENS = 1024  # that a row kept for later can hold, where its room is set aside
NUM_MODELS = 2  # whose rows are kept


def generate(
    model: Model,
    prompt_ids: Sequence[int],
    grammar: Grammar,
    *,
    max_tokens: int = 256,
    mode: Mode = "canonical",
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    stream: Callable[[str], None] | None = None,
    on_token: Callable[[Token], None] | None = None,
    budget: bool = False,
    logprobs: int | None = None,
    adjustment: Adjustment | None = None,
    settings: Settings | None = None,
    rows: BatchModel | None = None,
) -> Generation:
    """Decode one output, its fields side by side; the tokens are those of `stcon.engine.loop.generate`.

    Args:
        model: gives logits.
        prompt_ids: the prompt.
        grammar: what the output must be.
        max_tokens, mode, sampling, stop, stream, on_token, budget, logprobs, adjustment: as there, or as in
            `stcon.engine.output.Output`. Only certified tokens and text are passed on.
        settings: how far drafting goes.
        rows: of `model`, which nobody else uses meanwhile; None: rows of our own, kept for the next call.

    Returns:
        A `Generation`, with `Generation.parallel`.

    Raises:
        InvalidOption: without a grammar there are no fields.
        RequestError, DecodingError: as `stcon.engine.loop.generate` does.
    """
    started = perf_counter()
    if grammar is None or mode == "free":
        raise InvalidOption("parallel decoding drafts the fields of a format: give a schema, a regex or a grammar")
    output = Output(
        model,
        prompt_ids,
        grammar,
        max_tokens=max_tokens,
        mode=mode,
        sampling=sampling,
        stop=stop,
        budget=budget,
        on_token=on_token,
        stream=stream,
        logprobs=logprobs,
        adjustment=adjustment,
    )
    with rows_of(model, len(prompt_ids) + output.limit, rows) as ours:
        output.begin()
        planner = planner_of(output.control)
        Decoder(ours, output, prompt_ids, machine_of(grammar), planner, settings or Settings()).run()
    return output.result(perf_counter() - started)


def planner_of(control: Control) -> Planner:
    """The planner of a control, without its limit."""
    if isinstance(control, LimitedControl):
        return control.planner.planner
    assert isinstance(control, PlannedControl), "a grammar is planned"
    return control.planner


class _Rows:
    """Rows that one output uses at a time."""

    def __init__(self, model: Model, num_tokens: int) -> None:
        self.rows = rows_for(model, NUM_ROWS, row_tokens=min(num_tokens, model.context_length))
        self.lock = Lock()


_kept = lru_cache(maxsize=NUM_MODELS)(_Rows)


@contextmanager
def rows_of(model: Model, num_tokens: int, given: BatchModel | None) -> Iterator[BatchModel]:
    """Rows of `model` that hold `num_tokens`: those given; else those kept if they are free, else new ones."""
    if given is not None:
        yield given
        return
    kept = _kept(model, max(LEAST_TOKENS, 1 << (num_tokens - 1).bit_length()))
    if not kept.lock.acquire(blocking=False):
        yield rows_for(model, NUM_ROWS, row_tokens=min(num_tokens, model.context_length))
        return
    try:
        yield kept.rows
    finally:
        kept.lock.release()
