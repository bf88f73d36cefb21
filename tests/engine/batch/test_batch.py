"""Continuous batching on a model without weights: outputs, joins, cancels, limits, errors, threads."""

import asyncio
import threading
import time
from functools import cache

import numpy as np
import pytest
from batch_cases import RecurrentModel, alone, batch, chain, essence, fake, grammar, plan, request
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.engine.adjust import Adjustment
from stcon.engine.batch import Failed, Finished, Guards, Piece, Request
from stcon.engine.sampling import Sampling
from stcon.errors import DecodingError, InvalidOption, LimitTooSmall, NoRoom, Overloaded, PromptTooLong
from stcon.grammar.grammar import Grammar
from stcon.models.fake import FakeModel


def submit_all(engine, wanted):
    """Handles of the requests that are not refused for their limit, by number."""
    handles = {}
    for number in wanted:
        try:
            handles[number] = engine.submit(request(number))
        except LimitTooSmall:
            continue
    return handles


@cache
def lonely(number):
    """The single stream's output of a request; None if it is refused."""
    return alone(fake(3), request(number))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([FakeModel, RecurrentModel]),
    st.integers(1, 9),
    st.fixed_dictionaries(
        {"feeding": st.sampled_from(["drip", "ragged", "auto"]), "chunk": st.sampled_from([1, 3, 8, 256])}
    ),
    st.lists(st.integers(0, 60), min_size=1, max_size=14),
    st.sampled_from([0, 1 << 10, 1 << 16]),
    st.booleans(),
)
def test_batch_outputs_are_those_of_one_stream(kind, num_rows, options, numbers, limit, is_async):
    """Whatever runs beside it, in every feeding mode, chunk size and cache: the output is the single stream's."""
    engine = batch(fake(3, kind), num_rows, memory=plan(num_rows, cache=limit), **options)
    engine.model.is_async = is_async  # then what was written is told a step later
    handles = [(number, submit_all(engine, [number]).get(number)) for number in numbers]
    engine.run()
    for number, handle in handles:
        single = lonely(number)
        if handle is None:
            assert single is None
        else:
            assert essence(handle.result(0)[0]) == essence(single)


def test_batch_rows_join_and_leave_at_any_step():
    """Requests that come while others run, more than there are rows: none waits for ever, nothing is mixed up."""
    engine = batch(num_rows=3)
    handles = {}
    for number in range(40):
        handles |= submit_all(engine, [number])
        for _ in range(number % 3):
            engine.step()
        assert engine.num_active <= 3
    engine.run()
    assert len(handles) > 30
    for number, handle in handles.items():
        assert essence(handle.result(0)[0]) == essence(alone(fake(), request(number)))
    assert engine.num_active == engine.num_waiting == 0


def test_batch_ragged_takes_fewer_steps_than_drip():
    """A forced span is one step when ragged, and one step a token when dripped; the outputs are equal."""
    form = chain(b"<", set(b"xy"), b"> the first of two </", set(b"01"), b"> and the other </", set(b"xy"), b">")
    forced = Grammar(form, kind="grammar", source=None)
    wanted = [Request([40, 41], forced, sampling=Sampling(seed=s, temperature=1.0)) for s in range(4)]
    outputs, steps = {}, {}
    for feeding in ("drip", "ragged"):
        engine = batch(feeding=feeding)
        outputs[feeding] = [essence(generation) for [generation] in engine.generate(wanted)]
        steps[feeding] = engine.stats.num_steps
    assert outputs["drip"] == outputs["ragged"]
    assert steps["ragged"] < 0.6 * steps["drip"]


