"""What each front end reads, what it refuses, and the place that its errors name."""

from __future__ import annotations

import json

import pytest

import stcon


def accepts(text: str, syntax: str, *candidates: str, **options: str) -> list[str]:
    grammar = stcon.compile_grammar(text, syntax=syntax, **options)  # type: ignore[arg-type]
    return [candidate for candidate in candidates if grammar.accepts(candidate)]


# ------------------------------------------------------------------------------------------------- gbnf, ebnf


@pytest.mark.parametrize("syntax", ["gbnf", "ebnf"])
@pytest.mark.parametrize(
    ("body", "accepted", "rejected"),
    [
        ('"a" | "b"', ["a", "b"], ["", "ab"]),
        ('"a"* "b"+ "c"?', ["b", "aabbc"], ["a", "bcc"]),
        ('"a"{2} "b"{1,2} "c"{2,}', ["aabcc", "aabbccc"], ["abcc", "aabbbcc", "aabc"]),
        ('("a" | "b" "c")+', ["a", "bca"], ["b", ""]),
        ("[a-c_-]", ["a", "c", "_", "-"], ["d", "ab"]),
        (r"[^\n\x41]", ["b", "\U0001f600"], ["A", "\n"]),
        (r'"\x41\u3042\U0001F600\n\t\\\""', ['Aあ😀\n\t\\"'], ["A"]),
        ('"a" # a comment\n', ["a"], ["a "]),
        ('"" | "x"', ["", "x"], ["xx"]),
        ('(\n"a"\n"b"\n)', ["ab"], ["a"]),
        ('"a" |\n"b"', ["a", "b"], ["ab"]),
    ],
)
def test_bnf_constructs(syntax: str, body: str, accepted: list[str], rejected: list[str]) -> None:
    """Each construct of W3C's notation means in both dialects what it means there."""
    assert accepts(f"root ::= {body}", syntax, *accepted, *rejected) == accepted


def test_where_a_rule_ends() -> None:
    """In GBNF at the end of its line; in EBNF where the next rule begins."""
    text = 'root ::= "a"\n  x\nx ::= "b"'
    assert accepts(text, "ebnf", "ab", "a") == ["ab"]
    with pytest.raises(stcon.InvalidGrammar, match="line 2, column 4: expected ::= after the rule name x"):
        stcon.compile_grammar(text, syntax="gbnf")


def test_any_character_is_gbnf() -> None:
    """``.`` is one character of any kind in GBNF."""
    assert accepts("root ::= . .", "gbnf", "é\n", "ab", "a") == ["é\n", "ab"]


def test_another_start_rule() -> None:
    """`start` names it."""
    assert accepts('a ::= "x"\nb ::= a a', "gbnf", "x", "xx", start="b") == ["xx"]


@pytest.mark.parametrize(
    ("text", "syntax", "kind", "part"),
    [
        ('root ::= "a', "gbnf", stcon.InvalidGrammar, "line 1, column 10: this string is not closed"),
        ("root ::= [a", "gbnf", stcon.InvalidGrammar, "line 1, column 10: this character class is not closed"),
        ("root ::= [b-a]", "ebnf", stcon.InvalidGrammar, "range out of order"),
        ('root ::= ("a"', "ebnf", stcon.InvalidGrammar, "line 1, column 10: this group is not closed"),
        ('root ::= "a"\n\nroot ::= "b"', "gbnf", stcon.InvalidGrammar, "line 3, column 1: rule root is defined twice"),
        ("root ::= b", "gbnf", stcon.InvalidGrammar, "line 1, column 10: there is no rule named b"),
        ('root ::= "\\q"', "gbnf", stcon.InvalidGrammar, r"line 1, column 11: unknown escape \\q"),
        ('root ::= "a"{2,1}', "gbnf", stcon.InvalidGrammar, "numbers out of order"),
        ('root = "a"', "gbnf", stcon.InvalidGrammar, "line 1, column 6: expected ::="),
        ("root ::= <think>", "gbnf", stcon.Unsupported, "tokens by name or number"),
        ('root ::= TagDispatch(("a", x))', "ebnf", stcon.Unsupported, "the macro TagDispatch"),
        ('root ::= "a" (= "b")', "ebnf", stcon.Unsupported, "lookahead"),
    ],
)
def test_bnf_errors_name_the_place(text: str, syntax: str, kind: type[Exception], part: str) -> None:
    """What is wrong, with line and column."""
    with pytest.raises(kind, match=part):
        stcon.compile_grammar(text, syntax=syntax)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- lark


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        ('start: "a"~2..3 "b"{2} ["c"] "x".."z" "q"i', ["aabbzQ", "aaabbcxq"], ["abbxq", "aabbwq"]),
        ("start: NAME\nNAME: /[a-z]+/i", ["aB"], ["1", ""]),
        ('start: A | B\n  | "c" -> other // comment\nA: "a" # comment\nB: A "b"', ["a", "ab", "c"], ["b"]),
        ('?start: x\n!x.2: "a" "b"', ["ab"], ["a"]),
        ("%import common.INT\n%import common.WS_INLINE -> SPACE\n%ignore SPACE\nstart: INT+", ["12 3"], [" 1", ""]),
        ("%import common (INT, CNAME)\nstart: INT CNAME", ["1a"], ["a1"]),
        ("start: A\nA: /a*/", ["", "aa"], ["b"]),
        ('start: %regex {"substring_words": "foo bar. baz"}', ["foo bar", "bar. baz", ""], ["oo", "foo baz"]),
        ("start: /a\\/b/", ["a/b"], ["a\\/b"]),
    ],
)
def test_lark_constructs(text: str, accepted: list[str], rejected: list[str]) -> None:
    """Each construct of Lark, as llguidance reads it."""
    assert accepts(text, "lark", *accepted, *rejected) == accepted


