"""What grammars and passes cost: counts are checked against plain definitions, and what is wrong is red."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import stcon
from stcon.bench import levels, memory, passes
from stcon.bench.masks_engines import Settings
from stcon.bench.workloads import load
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

TOKENS = [b"a", b"ab", b"abc", b"b", b"ba", b"{", b'{"', b'{"name', b'":"', b"\xc3", b"\xc3\xa9", b"12", b"123"]
SMALL = Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), *TOKENS[1:], None], end_ids=(268,))


@pytest.fixture(scope="module")
def model() -> FakeModel:
    """Over `SMALL`."""
    return FakeModel(SMALL, 3, context_length=600)


def test_documents_of_every_grammar_are_valid() -> None:
    """By the reference validator; the sixteen of the server too."""
    from jsonschema import Draft202012Validator

    schemas = [*memory.grammars().values(), memory.sixteen()[-1]]
    assert len(memory.sixteen()) == 16
    for schema in schemas:
        assert Draft202012Validator(schema).is_valid(json.loads(memory.document(schema)))


def test_our_memory_is_counted() -> None:
    """States, machine and rows of one document; the table is three bytes a state and token."""
    [row] = memory.weigh({"person": load("person").schema}, SMALL)
    grammar = stcon.compile(load("person").schema)
    grammar.machine.build_all()
    assert (row.states, row.machine_bytes) == (grammar.num_states, grammar.nbytes)
    assert row.token_table_bytes == 3 * row.states * SMALL.size
    assert 0 < row.rows <= row.tokens + 1
    assert row.row_bytes == row.rows * 4 * SMALL.num_words


def test_an_engine_in_its_own_process_is_timed() -> None:
    """Compile, masks and growth of one grammar; a rejected document would be red."""
    [row] = memory.drive({"tool_call": load("tool_call").schema}, Settings("bytes", "schema"), ["stcon"])
    assert row.refused is None
    assert 0 < row.compile_ms <= row.first_mask_ms
    assert row.mask_us > 0
    assert not memory.failures([row])
    assert memory.failures([memory.Driven("x", "stcon", "rejected its document after 3 tokens")])


def test_levels_are_what_stepping_says() -> None:
    """Alive nodes, by the machine's own step from every place along every prefix of a token."""
    machine = stcon.compile({"type": "object", "properties": {"name": {"maxLength": 3}}, "required": ["name"]}).machine
    found = levels.measure(machine, SMALL)
    starts = levels.places(machine)
    prefixes = {
        data[:n] for token in range(SMALL.size) if (data := SMALL.token_bytes(token)) for n in range(1, len(data) + 1)
    }
    alive: dict[bytes, int] = {}
    for prefix in prefixes:
        for config in starts:
            here = config
            for byte in prefix:
                after = machine.step(here, byte)
                if after is None:
                    break
                here = after
            else:
                alive[prefix] = alive.get(prefix, 0) + 1
    for level in found:
        mine = [prefix for prefix in prefixes if len(prefix) == level.depth]
        counts = [alive[prefix] for prefix in mine if prefix in alive]
        assert (level.nodes, level.alive) == (len(mine), len(counts))
        assert level.mean_alive == pytest.approx(sum(counts) / len(starts))


def test_passes_by_width_context_and_regime(model: FakeModel) -> None:
    """Rows as asked for, contexts past the model's left out, the first one the measure of the others."""
    by_width, by_context = passes.time_passes(model, widths=(1, 4), contexts=(16, 500, 5000), rounds=2)
    assert [(row.tokens, row.context) for row in (*by_width, *by_context)] == [(1, 212), (4, 212), (1, 16), (1, 500)]
    assert by_width[0].relative == by_context[0].relative == 1.0
    peaks = passes.measure_peaks(model, regimes=((2, 8),), chunks=(64,), prompt=100, batches=(2,))
    assert [(peak.what, peak.rows, peak.tokens, peak.chunk) for peak in peaks] == [
        ("decode", 2, 8, None),
        ("prefill", 2, 100, 64),
    ]
    assert all(peak.rate > 0 for peak in peaks)


def test_a_pass_that_is_not_its_tokens_is_red(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that comes before the times."""
    assert not passes.failures(model)
    session = type(model.session())
    plain = session.append  # of the class

    def wrong(self: Any, tokens: list[int], *, all_positions: bool = False) -> np.ndarray:
        found = plain(self, tokens, all_positions=all_positions)
        return found[::-1].copy() if all_positions else found

    monkeypatch.setattr(session, "append", wrong)
    assert passes.failures(model)