def test_batch_n_outputs_share_one_prefill():
    """n outputs read the prompt once; each is the single stream's with its own seed."""
    model = fake()
    engine = batch(model, num_rows=5)
    wanted = Request(list(range(40, 90)), grammar("person"), n=5, sampling=Sampling(temperature=1.5, seed=11))
    handle = engine.submit(wanted)
    engine.run()
    assert sum(len(tokens) >= 50 for tokens in model.passes) == 1
    generations = handle.result(0)
    assert [generation.seed for generation in generations] == [11, 12, 13, 14, 15]
    for index, generation in enumerate(generations):
        assert essence(generation) == essence(alone(fake(), wanted, index))
    assert len({generation.text for generation in generations}) > 2
    assert engine._used_rows == engine._used_bytes == 0


def test_batch_events_tell_the_output():
    """Pieces add up to tokens and text, then comes one end; `need` falls to nothing by the end."""
    engine = batch()
    handle = engine.submit(Request([40, 41], grammar("person"), max_tokens=40, report_need=True, logprobs=2))
    engine.run()
    *pieces, end = list(handle)
    assert all(isinstance(piece, Piece) for piece in pieces)
    assert isinstance(end, Finished)
    tokens = tuple(token for piece in pieces for token in piece.tokens)
    assert tokens == end.generation.tokens
    assert "".join(piece.text for piece in pieces) == end.generation.text
    assert pieces[0].tokens[0].kind == "forced"
    assert all(piece.tokens[0].kind in {"sampled", "healed"} for piece in pieces[1:])
    assert pieces[0].need > pieces[-2].need
    found = tuple(entry for piece in pieces for entry in piece.logprobs)
    assert found == end.generation.logprobs
    assert [entry is None for entry in found] == [token.kind == "forced" for token in tokens]


def test_batch_logprobs_are_those_of_the_model():
    """The log-probability of a drawn token is the model's own, before mask and temperature; the best come first."""
    model = fake()
    engine = batch(model)
    [[output]] = engine.generate([Request([40], max_tokens=5, logprobs=3, sampling=Sampling(temperature=2.0, seed=4))])
    prefix = [40]
    for token, entry in zip(output.tokens, output.logprobs, strict=True):
        logits = model.logits(prefix).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum())
        assert entry.logprob == pytest.approx(expected[token.id])
        assert [i for i, _ in entry.top] == sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:3]
        prefix.append(token.id)


def test_batch_adjustments_change_the_draws():
    """A bias of 100 makes a token, and a presence penalty keeps it from coming again."""
    engine = batch()
    bias = Adjustment(bias={50: 100.0})
    [[always]] = engine.generate([Request([40], max_tokens=6, adjustment=bias)])
    assert [token.id for token in always.tokens] == [50] * 6
    [[plain]] = engine.generate([Request([40], max_tokens=6, adjustment=Adjustment(presence=2.0, frequency=2.0))])
    counts = {token.id: plain.tokens.count(token) for token in plain.tokens}
    assert max(counts.values()) <= 2
    with pytest.raises(InvalidOption, match="presence_penalty"):
        Adjustment(presence=3)


def test_batch_cancel_frees_the_row_at_once():
    """A cancelled request ends as it is before the next step, and who waited takes its row."""
    engine = batch(num_rows=1)
    first, second = engine.submit(request(7)), engine.submit(Request([40], max_tokens=4))
    waiting = engine.submit(Request([40], max_tokens=4))
    engine.step()
    first.cancel()
    waiting.cancel()
    engine.step()
    assert first.is_done
    assert waiting.is_done
    [cancelled] = first.result(0)
    assert cancelled.finish_reason == "cancelled"
    assert essence(cancelled)[0] == alone(fake(), request(7)).tokens[: len(cancelled.tokens)]
    engine.run()
    assert second.result(0)[0].finish_reason == "length"
    assert engine._used_rows == engine._used_bytes == 0


