"""The comparison of mask engines: what counts as what, limits that hold for native code, adapters that agree."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from stcon.bench.masks import Measured, failures, run, spell
from stcon.bench.masks_corpus import Case, Instance, read_cases, read_documents
from stcon.bench.masks_engines import ENGINES, Engine, Refused, Session, Settings, build_engine, load_vocabulary
from stcon.bench.masks_measure import Compiled, Event, Fed, Record, Refusal, measure
from stcon.bench.masks_peers import by_message
from stcon.bench.masks_report import Spread, as_json, between_masks_us, first_masks_ms, ratios, verdicts
from stcon.bench.masks_worker import WARM_UP, Encode, Worker
from stcon.cli import cli
from stcon.errors import InvalidOption, ModelUnavailable, RequestError

PEERS = tuple(name for name in ENGINES if name != "stcon")
SETTINGS = Settings(tokenizer="bytes")
VOCABULARY = load_vocabulary("bytes")

PERSON = Case(
    "person",
    '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},'
    ' "required": ["name"], "additionalProperties": false}',
    (
        Instance("both", True, '{"name": "Ada", "age": 36}'),
        Instance("one", True, '{"name": "é"}'),
        Instance("no name", False, '{"age": 36}'),
        Instance("wrong type", False, '{"name": 36}'),
        Instance("cut short", False, '{"name": "Ada"'),
    ),
)


# ------------------------------------------------------------------------------------------------- a scripted engine


class Scripted:
    """An engine over bytes that allows exactly the texts it is told; a schema may also be an instruction."""

    options: ClassVar = {"scripted": True}
    end_ids = (256,)

    def compile(self, case: Case) -> Callable[[], Session]:
        order = json.loads(case.schema)
        if order == "hang":
            time.sleep(60)
        if order == "die":
            os._exit(7)
        if order == "grow":
            self.kept = b"x" * (400 << 20)
            time.sleep(60)
        if isinstance(order, dict):
            raise Refused(**order)
        if order == "bug":
            raise ZeroDivisionError("oops")
        return lambda: Script([text.encode() for text in order])


class Script:
    """Allows what leads to one of `texts`. After "!" it is in an error state; "~" is a byte that accept takes back."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.mask = np.zeros(9, np.int32)
        self._texts = texts
        self._read = b""

    def fill(self) -> None:
        self.mask[:] = 0
        for text in self._texts:
            if text.startswith(self._read + b"hang"):
                time.sleep(60)
            if text == self._read:
                self._allow(256)
            elif text.startswith(self._read):
                self._allow(text[len(self._read)])

    def accept(self, token: int) -> bool:
        self._read += bytes([token])
        return token != ord("~")

    def error(self) -> Refused | None:
        return Refused("too large", "no more") if b"!" in self._read else None

    def _allow(self, token: int) -> None:
        self.mask[token >> 5] |= np.int32(1 << (token & 31)) if token & 31 != 31 else np.int32(-(1 << 31))


def build_scripted(name: str, settings: Settings) -> tuple[Engine, Encode]:
    """What a worker's child calls; the name says how set-up goes."""
    if name == "broken":
        raise ValueError("no weights")
    return Scripted(), lambda text: list(text.encode())


def scripted(texts: Any, *instances: tuple[str, bool], name: str = "case") -> Case:
    """A case of which the engine allows `texts`."""
    return Case(name, json.dumps(texts), tuple(Instance(f"{text}", valid, text) for text, valid in instances))


def judge(case: Case, engine: Engine | None = None) -> Record:
    """`measure` in this process."""
    record = Record(case, "scripted")
    for event in measure(engine or Scripted(), case, [spell(VOCABULARY, instance) for instance in case.instances]):
        record.add(event)
    return record


# ------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        (["ab", "cd"], "passing"),
        (["ab"], "valid rejected"),
        (["ab", "cd", "x"], "invalid accepted"),
        (["ab", "x"], "invalid accepted"),
        (["ab", "cd", "xy"], "passing"),
        (["abc", "cd"], "valid rejected"),
    ],
)
def test_measure_status_is_the_worst_that_can_be_said(texts: list[str], status: str) -> None:
    """Accepted iff each token and then an end token is in the mask; a wrong accept outweighs the rest."""
    assert judge(scripted(texts, ("ab", True), ("cd", True), ("x", False))).status == status


