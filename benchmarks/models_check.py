"""Checks of the lean runner: its logits against transformers in float32, fed in every way that a decode loop does."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from models_shapes import SMALL, four_bit, ours, theirs, unrounded

from stcon.models.lean.network import Network

Check = tuple[str, float, float]  # name, relative error, limit
TOKENS = 64
SPLIT = (21, 1, 3, 16, 2, 1, 7, 13)  # how the tokens are fed: a chunk, then steps


def run(device: str) -> list[Check]:
    """Every check; errors are ‖ours − theirs‖ / ‖theirs‖ over the logits of all positions."""
    if device == "cpu":
        return [check for model_type in SMALL for check in one_family(model_type, device)]
    with ProcessPoolExecutor(len(SMALL), mp_context=get_context("spawn")) as pool:  # compiling kernels takes longest
        return [check for checks in pool.map(one_family, SMALL, [device] * len(SMALL)) for check in checks]


def one_family(model_type: str, device: str) -> list[Check]:
    """The checks of one small model."""
    network, checks = theirs(model_type), []
    tokens = torch.randint(0, 300, (3, TOKENS), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = network(tokens).logits
    for dtype, limit in ((torch.float32, 2e-4), (torch.bfloat16, 8e-2)):
        lean = ours(network, device, dtype)
        name = f"{model_type} {str(dtype).removeprefix('torch.')}"
        checks.append((f"{name} prompt", _error(_prompt(lean, tokens), expected), limit))
        checks.append((f"{name} steps", _error(_steps(lean, tokens), expected), limit))
        checks.append((f"{name} ragged", _error(_ragged(lean, tokens), expected[:, -1]), limit))
        checks.append((f"{name} rollback", _error(_rollback(lean, tokens), expected[:, -1]), limit))
        if device != "cpu":
            checks.append((f"{name} graph", _error(_replayed(lean, tokens[:1]), expected[:1]), limit))
    if device != "cpu":
        checks += _four_bit(model_type, ours(network, device, torch.bfloat16), tokens)
    return checks


def _four_bit(model_type: str, dense: Network, tokens: torch.Tensor) -> list[Check]:
    """Four-bit weights against the matrices that they stand for, in float32; single tokens in the end."""
    lean = four_bit(dense)
    expected = _prompt(unrounded(lean, "cpu"), tokens)
    single = _steps(lean, tokens, (*SPLIT[:-1], *[1] * SPLIT[-1]))
    return [
        (f"{model_type} int4 prompt", _error(_prompt(lean, tokens), expected), 8e-2),
        (f"{model_type} int4 steps", _error(_steps(lean, tokens), expected), 8e-2),
        (f"{model_type} int4 one row", _error(_steps(lean, tokens[:1], (40, *[1] * 24)), expected[:1]), 8e-2),
        (f"{model_type} int4 single", _error(single, expected), 8e-2),
    ]


def _error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    return float((ours.cpu().double() - expected.double()).norm() / expected.double().norm())


def _prompt(lean, tokens):
    """All tokens at once."""
    lengths = torch.zeros(len(tokens), dtype=torch.int32, device=lean.device)
    return lean.forward(tokens.to(lean.device), lengths, lean.new_cache(len(tokens), 80), all_positions=True)


def _steps(lean, tokens, split=SPLIT):
    """In parts, rows together."""
    cache, parts, done = lean.new_cache(len(tokens), 80), [], 0
    lengths = torch.zeros(len(tokens), dtype=torch.int32, device=lean.device)
    for size in split:
        parts.append(
            lean.forward(tokens[:, done : done + size].to(lean.device), lengths, cache, all_positions=True).clone()
        )
        done, lengths = done + size, lengths + size
    return torch.cat(parts, 1)


def _replayed(lean, tokens, prompt=40):
    """A prompt, then single tokens by one captured graph, as a decode loop runs."""
    cache = lean.new_cache(1, 80)
    fed = torch.zeros(1, 1, dtype=torch.int64, device=lean.device)
    lengths = torch.zeros(1, dtype=torch.int32, device=lean.device)
    rows = [lean.forward(tokens[:, :prompt].to(lean.device), lengths, cache, all_positions=True).clone()]
    lengths.fill_(prompt)
    cache.save()
    lean.forward(fed, lengths, cache, all_positions=True)  # compiles; what it did to the states is taken back
    cache.restore()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = lean.forward(fed, lengths, cache, all_positions=True)
    for i in range(prompt, tokens.shape[1]):
        fed.copy_(tokens[:, i : i + 1])
        lengths.fill_(i)
        graph.replay()
        rows.append(output.clone())
    return torch.cat(rows, 1)


def _ragged(lean, tokens):
    """Rows of different lengths, padded: each row takes another number of real tokens a step."""
    rows = len(tokens)
    cache, done, last = lean.new_cache(rows, 100), [0] * rows, [None] * rows
    generator = torch.Generator().manual_seed(3)
    while min(done) < TOKENS:
        counts = [min(int(torch.randint(0, 17, (), generator=generator)), TOKENS - n) for n in done]
        fed = torch.full((rows, 16), 299)
        for b, (n, count) in enumerate(zip(done, counts, strict=True)):
            fed[b, :count] = tokens[b, n : n + count]
        fed, real = fed.to(lean.device), torch.tensor(counts, dtype=torch.int32, device=lean.device)
        logits = lean.forward(fed, torch.tensor(done, dtype=torch.int32, device=lean.device), cache, counts=real)
        for b, count in enumerate(counts):
            done[b] += count
            if count and done[b] == TOKENS:
                last[b] = logits[b].clone()
    return torch.stack(last)


def _rollback(lean, tokens):
    """Wrong tokens taken back before the right ones, in a row copied from another."""
    rows = len(tokens)
    cache = lean.new_cache(rows + 1, 80)
    lengths = torch.full((rows,), 0, dtype=torch.int32, device=lean.device)
    lean.forward(tokens[:, :40].to(lean.device), lengths, cache)
    cache.copy_rows([0], [rows], 40)
    cache.copy_rows([rows], [0], 40)
    lengths += 40
    cache.save()
    lean.forward(tokens[:, :9].flip(0).contiguous().to(lean.device), lengths, cache)
    cache.restore(torch.ones(rows + 1, dtype=torch.bool, device=lean.device))
    lean.forward(tokens[:, 40:50].to(lean.device), lengths, cache)
    return lean.forward(tokens[:, 50:].to(lean.device), lengths + 10, cache)