def test_batch_refuses_with_numbers():
    """What can never fit, or cannot be served, is refused in `submit`; nothing was asked of the model."""
    model = fake(context_length=64)
    engine = batch(model, num_rows=2, memory=plan(2, rows=20 * 64))
    with pytest.raises(NoRoom) as caught:
        engine.submit(Request([1] * 10, max_tokens=11))
    assert (caught.value.needed, caught.value.limit) == (21 * 64, 20 * 64)
    with pytest.raises(NoRoom, match="3 rows where the batch has 2"):
        engine.submit(Request([1], max_tokens=2, n=3))
    with pytest.raises(PromptTooLong):
        engine.submit(Request([1] * 64))
    with pytest.raises(LimitTooSmall):
        engine.submit(Request([1], grammar("person"), max_tokens=2))
    with pytest.raises(InvalidOption, match="prompt is empty"):
        engine.submit(Request([], max_tokens=3))
    with pytest.raises(InvalidOption, match="n: expected"):
        Request([1], n=0)
    assert not engine.step()
    assert model.num_passes == 0


def test_batch_waits_for_memory():
    """Requests that do not fit together run one after another, and all finish."""
    engine = batch(num_rows=4, memory=plan(4, rows=30 * 64, cache=0))
    handles = [engine.submit(Request([40 + i] * 8, max_tokens=12)) for i in range(5)]
    most = 0
    while engine.step():
        most = max(most, engine.num_active)
        assert engine._used_bytes <= 30 * 64
    assert most == 1
    assert all(handle.result(0)[0].finish_reason == "length" for handle in handles)


def test_batch_small_requests_pass_a_large_one_but_not_for_ever():
    """While the oldest request does not fit, younger ones that do are let in, a bounded number of them."""
    engine = batch(num_rows=2, memory=plan(2, rows=40 * 64, cache=0))
    engine.submit(Request([40], max_tokens=4))
    large = engine.submit(Request([41] * 20, max_tokens=20))
    small = [engine.submit(Request([42], max_tokens=9)) for _ in range(60)]
    engine.step()
    engine.step()
    assert engine.num_active == 2
    while not large.is_done:
        engine.step()
    assert 30 <= sum(handle.is_done for handle in small) <= 40


def test_batch_full_queue():
    """More than `max_waiting` requests are refused, to be tried again."""
    engine = batch(max_waiting=2)
    for _ in range(2):
        engine.submit(Request([40], max_tokens=2))
    with pytest.raises(Overloaded) as caught:
        engine.submit(Request([40], max_tokens=2))
    assert (caught.value.waiting, caught.value.limit) == (2, 2)
    engine.run()
    engine.submit(Request([40], max_tokens=2))


def test_batch_long_prompt_does_not_stall_writers():
    """While a long prompt is read in chunks, the rows that write get a token every step."""
    engine = batch(chunk=16, memory=plan(4, rows=1 << 20, cache=0))
    writer = engine.submit(Request([40], max_tokens=60))
    engine.step()
    engine.submit(Request(list(range(40, 290)), max_tokens=4))
    before = engine._rows[0].writer.output.sampled
    for step in range(12):
        engine.step()
        assert engine._rows[0].writer.output.sampled == before + step + 1
    assert len(engine._rows[1].fed) == 12 * 16
    engine.run()
    assert writer.is_done


class Faulty(FakeModel):
    """Fails in every pass that holds token 66; gives no numbers after token 65."""

    def logits(self, tokens, digest=None):
        if 66 in tokens[-4:]:
            raise MemoryError("out of memory")
        row = super().logits(tokens, digest)
        return row * np.float32(np.nan) if tokens[-1] == 65 else row


def test_batch_failures_are_the_rows_own():
    """Logits that are no numbers fail their row alone; a failing pass fails the rows in it; the batch goes on."""
    engine = batch(fake(kind=Faulty), memory=plan(cache=0))
    fine, broken = engine.submit(Request([40], max_tokens=8, adjustment=Adjustment(bias={65: -100, 66: -100}))), None
    broken = engine.submit(Request([40, 65], max_tokens=8))
    engine.run()
    assert fine.result(0)[0].finish_reason == "length"
    with pytest.raises(DecodingError, match="logits"):
        broken.result(0)
    assert isinstance(list(broken)[-1], Failed)
    fatal = engine.submit(Request([40, 66], max_tokens=8))
    engine.run()
    with pytest.raises(MemoryError):
        fatal.result(0)
    again = engine.submit(Request([40], max_tokens=3))
    engine.run()
    assert again.is_done
    assert engine._used_rows == engine._used_bytes == 0


