"""A vLLM engine in a process of its own, driven by JSON lines: run by the Python that has vLLM, with no test tools.

``open`` makes an engine, ``generate`` answers requests at the same time and counts the engine's steps, the tokens
drafted and accepted, and preemptions. Protocol lines go to the standard output that the process began with; whatever
else writes there goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

COUNTS = ("steps", "drafted", "accepted", "preempted")


class Worker:
    """One engine, and what it has done."""

    def __init__(self) -> None:
        self.llm: Any = None
        self.counts = dict.fromkeys(COUNTS, 0)

    def open(self, model: str, llm: dict[str, Any], stcon: dict[str, Any] | None = None) -> dict[str, Any]:
        """Load `model`; `stcon` are the options of `stcon.integrations.vllm.options`, None for vLLM as it is."""
        from vllm import LLM

        if stcon is not None:
            from stcon.integrations.vllm import options

            llm = llm | options(**stcon)
        self.llm = LLM(model, enforce_eager=True, dtype="float32", **llm)
        self._count(self.llm.llm_engine.engine_core.engine_core.scheduler)
        return {}

    def generate(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer `requests`: ``prompt_ids``, ``sampling`` and ``structured`` (or null) each."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import StructuredOutputsParams

        before = dict(self.counts)
        params = [
            SamplingParams(
                **request["sampling"],
                structured_outputs=StructuredOutputsParams(**request["structured"]) if request["structured"] else None,
            )
            for request in requests
        ]
        prompts = [TokensPrompt(prompt_token_ids=request["prompt_ids"]) for request in requests]
        started = time.perf_counter()
        try:
            found = self.llm.generate(prompts, params, use_tqdm=False)
        except VLLMValidationError as error:
            return {"refused": str(error)}
        return {
            "seconds": time.perf_counter() - started,
            "counts": {name: self.counts[name] - before[name] for name in COUNTS},
            "answers": [[_answer(output) for output in one.outputs] for one in found],
            "cached": [one.num_cached_tokens for one in found],
        }

    def _count(self, scheduler: Any) -> None:
        schedule, preempt, update = scheduler.schedule, scheduler._preempt_request, scheduler.update_from_output
        counts = self.counts

        def counted_schedule(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            counts["steps"] += output.total_num_scheduled_tokens > 0
            return output

        def counted_preempt(*args: Any, **kwargs: Any) -> None:
            counts["preempted"] += 1
            preempt(*args, **kwargs)

        def counted_update(scheduled: Any, output: Any) -> Any:
            for name, drafts in scheduled.scheduled_spec_decode_tokens.items():
                sampled = output.sampled_token_ids[output.req_id_to_index[name]]
                counts["drafted"] += len(drafts)
                counts["accepted"] += max(len(sampled) - 1, 0)
            return update(scheduled, output)

        scheduler.schedule = counted_schedule
        scheduler._preempt_request = counted_preempt
        scheduler.update_from_output = counted_update


def _answer(output: Any) -> dict[str, Any]:
    return {"text": output.text, "tokens": list(output.token_ids), "finish": output.finish_reason}


def main() -> None:
    """Answer lines until there are no more."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(worker, asked.pop("op"))(**asked)
        except Exception as error:
            import traceback

            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=lines, flush=True)


if __name__ == "__main__":
    main()
