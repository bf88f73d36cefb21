"""Certified fields in parallel on a GPU: the time of a pass, by what is in it, against the passes in turn; break-even.

    python benchmarks/gpu_certified.py --json docs/measurements/gpu-certified-<card>.json

Random weights at Qwen3.5-2B's shape (or another): drafts are accepted as they come, that is rarely, so that what is
measured is the price. The outputs are compared first: parallel and in turn they are the same, token by token, but for
near-ties, which are listed with the gap of the two logits in the runner's own type. Then each form is written in turn
by the loop of one stream, in turn over the batch's rows, and certified, in interleaved rounds; times are medians.

A certified pass costs c times a pass in turn, and saves time where it emits more than c drawn tokens: **c is the
break-even**. The table has it against both ways in turn, beside the drawn tokens a pass that were reached.

Source: the paper's Table 20 and Section E.4.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from models_shapes import SHAPES, random_network

import stcon
from stcon.bench.certified import form
from stcon.bench.near_ties import divergence
from stcon.constraint.sharing import machine_of
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.model import BatchModel
from stcon.engine.loop import generate as in_turn
from stcon.engine.output import Output
from stcon.engine.parallel import Settings
from stcon.engine.parallel.decoder import Decoder
from stcon.engine.parallel.generate import NUM_ROWS, planner_of
from stcon.models.lean.model import LeanModel
from stcon.models.text import PromptText
from stcon.vocab.vocabulary import Vocabulary

ALONE = Settings(max_rounds=0)
KINDS = ("front alone", "drafting", "look ahead", "certificate")


class Pass(NamedTuple):
    """One pass: what was in it, and its wall time, the host's work included."""

    kind: str
    rows: int
    tokens: int
    emitted: int
    seconds: float


def main() -> None:
    """Measure, print, write."""
    options = _options()
    model = _model(options.shape, options.device, options.dtype)
    rows = rows_for(model, NUM_ROWS, row_tokens=4096)
    found = [_form(model, rows, fields, options.rounds) for fields in options.fields]
    about = {"shape": options.shape, "dtype": options.dtype, "machine": _machine(options.device), "weights": "random"}
    print(json.dumps(about))
    for one in found:
        _print(one)
    if options.json:
        options.json.write_text(json.dumps({**about, "forms": found}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=list(SHAPES), default="Qwen3.5-2B")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--fields", type=int, nargs="+", default=[8, 24, 48])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _model(shape: str, device: str, dtype: str) -> LeanModel:
    vocabulary = _vocabulary(shape)
    network = random_network(shape, device, getattr(torch, dtype))
    return LeanModel(network, vocabulary, PromptText(vocabulary.encode, vocabulary.encode), name=f"{shape} shape")


def _vocabulary(shape: str) -> Vocabulary:
    if shape == "SmolLM2-135M":
        from stcon.models.pull import default_model_path

        return Vocabulary.from_gguf(default_model_path())
    from stcon.vocab.qwen import qwen35_vocabulary

    return qwen35_vocabulary()


def _form(model: LeanModel, rows: BatchModel, fields: int, rounds: int) -> dict[str, Any]:
    """Everything about one form."""
    job = form(fields)
    grammar, prompt = stcon.compile(job.schema), model.prompt_ids(job.prompt, raw=True)
    limit = {"max_tokens": 2048, "budget": True}

    def written(settings: Settings) -> tuple[Output, list[Pass]]:
        output = Output(model, prompt, grammar, **limit)
        output.begin()
        decoder = Decoder(rows, output, prompt, machine_of(grammar), planner_of(output.control), settings)
        return output, list(_passes(decoder))

    first, _ = written(Settings())  # what is compiled, captured and planned once
    alone, _ = written(ALONE)
    one = in_turn(model, prompt, grammar, **limit)
    parted = [
        divergence(model, prompt, [token.id for token in theirs], [token.id for token in first.tokens])
        for theirs in (one.tokens, alone.tokens)
    ]
    loops, turns, passes = [], [], list[list[Pass]]()
    for _ in range(rounds):
        started = perf_counter()
        one = in_turn(model, prompt, grammar, **limit)
        loops.append((perf_counter() - started - one.prefill_s) / max(1, one.sampled - 1))
        turns.append(median(step.seconds for step in written(ALONE)[1][1:]))
        passes.append(written(Settings())[1])
    report = first.parallel
    assert report is not None
    return {
        "fields": fields,
        "tokens": len(first.tokens),
        "sampled": first.sampled,
        "passes": report.passes,
        "rounds": report.num_rounds,
        "looks": len(report.rounds) - report.num_rounds,
        "accepted": sum(round.accepted for round in report.rounds),
        "parted": [None if place is None else asdict(place) for place in parted],
        "in_turn_s": median(loops),
        "in_turn_on_rows_s": median(turns),
        "certified_pass_s": median(mean(step.seconds for step in run[1:]) for run in passes),
        "certified_s": median(sum(step.seconds for step in run[1:]) for run in passes),
        "kinds": {kind: _kind([step for run in passes for step in run[1:] if step.kind == kind]) for kind in KINDS},
    }


def _passes(decoder: Decoder) -> Iterator[Pass]:
    before, started = decoder.report(), perf_counter()
    drawn = 0
    for _ in decoder.passes():
        seconds, now = perf_counter() - started, decoder.report()
        new = now.rounds[len(before.rounds) :]
        rows = now.row_passes - before.row_passes
        kind = ("look ahead" if new[0].is_look else "certificate") if new else "drafting" if rows > 1 else "front alone"
        yield Pass(kind, rows, now.fed - before.fed, decoder.output.sampled - drawn, seconds)
        before, drawn, started = now, decoder.output.sampled, perf_counter()


def _kind(steps: list[Pass]) -> dict[str, float] | None:
    if not steps:
        return None
    return {
        "passes": len(steps),
        "rows": mean(step.rows for step in steps),
        "tokens": mean(step.tokens for step in steps),
        "emitted": mean(step.emitted for step in steps),
        "median_s": median(step.seconds for step in steps),
    }


def _print(one: dict[str, Any]) -> None:
    cost = [one["certified_pass_s"] / one[name] for name in ("in_turn_s", "in_turn_on_rows_s")]
    print(
        f"\nform {one['fields']}: {one['sampled']} drawn tokens in {one['passes']} passes, {one['rounds']} rounds and "
        f"{one['looks']} looks, {one['accepted']} accepted; parted: {one['parted']}"
    )
    print(
        f"a pass in turn {1e3 * one['in_turn_s']:.3f} ms (on rows {1e3 * one['in_turn_on_rows_s']:.3f}), certified "
        f"{1e3 * one['certified_pass_s']:.3f} ms: break-even at {cost[0]:.2f} ({cost[1]:.2f}) drawn tokens a pass; "
        f"reached {one['sampled'] / one['passes']:.2f}"
    )
    for kind, found in one["kinds"].items():
        if found:
            print(
                f"  {kind:<12} {found['passes']:5} passes of {found['rows']:5.1f} rows, {found['tokens']:6.1f} tokens: "
                f"{1e3 * found['median_s']:8.3f} ms, {found['emitted']:.2f} drawn"
            )


def _machine(device: str) -> dict[str, str]:
    card = torch.cuda.get_device_name() if device.startswith("cuda") else platform.machine()
    return {"device": card, "torch": torch.__version__, "python": platform.python_version(), "stcon": stcon.__version__}


if __name__ == "__main__":
    main()