def test_measure_counts_a_time_for_every_token_taken() -> None:
    """A token outside the mask ends an instance and has no time; the first mask's time is none of them."""
    record = judge(scripted(["abcd"], ("abcd", True), ("abx", False)))
    assert [(fed.accepted, fed.taken, len(fed.gaps_ns)) for fed in record.fed] == [(True, 4, 4), (False, 2, 2)]
    assert record.compiled is not None
    assert 0 < record.compiled.compile_ns <= record.compiled.first_mask_ns
    assert len(between_masks_us([record])) == 6
    assert first_masks_ms([record])[0] == record.compiled.first_mask_ns / 1e6


@pytest.mark.parametrize(
    ("texts", "reason", "late"),
    [
        ({"reason": "not supported", "message": "no"}, "not supported", False),
        ({"reason": "unsatisfiable", "message": "no"}, "unsatisfiable", False),
        ("bug", "internal error", False),
        (["a!c"], "too large", True),
        (["a~c"], "internal error", True),
    ],
)
def test_measure_refusals(texts: Any, reason: str, late: bool) -> None:
    """Errors at compile time and later, raised or only reported, are refusals with a reason; none escapes."""
    record = judge(scripted(texts, ("a!c", True), ("a~c", True)))
    assert record.refusal is not None
    assert (record.refusal.reason, record.refusal.late) == (reason, late)
    assert record.status == ("unsatisfiable" if reason == "unsatisfiable" else "refused")
    assert (record.compiled is not None) == late


def test_record_wrong_accept_outweighs_a_later_refusal() -> None:
    """What was accepted wrongly before the engine gave up is not forgotten."""
    record = judge(scripted(["x", "a!c"], ("x", False), ("a!c", True)))
    assert record.refusal is not None
    assert record.status == "invalid accepted"


def test_verdicts_add_up() -> None:
    """The outcomes partition the cases; an unsatisfiable refusal is right only where no instance is valid."""
    unsatisfiable = {"reason": "unsatisfiable", "message": "no"}
    records = [
        judge(scripted(["ab"], ("ab", True))),
        judge(scripted(["ab"], ("cd", True), ("ab", False))),
        judge(scripted(["ab"], ("cd", True), ("ef", True))),
        judge(scripted(unsatisfiable, ("cd", False))),
        judge(scripted(unsatisfiable, ("cd", True))),
        judge(scripted({"reason": "too large", "message": "no"}, ("cd", True))),
        judge(scripted(["a!b"], ("a!b", True))),
    ]
    found = verdicts(records)
    assert found.cases == 7
    assert (found.passing, found.unsatisfiable, found.rightly, found.exact) == (1, 2, 1, 2)
    assert (found.refused, found.late) == ({"too large": 2}, 1)
    assert (found.valid_rejected, found.invalid_accepted) == (1, 1)
    assert (found.instances, found.instances_valid_rejected, found.instances_invalid_accepted) == (5, 3, 1)
    assert found.passing + sum(found.refused.values()) + found.unsatisfiable + 1 + 1 == found.cases


def test_failures_are_ours_alone() -> None:
    """A wrong accept or an internal error is red for stcon, and no matter for a peer."""
    records = [judge(scripted(["x"], ("x", False))), judge(scripted("bug"))]
    assert failures([Measured("llguidance", {}, records, None, None, 0)]) == []
    assert len(failures([Measured("stcon", {}, records, None, None, 0)])) == 2
    assert (
        failures([Measured("stcon", {}, [judge(PERSON, build_engine("stcon", VOCABULARY, SETTINGS))], 1, 1, 0)]) == []
    )


def test_spread_of_known_values() -> None:
    """Average, percentiles and maximum; nothing at all for no values."""
    spread = Spread.of(np.arange(1.0, 102.0))
    assert (spread.count, spread.avg, spread.p50, spread.p99, spread.max) == (101, 51.0, 51.0, 100.0, 101.0)
    assert Spread.of(np.zeros(0)).count == 0


def test_ratios_compare_cases_that_both_pass() -> None:
    """A case that one engine refuses or gets wrong has no part in the ratio."""

    def record(engine: str, first_ns: int, accepted: bool) -> Record:
        case = scripted(["a"], ("a", True))
        made = Record(case, engine)
        gaps = Fed(0, accepted, 1, measured_gaps(first_ns))
        for event in (Compiled(1, first_ns), gaps):
            made.add(event)
        return made

    ours = Measured("stcon", {}, [record("stcon", 100, True), record("stcon", 900, True)], None, None, 0)
    peer = Measured("peer", {}, [record("peer", 200, True), record("peer", 1, False)], None, None, 0)
    (ratio,) = ratios([ours, peer])
    assert (ratio.peer, ratio.cases, ratio.first_p50, ratio.between_avg) == ("peer", 1, 0.5, 0.5)
    assert ratios([peer]) == []


