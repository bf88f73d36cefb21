"""The public names of stcon, and what compiling from Python accepts and refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import BaseModel, Field

import stcon
from stcon import errors

PUBLIC = {
    "DecodingError",
    "Grammar",
    "GrammarError",
    "InvalidGrammar",
    "InvalidOption",
    "InvalidPattern",
    "InvalidSchema",
    "LimitTooSmall",
    "Matcher",
    "ModelUnavailable",
    "NoRoom",
    "Overloaded",
    "PromptTooLong",
    "RequestError",
    "StconError",
    "TooLarge",
    "Unsatisfiable",
    "Unsupported",
    "Vocabulary",
    "__version__",
    "compile",
    "compile_grammar",
    "compile_regex",
    "load_model",
    "parse_json",
}

HEAVY = ("torch", "transformers", "numba", "tokenizers", "jsonschema", "pydantic", "rich")


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=130)


def test_all_is_the_agreed_list() -> None:
    """The public names are these; adding or removing one is a decision, not an accident."""
    assert set(stcon.__all__) == PUBLIC
    assert set(dir(stcon)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_loads(name: str) -> None:
    """Each name in `__all__` resolves, and stays resolved."""
    value = getattr(stcon, name)
    assert getattr(stcon, name) is value


def test_every_error_is_public() -> None:
    """Whoever calls stcon can catch each error of the tree by its name in `stcon`."""
    names = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert names
    for name in names:
        assert getattr(stcon, name) is getattr(errors, name)


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public fails as on any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = stcon.no_such_name  # type: ignore[attr-defined]


@pytest.mark.parametrize("statement", ["import stcon", "import stcon.cli", "import stcon; stcon.StconError"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    """Importing stcon, or its command line, imports no heavy library."""
    program = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    )
    assert not set(HEAVY) & set(loaded)


def test_compile_forms_of_one_schema_agree() -> None:
    """A dict, its JSON text, its bytes and the pydantic model it came from give the same language."""
    schema = Person.model_json_schema()
    forms = [schema, json.dumps(schema), json.dumps(schema).encode(), Person]
    for grammar in map(stcon.compile, forms):
        assert grammar.accepts('{"name":"Ann","age":34}')
        assert not grammar.accepts('{"name":"Ann","age":131}')
        assert not grammar.accepts('{"age":34,"name":"Ann"}')


def test_compile_shortest_is_an_instance() -> None:
    """The shortest text of a model's grammar validates as that model."""
    assert Person.model_validate_json(stcon.compile(Person).shortest())


def test_compile_options_change_the_language() -> None:
    """whitespace, key_order and closed do what they say."""
    ordered = '{"name":"Ann","age":34}'
    spaced = '{"name": "Ann", "age": 34}'
    swapped = '{"age":34,"name":"Ann"}'
    more = '{"name":"Ann","age":34,"x":1}'
    assert [stcon.compile(Person).accepts(text) for text in (ordered, spaced, swapped, more)] == [
        True,
        False,
        False,
        False,
    ]
    assert stcon.compile(Person, whitespace="json").accepts(spaced)
    assert not stcon.compile(Person, whitespace="json").accepts(ordered)
    assert all(stcon.compile(Person, whitespace="flexible").accepts(text) for text in (ordered, spaced))
    assert all(stcon.compile(Person, key_order="any").accepts(text) for text in (ordered, swapped))
    assert stcon.compile(Person, closed=False).accepts(more)


@pytest.mark.parametrize(("schema", "accepted"), [(True, True), ({}, True)])
def test_compile_boolean_and_empty_schema(schema: object, accepted: bool) -> None:
    """True and {} accept any JSON value."""
    for text in ("1", '"x"', "null", "[1,2]", '{"a":{}}'):
        assert stcon.compile(schema).accepts(text) is accepted


def test_compile_false_is_unsatisfiable() -> None:
    """False is a schema that nothing satisfies, and is refused as such."""
    with pytest.raises(stcon.Unsatisfiable):
        stcon.compile(False)


@pytest.mark.parametrize(
    "options", [{"whitespace": "wide"}, {"key_order": "random"}, {"whitespace": None}, {"key_order": 3}]
)
def test_compile_bad_option(options: dict[str, object]) -> None:
    """An option out of its range is named, with the choices."""
    with pytest.raises(stcon.InvalidOption, match=next(iter(options))):
        stcon.compile({}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1,}', "line 1, column"),
        ('{\n  "a": nope\n}', "line 2, column 8"),
        ("", "line 1, column 1"),
        ('{"a": NaN}', "NaN"),
        (b"\xff{}", "byte 0"),
        ("[" * 200_000, "deep"),
        ("1" * 5000, "digits"),
    ],
)
def test_compile_text_that_is_not_json(text: str | bytes, place: str) -> None:
    """Text that is not JSON is refused in one line that says where."""
    with pytest.raises(stcon.InvalidSchema) as caught:
        stcon.compile(text)
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_compile_regex_language() -> None:
    """A pattern is matched in full."""
    grammar = stcon.compile_regex("(yes|no)[!.]?")
    assert [grammar.accepts(text) for text in ("yes", "no!", "yes!!", "ye", "oh no")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_compile_regex_bad_pattern() -> None:
    """A bad pattern is an `InvalidPattern`."""
    with pytest.raises(stcon.InvalidPattern):
        stcon.compile_regex("(a")
