"""The radix tree against a list of what was put in, and the prompt cache in a running batch."""

import pytest
from batch_cases import RecurrentModel, batch, essence, fake, grammar, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.engine.batch import Finished, Request
from stcon.engine.batch.prompt_cache import PrefixTree, PromptCache
from stcon.engine.loop import generate

short = st.lists(st.integers(0, 2), max_size=7)


def common(a, b):
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.sampled_from("iiird"), short, st.integers(0, 9)), max_size=30), short)
def test_prefix_tree_finds_what_a_list_finds(cuts, moves, wanted):
    """After any inserts and removals, the longest prefix found is the one found by trying every row."""
    tree, rows = PrefixTree(cuts=cuts), {}
    for number, (move, tokens, pick) in enumerate(moves):
        if move == "i":
            tree.insert(tokens, number)
            rows[number] = tokens
        elif rows:
            gone = sorted(rows)[pick % len(rows)]
            tree.remove(gone)
            del rows[gone]
    assert len(tree) == len(rows)
    assert all(tree.length(row) == len(tokens) for row, tokens in rows.items())
    lengths = {row: common(tokens, wanted) for row, tokens in rows.items()}
    if not cuts:
        lengths = {row: length for row, length in lengths.items() if length == len(rows[row])}
    best = max(lengths.values(), default=0)
    hit = tree.find(wanted)
    assert (hit.length if hit else 0) == best
    if hit:
        assert lengths[hit.row] == best


def size(node):
    """Nodes of a tree."""
    return 1 + sum(size(child) for child in node.children.values())


def test_prefix_tree_shrinks():
    """A tree whose rows are all gone is a root; one with k rows has at most 2k nodes."""
    tree = PrefixTree(cuts=True)
    for row in range(40):
        tree.insert([row % 3, row % 5, *range(row)], row)
    assert size(tree._root) <= 1 + 2 * 40
    for row in range(40):
        tree.remove(row)
        assert size(tree._root) <= 1 + 2 * (39 - row)
    assert tree.find([0, 0, 1]) is None


def test_prompt_cache_gives_back_the_least_recently_used():
    """Bytes stay under the limit; a row just used stays; a row that a longer one serves goes; an equal one is kept."""
    cache = PromptCache(100, cuts=True)
    assert cache.park([1, 2], 1, 40) == []
    assert cache.park([5, 6], 2, 40) == []
    assert cache.look_up([1, 2, 3], most=2).row == 1
    assert cache.park([7], 3, 40) == [2]
    assert cache.park([7], 4, 40) == [4]
    assert cache.park([7, 8], 5, 50) == [3]
    assert (cache.num_bytes, cache.num_parked) == (90, 2)
    assert cache.park([9], 6, 101) == [6]
    assert cache.look_up([7, 8, 9], most=3) == (5, 2)
    exact = PromptCache(100, cuts=False)
    assert exact.park([1, 2, 3], 1, 10) == []
    assert exact.park([1, 2], 2, 10) == []
    assert exact.look_up([1, 2, 9], most=3) == (2, 2)
    assert exact.look_up([1, 9, 9], most=3) is None


@pytest.mark.parametrize("kind", [type(fake()), RecurrentModel])
def test_batch_reads_a_prompt_once(kind):
    """The same prompt again costs one token to read, and the output is the same, recurrent or not."""
    model = fake(kind=kind)
    engine = batch(model, memory=plan(cache=1 << 20))
    wanted = Request(list(range(40, 90)), grammar("person"))
    ends = []
    for _ in range(3):
        handle = engine.submit(wanted)
        engine.run()
        ends.append(list(handle)[-1])
        assert isinstance(ends[-1], Finished)
    assert [end.cached_tokens for end in ends[1:]] == [49 if kind is RecurrentModel else 50] * 2
    assert len({repr(essence(end.generation)) for end in ends}) == 1
    assert model.passes.count(tuple(wanted.prompt_ids[:49])) <= 1


@pytest.mark.parametrize("kind", [type(fake()), RecurrentModel])
def test_batch_next_turn_reads_only_what_is_new(kind):
    """A prompt that repeats the last prompt and its answer verbatim finds all of it that was fed."""
    model = fake(kind=kind)
    engine = batch(model, memory=plan(cache=1 << 20))
    [[first]] = engine.generate([Request(list(range(40, 60)), grammar("person"), budget=False)])
    answer = [token.id for token in first.tokens]
    turn = [*range(40, 60), *answer, 70, 71, 72]
    engine.generate([Request(list(range(100, 120)), max_tokens=9)])
    handle = engine.submit(Request(turn, grammar("colours")))
    engine.run()
    end = list(handle)[-1]
    last_drawn = max(i for i, token in enumerate(first.tokens) if token.kind != "forced")
    assert end.cached_tokens == 20 + last_drawn  # that one was drawn and never fed
    assert essence(end.generation) == essence(generate(fake(), turn, grammar("colours"), budget=True))


def test_batch_rows_share_what_is_being_written():
    """A row that is still writing serves the beginning of another's prompt; `cache_prompt=False` keeps out of it."""
    engine = batch(memory=plan(cache=1 << 20))
    engine.submit(Request(list(range(40, 80)), max_tokens=50))
    private = engine.submit(Request(list(range(140, 180)), max_tokens=3, cache_prompt=False))
    for _ in range(3):
        engine.step()
    second = engine.submit(Request([*range(40, 70), 5, 6, 7], max_tokens=3))
    third = engine.submit(Request(list(range(140, 180)), max_tokens=3))
    engine.run()
    assert private.is_done
    assert list(second)[-1].cached_tokens == 30
    assert list(third)[-1].cached_tokens == 0


def test_batch_same_prompts_at_once_are_read_once():
    """Requests that come together with one long prompt: the first reads it, the others wait for that and copy it."""
    model = fake()
    engine = batch(model, memory=plan(cache=1 << 20), chunk=32)
    prompt = [40 + number % 60 for number in range(150)]
    handles = [engine.submit(Request([*prompt, 5 + last], max_tokens=6)) for last in range(4)]
    other = engine.submit(Request([9, *prompt], max_tokens=3))
    engine.run()
    assert [list(handle)[-1].cached_tokens for handle in handles] == [0, 150, 150, 150]
    assert other.is_done
    assert sum(len(tokens) for tokens in model.passes) < 2 * 151 + 3 * 2 + 5 * 6
    for last, handle in enumerate(handles):
        assert essence(handle.result(0)[0]) == essence(generate(fake(), [*prompt, 5 + last], max_tokens=6))


def test_batch_cache_stays_under_its_limit():
    """However many prompts come, parked rows take no more than the limit, and leave no sessions behind."""
    engine = batch(memory=plan(cache=64 * 100))
    for start in range(30):
        engine.generate([Request([start + 1, *range(60, 75)], max_tokens=6)])
        assert engine.cache.num_bytes <= 64 * 100
        assert len(engine.model._sessions) == engine.cache.num_parked
    assert 2 <= engine.cache.num_parked <= 6
