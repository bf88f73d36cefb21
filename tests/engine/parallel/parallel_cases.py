"""What the tests of parallel decoding share: models whose fields depend on each other in known ways, and schemas."""

import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "batch"))

from batch_cases import RecurrentModel  # noqa: F401 (for the tests)
from engine_cases import MACHINES, grammar, small_vocabulary  # noqa: F401 (for the tests)

import stcon
from stcon.engine import parallel
from stcon.engine.batch import SessionRows
from stcon.engine.loop import generate as sequential
from stcon.models.fake import FakeModel, hash_prefix

VOCABULARY = small_vocabulary()
PROMPT = VOCABULARY.encode("answer: anna bell 34")
KEY = re.compile(rb'[{,\[]*"\w+":')
STRENGTH = np.float32(50)


def fields_ago(count):
    """A bias by which a token depends on the text since the `count`-th last key, and on nothing else."""
    digests = np.arange(1, VOCABULARY.size + 1, dtype=np.uint64)

    def bias(tokens):
        text = VOCABULARY.decode(tokens)
        starts = [match.start() for match in KEY.finditer(text)]
        seen = text[starts[-count] :].lstrip(b"{,[") if len(starts) >= count else text
        mixed = digests * np.uint64(hash_prefix(7, tuple(seen)) | 1)
        return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24) * STRENGTH

    return bias


def reversing(tokens):
    """A bias towards the value of the field before, written backwards."""
    text = VOCABULARY.decode(tokens)
    values = re.findall(rb'":"([^"]*)"', text)
    started = re.search(rb'":"([^"]*)$', text)
    row = np.zeros(VOCABULARY.size, np.float32)
    if not values or started is None:
        return row
    wanted = values[-1][::-1] + b'"'
    rest = wanted[len(started[1]) :] if wanted.startswith(started[1]) else b'"'
    for token in range(VOCABULARY.size):
        data = VOCABULARY.token_bytes(token)
        if data and rest.startswith(data):
            row[token] = STRENGTH * len(data)
    return row


def checksum(tokens):
    """A bias towards a digit that depends on every byte of the text so far."""
    row = np.zeros(VOCABULARY.size, np.float32)
    row[VOCABULARY.encode(str(sum(VOCABULARY.decode(tokens)) % 10))[0]] = STRENGTH
    return row


BIASES = {"none": None, "own": fields_ago(1), "previous": fields_ago(2), "reverse": reversing, "checksum": checksum}


def model(bias="none", seed=1, kind=FakeModel):
    """A fake model by the name of its bias."""
    return kind(VOCABULARY, seed, bias=BIASES[bias], spread=4.0 if bias == "none" else 0.01)


def string(most=8):
    """Short lower-case words, so that hashed texts end."""
    return {"type": "string", "pattern": f"^[a-e]{{1,{most}}}$"}


def form(count):
    """An object of `count` fields."""
    kinds = [string(), {"type": "integer", "minimum": 0, "maximum": 999}, {"enum": ["red", "green"]}]
    return closed({f"k{i}": kinds[i % 3] for i in range(count)})


def closed(properties, required=None):
    """An object schema; all keys are required unless said."""
    return {"type": "object", "properties": properties, "required": list(properties if required is None else required)}


SCHEMAS = {
    "flat": form(5),
    "nested": closed(
        {"a": closed({"b": string(), "c": closed({"d": string(), "e": {"enum": [1, 12, 3]}})}), "f": string()}
    ),
    "optional": closed({"a": string(), "b": string(), "c": string()}, ["a", "c"]),
    "array": closed({"a": {"type": "array", "items": string(3), "minItems": 1, "maxItems": 4}, "b": string()}),
    "unique": closed(
        {"a": {"type": "array", "items": string(1), "uniqueItems": True, "minItems": 3, "maxItems": 3}, "b": string()}
    ),
    "choice": {
        "anyOf": [
            closed({"kind": {"const": "red"}, "x": string(), "y": string(), "z": string()}),
            closed({"kind": {"const": "green"}, "u": string(), "v": {"enum": [123, 45]}, "w": string(), "t": string()}),
        ]
    },
    "word": {"enum": ["red", "green", "grey"]},
}


def both(model, constraint, prompt=None, *, settings=None, num_rows=6, **options):
    """(sequential, parallel) generations of the same request."""
    prompt = PROMPT if prompt is None else prompt
    one = sequential(model, prompt, constraint, **options)
    rows = SessionRows(model, num_rows)
    two = parallel.generate(model, prompt, constraint, settings=settings, rows=rows, **options)
    assert not rows._sessions, "every row is given back"
    return one, two


def compiled(name):
    """The grammar of a schema, or of a machine of the engine's tests."""
    return stcon.compile(SCHEMAS[name]) if name in SCHEMAS else grammar(name)


def check(one, two):
    """Both wrote the same, token by token, and the second took no more passes than it may."""
    assert [(t.id, t.kind, t.admissible) for t in two.tokens] == [(t.id, t.kind, t.admissible) for t in one.tokens]
    assert (two.text, two.finish_reason, two.complete, two.sampled) == (
        one.text,
        one.finish_reason,
        one.complete,
        one.sampled,
    )
    assert two.parallel.num_rounds <= parallel.Settings().max_rounds
    assert two.parallel.passes == two.passes
    assert two.parallel.sequential_passes == one.passes
    assert sum(r.accepted for r in two.parallel.rounds) <= one.sampled
