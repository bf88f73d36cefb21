"""Decode steps and prompts on one GPU, in CUDA graphs, against the time that reading the bytes takes."""

from __future__ import annotations

import gc
import platform
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import models_compiled
import models_fidelity
import torch
from models_shapes import SHAPES, four_bit, random_network, unrounded

from stcon.models.lean.cuda import plans
from stcon.models.lean.network import Network

CONTEXT = 212  # the prefix of the measurements before this runner
STEPS = (1, 2, 4, 8, 16)
CONTEXTS = (128, 512, 2048, 8192)
FIDELITY_TOKENS = 48
GOALS_MS = {"Qwen3.5-2B": (1.3, 4.0), "Qwen3-1.7B": (1.2, 3.0), "SmolLM2-135M": (0.4, 1.5)}
BANDWIDTH = 4.3e12  # bytes a second, a large copy's on this card


def prepare() -> Callable[[], None]:
    """Start filling the compiler's cache, models side by side; the returned function waits for the end."""
    pool = ProcessPoolExecutor(2 * len(SHAPES), mp_context=get_context("spawn"))
    jobs = [pool.submit(compile_kernels, name, int4) for name in SHAPES for int4 in (False, True)]

    def ready() -> None:
        for job in jobs:
            job.result()
        pool.shutdown()

    return ready


def measure(quick: bool, only: str = "all") -> dict[str, Any]:
    """Everything, and the table."""
    report: dict[str, Any] = {"machine": machine(), "weights": "random", "models": {}, "fidelity": {}}
    if only == "compile":
        return compiled()
    for name in SHAPES:
        network = random_network(name, "cuda", torch.bfloat16)
        packed = four_bit(network)
        report["fidelity"] |= against_float32(name, network, packed)
        if only == "all":
            report["models"][name] = one_model(network, quick) | {"int4": one_packed(packed)}
            print(name, report["models"][name], flush=True)
        del network, packed
        gc.collect()
        torch.cuda.empty_cache()
    report["table"] = [*(table(report["models"]) if only == "all" else []), *models_fidelity.table(report["fidelity"])]
    return report


def compile_kernels(name: str, int4: bool) -> None:
    """Run every kernel that will be timed or compared once."""
    network = random_network(name, "cuda", torch.bfloat16)
    if int4:
        network = four_bit(network)
    else:
        all_logits(unrounded(network, "cuda"), torch.zeros(1, FIDELITY_TOKENS, dtype=torch.int64, device="cuda"), 64)
    for rows, size in ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (16, 1), (64, 1), (1, 65)):
        cache = network.new_cache(rows, 256)
        tokens = torch.zeros(rows, size, dtype=torch.int64, device="cuda")
        for overlap in {plans.PDL, 0} if rows == 1 and size <= 16 else {plans.PDL}:
            plans.PDL, kept = overlap, plans.PDL
            network.forward(tokens, torch.full((rows,), 8, dtype=torch.int32, device="cuda"), cache)
            plans.PDL = kept


def compiled() -> dict[str, Any]:
    """What torch.compile makes of the products."""
    found = {
        name: models_compiled.on_cuda(
            random_network(name, "cuda", torch.bfloat16), lambda network, size: decode_ms(network, 1, size, CONTEXT)
        )
        for name in ("Qwen3-1.7B", "SmolLM2-135M")
    }
    return {"machine": machine(), "compiled": found, "table": [f"{name}: {taken}" for name, taken in found.items()]}


def machine() -> dict[str, str]:
    """The card and the versions."""
    import triton

    return {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }


def one_model(network: Network, quick: bool) -> dict[str, Any]:
    """Times of one model, in milliseconds."""
    found: dict[str, Any] = {"gigabytes": gigabytes(network), "floor_ms": floor_ms(network)}
    found["step_ms"] = {size: decode_ms(network, 1, size, CONTEXT) for size in STEPS}
    found["rows16_ms"] = decode_ms(network, 16, 1, CONTEXT)
    found["rows64_ms"] = decode_ms(network, 64, 1, CONTEXT)
    found["context_ms"] = {} if quick else {n: decode_ms(network, 1, 1, n) for n in CONTEXTS}
    found["prompt_tokens_per_s"] = prompt_speed(network)
    found["kernels"] = {f"1 row, S={size}": kernels(network, 1, size) for size in (1, 16)}
    return found


