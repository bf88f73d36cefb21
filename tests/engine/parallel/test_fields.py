"""Fields: where they begin and end, the paths that drafts read, and the guides made of drafts."""

import pytest
from parallel_cases import closed, compiled, string

import stcon
from stcon.engine.parallel.drafts import Cursor, Draft
from stcon.engine.parallel.fields import Path, fields_of, segments_of, value_in
from stcon.engine.parallel.front import Front
from stcon.engine.parallel.replay import guide, looked_up
from stcon.errors import TooLarge
from stcon.grammar.machine import Machine


def fields(schema):
    """The fields of a schema from its start."""
    machine = stcon.compile(schema).machine
    return fields_of(segments_of(machine).after(machine, machine.initial()), machine.initial())


def test_fields_of_nested_objects_are_flat():
    """Leads and paths of required keys, however deep; an array and an optional key are part of one body."""
    schema = closed(
        {"a": closed({"b": string(), "c": string()}), "tags": {"type": "array", "items": string()}, "d": string()}
    )
    found = fields(schema)
    assert [field.lead for field in found] == [b'{"a":{"b":"', b',"c":"', b'},"tags":[', b',"d":"']
    assert [field.path for field in found] == [b'{"a":{"b":"', b'{"a":{"c":"', b'{"tags":[', b'{"d":"']
    optional = closed({key: string() for key in "abcd"}, ["a", "c", "d"])  # the key after an optional one is not forced
    assert [field.lead for field in fields(optional)] == [b'{"a":"', b',"d":"']


def test_fields_meet_where_they_end():
    """Each field begins where the one before ends, and a text is read from field to field."""
    schema = closed({"a": string(), "b": {"type": "integer", "minimum": 0}, "c": {"enum": ["x", "y"]}})
    machine = stcon.compile(schema).machine
    front = Front(machine, 5)
    assert front.plan() == {}
    places = []
    for byte in b'{"a":"ab","b":12,"c":"x"}':
        front.read(bytes([byte]), 0)
        places.append(front.index)
    assert places == sorted(places)
    assert set(places) == {0, 1, 2, 3}, "the last is past all fields"
    for one, two in zip(front.fields, front.fields[1:], strict=False):
        assert one.end == two.anchor
        assert machine.run(two.anchor, two.lead) == two.start


def test_fields_of_short_separators_are_one():
    """The hyphens of a date separate nothing."""
    assert len(fields({"type": "string", "format": "date"})) == 1


def test_fields_where_items_must_differ_are_remembered():
    """What earlier items forbid is not drafted apart."""
    unique = {"type": "array", "prefixItems": [string(1)] * 3, "items": False, "uniqueItems": True, "minItems": 3}
    found = fields(closed({"k": string(), "long_name": unique}))
    machine = stcon.compile(closed({"k": string(), "long_name": unique})).machine
    assert any(field.remembers for field in found) == bool(machine.marks)


@pytest.mark.parametrize(
    ("leads", "paths"),
    [
        ([b'{"a":', b',"b":[', b',"c":'], [b'{"a":', b'{"b":[', b'{"c":']),
        ([b'{"a":"', b'","b":{"c":"', b'"},"d":'], [b'{"a":"', b'{"b":{"c":"', b'{"d":']),
        ([b'{"a, b":{"x":', b',"y":'], [b'{"a, b":{"x":', b'{"a, b":{"y":']),
        ([b"Dear ", b", your age is "], [b"Dear ", b", your age is "]),
    ],
)
def test_path_keeps_open_keys(leads, paths):
    """Brackets that are open and keys before them stay, values before go; text that is not JSON is read whole."""
    path = Path()
    assert [path.after(lead) for lead in leads] == paths


def test_path_goes_on_from_text():
    """A path may begin inside a document."""
    assert Path(b'{"a":1,"b":{"c":"x, {y"').after(b',"d":"') == b'{"b":{"d":"'


def test_guide_joins_complete_drafts():
    """Drafts are one text from where the output stands, up to the first that is not complete or says otherwise."""
    found = fields(closed({"aa": string(), "bb": string(), "cc": string()}))
    drafts = {
        0: Draft(found[0].lead + b'ab"', {len(found[0].lead): 1}, is_complete=True),
        1: Draft(found[1].lead + b"c", {len(found[1].lead): 2}),
        2: Draft(found[2].lead + b'd"}', {}, is_complete=True),
    }
    there = guide(found, drafts, 0, found[0].lead)
    assert there.text == b'ab"' + found[1].lead + b"c"
    assert there.drawn == {0: 1, 3 + len(found[1].lead): 2}
    assert there.place(2) == (0, len(found[0].lead) + 2)
    assert there.place(3) == (1, 0)
    assert guide(found, drafts, 0, found[0].lead + b"b") is None
    assert guide(found, {}, 0, b"") is None


def test_cursor_stops_at_the_end_of_its_field():
    """Bytes past the field's end are not its own."""
    grammar = stcon.compile(closed({"aa": string(), "bb": string()}))
    first = fields_of(
        segments_of(grammar.machine).after(grammar.machine, grammar.machine.initial()), grammar.machine.initial()
    )[0]
    cursor = Cursor(grammar.machine, first.anchor, first.end)
    assert cursor.read(first.lead + b"ab") is None
    assert cursor.read(b'c","bb"') == 2


def test_looked_up_is_what_follows_the_longest_match():
    """Prompt lookup takes the longest end, of the least length or more, and the last place that has it."""
    assert looked_up(b"one two, one three", b"x one t", 3)[:4] == b"hree"
    assert looked_up(b"one two", b"two", 2) == b""
    assert looked_up(b"one two", b"ne", 3) == b""


@pytest.mark.parametrize(
    ("lead", "body", "value"),
    [
        (b'{"a":"', b'red"', '"red"'),
        (b'"n":', b"12,", "12"),
        (b'{"a":"gr', b'een"', '"green"'),
        (b'{"a, [":', b"true}", "true"),
        (b"", b'"x"', '"x"'),
        (b"say ", b"yes", "say yes"),
    ],
)
def test_value_in_is_the_value_alone(lead, body, value):
    """Keys before a value and delimiters after it are left out."""
    assert value_in(lead, body) == value


def test_segments_are_kept_for_a_machine():
    """Asked for again, they are not computed again; where the machine cannot be built whole there are none."""
    machine = compiled("flat").machine
    known = segments_of(machine)
    assert known.after(machine, machine.initial()) is known.after(machine, machine.initial())

    def refuse(state):
        raise TooLarge("states", given=2, limit=1)

    lazy = Machine(row_builder=refuse)
    lazy.new_state()
    assert segments_of(lazy).after(lazy, lazy.initial()) == ()
