"""Settings, constraints, the compiler and the options, without vLLM."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from vllm_lab import END, vocabulary

import stcon
from stcon.errors import GrammarError, InvalidOption, LimitTooSmall, ModelUnavailable
from stcon.integrations.vllm import PROPOSER, SCHEDULER, options
from stcon.integrations.vllm.__main__ import flags, main
from stcon.integrations.vllm.compiling import Compiler, CompilingTooLong, compiler_for
from stcon.integrations.vllm.plugin import register
from stcon.integrations.vllm.proposer import NoDrafts
from stcon.integrations.vllm.requests import Constraint, Settings
from stcon.integrations.vllm.session import Stops

VOCABULARY = vocabulary()
STOPS = Stops(VOCABULARY, [END])
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def constraint(kind: str, text: str, pattern: str | None = None, **settings: Any) -> Constraint:
    """A constraint."""
    return Constraint(kind, text, Settings().updated(settings), pattern)  # type: ignore[arg-type]


ACCEPTED = [
    (constraint("json", json.dumps(NAME)), ['{"name":"x"}'], ['{"name": "x"}', '{"name":"x","a":1}', "{}"]),
    (constraint("json", json.dumps(NAME), whitespace="json"), ['{"name": "x"}'], ['{"name":"x"}']),
    (constraint("json", json.dumps(NAME), " {0,2}"), ['{ "name" :  "x"}', '{"name":"x"}'], ['{"name":    "x"}']),
    (constraint("json", json.dumps(NAME), closed=False), ['{"name":"x","a":1}'], ['{"a":1}']),
    (constraint("json_object", ""), ["{}", '{"a":[1]}'], ["[]", "1"]),
    (constraint("regex", "a+b?"), ["aab", "a"], ["b", "abb"]),
    (constraint("choice", '["a.b", "c|d"]'), ["a.b", "c|d"], ["axb", "c"]),
    (constraint("grammar", 'root ::= "(" root? ")"'), ["()", "(())"], ["(", "())"]),
    (constraint("grammar", "root ::= [a-c]{2,3} # three\n"), ["ab", "abc"], ["a", "abcd"]),
    (constraint("grammar", 'start: "a" start | "b"'), ["b", "aab"], ["a"]),
]


@pytest.mark.parametrize(("asked", "texts", "others"), ACCEPTED)
def test_constraints(asked: Constraint, texts: list[str], others: list[str]) -> None:
    """Each kind of constraint admits its texts and no others; grammars come as GBNF, EBNF or Lark."""
    grammar = asked.compile()
    assert all(map(grammar.accepts, texts))
    assert not any(map(grammar.accepts, others))


def test_structural_tags() -> None:
    """A structural tag is free text with calls in their schema."""
    tag = {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}
    text = json.dumps({"type": "structural_tag", "structures": [tag], "triggers": ["<f>"]})
    grammar = constraint("structural_tag", text).compile()
    assert grammar.accepts("well <f>12</f> so")
    assert not grammar.accepts("well <f>x</f> so")


@pytest.mark.parametrize(
    ("kind", "text"), [("json", "{"), ("json", '{"type":"objekt"}'), ("regex", "(a"), ("grammar", "root ::= x ::= y")]
)
def test_what_is_none_is_refused(kind: str, text: str) -> None:
    """What is no schema, pattern or grammar is refused as such, and the same error is found again."""
    compiler = Compiler(VOCABULARY)
    for _ in range(2):
        with pytest.raises(GrammarError):
            compiler.session(constraint(kind, text), STOPS, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("stcon_mode", "free"), ("stcon_budget", "yes"), ("stcon_budget", None), ("stcon_key_order", 1), ("stcon_x", 1)],
)
def test_settings_that_are_none_are_refused(name: str, value: Any) -> None:
    """A setting that does not exist, or a value that it does not have, is refused by name."""
    with pytest.raises(InvalidOption, match=name):
        Settings().updated({name: value}, "stcon_")


def test_settings_as_http_clients_send_them() -> None:
    """Booleans come as numbers and words too; names of others are passed over."""
    sent = {"stcon_budget": 0, "stcon_closed": "false", "stcon_mode": "any", "session": 3}
    assert Settings().updated(sent, "stcon_") == Settings("any", budget=False, closed=False)


def test_limits_are_compared_where_budgets_are_kept() -> None:
    """A limit below the shortest output is refused, unless the request asks for no budget."""
    compiler = Compiler(VOCABULARY)
    with pytest.raises(LimitTooSmall):
        compiler.session(constraint("json", json.dumps(NAME)), STOPS, 3)
    assert compiler.session(constraint("json", json.dumps(NAME), budget=False), STOPS, 3).limit is None


def test_grammars_are_compiled_once() -> None:
    """Requests that ask for the same at the same time share one compilation, and later ones its masks."""
    compiler, asked = Compiler(VOCABULARY), constraint("regex", "[a-z]{3}")
    with ThreadPoolExecutor(4) as threads:
        grammars = list(threads.map(lambda _: compiler.prepare(asked)[0], range(8)))
    assert len(set(map(id, grammars))) == 1
    assert compiler_for(VOCABULARY) is compiler_for(VOCABULARY)


def test_no_more_are_kept_than_said() -> None:
    """The grammar used longest ago is forgotten, and compiled again where it is asked for."""
    compiler = Compiler(VOCABULARY, most=2)
    first = compiler.prepare(constraint("regex", "a"))[0]
    for pattern in ("b", "c"):
        compiler.prepare(constraint("regex", pattern))
    assert compiler.prepare(constraint("regex", "a"))[0] is not first


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that is not ready in time is refused, while others, known or new, are served."""
    compiler, released = Compiler(VOCABULARY, seconds=0.2), threading.Event()
    original = Constraint.compile

    def slow(self: Constraint) -> stcon.Grammar:
        if self.text == "slow":
            released.wait(20)
        return original(self)

    monkeypatch.setattr(Constraint, "compile", slow)
    started = time.perf_counter()
    with pytest.raises(CompilingTooLong, match=r"0\.2 s"):
        compiler.session(constraint("regex", "slow"), STOPS, None)
    assert time.perf_counter() - started < 10
    compiler.seconds = 20.0
    assert compiler.session(constraint("regex", "quick"), STOPS, None) is not None
    released.set()
    assert compiler.session(constraint("regex", "slow"), STOPS, None) is not None