def one_packed(network: Network) -> dict[str, Any]:
    """The same of four-bit weights, a few sizes."""
    return {
        "gigabytes": gigabytes(network),
        "floor_ms": floor_ms(network),
        "step_ms": {size: decode_ms(network, 1, size, CONTEXT) for size in (1, 2, 16)},
        "rows16_ms": decode_ms(network, 16, 1, CONTEXT),
        "rows64_ms": decode_ms(network, 64, 1, CONTEXT),
        "prompt_tokens_per_s": prompt_speed(network),
        "kernels": {"1 row, S=1": kernels(network, 1, 1)},
    }


def against_float32(name: str, network: Network, packed: Network, tokens: int = FIDELITY_TOKENS) -> dict[str, Any]:
    """Fidelity of bfloat16 and of four bits, token by token, each against float32 with the same weights.

    The weights are random, so this says what arithmetic does, not what rounding to four bits costs a trained model:
    the four-bit network is also compared with the float32 one of *its* numbers.
    """
    ids = torch.randint(0, network.vocab_size, (1, tokens), device="cuda", generator=_seeded())
    full = all_logits(unrounded(network, "cuda"), ids, tokens)
    found = {
        f"{name} bfloat16": models_fidelity.fidelity(all_logits(network, ids, 1), full),
        f"{name} int4": models_fidelity.fidelity(all_logits(packed, ids, 1), full),
    }
    own = all_logits(unrounded(packed, "cuda"), ids, tokens)
    return found | {f"{name} int4, of its own": models_fidelity.fidelity(all_logits(packed, ids, 1), own)}


def all_logits(network: Network, ids: torch.Tensor, step: int) -> Any:
    """float32[tokens, vocabulary] on the host, the tokens fed `step` at a time."""
    cache, rows = network.new_cache(1, ids.shape[1] + 1), []
    for done in range(0, ids.shape[1], step):
        lengths = torch.full((1,), done, dtype=torch.int32, device="cuda")
        rows.append(network.forward(ids[:, done : done + step], lengths, cache, all_positions=True)[0].float().cpu())
    return torch.cat(rows).numpy()


def _seeded() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(5)


def gigabytes(network: Network) -> float:
    """Memory of the weights."""
    return round(sum(weight.nbytes for weight in network.parameters.values()) / 1e9, 3)


def floor_ms(network: Network) -> float:
    """The time to read every weight of a decode step once (of the embedding, only a tied head is read)."""
    read = {t.data_ptr(): t.nbytes for n, t in network.parameters.items() if n != "embed"}
    read[network.head.data_ptr()] = network.head.nbytes
    return sum(read.values()) / BANDWIDTH * 1e3


def decode_ms(network: Network, rows: int, size: int, context: int) -> float:
    """Milliseconds of a step."""
    return replay_ms(decode_graph(network, rows, size, context))


def decode_graph(network: Network, rows: int, size: int, context: int) -> Callable[[], None]:
    """A captured step over a cache that holds `context` tokens a row."""
    cache = network.new_cache(rows, context + 16)
    cache.kv.normal_()
    if cache.states is not None:
        cache.states.normal_(std=0.1)
    tokens = torch.randint(0, network.vocab_size, (rows, size), device="cuda")
    lengths = torch.full((rows,), context, dtype=torch.int32, device="cuda")
    return captured(lambda: network.forward(tokens, lengths, cache))