def test_batch_guards_end_an_output_that_repeats():
    """The repeat guard ends a loop after three rounds; without it the output runs to its limit."""
    engine = batch()
    loop = Adjustment(bias={50: 100.0})
    [[cut], [free]] = engine.generate(
        [Request([40], max_tokens=90, adjustment=loop, guards=Guards(repeat=repeat)) for repeat in (True, False)]
    )
    assert (cut.finish_reason, len(cut.tokens)) == ("guard", 24)
    assert (free.finish_reason, len(free.tokens)) == ("length", 90)


def test_batch_stop_strings():
    """A stop string ends its own row, as in one stream."""
    text = alone(fake(), Request([40], max_tokens=30)).text
    wanted = Request([40], max_tokens=30, stop=(text[4:6],))
    [[output], [other]] = batch().generate([wanted, Request([40], max_tokens=30)])
    assert essence(output) == essence(alone(fake(), wanted))
    assert output.text == text[: text.index(text[4:6])]
    assert other.text == text


def test_batch_thread_serves_callers_from_other_threads():
    """Submitted from several threads at once, each request gets its own events; closing waits for the rest."""
    results = {}

    def caller(number):
        handle = engine.submit(request(number))
        *_, end = list(handle)
        results[number] = essence(end.generation)

    wanted = [number for number in range(24) if alone(fake(), request(number)) is not None]
    with batch(num_rows=3) as engine:
        threads = [threading.Thread(target=caller, args=(number,)) for number in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == {number: essence(alone(fake(), request(number))) for number in wanted}
    with pytest.raises(InvalidOption, match="closed"):
        engine.submit(request(1))


def test_batch_close_without_finishing_cancels():
    """`close(finish=False)` ends what runs and what waits, and the thread is gone."""
    engine = batch(num_rows=1).start()
    handles = [engine.submit(Request([40], max_tokens=3000)) for _ in range(3)]
    engine.close(finish=False)
    assert [handle.result(0)[0].finish_reason for handle in handles] == ["cancelled"] * 3
    assert engine._thread is None


def test_batch_events_in_a_coroutine():
    """`async for` gives the same events, many readers at once, one of them slow."""

    async def read(handle, pause):
        events = []
        async for event in handle:
            events.append(event)
            await asyncio.sleep(pause)
        return events

    async def main():
        wanted = [Request([40 + i], grammar("person"), max_tokens=30) for i in range(6)]
        handles = [engine.submit(one) for one in wanted]
        found = await asyncio.gather(*(read(handle, 0.01 * (i == 0)) for i, handle in enumerate(handles)))
        return [(events[-1].generation, alone(fake(), one)) for events, one in zip(found, wanted, strict=True)]

    with batch(num_rows=2) as engine:
        for generation, single in asyncio.run(main()):
            assert essence(generation) == essence(single)


def test_batch_crash_of_the_thread_fails_everybody(monkeypatch):
    """A defect in the batch itself ends every request with the error; nobody waits for ever."""
    engine = batch(num_rows=1)

    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "_spans", broken)
    handles = [engine.submit(Request([40], max_tokens=9)) for _ in range(3)]
    engine.start()
    for handle in handles:
        with pytest.raises(ZeroDivisionError):
            handle.result(10)
    engine.close()


def test_batch_result_times_out():
    """`result` waits no longer than asked, and the request goes on."""
    engine = batch()
    handle = engine.submit(Request([40], max_tokens=3))
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    assert time.monotonic() - started < 5
    engine.run()
    assert len(handle.result(0)) == 1
