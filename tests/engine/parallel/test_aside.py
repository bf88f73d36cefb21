"""Parallel and sequence-wise requests of a batch: the outputs of one stream each, beside others, and rows come back."""

import pytest
from parallel_cases import PROMPT, RecurrentModel, compiled, model

from stcon.engine import parallel
from stcon.engine.batch import Batch, Finished, MemoryPlan, Piece, Request, SessionRows
from stcon.engine.batch.guards import Guards
from stcon.engine.loop import generate as sequential
from stcon.engine.sampling import Sampling
from stcon.engine.thinking import Thinking
from stcon.errors import InvalidOption, NoRoom


def batch_of(fake, rows=8, chunk=256):
    """A batch that is stepped by hand, with room for everything."""
    memory = MemoryPlan(0, 0, 0, 1 << 26, 0, rows, 0, 64)
    return Batch(SessionRows(fake, rows, token_bytes=64), memory=memory, chunk=chunk)


def ids(generation):
    """Token ids."""
    return [token.id for token in generation.tokens]


@pytest.mark.parametrize("kind", [type(model()), RecurrentModel])
@pytest.mark.parametrize("rows", [4, 8])
@pytest.mark.parametrize("chunk", [3, 256])
def test_parallel_requests_beside_others_write_the_same(kind, rows, chunk):
    """Parallel, ordinary and sequence-wise requests run at once, each as alone; all rows and bytes come back."""
    fake = model("own", kind=kind)
    grammar = compiled("flat")
    batch = batch_of(fake, rows, chunk)
    requests = [
        Request(PROMPT, grammar, max_tokens=150, parallel=True),
        Request(PROMPT, grammar, max_tokens=150),
        Request(PROMPT, compiled("word"), decide="sequence"),
        Request(PROMPT, compiled("nested"), max_tokens=60, parallel=True, sampling=Sampling(0.7, seed=3)),
    ]
    found = [generation for (generation,) in batch.generate(requests)]
    alone = sequential(fake, PROMPT, grammar, max_tokens=150, budget=True)
    assert ids(found[0]) == ids(found[1]) == ids(alone)
    assert found[0].parallel.fields == 5
    assert found[1].parallel is None
    if rows == 8:
        assert found[0].parallel.passes < found[1].sampled + len(PROMPT) // chunk + 1
    decided = parallel.decide(fake, PROMPT, compiled("word"), budget=True)
    assert found[2].text == decided.text
    assert [option.text for option in found[2].decisions[0].options] == [
        option.text for option in decided.decisions[0].options
    ]
    sampled = sequential(fake, PROMPT, compiled("nested"), max_tokens=60, budget=True, sampling=Sampling(0.7, seed=3))
    assert ids(found[3]) == ids(sampled)
    assert batch._used_rows == batch._used_bytes == batch.num_active == 0
    assert not batch.model._sessions, "every row is given back"
    assert batch.stats.num_finished == 4


def test_parallel_requests_take_turns_with_others():
    """A step is a pass of each: an ordinary request is not held up until a parallel one is over."""
    fake = model("own")
    batch = batch_of(fake)
    first = batch.submit(Request(PROMPT, compiled("flat"), max_tokens=150, parallel=True))
    second = batch.submit(Request(PROMPT, None, max_tokens=3))
    for _ in range(4):
        batch.step()
    assert second.is_done
    assert not first.is_done
    batch.run()
    assert first.is_done


def test_parallel_requests_stream_certified_pieces():
    """The pieces make the text, several tokens at a time, and the end comes last."""
    batch = batch_of(model("own"))
    handle = batch.submit(Request(PROMPT, compiled("flat"), max_tokens=150, parallel=True))
    batch.run()
    events = list(handle)
    pieces = [event for event in events if isinstance(event, Piece)]
    assert isinstance(events[-1], Finished)
    assert "".join(piece.text for piece in pieces) == events[-1].generation.text
    assert len(pieces) < events[-1].generation.sampled


def test_parallel_requests_can_be_cancelled_and_may_fail():
    """Rows come back where a request is cancelled, where the batch is closed, and where the model fails."""
    fake = model("own")
    batch = batch_of(fake)
    request = Request(PROMPT, compiled("flat"), max_tokens=150, parallel=True)
    handle = batch.submit(request)
    batch.step()
    batch.step()
    handle.cancel()
    batch.run()
    assert handle.result(0)[0].finish_reason == "cancelled"
    assert batch._used_rows == batch._used_bytes == 0
    assert not batch.model._sessions
    handle = batch.submit(request)
    batch.step()
    batch._end_all()
    assert handle.result(0)[0].finish_reason == "cancelled"
    assert not batch.model._sessions
    handle = batch.submit(request)
    batch.step()
    feed = batch.model.feed
    batch.model.feed = lambda spans: 1 / 0
    batch.step()
    with pytest.raises(ZeroDivisionError):
        handle.result(0)
    batch.model.feed = feed
    assert batch._used_rows == batch._used_bytes == 0
    assert not batch.model._sessions


def test_parallel_requests_wait_for_their_share_of_rows():
    """Two take half of eight rows each; a third waits, and is served after them."""
    batch = batch_of(model("own"))
    handles = [batch.submit(Request(PROMPT, compiled("flat"), max_tokens=150, parallel=True)) for _ in range(3)]
    batch.step()
    assert (batch.num_active, batch.num_waiting) == (2, 1)
    batch.run()
    assert len({handle.result(0)[0].text for handle in handles}) == 1


def test_parallel_requests_too_large_are_refused():
    """Four rows of what one takes must fit an empty batch."""
    memory = MemoryPlan(0, 0, 0, 3 * 64 * (len(PROMPT) + 150), 0, 8, 0, 64)
    batch = Batch(SessionRows(model("own"), 8, token_bytes=64), memory=memory)
    batch.submit(Request(PROMPT, compiled("flat"), max_tokens=150))
    with pytest.raises(NoRoom):
        batch.submit(Request(PROMPT, compiled("flat"), max_tokens=150, parallel=True))


@pytest.mark.parametrize("option", [{"parallel": True}, {"decide": "sequence"}])
@pytest.mark.parametrize(
    "other",
    [
        {"grammar": None},
        {"mode": "free"},
        {"n": 2},
        {"guards": Guards(repeat=True)},
        {"thinking": Thinking()},
        {"parallel": True, "decide": "sequence"},
    ],
)
def test_requests_that_do_not_go_together_are_refused(option, other):
    """By name, before anything is asked of the model."""
    with pytest.raises(InvalidOption, match=r"^(parallel|decide): "):
        Request(PROMPT, **{"grammar": compiled("flat"), **option, **other})
    with pytest.raises(InvalidOption, match=r"^decide: expected"):
        Request(PROMPT, compiled("flat"), decide="both")