def measured_gaps(value: int) -> Any:
    """One time."""
    from array import array

    return array("q", [value])


# ------------------------------------------------------------------------------------------------- corpus


def test_read_cases_both_forms(tmp_path: Path) -> None:
    """`tests` are written by json.dumps, not in ASCII; accept and reject are fed as they are; blanks are not read."""
    first = {
        "id": "a",
        "schema": {"b": 1, "a": 2},
        "tests": [{"description": "d", "valid": True, "data": {"é": [1.0]}}],
    }
    second = {"id": "format+x", "schema": True, "accept": ['"\\u0041"'], "reject": [" 1"]}
    text = json.dumps(first) + "\n\n" + json.dumps(second) + "\n"
    plain, zipped = tmp_path / "plain.jsonl", tmp_path / "zipped"
    plain.write_text(text)
    zipped.write_bytes(gzip.compress(text.encode()))
    cases = read_cases(str(plain))
    assert cases == read_cases(str(zipped))
    assert cases[0] == Case("a", '{"b": 1, "a": 2}', (Instance("d", True, '{"é": [1.0]}'),))
    assert [(i.valid, i.text) for i in cases[1].instances] == [(True, '"\\u0041"'), (False, " 1")]
    assert cases[1].escapes == "any"


def test_read_cases_suite_and_selection(tmp_path: Path) -> None:
    """In the suite `format…` groups annotate and optional/format ones assert; --every counts before --limit."""
    path = tmp_path / "suite.jsonl"
    ids = ["format#0", "optional/format/date#0", "type#0", "type#1", "type#2"]
    path.write_text("".join(json.dumps({"id": name, "schema": {}, "tests": []}) + "\n" for name in ids))
    assert [case.format for case in read_cases(str(path), suite=True)][:3] == ["annotation", "assert", "assert"]
    assert {case.format for case in read_cases(str(path))} == {"assert"}
    assert [case.id for case in read_cases(str(path), every=2, limit=2)] == ["format#0", "type#0"]


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"id": 1, "schema": {}, "accept": [1]}'])
def test_read_cases_names_the_line(tmp_path: Path, line: str) -> None:
    """A line that is no case is an error with its number."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a", "schema": {}, "tests": []}\n' + line + "\n")
    with pytest.raises(RequestError, match="line 2"):
        read_cases(str(path))


def test_read_documents_gives_names_the_suites_base(tmp_path: Path) -> None:
    """A name without a scheme lies below the official suite's base URI."""
    path = tmp_path / "remotes.json"
    path.write_text('{"a/b.json": {"type": "integer"}, "urn:x": true}')
    assert read_documents(str(path)) == {"http://localhost:1234/a/b.json": {"type": "integer"}, "urn:x": True}
    path.write_text("[]")
    with pytest.raises(RequestError, match="object"):
        read_documents(str(path))


def test_spell_leaves_out_what_has_no_tokens() -> None:
    """A lone surrogate is no UTF-8 text, and is not fed."""
    assert spell(VOCABULARY, Instance("", True, "é")) == [0xC3, 0xA9]
    assert spell(VOCABULARY, Instance("", True, '"\ud800"')) is None


# ------------------------------------------------------------------------------------------------- adapters


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine over the bytes; a peer that is not installed is skipped."""
    name: str = request.param
    package = name.removesuffix("_dynamic")
    if package != "stcon" and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install 'stcon[bench]')")
    return build_engine(name, VOCABULARY, SETTINGS)


def test_engine_judges_a_plain_schema(engine: Engine) -> None:
    """Every adapter feeds tokens, starts over, reads masks and the end token rightly: nobody errs on this schema."""
    record = judge(PERSON, engine)
    assert record.refusal is None
    assert [fed.accepted for fed in record.fed] == [True, True, False, False, False]


def test_engine_masks_are_exact_on_small_languages(engine: Engine) -> None:
    """The first mask of an enumeration has the bytes that begin its members, and nothing else."""
    session = engine.compile(Case("", '{"enum": ["yes", 12]}', ()))()
    session.fill()
    allowed = {token for token in range(257) if session.mask[token >> 5] >> (token & 31) & 1}
    spaces = set(b" \t\n\r")
    assert allowed - spaces == set(b'"1')


def test_engine_refuses_with_a_reason(engine: Engine) -> None:
    """What is no schema is refused, by no engine with an internal error."""
    record = judge(Case("", '{"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}', ()), engine)
    assert record.refusal is not None
    assert record.refusal.reason != "internal error"
    assert not record.refusal.late


def test_stcon_engine_reports_reason_and_place() -> None:
    """A refusal of ours says why and where, and unsatisfiable ones are told apart."""
    ours = build_engine("stcon", VOCABULARY, SETTINGS)
    bad = judge(Case("", '{"properties": {"a": {"pattern": "("}}}', ()), ours)
    assert bad.refusal is not None
    assert (bad.refusal.reason, bad.refusal.pointer) == ("invalid pattern", "/properties/a/pattern")
    assert judge(Case("", '{"type": "string", "enum": [1]}', ()), ours).status == "unsatisfiable"


def test_stcon_engine_takes_formats_and_documents() -> None:
    """`format` is asserted or not as the case says; references resolve in the run's documents."""
    ours = build_engine("stcon", VOCABULARY, Settings("bytes", "any", {"http://x/y": {"type": "integer"}}))
    text = Instance("", False, '"soon"')
    assert judge(Case("", '{"format": "date"}', (text,)), ours).status == "passing"
    assert judge(Case("", '{"format": "date"}', (text,), format="annotation"), ours).status == "invalid accepted"
    assert judge(Case("", '{"$ref": "http://x/y"}', (text, Instance("", True, "5"))), ours).status == "passing"


