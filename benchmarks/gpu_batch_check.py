"""In float32, the rows of a batch write what one stream alone writes, on the card: the check before `gpu_batch.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpu_batch_answers import answer

from stcon.bench.near_ties import divergence
from stcon.engine.batch import Batch, Request
from stcon.engine.batch.choose import rows_for
from stcon.engine.loop import decode
from stcon.engine.output import Output
from stcon.engine.sampling import Sampling
from stcon.models.lean.model import LeanModel
from stcon.models.text import PromptText
from stcon.vocab.vocabulary import Vocabulary

LIMIT = 40
LARGEST_TIE = 1e-3
SAMPLINGS = (Sampling(), Sampling(0.8, seed=7), Sampling(1.0, top_k=40, top_p=0.95, seed=11))


def check(device: str, vocabulary: Vocabulary, tasks: Sequence[Any], *, tiny: bool) -> dict[str, Any]:
    """Every task, greedy and sampled in two ways, by a batch of eight rows and by the plain loop; random weights.

    One request in six has two outputs, one in five asks for log-probabilities (and so draws on the host). A request
    joins every second step; prompts are read in chunks of 64 tokens.
    """
    model = _model(device, vocabulary, tiny=tiny)
    outcome: dict[str, Any] = {"outputs": 0, "equal": 0, "near_ties": [], "red": []}
    for feeding in ("ragged",) if tiny else ("ragged", "auto", "drip"):
        batch = Batch(rows_for(model, 8, row_tokens=512), feeding=feeding, chunk=64)
        wanted = [_request(model, tasks[i % 9], i) for i in range(6 if tiny else 18)]
        handles = []
        for request in wanted:
            handles.append(batch.submit(request))
            batch.step()
            batch.step()
        batch.run()
        for number, (request, handle) in enumerate(zip(wanted, handles, strict=True)):
            for index, generation in enumerate(handle.result(0)):
                _compare(model, request, index, generation, f"{feeding}, request {number}", outcome)
    outcome["summary"] = f"{outcome['equal']} of {outcome['outputs']} outputs are one stream's, token for token"
    return outcome


_alone: dict[tuple[int, int], list[int]] = {}


def _compare(model: Any, request: Request, index: int, generation: Any, name: str, outcome: dict[str, Any]) -> None:
    key = (hash((tuple(request.prompt_ids), request.sampling)), index)
    if key not in _alone:
        seed = (request.sampling.seed or 0) + index
        sampling = Sampling(
            request.sampling.temperature, top_k=request.sampling.top_k, top_p=request.sampling.top_p, seed=seed
        )
        output = Output(
            model,
            request.prompt_ids,
            request.grammar,
            max_tokens=request.max_tokens,
            sampling=sampling,
            budget=request.budget,
        )
        _alone[key] = [token.id for token in decode(output, model.session()).tokens]
    tokens = [token.id for token in generation.tokens]
    outcome["outputs"] += 1
    outcome["equal"] += tokens == _alone[key]
    if tokens != _alone[key]:
        parted = divergence(model, request.prompt_ids, tokens, _alone[key])
        gap = None if parted is None else parted.gap
        outcome["near_ties"].append({"request": name, "index": index, "gap": gap})
        if request.sampling.greedy and (gap is None or abs(gap) > LARGEST_TIE):
            outcome["red"].append(f"{name}: parts from one stream with a gap of {gap}")


def _request(model: Any, task: tuple[Any, Any], number: int) -> Request:
    prompt = model.encode_prompt(f"{number}. {task[0].prompt} For example: {answer(number % 9, number)}")
    return Request(
        prompt,
        task[1],
        max_tokens=LIMIT,
        budget=False,  # an answer cut at the limit will do here
        sampling=SAMPLINGS[number % 3],
        n=2 if number % 6 == 1 else 1,
        logprobs=1 if number % 5 == 2 else None,
    )


def _model(device: str, vocabulary: Vocabulary, *, tiny: bool) -> LeanModel:
    """Random float32 weights: the 2B shape's layers, four of them."""
    import gpu_batch
    import models_shapes

    if tiny:
        network = gpu_batch.tiny_network(device)
    else:
        settings = models_shapes.from_config({**models_shapes.QWEN3_5_2B, "num_hidden_layers": 4})
        assert settings is not None
        generator = torch.Generator(device).manual_seed(1)
        parameters = models_shapes._random_parameters(settings, device, torch.float32, generator)
        network = models_shapes.Network(settings, parameters)
    return LeanModel(network, vocabulary, PromptText(vocabulary.encode, vocabulary.encode), name="random float32")
