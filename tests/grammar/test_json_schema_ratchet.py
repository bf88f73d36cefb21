"""The ratchet: no case of any corpus falls behind its recorded verdict, and none accepts an invalid text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice

import pytest
from _schema_oracle import is_valid, parse, validator
from _verdicts import CORPORA, FORBIDDEN, PASS, RECORD, Case, compare, judge, own, rank, recorded

UNLIKE = {
    "pattern-classes": "Python's \\w is not ECMA's",
    "repeated-name": "Python keeps the last of equal names",
    "minProperties-open": "the same",
    "invalid-reference": "no schema",
    "invalid-type": "no schema",
}

SAMPLE = 44  # one real schema in so many is judged in every run, all of them in the long one


def assert_no_worse(corpus: str, cases: Iterable[Case]) -> None:
    """The verdicts are those recorded."""
    worse, better, count = compare(corpus, cases)
    assert not worse, "worse:\n" + "\n".join(worse)
    assert not better, "better, run `python tests/grammar/record_verdicts.py`:\n" + "\n".join(better)
    assert count > 0


@pytest.mark.parametrize("corpus", ["cases", "field_cases", "official_suite"])
def test_verdicts_are_no_worse(corpus: str) -> None:
    """Small corpora, whole."""
    assert_no_worse(corpus, CORPORA[corpus]())


@pytest.mark.parametrize("corpus", ["maskbench_dev", "maskbench_dev, schema order"])
def test_verdicts_of_a_sample_are_no_worse(corpus: str) -> None:
    """A sample of the real schemas."""
    assert_no_worse(corpus, islice(CORPORA[corpus](), 0, None, SAMPLE))


@pytest.mark.long
@pytest.mark.parametrize("corpus", ["maskbench_dev", "maskbench_dev, schema order"])
def test_verdicts_of_real_schemas_are_no_worse(corpus: str) -> None:
    """All real schemas."""
    assert_no_worse(corpus, CORPORA[corpus]())


def test_every_field_case_passes() -> None:
    """Each public bug report's kernel is read as it should be: none is refused, none is wrong."""
    failed = {case.identifier: verdict for case in CORPORA["field_cases"]() if (verdict := judge(case)) != PASS}
    assert not failed


def test_nothing_forbidden_is_recorded() -> None:
    """Wrong accepts, late refusals and crashes are never expected."""
    for corpus in json.loads(RECORD.read_text()):
        for identifier, verdict in recorded(corpus).items():
            assert rank(verdict) > 0, f"{corpus}: {identifier}: {verdict}"
            assert not verdict.startswith(FORBIDDEN)


@pytest.mark.parametrize("case", own(), ids=lambda case: case.identifier)
def test_own_case_is_what_jsonschema_says(case: Case) -> None:
    """The cases themselves are right: jsonschema agrees wherever it checks what the case is about."""
    if case.identifier in UNLIKE or "format" in json.dumps(case.schema):
        pytest.skip(UNLIKE.get(case.identifier, "formats are left out"))
    oracle = validator(case.schema)
    for text, expected in case.texts:
        try:
            value = parse(text)
        except json.JSONDecodeError:
            assert not expected
            continue
        verdict = is_valid(oracle, value)
        assert verdict or not expected, f"{text} is invalid"
        assert not verdict or expected or case.identifier.startswith("spelling"), f"{text} is valid"


def test_a_fall_is_seen() -> None:
    """The comparison itself: an invalid text accepted, a valid one refused, a refusal."""
    wrong = Case("x", True, {}, [("1", False)])
    assert rank(judge(wrong)) == 0
    assert judge(Case("x", False, {}, [])) == "refused: unsatisfiable"
    assert judge(Case("x", {"type": "null"}, {}, [("1", True)])) == "valid refused"
    worse, better, count = compare("cases", [wrong, Case("y", True, {}, [("1", True)])])
    assert (len(worse), better, count) == (1, [], 2)