def test_stcon_engine_key_order() -> None:
    """With key_order="schema" the declared order is the only one."""
    swapped = Case("", PERSON.schema, (Instance("", True, '{"age": 36, "name": "Ada"}'),))
    orders = ("any", "schema")
    found = [judge(swapped, build_engine("stcon", VOCABULARY, Settings("bytes", order))).status for order in orders]
    assert found == ["passing", "valid rejected"]


def test_warm_up_is_judged_rightly_by_stcon() -> None:
    """The cases that load compiled code are cases, and pass."""
    ours = build_engine("stcon", VOCABULARY, SETTINGS)
    assert [judge(case, ours).status for case in WARM_UP] == ["passing"] * len(WARM_UP)


def test_by_message_reasons() -> None:
    """The peers' errors fall under the same reasons as ours; a message without a known word is `other`."""
    assert by_message("Unsatisfiable schema: schema is false").reason == "unsatisfiable"
    assert by_message('Unimplemented keys: ["uniqueItems"]').reason == "not supported"
    assert by_message("initial lexer configuration (grammar) too big").reason == "too large"
    found = by_message("[16:24:42] /x/y.cc:50: Schema 'false' cannot accept any value\n")
    assert (found.reason, found.message) == ("unsatisfiable", "Schema 'false' cannot accept any value")
    assert by_message("hm").reason == "other"


def test_build_engine_unknown_names() -> None:
    """Engines and tokenizers are closed lists."""
    with pytest.raises(InvalidOption, match="engines are"):
        build_engine("guess", VOCABULARY, SETTINGS)
    with pytest.raises(InvalidOption, match="tokenizer is"):
        load_vocabulary("guess")


# ------------------------------------------------------------------------------------------------- processes


def ask(worker: Worker, texts: Any, *instances: tuple[str, bool]) -> list[Event]:
    """What the worker reports of a scripted case."""
    case = scripted(texts, *instances)
    return list(worker.ask(case, [list(text.encode()) for text, _ in instances]))


@pytest.fixture
def worker() -> Any:
    """A scripted engine in a child, one second a case."""
    made = Worker("scripted", SETTINGS, limit_s=1.0, memory_limit=300 << 20, build=build_scripted)
    yield made
    made.close()


def test_worker_reports_what_measure_does(worker: Worker) -> None:
    """The same events come through the process, with the engine's options."""
    events = ask(worker, ["ab"], ("ab", True), ("ax", False))
    assert [type(event) for event in events] == [Compiled, Fed, Fed]
    assert [event.accepted for event in events if isinstance(event, Fed)] == [True, False]
    assert worker.options == {"scripted": True}
    assert worker.num_kills == 0


@pytest.mark.parametrize(
    ("order", "reason"), [("hang", "time limit"), ("die", "crash"), ("grow", "memory limit")], ids=str
)
def test_worker_survives_native_code(worker: Worker, order: str, reason: str) -> None:
    """A case that hangs, dies or grows past a limit is refused for it, and the next case has a new child."""
    if order == "grow" and not Path("/proc/self/status").exists():
        pytest.skip("memory of another process is read from /proc")
    begin = time.monotonic()
    (event,) = ask(worker, order)
    assert isinstance(event, Refusal)
    assert (event.reason, event.late) == (reason, False)
    assert time.monotonic() - begin < 20
    assert isinstance(ask(worker, ["ab"], ("ab", True))[-1], Fed)