def captured(step: Callable[[], Any]) -> Callable[[], None]:
    """`step` as a CUDA graph; the returned function replays it and keeps all that it uses alive."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()

    def replay(kept: Any = (step, output)) -> None:
        graph.replay()

    return replay


def replay_ms(replay: Callable[[], None], rounds: int = 9, each: int = 10) -> float:
    """Median over `rounds` of the mean of `each` replays back to back."""
    for _ in range(5):
        replay()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(each):
            replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / each)
    return statistics.median(times)


def prompt_speed(network: Network, tokens: int = 2048, chunk: int = 512) -> float:
    """Prompt tokens a second: one row, in chunks, each a replay of one graph."""
    cache = network.new_cache(1, tokens + 16)
    fed = torch.randint(0, network.vocab_size, (1, chunk), device="cuda")
    lengths = torch.zeros(1, dtype=torch.int32, device="cuda")
    feed = captured(lambda: network.forward(fed, lengths, cache))

    def prompt() -> None:
        for done in range(0, tokens, chunk):
            lengths.fill_(done)
            feed()

    return tokens / replay_ms(prompt, rounds=5, each=2) * 1e3


def kernels(network: Network, rows: int, size: int) -> dict[str, dict[str, float]]:
    """Where a step's time goes: microseconds and launches by kernel, from the profiler, and the share of the bandwidth.

    With plain launches, one after another: overlapping kernels would count the wait for each other.
    """
    from torch.profiler import ProfilerActivity, profile

    overlap, plans.PDL = plans.PDL, 0
    try:
        replay = decode_graph(network, rows, size, CONTEXT)
    finally:
        plans.PDL = overlap
    replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(5):
            replay()
        torch.cuda.synchronize()
    found = {}
    for event in trace.key_averages():
        if event.device_time_total:
            micros = event.device_time_total / 5
            found[event.key[:60]] = {"us": round(micros, 1), "launches": event.count / 5}
            if moved := bytes_of(event.key, network, size):
                found[event.key[:60]]["of_bandwidth"] = round(moved / BANDWIDTH / micros * 1e6, 3)
    return dict(sorted(found.items(), key=lambda item: -item[1]["us"])[:12])


def bytes_of(kernel: str, network: Network, size: int) -> float:
    """The fewest bytes that a kernel's launches of one row's step move; 0 for one that is not known here."""
    settings = network.settings
    matrices = [w for name, w in network.parameters.items() if len(w.shape) == 2 and name not in ("embed", "head")]
    weights, head = sum(w.nbytes for w in matrices), network.head.nbytes
    tokens = settings.layers.count("attention") * 2 * settings.kv_heads * settings.head_dim * CONTEXT * 2
    delta, states = settings.delta, 0
    if delta is not None:
        states = settings.layers.count("delta") * delta.value_heads * delta.key_dim * delta.value_dim * 4
        weights -= sum(w.nbytes for name, w in network.parameters.items() if name.endswith(".conv"))
    packed = any(not isinstance(w, torch.Tensor) for w in matrices)
    return {
        "vector_kernel": head + (weights if size == 1 and not packed else 0),
        "rows_kernel": weights,
        "four_vector_kernel": weights,
        "four_rows_kernel": weights,
        "one_token_kernel": tokens,
        "decode_kernel": tokens,
        "delta_kernel": 2 * states,
    }.get(kernel, 0)


def table(models: dict[str, Any]) -> list[str]:
    """The summary, one line a model."""
    lines = [
        "model (random weights, bf16)  1 row ms (goal)  of floor   64 rows ms (goal)  S=2,4,8,16 over S=1   tokens/s"
    ]
    for name, found in models.items():
        one, many = GOALS_MS[name]
        base = found["step_ms"][1]
        ratios = " ".join(f"{found['step_ms'][size] / base:.2f}" for size in STEPS[1:])
        lines.append(
            f"{name:28}  {base:7.3f} ({one})   {found['floor_ms'] / base:6.0%}   {found['rows64_ms']:9.3f} ({many})"
            f"      {ratios}      {found['prompt_tokens_per_s']:8.0f}"
        )
        four = found["int4"]
        lines.append(
            f"  int4: {four['step_ms'][1]:.3f} ms, S=16 {four['step_ms'][16]:.3f}, 64 rows {four['rows64_ms']:.3f},"
            f" {four['gigabytes']} GB instead of {found['gigabytes']}"
        )
        if found["context_ms"]:
            lines.append("  context: " + ", ".join(f"{n}: {ms:.3f} ms" for n, ms in found["context_ms"].items()))
    return lines
