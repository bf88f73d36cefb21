"""Parts written side by side unchecked: where they are cut, that the grammar holds in them, and what is counted."""

import json

import pytest
from click.testing import CliRunner

import stcon
from stcon.bench.negative import apart, labels, lookups, siblings
from stcon.bench.uncertified import branches, fields_apart, write_side_by_side
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(256))], end_ids=(0,))


def string():
    """Short words."""
    return {"type": "string", "pattern": "^[a-e]{1,8}$"}


def closed(properties):
    """An object of required keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


NODE = {"$ref": "#/$defs/node"}
TREE = {
    "$defs": {
        "node": closed(
            {"name": string(), "kind": {"enum": ["x", "y"]}, "below": {"type": "array", "items": NODE, "maxItems": 2}}
        )
    },
    **NODE,
}


def model():
    """One that closes what is open."""
    return FakeModel(VOCABULARY, 3, bias=prefer(VOCABULARY, lambda data: data in b'"]}'), context_length=1 << 14)


def test_branches_are_the_objects_of_the_outermost_array_that_has_several():
    """With the text before the array, the first member, and all of each; brackets in strings are none."""
    text = '{"a":"[{","b":[{"n":"x","c":[{"n":"y"},{"n":"z"}]},{"n":"[w","c":[]}]}'
    first, second = branches(text)
    assert first.before == second.before == '{"a":"[{","b":['
    assert (first.head, second.head) == ('{"n":"x"', '{"n":"[w"')
    assert second.text == '{"n":"[w","c":[]}'
    assert branches('{"b":[{"n":"x","c":[{"n":"y"},{"n":"z"}]}]}')[0].head == '{"n":"y"'
    assert branches('{"b":[{"n":"x"}]}') == []


def test_siblings_are_objects_of_the_grammar():
    """Each written branch begins with its head, and the array with all of them is accepted."""
    grammar, prompt = stcon.compile(TREE), [1, 2, 3]
    text = '{"name":"a","kind":"x","below":[{"name":"b","kind":"y","below":[]},{"name":"cc","kind":"y","below":[]}]}'
    assert grammar.accepts(text.encode())
    found = branches(text)
    written = write_side_by_side(model(), prompt, grammar, found, max_tokens=60)
    for branch, one in zip(found, written, strict=True):
        assert one.text.startswith(branch.head)
        assert one.passes >= one.tokens > 0
    joined = ",".join(one.text for one in written)
    assert grammar.accepts(f"{found[0].before}{joined}]}}".encode())


def test_fields_apart_are_an_output_of_the_grammar():
    """Put together they are valid, in as many passes as the longest takes."""
    schema = closed({"a": string(), "b": closed({"c": string(), "d": {"enum": [1, 2]}}), "e": {"type": "boolean"}})
    grammar = stcon.compile(schema)
    text, passes = fields_apart(model(), [1, 2], grammar, max_tokens=40)
    assert grammar.accepts(text.encode())
    assert passes < len(text)


def test_measures_count_what_is_shown():
    """One extraction, two tickets, one lookup on a model without weights, which lookup does not change."""
    fake = model()
    (one,) = apart(fake, most=1, max_tokens=200, progress=lambda _: None)
    assert one.leaves >= one.same >= 0
    assert one.passes < one.passes_in_turn
    assert [label.wanted for label in labels(fake, most=2, progress=lambda _: None)] == ["billing", "billing"]
    assert all(0 <= one.same <= one.branches for one in siblings(fake, most=2, max_tokens=200, progress=lambda _: None))
    (looked,) = lookups(fake, most=1, max_tokens=200, progress=lambda _: None)
    assert looked.is_same


@pytest.mark.long
def test_command_prints_four_tables(monkeypatch, tmp_path):
    """All of it, quickly."""
    from stcon.commands import generate
    from stcon.commands.bench import bench

    monkeypatch.setattr(generate, "load", lambda *_: model())
    result = CliRunner().invoke(
        bench,
        ["negative", "--quick", "--max-tokens", "200", "--json", str(tmp_path / "r.json")],
        standalone_mode=False,
        catch_exceptions=False,
    )
    assert result.return_value == 0
    assert result.output.count("Table 3") == 4
    assert set(json.loads((tmp_path / "r.json").read_text())) >= {"siblings", "apart", "labels", "lookup"}