def test_worker_keeps_what_was_known_before_a_limit(worker: Worker) -> None:
    """A limit met while decoding is late, and the instances read before stay."""
    events = ask(worker, ["ab", "zhang"], ("ab", True), ("zhang", True))
    assert [type(event) for event in events] == [Compiled, Fed, Refusal]
    assert isinstance(events[-1], Refusal)
    assert (events[-1].reason, events[-1].late) == ("time limit", True)


def test_worker_that_cannot_be_set_up_says_why() -> None:
    """An engine whose set-up fails is an error of the request, not a crash."""
    broken = Worker("broken", SETTINGS, limit_s=1.0, memory_limit=1 << 30, build=build_scripted)
    with pytest.raises(ModelUnavailable, match="broken cannot be set up: ValueError: no weights"):
        broken.wait_until_ready()


def test_run_gives_every_case_to_every_engine_in_order() -> None:
    """Engines take turns, whoever begins; records come back in the corpus's order."""
    cases = [scripted(["a"], ("a", True), name=f"case {number}") for number in range(3)]
    lines: list[str] = []
    measured = run(cases, ["stcon", "llguidance"], SETTINGS, build=build_scripted, progress=lines.append)
    assert [one.engine for one in measured] == ["stcon", "llguidance"]
    assert all([record.case.id for record in one.records] == [case.id for case in cases] for one in measured)
    turns = [line.rsplit(", ", 1)[1] for line in lines[1:]]
    assert turns == ["stcon", "llguidance", "llguidance", "stcon", "stcon", "llguidance"]
    data = json.loads(json.dumps(as_json(measured, {}, timed=True)))
    assert data["engines"]["stcon"]["verdicts"]["passing"] == 3
    assert [case["stcon"]["status"] for case in data["cases"]] == ["passing"] * 3


# ------------------------------------------------------------------------------------------------- command


def test_command_prints_and_writes(tmp_path: Path) -> None:
    """The whole way with our own engine: tables in 80 columns, exit code 0, everything in the JSON file."""
    data, out = tmp_path / "cases.jsonl", tmp_path / "out.json"
    accept = [instance.text for instance in PERSON.instances if instance.valid]
    reject = [instance.text for instance in PERSON.instances if not instance.valid]
    lines = [
        {"id": "person", "schema": json.loads(PERSON.schema), "accept": accept, "reject": reject},
        {"id": "never", "schema": False, "accept": [], "reject": ["1"]},
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    command = ["bench", "masks", "--data", str(data), "--engines", "stcon", "--tokenizer", "bytes", "--json", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "between masks, µs" in result.stdout
    assert max(map(len, result.stdout.partition("\ndata: ")[0].splitlines())) <= 80
    found = json.loads(out.read_text())
    assert found["failures"] == []
    assert found["cases"][0]["stcon"]["status"] == "passing"
    assert found["cases"][1]["stcon"]["refusal"]["reason"] == "unsatisfiable"
    assert found["engines"]["stcon"]["verdicts"]["rightly"] == 1
    assert found["tokenizer"] == "bytes"


def test_command_shows_no_time_when_stcon_is_wrong(tmp_path: Path) -> None:
    """A wrong accept of ours suppresses the speed tables, in print and in JSON, and is named; exit code 1."""
    data, out = tmp_path / "cases.jsonl", tmp_path / "out.json"
    data.write_text(json.dumps({"id": "mislabelled", "schema": {"type": "integer"}, "reject": ["5"]}))
    command = ["bench", "masks", "--data", str(data), "--engines", "stcon", "--tokenizer", "bytes", "--json", str(out)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1
    assert "between masks, µs" not in result.stdout
    assert "mislabelled: accepts an invalid instance" in result.stderr
    found = json.loads(out.read_text())
    assert found["ratios"] is None
    assert found["engines"]["stcon"]["between_masks_us"] is None


@pytest.mark.parametrize(
    ("extra", "words"),
    [(["--engines", "guess"], "a list of"), (["--data", "/nowhere.jsonl"], "/nowhere.jsonl"), (["--every", "0"], "0")],
)
def test_command_bad_input(tmp_path: Path, extra: list[str], words: str) -> None:
    """One line and exit code 2."""
    data = tmp_path / "cases.jsonl"
    data.write_text('{"id": "a", "schema": {}, "tests": []}')
    result = CliRunner().invoke(cli, ["bench", "masks", "--data", str(data), *extra])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
