"""Many agents at once, each in a thread, all on one batch; and the report of what became of their tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from time import perf_counter
from typing import Any

from stcon.agents.agent import Agent, Outcome, Settings
from stcon.agents.sandbox import Sandbox
from stcon.agents.tasks import Task
from stcon.engine.batch import Batch
from stcon.server.grammars import Grammars

MAX_AGENTS = 256


def run(
    tasks: Sequence[Task],
    batch: Batch,
    settings: Settings | None = None,
    *,
    num_agents: int | None = None,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Let agents do tasks, all at once; with more agents than tasks, tasks are done several times.

    Args:
        tasks: agent i does task i modulo their number.
        batch: running.
        settings: of all agents.
        num_agents: None: one a task.
        told: called with each outcome as it is known.

    Returns:
        The outcomes by agent.

    Raises:
        Unconfined: programs, so checks too, cannot be run on this machine; known before any agent begins.
    """
    settings = settings or Settings()
    with Sandbox(settings.limits) as sandbox:
        sandbox.run_python("")
    number = len(tasks) if num_agents is None else num_agents
    grammars, submitting = Grammars(vocabulary=batch.model.model.vocabulary), threading.Lock()
    agents = [
        Agent(tasks[i % len(tasks)], batch, grammars, settings, number=i, submitting=submitting) for i in range(number)
    ]
    with ThreadPoolExecutor(min(number, MAX_AGENTS), thread_name_prefix="stcon-agent") as pool:
        futures = [pool.submit(agent.run) for agent in agents]
        try:
            for future in as_completed(futures):
                told(future.result())
        except BaseException:  # an interrupt too: nobody waits for conversations that nobody wants
            pool.shutdown(wait=False, cancel_futures=True)
            for agent in agents:
                agent.stop()
            raise
    return [future.result() for future in futures]


def report(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """The outcomes and their sums.

    Args:
        outcomes: of a run.
        seconds: that the run took.
    """
    total = {
        name: sum(getattr(outcome, name) for outcome in outcomes)
        for name in ("turns", "calls", "parsed", "tokens", "forced", "passes", "prompt_tokens", "cached_tokens")
    }
    later = sum(outcome.later_prompt_tokens for outcome in outcomes)
    hits = sum(outcome.later_cached_tokens for outcome in outcomes)
    sums = {
        "agents": len(outcomes),
        "passed": sum(outcome.passed for outcome in outcomes),
        "finished": sum(outcome.ended == "finished" for outcome in outcomes),
        **total,
        "forced_share": _share(total["forced"], total["tokens"]),
        "cached_share_of_later_turns": _share(hits, later),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(total["tokens"] / seconds, 1) if seconds else None,
    }
    return {"total": sums, "outcomes": [asdict(outcome) for outcome in outcomes]}


def timed_run(*arguments: Any, **options: Any) -> tuple[list[Outcome], float]:
    """`run`, and the seconds it took."""
    started = perf_counter()
    outcomes = run(*arguments, **options)
    return outcomes, perf_counter() - started


def table(found: dict[str, Any]) -> str:
    """The report for people: a line a task, and the sums."""
    head = ("task", "passed", "ended", "turns", "calls", "parsed", "tokens", "forced", "cached")
    rows = [
        (
            one["task"],
            "yes" if one["passed"] else "no",
            one["ended"],
            str(one["turns"]),
            str(one["calls"]),
            str(one["parsed"]),
            str(one["tokens"]),
            _percent(_share(one["forced"], one["tokens"])),
            _percent(_share(one["later_cached_tokens"], one["later_prompt_tokens"])),
        )
        for one in found["outcomes"]
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    sums = found["total"]
    lines.append(
        f"{sums['passed']} of {sums['agents']} tasks passed, {sums['finished']} ended by themselves; "
        f"{sums['parsed']} of {sums['calls']} calls parsed; {sums['tokens']} tokens in {sums['seconds']:.1f} s, "
        f"{_percent(sums['forced_share'])} forced; of the prompts of later turns "
        f"{_percent(sums['cached_share_of_later_turns'])} came from the cache"
    )
    return "\n".join(line.rstrip() for line in lines)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