def test_lexemes_are_as_long_as_can_be() -> None:
    """A lexeme does not end where it can go on, even if nothing can follow then."""
    assert accepts("start: A B\nA: /a+/\nB: /ab/", "lark", "aab", "ab") == []
    assert accepts('start: ("a" | "ab") ("c" | "bd")', "lark", "abc", "abd", "ac", "abbd") == ["abc", "ac", "abbd"]


def test_only_terminals_that_may_come_compete() -> None:
    """The lexer is contextual: where no name may come, ``ifx`` is ``if`` and ``x``."""
    assert accepts('start: IF NAME\nIF: "if"\nNAME: /[a-z]+/', "lark", "ifx") == ["ifx"]


def test_priorities_of_terminals() -> None:
    """Of terminals that match the same lexeme the highest priority is meant; of equals, all."""
    text = 'start: IF "(" | NAME "="\nNAME: /[a-z]+/\nIF{}: "if"'
    assert accepts(text.format(""), "lark", "if(", "if=", "x=") == ["if(", "if=", "x="]
    assert accepts(text.format(".2"), "lark", "if(", "if=", "x=") == ["if(", "x="]


@pytest.mark.parametrize("strategy", ["auto", "stacks"])
def test_ignored_text_stands_between_lexemes(strategy: str) -> None:
    """Not before the first lexeme, and behind the last only where another could follow."""
    once = 'start: "x" "y"\n%ignore " "'
    more = 'start: "x"+\n%ignore " "'
    assert accepts(once, "lark", "x  y", " xy", "xy ", strategy=strategy) == ["x  y"]
    assert accepts(more, "lark", "x x", "x ", " x", strategy=strategy) == ["x x", "x "]


