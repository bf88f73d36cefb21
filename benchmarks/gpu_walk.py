"""The walk on one GPU: checked against the CPU's masks and steps, then timed in CUDA graphs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from gpu_grammars import machines, places

from stcon.engine.sampling import Sampling, apply_bitmask
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels.cpu import CpuKernel
from stcon.kernels.cuda import CudaGrammars, CudaWalker, DeviceSampling
from stcon.kernels.cuda.walker import CHUNK_WORDS
from stcon.vocab.qwen import qwen35_vocabulary
from stcon.vocab.vocabulary import Vocabulary

DEVICE = "cuda"
ROWS = 64
ARGMAX_ROWS, SAMPLE_ROWS = 16, 4  # of each batch, compared with the slower host
LAUNCHES = 50
REPEATS = 15
OPTIONS = Sampling(temperature=0.8, top_k=200, top_p=0.95, min_p=0.01, seed=1)
GOALS_US = {"1 row, any state": 5.0, "64 rows, a row": 0.7}

Place = tuple[str, Configuration]


class Bench:
    """One vocabulary, all grammars on the device, and the CPU's kernels beside them."""

    def __init__(self, limit: int) -> None:
        self.vocabulary: Vocabulary = qwen35_vocabulary()
        self.machines: dict[str, Machine] = machines()
        self.grammars = CudaGrammars(DEVICE)
        self.index = {name: self.grammars.add(machine) for name, machine in self.machines.items()}
        self.walker = CudaWalker(self.vocabulary, self.grammars, ROWS)
        self.kernels = {name: CpuKernel(machine, self.vocabulary) for name, machine in self.machines.items()}
        self.places: list[Place] = [
            (name, config) for name, machine in self.machines.items() for config in places(machine, limit)
        ]
        self.logits = torch.randn(ROWS, self.vocabulary.size, device=DEVICE) * 3
        spelled = [self.vocabulary.token_bytes(token) or b"" for token in range(self.vocabulary.size)]
        self.lengths = np.array([len(data) for data in spelled])
        self.lengths[list(self.vocabulary.end_ids)] = 1 << 20  # end tokens are never too short

    def stand(self, rows: Sequence[Place], walker: CudaWalker | None = None) -> None:
        """Put the first rows at these places."""
        walker = walker or self.walker
        packed = np.stack([config.pack() for _, config in rows])
        numbers = torch.tensor([self.index[name] for name, _ in rows], dtype=torch.int32)
        walker.config[: len(rows)].copy_(torch.from_numpy(packed))
        walker.grammar[: len(rows)].copy_(numbers)

    def expected(self, place: Place) -> np.ndarray:
        """The CPU's mask."""
        out = np.empty(self.vocabulary.num_words, np.int32)
        self.kernels[place[0]].mask(place[1].pack(), out)
        return out


