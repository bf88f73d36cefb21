"""The six extractions: schemas, texts and gold facts."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from stcon.bench.workloads import MISSING, NAMES, at, holds, leaves, load, load_all, same

FACTS = {"person": 8, "tool_call": 5, "product": 11, "event": 12, "classification": 0, "contact_card": 9}

ANSWERS = {
    "person": {
        "name": "Maria Gonzalez",
        "age": 34,
        "email": "maria.g@example.com",
        "status": "approved",
        "tags": ["hiking", "photography", "machine learning"],
    },
    "tool_call": {
        "function": "get_weather",
        "arguments": {"location": "Lisbon", "unit": "celsius", "include_forecast": True, "days": 5},
    },
    "product": {
        "name": "the traillite tent ",
        "price": 249.95,
        "currency": "EUR",
        "in_stock": True,
        "categories": ["hiking", "outdoor", "camping"],
        "dimensions": {"length_cm": 42, "width_cm": 18, "height_cm": 16},
    },
    "event": {
        "title": "Northern Robotics Forum",
        "date": "2027-03-18",
        "location": {"venue": "Harbor Hall", "city": "Gothenburg", "country": "Sweden"},
        "attendees": [
            {"name": "Ingrid Solberg", "role": "speaker"},
            {"name": "Tomas Lindqvist", "role": "speaker"},
            {"name": "Amara Okafor", "role": "organizer"},
        ],
    },
    "classification": {
        "sentiment": "positive",
        "rating": 5,
        "topics": ["quality", "shipping"],
        "would_recommend": True,
        "summary": "A good kettle.",
    },
    "contact_card": {
        "name": "Jean-Luc Moreau",
        "job_title": "Sales Director",
        "company": "Brightwater Studio",
        "email": "jl.moreau@brightwater.example",
        "phone": "+33 1 55 50 14 92",
        "address": {"street": "48 Rue de Rivoli", "postal_code": "75004", "city": "Paris", "country": "France"},
    },
}


def test_load_all_facts_are_counted_as_the_paper_counts_them() -> None:
    """45 gold facts, split over the schemas as in Appendix H; classification has none."""
    assert {task.name: len(task.gold) for task in load_all()} == FACTS
    assert sum(FACTS.values()) == 45


@pytest.mark.parametrize("name", NAMES)
def test_load_schema_is_valid_closed_and_complete(name: str) -> None:
    """Every schema passes the metaschema, and every object in it requires its keys and takes no others."""
    schema = load(name).schema
    Draft202012Validator.check_schema(schema)
    pending = [schema]
    while pending:
        node = pending.pop()
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
            pending.extend(node["properties"].values())
        elif node.get("type") == "array":
            assert "maxItems" in node
            pending.append(node["items"])


@pytest.mark.parametrize("name", NAMES)
def test_correct_right_answer_gets_every_fact(name: str) -> None:
    """The answer a careful reader would give satisfies the schema and every gold fact."""
    task = load(name)
    Draft202012Validator(task.schema).validate(ANSWERS[name])
    assert task.correct(ANSWERS[name]) == len(task.gold)


@pytest.mark.parametrize("name", NAMES)
def test_load_gold_values_stand_in_the_text(name: str) -> None:
    """Every string fact can be read off the source text, word for word."""
    task = load(name)
    for fact in task.gold:
        wanted = fact.get("has", fact.get("equals", [None])[0])
        for value in wanted.values() if isinstance(wanted, dict) else [wanted]:
            if isinstance(value, str):
                assert value.lower() in task.text.lower()


@pytest.mark.parametrize("name", NAMES)
def test_prompt_names_every_key_and_option(name: str) -> None:
    """The prompt holds the text and names every key, and is the same whatever the mode."""
    task = load(name)
    assert task.text in task.prompt
    for pointer in leaves(ANSWERS[name]):
        for part in pointer.split("/")[1:]:
            assert part.isdecimal() or part in task.prompt


def test_correct_answer_of_another_shape_gets_no_fact() -> None:
    """No shape of a wrong answer raises or scores."""
    for task in load_all():
        for answer in (MISSING, None, [], {}, "x", 3, {"tags": "hiking", "arguments": [], "location": None}):
            assert task.correct(answer) == 0


@pytest.mark.parametrize(
    ("value", "wanted", "equal"),
    [
        (" Maria ", "maria", True),
        (34, 34.0, True),
        (1, True, False),
        (True, 1, False),
        (False, False, True),
        ("34", 34, False),
        (None, None, True),
        (MISSING, None, False),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_same_compares_leaves_as_appendix_h(value: object, wanted: object, equal: bool) -> None:
    """Strings trimmed and lower-cased, numbers numerically, booleans apart from numbers."""
    assert same(value, wanted) is equal


def test_holds_list_facts() -> None:
    """A list fact asks for an item anywhere, or for the number of items."""
    answer = {"a": ["x", "Y "], "b": [{"n": "p", "r": "q"}, {"n": "s", "r": "t"}]}
    assert holds({"path": "/a", "has": "y"}, answer)
    assert not holds({"path": "/a", "has": "z"}, answer)
    assert holds({"path": "/a", "length": 2}, answer)
    assert not holds({"path": "/a", "length": 3}, answer)
    assert holds({"path": "/b", "has": {"n": "s", "r": "t"}}, answer)
    assert not holds({"path": "/b", "has": {"n": "p", "r": "t"}}, answer)


def test_at_follows_json_pointers() -> None:
    """`at` is RFC 6901 evaluation, with `MISSING` where there is nothing."""
    document = {"a/b": [10, {"m~n": 5}], "": 1}
    assert at(document, "/a~1b/0") == 10
    assert at(document, "/a~1b/1/m~0n") == 5
    assert at(document, "/") == 1
    assert at(document, "") is document
    assert at(document, "/a~1b/2") is MISSING
    assert at(document, "/a~1b/x") is MISSING


def test_leaves_and_at_agree() -> None:
    """Every leaf's pointer leads back to the leaf."""
    document = {"a/b": [1, {"c~d": None}], "e": {"f": [[True]]}}
    found = leaves(document)
    assert len(found) == 3
    assert all(at(document, pointer) is value for pointer, value in found.items())
