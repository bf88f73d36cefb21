"""A batch's counts in Prometheus' text format."""

from __future__ import annotations

from stcon.engine.batch import Batch
from stcon.server.grammars import Grammars


def render(batch: Batch, grammars: Grammars) -> str:
    """The metrics, each with its type and help.

    Source: Prometheus, "Text-based format", version 0.0.4.
    """
    stats = batch.stats
    counters = {
        "outputs_total": ("Outputs asked for.", stats.num_outputs),
        "outputs_finished_total": ("Outputs that are over.", stats.num_finished),
        "steps_total": ("Calls of the model.", stats.num_steps),
        "fed_tokens_total": ("Tokens fed to the model.", stats.num_fed),
        "sampled_tokens_total": ("Tokens drawn, of outputs that are over.", stats.sampled),
        "forced_tokens_total": ("Tokens written without the model, of outputs that are over.", stats.forced),
        "prompt_tokens_total": ("Prompt tokens, of outputs that are over.", stats.prompt_tokens),
        "cached_prompt_tokens_total": ("Of them, found in the prompt cache.", stats.cached_tokens),
        "model_seconds_total": ("Seconds in the model.", stats.model_s),
        "host_seconds_total": ("Seconds between its calls.", stats.host_s),
    }
    gauges = {
        "active_rows": ("Rows that write now.", batch.num_active),
        "waiting_requests": ("Requests that wait.", batch.num_waiting),
        "prompt_cache_bytes": ("Bytes of parked rows.", batch.cache.num_bytes),
        "grammars": ("Grammars kept.", len(grammars)),
        "grammars_bytes": ("Bytes of them, of their mask rows and of the tables of their budgets.", grammars.nbytes),
    }
    lines = []
    for kind, entries in (("counter", counters), ("gauge", gauges)):
        for name, (text, value) in entries.items():
            lines += [f"# HELP stcon_{name} {text}", f"# TYPE stcon_{name} {kind}", f"stcon_{name} {value}"]
    return "\n".join(lines) + "\n"