def test_embedded_json() -> None:
    """``%json`` is a JSON value that satisfies the schema, read as one; its counters do not see each other."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "additionalProperties": False}
    text = f'start: call+\ncall: "call" %json {json.dumps(schema)} ";"\n%ignore " "'
    good = ['call{"a":"abc"};', 'call {"a": "x"} ; call{ };', 'call{"a":"abc"};call{"a":"abc"};']
    bad = ['call{"a":"abcd"};', "call{};call", 'call{"b":1};', "call;"]
    assert accepts(text, "lark", *good, *bad) == good


def test_embedded_json_that_is_not_told_apart_is_refused() -> None:
    """A number may go on with the digit that the grammar asks for next."""
    with pytest.raises(stcon.Unsupported, match="JSON values"):
        stcon.compile_grammar('start: %json {"type": "integer"} /[0-9]/', syntax="lark")


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("start: NAME", stcon.InvalidGrammar, "line 1, column 8: there is no terminal named NAME"),
        ("start: name", stcon.InvalidGrammar, "line 1, column 8: there is no rule named name"),
        ("start: /a(/", stcon.InvalidPattern, "line 1, column 8: "),
        ('start: "a', stcon.InvalidGrammar, "line 1, column 8: this string is not closed"),
        ("start: A\nA: A", stcon.InvalidGrammar, "terminal A contains itself"),
        ("start: A\nA: b\nb: A", stcon.InvalidGrammar, "a terminal is made of"),
        ("start: %json {", stcon.InvalidGrammar, "expected JSON"),
        ("start: <think>", stcon.Unsupported, "special tokens"),
        ('start[lazy]: "a"', stcon.Unsupported, "rule attributes"),
        ('start: A\nA: /a/ & ~"a"', stcon.Unsupported, "the operator &"),
        ("start: sep{A}\nA: /a/", stcon.Unsupported, "templates"),
        ("%import other.X", stcon.Unsupported, "an import from anything but common"),
        ("%declare X", stcon.Unsupported, "the directive %declare"),
        ('x: "a"', stcon.InvalidGrammar, "no start rule named start"),
    ],
)
def test_lark_errors_name_the_place(text: str, kind: type[Exception], part: str) -> None:
    """What is wrong or refused, with line and column."""
    with pytest.raises(kind, match=part):
        stcon.compile_grammar(text, syntax="lark")


# ------------------------------------------------------------------------------------------------- structural tags

ADD = {
    "begin": "<f=add>",
    "end": "</f>",
    "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
}
SAY = {"begin": "<f=say>", "end": "</f>", "grammar": 'root ::= "(" root ")" | [a-z]+', "syntax": "gbnf"}


def test_structural_tags() -> None:
    """A trigger opens a tag, whose content its own grammar rules; elsewhere the text is free."""
    text = json.dumps({"triggers": ["<f="], "tags": [ADD, SAY]})
    good = ["", "hello <f", '<f=add>{"a":1}</f>', 'x<f=say>((ab))</f> <<f=add>{"a" : 2}</f>.']
    bad = ["hello <f=", "<f=foo>", "<f=say>((ab)</f>", '<f=add>{"b":1}</f>', "<f=add>{}</f"]
    assert accepts(text, "structural_tag", *good, *bad) == good


def test_triggers_that_overlap() -> None:
    """A trigger is met where it ends first, whatever text could begin another one."""
    tags = [{"begin": "<a>", "end": "!", "regex": "x"}, {"begin": "<<b", "end": "!", "regex": "y"}]
    text = json.dumps({"triggers": ["<a", "<<b"], "tags": tags})
    good = ["<<a>x!", "<<<by!", "<b<a>x!<", "<<<<", "<a>x!<<by!"]
    bad = ["<a>y!", "<<bx!", "<<b", "<a"]
    assert accepts(text, "structural_tag", *good, *bad) == good


def test_many_triggers_compile() -> None:
    """The automaton of free text is linear in the triggers."""
    names = [f"<tool_call name={chr(97 + index)}" for index in range(26)]
    tags = [{"begin": f"{name}>", "end": "</tool_call>", "regex": "[0-9]+"} for name in names]
    text = json.dumps({"triggers": names, "tags": tags})
    assert accepts(text, "structural_tag", "a<tool_call name=q>1</tool_call>", "<tool_call name=q") == [
        "a<tool_call name=q>1</tool_call>"
    ]


def test_structural_tags_that_must_come() -> None:
    """``at_least_one`` and ``stop_after_first``."""
    text = json.dumps({"triggers": ["<f="], "tags": [SAY], "at_least_one": True, "stop_after_first": True})
    assert accepts(text, "structural_tag", "", "a<f=say>b</f>", "a<f=say>b</f>c") == ["a<f=say>b</f>"]


def test_structural_tags_of_xgrammar() -> None:
    """The form with ``type`` and ``content`` is read as well."""
    tag = {"begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</n>"}
    text = json.dumps(
        {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<n>"], "tags": [tag]}}
    )
    assert accepts(text, "structural_tag", "a<n>12</n>", "<n>x</n>") == ["a<n>12</n>"]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"triggers": [], "tags": [{}]}', "triggers is a list"),
        ('{"triggers": ["<"], "tags": []}', "tags is a list"),
        ('{"triggers": ["<"], "tags": [{"begin": "a", "end": "b"}]}', "no trigger is the beginning"),
    ],
)
def test_structural_tag_errors(value: str, part: str) -> None:
    """What is missing is said."""
    with pytest.raises(stcon.InvalidGrammar, match=part):
        stcon.compile_grammar(value, syntax="structural_tag")


@pytest.mark.parametrize("option", [{"syntax": "bnf"}, {"syntax": "gbnf", "strategy": "fast"}])
def test_options_are_checked(option: dict[str, str]) -> None:
    """Unknown syntaxes and strategies are named."""
    with pytest.raises(stcon.InvalidOption, match="is one of"):
        stcon.compile_grammar("", **option)  # type: ignore[arg-type]