def measure(quick: bool) -> dict[str, Any]:
    """Check, measure, and give the report; no time is measured where a check fails."""
    started = time.perf_counter()
    bench = Bench(limit=60 if quick else 1_500)
    print(
        f"{len(bench.places)} places in {len(bench.machines)} grammars, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    masks = [bench.expected(place) for place in bench.places]
    print(f"CPU masks, {time.perf_counter() - started:.0f} s", flush=True)
    report: dict[str, Any] = {"checks": check(bench, masks)}
    print(report["checks"], f"{time.perf_counter() - started:.0f} s", flush=True)
    if not all(count["wrong"] == 0 for count in report["checks"].values()):
        return report
    report["memory"] = memory(bench)
    report["states"] = time_states(bench, masks)
    report["kinds"] = time_kinds(bench, masks)
    report["chunks"] = time_chunks(bench, masks)
    report["seconds"] = round(time.perf_counter() - started, 1)
    return report


# ----------------------------------------------------------------------------------------------------- checks


def check(bench: Bench, masks: Sequence[np.ndarray]) -> dict[str, dict[str, int]]:
    """How many rows were compared with the CPU, and how many differ: bit for bit, token for token."""
    counts = {
        name: {"compared": 0, "wrong": 0}
        for name in ("mask, 1 row", "mask, 64 rows", "limits", "argmax", "sample", "step")
    }
    words = torch.empty((ROWS, bench.vocabulary.num_words), dtype=torch.int32, device=DEVICE)
    tokens = torch.empty(ROWS, dtype=torch.int32, device=DEVICE)
    sampling = DeviceSampling(ROWS, DEVICE)
    rng = np.random.default_rng(0)
    logits = bench.logits.cpu().numpy()
    order = rng.permutation(len(bench.places))

    def compare(name: str, equal: Iterable[bool]) -> None:
        for same in equal:
            counts[name]["compared"] += 1
            counts[name]["wrong"] += not same

    for begin in range(0, len(order), ROWS):
        chosen = order[begin : begin + ROWS].tolist()
        rows, right = [bench.places[i] for i in chosen], [masks[i] for i in chosen]
        bench.stand(rows)
        size = len(rows)
        bench.walker.bitmask(words[:size])
        compare("mask, 64 rows", (np.array_equal(a, b) for a, b in zip(words[:size].cpu().numpy(), right, strict=True)))
        compare("limits", limited(bench, words[:size], right, rng))
        bench.walker.argmax(bench.logits[:size], tokens[:size])
        masked = [apply_bitmask(logits[row].copy(), mask) for row, mask in enumerate(right[:ARGMAX_ROWS])]
        best = [int(np.argmax(row)) if np.isfinite(row.max()) else -1 for row in masked]
        compare("argmax", (a == b for a, b in zip(tokens.tolist(), best, strict=False)))
        for row in range(min(size, SAMPLE_ROWS)):
            sampling.set_row(row, OPTIONS, position=begin + row)
        bench.walker.sample(bench.logits[:size], sampling, tokens[:size])
        drawn = [
            OPTIONS.draw(row, begin + i) if np.isfinite(row.max()) else -1 for i, row in enumerate(masked[:SAMPLE_ROWS])
        ]
        compare("sample", (a == b for a, b in zip(tokens.tolist(), drawn, strict=False)))
        compare("step", step(bench, rows, right, rng))
        for i in chosen[::4]:
            bench.stand([bench.places[i]])
            bench.walker.bitmask(words[:1])
            compare("mask, 1 row", [np.array_equal(words[0].cpu().numpy(), masks[i])])
    return counts


def limited(bench: Bench, words: torch.Tensor, masks: Sequence[np.ndarray], rng: np.random.Generator) -> list[bool]:
    """Covers, bans and the host's words, others in each row; whether each mask is the CPU's without what they take."""
    vocabulary, walker, size = bench.vocabulary, bench.walker, len(words)
    expected = []
    for row, mask in enumerate(masks):
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        banned = rng.choice(np.flatnonzero(bits), 3) if bits.any() else np.zeros(3, np.int64)
        least, is_restricted = int(rng.integers(0, 6)), int(rng.integers(0, 2))
        allowed = rng.integers(-(2**31), 2**31, vocabulary.num_words).astype(np.int32)
        walker.min_bytes[row], walker.is_restricted[row], walker.num_banned[row] = least, is_restricted, 3
        walker.banned[row, :3].copy_(torch.from_numpy(banned.astype(np.int32)))
        walker.allowed[row].copy_(torch.from_numpy(allowed))
        bits[: vocabulary.size][bench.lengths < least] = 0
        bits[banned] = 0
        left = np.packbits(bits, bitorder="little").view(np.int32)
        expected.append(left & allowed if is_restricted else left)
    walker.bitmask(words)
    found = words.cpu().numpy()
    for tensor in (walker.min_bytes, walker.is_restricted, walker.num_banned):
        tensor.zero_()
    return [np.array_equal(a, b) for a, b in zip(found[:size], expected, strict=True)]


def step(bench: Bench, rows: Sequence[Place], masks: Sequence[np.ndarray], rng: np.random.Generator) -> list[bool]:
    """Read a random admissible token in each row; whether each stands where the CPU does."""
    tokens, after = [], []
    for (name, config), mask in zip(rows, masks, strict=True):
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        token = int(rng.choice(allowed)) if len(allowed) else -1
        words = config.pack()
        if token in bench.vocabulary.end_ids:
            words[:] = 0
            words[0] = -1
        elif token >= 0:
            assert bench.kernels[name].advance(words, bench.vocabulary.token_bytes(token) or b"")
        tokens.append(token)
        after.append(words)
    bench.walker.advance(torch.tensor(tokens, dtype=torch.int32, device=DEVICE))
    given = bench.walker.config[: len(rows)].cpu().numpy()
    return [np.array_equal(a, b) for a, b in zip(given, after, strict=True)]


# ----------------------------------------------------------------------------------------------------- times


def replays_us(launch: Callable[[], None], launches: int = LAUNCHES, repeats: int = REPEATS) -> float:
    """Median microseconds of one `launch` among many in a captured graph."""
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            launch()
    times = []
    for _ in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times[2:])


