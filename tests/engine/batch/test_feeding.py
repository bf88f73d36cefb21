"""How a step is divided among rows, what it is measured to cost, and what memory it is planned to take."""

import pytest
from batch_cases import fake, plan
from hypothesis import given
from hypothesis import strategies as st

from stcon.engine.batch import Guards, SessionRows, plan_memory
from stcon.engine.batch.choose import rows_for
from stcon.engine.batch.feeding import Demand, StepCost, best_cap, divide
from stcon.engine.batch.guards import repeats
from stcon.engine.batch.memory import WARM_GRAMMARS_BYTES, available_bytes
from stcon.errors import InvalidOption, NoRoom

demands = st.lists(st.builds(Demand, st.integers(1, 600), st.booleans()), min_size=1, max_size=12)


def padded(counts):
    """Positions of rows padded to the longest."""
    return len(counts) * max(counts, default=0)


@given(
    demands, st.sampled_from(["drip", "ragged", "auto"]), st.integers(1, 300), st.floats(1e-6, 1), st.floats(0, 1e-3)
)
def test_divide_feeds_every_writer_and_bounds_prompts(rows, feeding, chunk, a, b):
    """Writers always get a token, drip exactly one; prompts share the chunk wholly, the oldest half of it or more."""
    counts = divide(rows, feeding=feeding, chunk=chunk, cost=lambda n: a + b * n, computed=padded)
    assert all(0 <= count <= row.pending for row, count in zip(rows, counts, strict=True))
    writing = [count for row, count in zip(rows, counts, strict=True) if not row.is_prompt]
    prompts = [(row.pending, count) for row, count in zip(rows, counts, strict=True) if row.is_prompt]
    assert all(1 <= count <= chunk for count in writing)
    if feeding == "drip":
        assert set(writing) <= {1}
    if prompts:
        assert sum(count for _, count in prompts) == min(chunk, sum(pending for pending, _ in prompts))
        assert prompts[0][1] >= min(prompts[0][0], chunk // 2, chunk)
        assert prompts[0][1] > 0


def test_divide_short_prompts_do_not_wait_for_a_long_one():
    """Beside a prompt of 10,000 tokens one of 20 is read at once."""
    rows = [Demand(10_000, True), Demand(900, True), Demand(20, True), Demand(1, False)]
    assert divide(rows, feeding="ragged", chunk=256) == [128, 108, 20, 1]


@given(st.floats(1e-4, 1), st.floats(0, 1e-2))
def test_step_cost_finds_the_line(a, b):
    """From exact measurements the fit is the line; from equal sizes, or few, nothing is concluded."""
    cost, same = StepCost(), StepCost()
    for number in range(20):
        assert (cost.line is None) == (number < 8)
        cost.observe(1 + 7 * number % 40, a + b * (1 + 7 * number % 40))
        same.observe(4, a)
    found = cost.line
    assert found == pytest.approx((a, b), rel=1e-3, abs=1e-6 * a)
    assert same.line is None


def by_line(a, b):
    return lambda n: a + b * n


def test_step_cost_of_few_sizes_is_what_they_took():
    """Where steps come in few sizes, a jump between two of them is known, though no line has one."""
    cost = StepCost()
    for _ in range(20):
        for n, t in ((16, 1.7), (32, 1.9), (64, 3.5)):
            cost.observe(n, t)
    assert cost.is_known
    assert [cost.seconds(n) for n in (16, 32, 64)] == pytest.approx([1.7, 1.9, 3.5])
    pending = [1] * 12 + [9] * 4
    bucket = lambda counts: 1 << (sum(counts) - 1).bit_length()  # noqa: E731
    assert best_cap(pending, cost.seconds, bucket) == 4  # 28 tokens of 32; with 8 it would be 44 of 64


def test_divide_keeps_to_the_models_longest_span():
    """No writing row is fed more than the model takes in a step; prompts are."""
    rows = [Demand(40, False), Demand(40, True)]
    for feeding in ("ragged", "auto"):
        assert divide(rows, feeding=feeding, chunk=30, most=16) == [16, 30]


def test_best_cap_weighs_padding():
    """Nearly free tokens: the whole span. Padding at full price: one token. Without padding: the whole span again."""
    pending = [1] * 15 + [40]
    assert best_cap(pending, by_line(5e-3, 1e-9), padded) >= 40
    assert best_cap(pending, by_line(1e-6, 1e-3), padded) == 1
    assert best_cap(pending, by_line(1e-6, 1e-3), sum) >= 40
    assert best_cap(pending, None, padded) >= 40
    assert 1 < best_cap([8] * 16, by_line(1e-3, 1e-3), padded) <= 8


def test_plan_memory_is_the_papers_sum():
    """M is the sum of its terms, T what is left for a row, and what does not fit is refused with the numbers."""
    rows = SessionRows(fake(context_length=1 << 20), 4, token_bytes=1000, weight_bytes=5000)
    rows.row_bytes = 50
    free = WARM_GRAMMARS_BYTES + 40_000_000
    found = plan_memory(rows, chunk=16, free_bytes=free, cache_bytes=10_000_000)
    assert found.weights == 5000
    assert found.total == 5000 + free
    assert found.rows == free - WARM_GRAMMARS_BYTES - found.step - 10_000_000
    assert found.tokens_a_row == (found.rows // 4 - 50) // 1000
    assert found.need(10, 3) == 3 * (50 + 10_000)
    assert "4 rows" in str(found)
    with pytest.raises(NoRoom):
        plan_memory(rows, chunk=16, free_bytes=1000)
    small = plan_memory(SessionRows(fake(context_length=100), 4, token_bytes=1000), chunk=16, free_bytes=free)
    assert small.rows == 4 * 100 * 1000
    assert available_bytes() > 1 << 20
    with pytest.raises(NoRoom, match="5,000 tokens where the batch has 4,096"):
        plan().check(5000, 1)


def test_rows_for_a_model_without_weights_are_sessions():
    """What nothing faster can run goes by its sessions."""
    assert isinstance(rows_for(fake(), 3), SessionRows)


def test_guards():
    """Three rounds of 8 to 128 tokens; one call too many; the same call twice; nothing by default."""
    assert not Guards()
    assert repeats([9, *([1, 2, 3, 4, 5, 6, 7, 8] * 3)])
    assert repeats(list(range(100)) + list(range(128)) * 3)
    assert not repeats([1, 2, 3, 4, 5, 6, 7, 8] * 2 + [1, 2, 3, 4, 5, 6, 7])
    assert not repeats([1, 2] * 11)
    two = "a <tool_call>x</tool_call> b <tool_call>y</tool_call>"
    assert not Guards(max_calls=2, same_call=True).fires([], two)
    assert Guards(max_calls=1).fires([], two)
    assert Guards(same_call=True).fires([], two.replace("y", "x"))
    assert not Guards(same_call=True).fires([], "<tool_call>x</tool_call><tool_call>x")
    for bad in ({"max_calls": -1}, {"call": ("", "x")}):
        with pytest.raises(InvalidOption):
            Guards(**bad)