def test_proposer_proposes_nothing() -> None:
    """vLLM's proposer gets an empty draft for each request."""
    assert NoDrafts(None).propose([[1], [2, 3]], None, slot_mappings=None) == [[], []]


def test_options_name_what_vllm_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options name the scheduler, the settings and, for forced text, the proposer; each name can be imported."""
    monkeypatch.setattr("stcon.integrations.vllm.versions.installed_version", lambda: "0.32.0")
    monkeypatch.setattr("stcon.integrations.vllm.plugin.register", lambda: None)
    assert options() == {"scheduler_cls": SCHEDULER, "additional_config": {"stcon": {"mode": "mask"}}}
    found = options(forced=True, drafts=5, whitespace="json")
    assert found["additional_config"] == {"stcon": {"mode": "canonical", "whitespace": "json"}}
    assert found["speculative_config"] == {"method": "custom_class", "model": PROPOSER, "num_speculative_tokens": 5}
    module, name = PROPOSER.rsplit(".", 1)
    assert getattr(sys.modules[module], name) is NoDrafts
    for wrong in ({"drafts": 0}, {"mode": "free"}, {"colour": 1}):
        with pytest.raises(InvalidOption):
            options(**wrong)  # type: ignore[arg-type]


def test_flags_are_one_shell_word_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The flags for ``vllm serve`` say what the options say, in words without spaces."""
    found = flags(forced=True)
    assert found[:2] == ["--scheduler-cls", SCHEDULER]
    assert json.loads(found[found.index("--speculative-config") + 1])["model"] == PROPOSER
    assert not any(" " in word for word in found)
    monkeypatch.setattr(sys, "argv", ["stcon.integrations.vllm", "--forced"])
    main()
    assert capsys.readouterr().out.split() == found


@pytest.mark.parametrize(("found", "reason"), [(None, "pip install vllm==0.32.0"), ("0.31.2", "this is 0.31.2")])
def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch, found: str | None, reason: str) -> None:
    """Without vLLM, or with another release, the options are refused; as a plugin nothing is imported or changed."""
    monkeypatch.setattr("stcon.integrations.vllm.versions.installed_version", lambda: found)
    with pytest.raises(ModelUnavailable, match=reason):
        options()
    monkeypatch.setitem(sys.modules, "stcon.integrations.vllm.frontend", None)  # an import of it would fail
    register()