def time_states(bench: Bench, masks: Sequence[np.ndarray]) -> dict[str, Any]:
    """The mask of one row at every place: one graph, replayed after moving the row."""
    words = torch.empty((1, bench.vocabulary.num_words), dtype=torch.int32, device=DEVICE)
    bench.stand(bench.places[:1])
    bench.walker.bitmask(words)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            bench.walker.bitmask(words)
    taken = []
    for place in bench.places:
        bench.stand([place])
        times = []
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / 20)
        taken.append(statistics.median(times))
    worst = sorted(range(len(taken)), key=lambda i: -taken[i])[:12]
    return {
        "places": len(taken),
        "median_us": statistics.median(taken),
        "p99_us": float(np.percentile(taken, 99)),
        "max_us": max(taken),
        "worst": [[round(taken[i], 2), *describe(bench.places[i], masks[i])] for i in worst],
    }


def describe(place: Place, mask: np.ndarray) -> list[Any]:
    """Grammar, state, stack depth, counter, admissible tokens."""
    name, config = place
    return [name, config.state, len(config.stack), config.counter, admissible(mask)]


def admissible(mask: np.ndarray) -> int:
    """Tokens of a mask."""
    return int(np.bitwise_count(mask.view(np.uint32)).sum())


def kinds(bench: Bench, masks: Sequence[np.ndarray]) -> dict[str, list[Place]]:
    """Places by what they are, the larger masks first."""
    sizes = [admissible(mask) for mask in masks]
    wanted: dict[str, Callable[[str, Configuration, int], bool]] = {
        "structural": lambda name, config, size: not config.stack and size < 100,
        "structural, nested": lambda name, config, size: bool(config.stack) and size < 100,
        "free text": lambda name, config, size: not config.stack and size > 200_000,
        "free text, nested": lambda name, config, size: bool(config.stack) and size > 200_000,
        "between": lambda name, config, size: 1_000 < size < 200_000,
    }
    found = {}
    for kind, test in wanted.items():
        chosen = [i for i, (name, config) in enumerate(bench.places) if test(name, config, sizes[i])]
        chosen.sort(key=lambda i: -sizes[i])
        if chosen:
            found[kind] = [bench.places[i] for i in chosen]
    found["all kinds"] = [bench.places[i] for i in range(0, len(bench.places), max(1, len(bench.places) // ROWS))]
    return found


def spread(places_of_kind: Sequence[Place], rows: int) -> list[Place]:
    """`rows` of them, repeated if need be."""
    return [places_of_kind[i * max(1, len(places_of_kind) // rows) % len(places_of_kind)] for i in range(rows)]


def time_kinds(bench: Bench, masks: Sequence[np.ndarray]) -> dict[str, dict[str, float]]:
    """Every kernel at 1, 8 and 64 rows. No two rows count as equal: each has a limit of its own, far away."""
    walker, size = bench.walker, bench.vocabulary.num_words
    words = torch.empty((ROWS, size), dtype=torch.int32, device=DEVICE)
    tokens = torch.empty(ROWS, dtype=torch.int32, device=DEVICE)
    sampling = DeviceSampling(ROWS, DEVICE)
    for row in range(ROWS):
        sampling.set_row(row, OPTIONS)
    half = bench.logits.bfloat16()
    flush = torch.empty(64 << 20, dtype=torch.int32, device=DEVICE)
    report: dict[str, dict[str, float]] = {}
    for kind, some in kinds(bench, masks).items():
        times = report[kind] = {}
        for rows in (1, 8, ROWS):
            bench.stand(spread(some, rows))
            walker.remaining.copy_(torch.arange(ROWS, dtype=torch.int32) + 1_000_000)
            times[f"bitmask {rows}"] = replays_us(lambda rows=rows: walker.bitmask(words[:rows]))
            times[f"argmax {rows}"] = replays_us(lambda rows=rows: walker.argmax(half[:rows], tokens[:rows]))
            times[f"sample {rows}"] = replays_us(lambda rows=rows: walker.sample(half[:rows], sampling, tokens[:rows]))
            times[f"mask_logits {rows}"] = replays_us(lambda rows=rows: walker.mask_logits(half[:rows]), 10)
            half.copy_(bench.logits)
            tokens.fill_(-1)
            times[f"advance none {rows}"] = replays_us(lambda rows=rows: walker.advance(tokens[:rows]))
            if rows == ROWS:
                bench.stand(spread(some, 1) * ROWS)
                walker.remaining.fill_(1_000_000)
                times["bitmask 64 equal"] = replays_us(lambda: walker.bitmask(words))

        def cold() -> None:
            flush.zero_()
            walker.bitmask(words[:1])

        times["bitmask 1 cold"] = replays_us(cold, 10) - replays_us(flush.zero_, 10)
    return report


def time_chunks(bench: Bench, masks: Sequence[np.ndarray]) -> dict[str, dict[str, float]]:
    """The mask by size of chunk: what `CHUNK_WORDS` is chosen from."""
    words = torch.empty((ROWS, bench.vocabulary.num_words), dtype=torch.int32, device=DEVICE)
    report: dict[str, dict[str, float]] = {}
    for size in (32, 64, 128, 256, 512):
        walker = CudaWalker(bench.vocabulary, bench.grammars, ROWS, chunk_words=((1024, size),))
        times = report[str(size)] = {}
        for kind, some in kinds(bench, masks).items():
            for rows in (1, 8, ROWS):
                bench.stand(spread(some, rows), walker)
                walker.remaining.copy_(torch.arange(ROWS, dtype=torch.int32) + 1_000_000)
                times[f"{kind} {rows}"] = replays_us(lambda w=walker, rows=rows: w.bitmask(words[:rows]), 30, 7)
    return report


# ----------------------------------------------------------------------------------------------------- memory


def memory(bench: Bench) -> dict[str, Any]:
    """Bytes on the device: of each grammar, beside a token table's 3·Q·V; of what all share; of a row."""
    walker, size = bench.walker, bench.vocabulary.size
    grammars = {
        name: {
            "states": machine.num_states,
            "bytes": bench.grammars.nbytes(bench.index[name]),
            "token_table_bytes": 3 * machine.num_states * size,
        }
        for name, machine in bench.machines.items()
    }
    rows = (walker.config, walker.grammar, walker.allowed, walker.banned, walker._words)
    return {
        "grammars": grammars,
        "shared": sum(tensor.nbytes for tensor in walker._keep),
        "a row": sum(tensor.nbytes for tensor in rows) // walker.max_rows,
        "chunks": str(CHUNK_WORDS),
    }


def table(report: dict[str, Any]) -> list[str]:
    """The report as lines of text."""
    lines = [f"{name}: {c['compared']} compared, {c['wrong']} wrong" for name, c in report["checks"].items()]
    if "kinds" not in report:
        return [*lines, "WRONG: no times"]
    states = report["states"]
    lines += ["", "one row, microseconds: median {median_us:.2f}, p99 {p99_us:.2f}, max {max_us:.2f}".format(**states)]
    lines += [f"  worst: {worst}" for worst in states["worst"][:6]]
    names = list(next(iter(report["kinds"].values())))
    lines += ["", "microseconds a launch".ljust(24) + "".join(kind[:18].rjust(20) for kind in report["kinds"])]
    for name in names:
        lines.append(name.ljust(24) + "".join(f"{times[name]:20.2f}" for times in report["kinds"].values()))
    lines += ["", "chunk words".ljust(24) + "".join(size.rjust(10) for size in report["chunks"])]
    for name in next(iter(report["chunks"].values())):
        lines.append(name.ljust(24) + "".join(f"{times[name]:10.2f}" for times in report["chunks"].values()))
    shared = report["memory"]["shared"] / 1e6
    lines += ["", f"memory: shared {shared:.1f} MB, a row {report['memory']['a row']:,} bytes"]
    for name, m in report["memory"]["grammars"].items():
        table_mb = m["token_table_bytes"] / 1e6
        lines.append(
            f"  {name:24s} {m['states']:6d} states {m['bytes'] / 1e3:9.1f} kB   token table {table_mb:9.1f} MB"
        )
    return lines
