"""Parallel and sequence-wise decoding beside other requests of a batch (`stcon.engine.batch.aside`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stcon.constraint.sharing import machine_of
from stcon.engine.parallel.decoder import Decoder, Settings
from stcon.engine.parallel.generate import planner_of
from stcon.engine.parallel.regions import MAX_OPTIONS, Decider

if TYPE_CHECKING:
    from stcon.engine.batch.model import BatchModel
    from stcon.engine.batch.request import Request
    from stcon.engine.output import Output

LEAST_ROWS = 4  # the front's, a copy of it, the prompt's and a draft's


def passes(rows: BatchModel, output: Output, request: Request, *, chunk: int) -> Iterator[None]:
    """Write `output`, a pass of the model at a time.

    Args:
        rows: nobody else's.
        output: begun.
        request: says how; with a grammar.
        chunk: most tokens of the prompt in a pass.

    Raises:
        DecodingError: as `stcon.engine.loop.generate` does.
    """
    assert request.grammar is not None, "checked by the request"
    machine = machine_of(request.grammar)
    if request.parallel:
        settings = Settings() if rows.num_rows >= LEAST_ROWS else Settings(max_rounds=0)
        planner = planner_of(output.control)
        return Decoder(rows, output, request.prompt_ids, machine, planner, settings, chunk=chunk).passes()
    return Decider(rows, output, machine, MAX_OPTIONS, chunk=chunk).passes()
