"""Replies with tool calls: what they may be, against a reader of other make; what they are taken apart into."""

import ast
import itertools
import json
import random

import jsonschema
import pytest

from stcon.errors import GrammarError, TooLarge
from stcon.grammar.json_schema.compile import compile_json_schema
from stcon.grammar.tools import FORMATS, Arguments, Begin, Content, End, ToolError, compile_reply, read_tools
from stcon.grammar.tools.formats import detect_format, python_literal

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["city", "unit"],
}
PLACES = {
    "type": "object",
    "properties": {"places": {"type": "array", "items": {"$ref": "#/$defs/place"}}, "on": {"type": "boolean"}},
    "required": ["places"],
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}


def tool(name, parameters=None):
    """A tool as clients offer it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("weather", WEATHER), tool("weather_at", PLACES), tool("stop")]
SCHEMAS = {"weather": WEATHER, "weather_at": PLACES, "stop": {"type": "object", "maxProperties": 0}}
ARGUMENTS = [
    {"city": "Rome", "unit": "C"},
    {"city": 'a "b" \\ }{ </param\n\n</tool_call>', "days": 9, "unit": "F"},
    {"city": "", "days": 10, "unit": "F"},
    {"city": "Rome", "unit": "K"},
    {"unit": "C"},
    {"city": 3, "unit": "C"},
    {"city": "Rome", "unit": "C", "more": 1},
    {"places": []},
    {"places": [{"x": 1.5}, {"x": -2}], "on": True},
    {"places": [{}]},
    {"places": [], "on": "true"},
    {},
]
OPTIONS = [{}, {"required": True}, {"parallel": False}, {"required": True, "parallel": False}]


def spelled(format, name, arguments):
    """A call as its model writes it."""
    if format.python:
        return format.call(name, ", ".join(f"{key}={python_literal(value)}" for key, value in arguments.items()))
    if not format.xml:
        return format.call(name, json.dumps(arguments, ensure_ascii=False))
    schema = SCHEMAS[name].get("properties", {})
    texts = [
        f"<parameter={key}>\n{v if schema.get(key, {}).get('type') == 'string' else json.dumps(v)}\n</parameter>\n"
        for key, v in arguments.items()
    ]
    return format.call(name, "".join(texts))


def valid(name, arguments, format):
    """Whether the tool takes the arguments; text stays text where it is not quoted."""
    schema = SCHEMAS[name]
    closed = set(arguments) <= set(schema.get("properties", {}))
    if format.xml and arguments.get("city") == 3:
        arguments = {**arguments, "city": "3"}
    return closed and jsonschema.Draft202012Validator(schema).is_valid(arguments)


def taken_apart(reader, pieces):
    """The free text of a reply, and its calls with their arguments."""
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    text = "".join(event.text for event in events if isinstance(event, Content))
    calls = []
    for event in events:
        if isinstance(event, Begin):
            calls.append([event.name, "", False])
        elif isinstance(event, Arguments):
            calls[-1][1] += event.text
        elif isinstance(event, End):
            calls[-1][2] = True
    return text, calls


@pytest.fixture(scope="module", params=FORMATS)
def format(request):
    return FORMATS[request.param]


@pytest.fixture(scope="module")
def replies(format):
    return {str(options): compile_reply(read_tools(TOOLS), format, **options) for options in OPTIONS}


def test_a_call_is_accepted_iff_its_tool_takes_it(format, replies):
    """Every name with every arguments: as jsonschema has it."""
    for name, arguments in itertools.product([*SCHEMAS, "weathe", "stopp"], ARGUMENTS):
        known = name in SCHEMAS
        text = spelled(format, name, arguments) if known or format.python else format.call(name, json.dumps(arguments))
        wanted = known and valid(name, arguments, format)
        reply = format.opening + text + format.closing
        assert replies["{}"].accepts(reply) == wanted, reply


def test_replies_follow_the_options(format, replies):
    """Free text and up to three calls: as auto, required, and at most one allow."""
    good = [("weather", ARGUMENTS[0]), ("weather_at", ARGUMENTS[8]), ("stop", {})]
    for before, count in itertools.product(["", "Let me see < [TOOL", " \n"], range(4)):
        calls = format.opening + format.between.join(spelled(format, *one) for one in good[:count]) + format.closing
        text = before + (calls if count else "")
        for options in OPTIONS:
            wanted = not (options.get("required") and (before or not count))
            wanted = wanted and not (count > 1 and options.get("parallel") is False)
            if not format.triggers and before and count:
                wanted = not options.get("required") and bool(before.strip())  # that is free text
            assert replies[str(options)].accepts(text) == wanted, (text, options)


def test_free_text_cannot_begin_a_call(format, replies):
    """What opens a call is followed by one: a text with it, and another tail, is not a reply."""
    for text in (format.opener, format.opener + "x", "a" + format.opener if format.triggers else format.opener):
        assert not replies["{}"].accepts(text)
    if format.xml:
        assert not replies["{}"].accepts("so <function=stop>")


def test_reading_does_not_depend_on_pieces(format, replies):
    """However a reply is cut, it is taken apart into the same text and arguments, which are the JSON that was meant."""
    good = [("weather", ARGUMENTS[1]), ("stop", {}), ("weather_at", ARGUMENTS[8])]
    before = "Now <tool_ [TOOL " if format.triggers else ""
    calls = format.opening + format.between.join(spelled(format, *one) for one in good) + format.closing
    text, draw = before + calls, random.Random(1)
    assert replies["{}"].accepts(text)
    cuts = [[], list(range(1, len(text)))] + [sorted(draw.sample(range(1, len(text)), 9)) for _ in range(100)]
    for places in cuts:
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]
        found, read = taken_apart(replies["{}"].reader(), pieces)
        assert found == before
        assert [(name, json.loads(arguments), whole) for name, arguments, whole in read] == [(*c, True) for c in good]


def test_free_text_is_read_whole(format, replies):
    """A reply without a call is all content, also where it ends like the beginning of one."""
    for text in ("", "Hello", "a <tool_cal", "see [TOOL_CALL", "\n"):
        assert replies["{}"].accepts(text)
        assert taken_apart(replies["{}"].reader(), text) == (text, [])


def test_random_walks_are_read(format, replies):
    """Whatever the machine writes at random: calls that are whole have names and arguments of their tools."""
    machine, draw, whole = replies[str(OPTIONS[1])].machine, random.Random(5), 0
    for _ in range(30):
        config, data = machine.initial(), b""
        while len(data) < 400 and not machine.accepts(config):
            byte = draw.choice([b for b in machine.live(config) if 32 <= b < 127 or b == 10] or machine.live(config))
            config, data = machine.step(config, byte), data + bytes((byte,))
        if machine.accepts(config):
            for name, arguments, ended in taken_apart(replies[str(OPTIONS[1])].reader(), [data.decode()])[1]:
                assert ended
                jsonschema.validate(json.loads(arguments), SCHEMAS[name])
                whole += 1
    assert whole


def test_python_calls_are_python():
    """What the pythonic format writes, Python's own parser reads: names, and values equal to those taken apart."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 5},
            "b": {"type": ["null", "boolean", "number"]},
            "c": {"type": "array", "items": {"type": ["boolean", "null", "string"]}, "maxItems": 2},
            "d": {"type": "object", "properties": {"x": {"type": "boolean"}, "y": {"enum": [None, "True", [False]]}}},
        },
        "required": ["b"],
    }
    grammar = compile_reply(read_tools([tool("first", schema), tool("stop")]), FORMATS["pythonic"], required=True)
    machine, draw, read = grammar.machine, random.Random(3), 0
    for _ in range(60):
        config, data = machine.initial(), b""
        while len(data) < 300 and not machine.accepts(config):
            live = machine.live(config)
            byte = draw.choice([b for b in live if 32 <= b < 127] or live)
            config, data = machine.step(config, byte), data + bytes((byte,))
        if not machine.accepts(config):
            continue
        wanted = [
            (call.func.id, {one.arg: ast.literal_eval(one.value) for one in call.keywords})
            for call in ast.parse(data.decode(), mode="eval").body.elts
        ]
        text, calls = taken_apart(grammar.reader(), data.decode())
        assert not text
        assert [(name, json.loads(arguments)) for name, arguments, _ in calls] == wanted
        read += len(calls)
    assert read > 20


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([tool("a-b")], "name"),
        ([tool("class")], "name"),
        ([tool("f", {"properties": {"no name": {"type": "null"}}})], "'no name'"),
        ([tool("f", {"properties": {"import": {"type": "null"}}})], "'import'"),
        ([tool("f", {"properties": {"x": {"type": "object"}}})], "repeat"),
        ([tool("f", {"additionalProperties": {"type": "null"}})], "additionalProperties"),
    ],
)
def test_what_python_cannot_write_is_refused(tools, words):
    """Names that are not Python's, and objects with names that are not given."""
    with pytest.raises(ToolError, match=words):
        compile_reply(read_tools(tools), FORMATS["pythonic"])


