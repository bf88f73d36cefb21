"""Fields: where they begin and end, the paths that drafts read, and the guides made of drafts."""

import pytest
from parallel_cases import closed, compiled, string

import stcon
from stcon.engine.parallel.drafts import Cursor, Draft
from stcon.engine.parallel.fields import Path, fields_of, segments_of, value_in
from stcon.engine.parallel.front import Front
from stcon.engine.parallel.guide import Guesses, recalled
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


def told(schema, written, drafts, **options):
    """(guide, fields, guesses) where `written` is written and fields have `drafts` of their bodies."""
    front = Front(stcon.compile(schema).machine, 5)
    front.plan()
    front.read(written, 2)
    guesses = Guesses(segments_of(front.machine), **options)
    for index, (body, is_complete) in drafts.items():
        lead = front.fields[index].lead
        guesses.put(index, Draft(lead + body, {len(lead): index}, is_complete))
    return guesses.guide(front), front.fields, guesses


THREE = closed({"aa": string(), "bb": string(), "cc": string()})


def test_guide_joins_complete_drafts():
    """Drafts are one text from where the output stands, up to the first that is not complete."""
    drafts = {0: (b'ab"', True), 1: (b"c", False), 2: (b'd"}', True)}
    there, found, _ = told(THREE, b'{"aa":"', drafts)
    lead = found[1].lead
    assert there.text == b'ab"' + lead + b'c"' + found[2].lead + b'd"}', "the second is closed to look at the third"
    assert [part.num_known for part in there.parts] == [3, len(lead) + 1, len(found[2].lead) + 3]
    assert there.drawn == {0: 0, 3 + len(lead): 1, 5 + len(lead) + len(found[2].lead): 2}
    assert there.part(2).field == 0
    assert there.part(3).field == 1
    assert there.is_closing(4 + len(lead))
    assert not there.is_look
    assert told(THREE, b'{"aa":"b', {0: (b'ab"', True)})[0] is None, "it says something else"
    assert told(THREE, b'{"aa":"', {})[0] is None


def test_guide_looks_across_a_field_that_is_not_drafted():
    """Where there is no draft of the output's own field, its shortest end stands for it; once for the same drafts."""
    there, found, guesses = told(THREE, b'{"aa":"ab', {1: (b'c"', True)})
    assert there.text == b'"' + found[1].lead + b'c"'
    assert there.is_look
    assert told(THREE, b'{"aa":"ab', {})[0] is None, "there is nothing to look at"
    front = Front(stcon.compile(THREE).machine, 5)
    front.plan()
    front.read(b'{"aa":"ab', 3)
    assert guesses.guide(front) is None


def test_guide_recalls_earlier_drafts_and_text():
    """A draft that was dropped comes back where it fits; else what followed the same bytes before, if asked for."""
    drafts = {1: (b'ccab"', True)}
    _, _, guesses = told(THREE, b'{"aa":"', drafts, recall=2)
    guesses.put(0, Draft(b'{"aa":"dd"', {}, is_complete=True))
    guesses.put(0, Draft(b'{"aa":"bb"', {}, is_complete=True))
    front = Front(stcon.compile(THREE).machine, 5)
    front.plan()
    front.read(b'{"aa":"d', 1)
    assert guesses.guide(front).text.startswith(b'd"')
    front.read(b"cc", 1)
    assert guesses.guide(front).text.startswith(b'ab"')
    assert guesses.guide(front).parts[0].num_drafted == 0


@pytest.mark.parametrize("kind", [string(), {"type": "string", "minLength": 4}, {"enum": ["red", "green"]}, False])
def test_closing_leads_to_the_end_of_a_field(kind):
    """From everywhere inside a field, bounds of its length included."""
    schema = closed({"aa": kind or {"type": "array", "items": closed({"x": string(), "y": string()})}, "bb": string()})
    front = Front(stcon.compile(schema).machine, 5)
    front.plan()
    body = {0: b'red"', 4: b"aaaa", 5: b'[{"x":"ab","y":"c'}[5 * (not kind) or 4 * ("enum" not in kind)]
    front.read(front.fields[0].lead, 0)
    body = body.removeprefix(b"[") if front.fields[0].lead.endswith(b"[") else body
    for byte in body:
        text = segments_of(front.machine).closings.after(front.config, front.fields[0].end)
        end = front.machine.run(front.config, text)
        assert (end.state, end.stack) == (front.fields[0].end.state, front.fields[0].end.stack)
        front.read(bytes([byte]), 0)


def test_cursor_stops_at_the_end_of_its_field():
    """Bytes past the field's end are not its own, nor are those that may not come."""
    grammar = stcon.compile(closed({"aa": string(), "bb": string()}))
    first = fields_of(
        segments_of(grammar.machine).after(grammar.machine, grammar.machine.initial()), grammar.machine.initial()
    )[0]
    cursor = Cursor(grammar.machine, first.anchor, first.end)
    assert cursor.read(first.lead + b"ab") == len(first.lead) + 2
    assert cursor.read(b"!") == 0
    assert not cursor.is_over
    assert cursor.read(b'c","bb"') == 2
    assert cursor.is_over


def test_recalled_is_what_follows_the_longest_match():
    """The longest end, of the least length or more; of equal ones in the first text, and there the last place."""
    assert recalled(b"x one t", [(b"one two, one three", 3)]) == b"hree"
    assert recalled(b"two", [(b"one two", 2)]) == b"", "the end of a text is not followed by anything"
    assert recalled(b"ne", [(b"one two", 3)]) == b""
    assert recalled(b"ab", [(b"abc", 2), (b"abd", 2)]) == b"c"
    assert recalled(b"xab", [(b"abc", 2), (b"xabd\xffe", 2)]) == b"d"


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
