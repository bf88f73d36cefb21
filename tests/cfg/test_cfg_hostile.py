"""Grammars meant to harm: each ends soon, with a grammar that is right or with an error that says why."""

from __future__ import annotations

from time import process_time

import pytest

import stcon

LIMIT_S = 20.0  # of the process; a slow machine under load needs a fifth of it


def lines(*rules: str) -> str:
    return "\n".join(rules)


REFUSED = {
    "nested groups": ("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, stcon.TooLarge, "nested groups"),
    "a long repeat": ('root ::= "a"{1000000}', stcon.TooLarge, "length of the expanded pattern"),
    "a repeat of rules": ('root ::= x{1000000}\nx ::= "a" root | "b"', stcon.TooLarge, "states of the grammar"),
    "repeats of repeats": ('root ::= ((("a"{1,99}){1,99}){1,99}){1,99}', stcon.TooLarge, "expanded pattern"),
    "a count without end": ('root ::= "a"{99999999999999999999}', stcon.TooLarge, "repeat count"),
    "no text": ('root ::= root "a"', stcon.Unsatisfiable, "no text can be finished"),
    "subsets": ('root ::= [ab]* "a" ' + "[ab] " * 25, stcon.TooLarge, "states of the pattern's automaton"),
    "many left corners": (
        lines(
            "root ::= a0", *(f'a{i} ::= a{(i + 1) % 200} "x" | a{(i * 7 + 3) % 200} "z" | "{i}"' for i in range(200))
        ),
        stcon.TooLarge,
        "pairs of rules",
    ),
    "no rules": ("", stcon.InvalidGrammar, "no start rule"),
}

ACCEPTED = {
    "doubling": (lines("root ::= a0", *(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(40)), 'a40 ::= "x"'), None, "x"),
    "a chain": (lines("root ::= a0", *(f"a{i} ::= a{i + 1}" for i in range(500)), 'a500 ::= "x"'), "x", "xx"),
    "cyclic": (lines("root ::= root | a", "a ::= b | root", 'b ::= a | "x"'), "x", "xx"),
    "ambiguous": ('root ::= root root root | root root | "a" | ""', "a" * 50, "b"),
    "exponentially many stacks": (
        'root ::= "x" root "p" | "x" root "q" | "x" root "p" "p" | "y"',
        "x" * 40 + "y" + "pq" * 20,
        "x" * 40 + "y" + "p" * 81,
    ),
    "inherently ambiguous": (
        lines(
            "root ::= ab c | a bc", 'ab ::= "a" ab "b" | ""', 'c ::= "c" c | ""', 'a ::= "a" a | ""',
            'bc ::= "b" bc "c" | ""',
        ),
        "aabbc",
        "aabbbc",
    ),
    "subsets of stacks": (
        'root ::= x* "a" ' + "x " * 25 + '\nx ::= "a" | "b" | "(" root ")"', "a" + "b" * 25, "b" * 26
    ),
}  # fmt: skip


LARK_REFUSED = {
    "terminals doubled": (
        lines("start: T0", *(f"T{i}: T{i + 1} T{i + 1}" for i in range(60)), 'T60: "a"'), "parts of the terminal"
    ),
    "nested groups": ("start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested groups"),
    "a repeat of lexemes": ('start: "a"{100000}', "states of the grammar"),
    "work of a pattern": ("start: /(a*)*b{1,200}(x{0,50}){0,50}/", "work to compile the pattern"),
    "lexers multiplied": (
        lines("start: " + " | ".join(f"T{i}" for i in range(14)), *(f"T{i}: /[ab]*a[ab]{{9}}c{i}/" for i in range(14))),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARK_REFUSED)
def test_hostile_lark_grammars(name: str) -> None:
    """Terminals that explode, alone or together, end soon too."""
    text, part = LARK_REFUSED[name]
    begin = process_time()
    try:
        stcon.compile_grammar(text, syntax="lark")
        assert not part, "not refused"
    except stcon.TooLarge as error:
        assert part in str(error)  # noqa: PT017 (one of the cases may be taken)
    assert process_time() - begin < LIMIT_S


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_grammars_are_refused(name: str) -> None:
    """The error says what is too much, or what is missing."""
    text, kind, part = REFUSED[name]
    begin = process_time()
    with pytest.raises(kind, match=part):
        stcon.compile_grammar(text, syntax="gbnf")
    assert process_time() - begin < LIMIT_S


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "subsets of stacks" else name for name in ACCEPTED]
)
def test_hostile_grammars_that_are_taken(name: str) -> None:
    """They compile in time and give right verdicts."""
    text, accepted, rejected = ACCEPTED[name]
    begin = process_time()
    grammar = stcon.compile_grammar(text, syntax="gbnf")
    assert accepted is None or grammar.accepts(accepted)
    assert not grammar.accepts(rejected)
    assert process_time() - begin < LIMIT_S


def test_a_deterministic_machine_can_be_asked_for() -> None:
    """`strategy="deterministic"` refuses a grammar that has none, and names the conflict."""
    with pytest.raises(stcon.Unsupported, match=r"rule root: after 'a', alternative 2 of root \(\"aa\""):
        stcon.compile_grammar('root ::= "a" root "a" | "aa"', syntax="gbnf", strategy="deterministic")


def test_machines_of_stacks_are_renewed() -> None:
    """A grammar's machine is replaced once it has grown, and old matchers go on."""
    grammar = stcon.compile_grammar('root ::= "a" root "a" | "b" root "b" | ""', syntax="gbnf", max_states=400)
    first = grammar.machine
    state = first.initial()
    for round_number in range(12):
        grammar.accepts(format(round_number * 7919 % 1024, "010b").replace("0", "a").replace("1", "b") * 4)
    assert grammar.machine is not first
    assert first.run(state, b"abba") is not None