def test_an_answer_that_begins_as_a_call_is_refused():
    """An array as the answer, beside calls that are written as a list."""
    with pytest.raises(GrammarError, match="pythonic"):
        compile_reply(read_tools(TOOLS), FORMATS["pythonic"], answer={"type": "array", "maxItems": 2})


OPEN = {
    "headers": {"type": "object", "additionalProperties": {"type": "integer"}},
    "any": {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]},
    "set": {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True, "maxItems": 3}}},
}


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral_args"])
def test_names_and_items_do_not_repeat_in_calls(name):
    """Objects with any names, and arrays without repetitions, inside calls: as they are alone, call after call."""
    form = FORMATS[name]
    grammar = compile_reply(read_tools([tool(key, schema) for key, schema in OPEN.items()]), form)
    alone = {key: compile_json_schema(schema, whitespace="json") for key, schema in OPEN.items()}
    texts = ["{}", '{"a": 1}', '{"a": 1, "b": 2}', '{"a": 1, "a": 2}', '{"a": 1, "\\u0061": 2}', '{"x": {}}']
    texts += [
        '{"x": {"a": [{"a": 1}], "b": {}}}',
        '{"x": {"a": [{"a": 1, "a": 2}]}}',
        '{"x": {"a": 1, "b": 1, "a": 1}}',
    ]
    texts += ['{"x": [1, 2]}', '{"x": [1, 1]}', '{"x": [[1], [1]]}', '{"x": [{"a": 1}, {"a": 2}]}', '{"x": [1.0, 1]}']
    for (first, one), (second, two) in itertools.product(itertools.product(OPEN, texts), repeat=2):
        wanted = alone[first].accepts(one) and alone[second].accepts(two)
        reply = form.calls([(first, one), (second, two)])
        assert grammar.accepts(reply) == wanted, reply


def test_tools_beside_an_answer(format):
    """With an answer's schema the reply is a value of it or calls; an answer may contain what opens a call."""
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    if format.name == "llama3":  # a call and an object begin alike
        with pytest.raises(GrammarError, match="llama3"):
            compile_reply(read_tools(TOOLS), format, answer=schema)
        return
    found = compile_reply(read_tools(TOOLS), format, answer=schema)
    answer = json.dumps({"x": format.opener}, separators=(",", ":"))
    assert found.accepts(answer)
    assert not found.accepts("text")
    assert taken_apart(found.reader(), answer) == (answer, [])
    calls = format.calls([("stop", "" if format.by_parameter else "{}")])
    assert found.accepts(calls)
    assert taken_apart(found.reader(), calls) == ("", [["stop", "{}", True]])


@pytest.mark.parametrize(
    ("tools", "pointer", "words"),
    [
        ([], "", "not empty"),
        ({}, "", "list"),
        ([{"type": "web_search"}], "/0/type", "function"),
        ([tool("a b")], "/0/function/name", "letters"),
        ([TOOLS[2], TOOLS[2]], "/1", "twice"),
        ([TOOLS[2], tool("x", {"type": "array"})], "/1/function/parameters/type", "'x'"),
        ([tool("x", 3)], "/0/function/parameters", "'x'"),
        ([TOOLS[2]] * 129, "", "limit"),
    ],
)
def test_tools_that_are_not_tools(tools, pointer, words):
    """A list of tools that cannot be offered is refused, naming the place."""
    with pytest.raises(ToolError, match=words) as caught:
        read_tools(tools)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a/b": {"type": "integer", "minimum": "x"}}}, "/properties/a~1b/minimum"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "/properties/a/$ref"),
        ({"properties": {"a": {"type": "object", "minProperties": 3, "maxProperties": 2}}, "required": ["a"]}, ""),
    ],
)
def test_one_bad_tool_names_itself(name, schema, place):
    """A schema that is wrong or cannot be enforced: the error names the tool and the JSON pointer."""
    with pytest.raises(ToolError, match="'bad'") as caught:
        compile_reply(read_tools([TOOLS[0], tool("bad", schema)]), FORMATS[name])
    assert caught.value.pointer.startswith("/1/function/parameters")
    if place.count("/") > 2 or "$" in place:
        assert caught.value.pointer == "/1/function/parameters" + place


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ tools }} <tool_call>\\n<function=x>", "qwen_xml"),
        ('{{ tools }} <tool_call>{"name"', "hermes"),
        ("[TOOL_CALLS] {{ x }}", "mistral"),
        ("[TOOL_CALLS]{{ x }}[ARGS]", "mistral_args"),
        ('<|start_header_id|>{{ tools }}{"parameters": 1}', "llama3"),
        ('<|start_header_id|>{{ tools }}{"parameters": 1} [func_name1(params_name1=1)]', "pythonic"),
        ("<start_of_turn>user\n{{ messages }}", "pythonic"),
        ("{{ messages }}", None),
        (None, None),
    ],
)
def test_the_chat_template_tells_the_format(template, name):
    """Each family's template is known by the texts in it."""
    found = detect_format(template)
    assert (found and found.name) == name


def test_hostile_tools_are_refused_soon():
    """Tools past what a machine may hold, and parameters past their limit: refused, in a second or two."""
    wide = {"properties": {f"p{i}": {"type": "integer", "minimum": i} for i in range(1001)}}
    with pytest.raises(TooLarge, match="parameters"):
        compile_reply(read_tools([tool("wide", wide)]), FORMATS["qwen_xml"])
    many = [tool(f"t{i}", {"properties": {"x": {"enum": [f"{i}-{k}" for k in range(50)]}}}) for i in range(100)]
    with pytest.raises((TooLarge, ToolError), match="states"):
        compile_reply(read_tools(many), FORMATS["hermes"], max_states=2_000)


def test_many_tools_stay_small():
    """Twenty-four tools of ten parameters each compile to a machine whose size is linear in them."""
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": ["integer", "boolean", "null"][i % 3]} for i in range(10)},
        "required": ["p0", "p5"],
    }
    for format in FORMATS.values():
        few, many = (
            compile_reply(read_tools([tool(f"tool_{i}", schema) for i in range(n)]), format).num_states for n in (4, 24)
        )
        assert many < 8 * few, format.name
