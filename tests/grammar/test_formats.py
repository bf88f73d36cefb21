"""Formats against the official suite, a corpus, independent libraries, and texts drawn from the automata themselves.

`format_cases.jsonl` has the strings of the official suite's ``optional/format`` groups (json-schema-org/JSON-Schema-
Test-Suite, MIT) and of MaskBench (guidance-ai/jsonschemabench, MIT): valid ones, and those that make a document invalid
by their format alone. ``refused`` marks the valid ones that a sound subset leaves out.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import random
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stcon.automata import equivalent
from stcon.automata.dfa import CharDfa
from stcon.grammar.json_schema.formats import FORMATS, build_format, build_universe, format_dfa, format_universe

CASES = [json.loads(line) for line in Path(__file__).with_name("format_cases.jsonl").read_text("utf-8").splitlines()]
NAMES = sorted(FORMATS)
NODE = shutil.which("node")


def run(dfa: CharDfa, text: str) -> int:
    """The state after `text`, by the definition of a complete DFA."""
    state = dfa.start
    for char in text:
        state = int(dfa.delta[state, dfa.classes[np.searchsorted(dfa.starts, ord(char), side="right") - 1]])
    return state


def dfa_of(name: str) -> CharDfa:
    dfa = format_dfa(name)
    assert dfa is not None
    return dfa


def accepts(name: str, text: str) -> bool:
    dfa = dfa_of(name)
    return int(dfa.labels[run(dfa, text)]) == 0


class Sampler:
    """Random accepted strings: a walk over live states that turns for the nearest end after a while."""

    def __init__(self, name: str) -> None:
        self.dfa = dfa_of(name)
        self.distance = np.where(self.dfa.labels >= 0, 0, 10**6)
        while True:
            closer = np.minimum(self.distance, self.distance[self.dfa.delta].min(axis=1) + 1)
            if (closer == self.distance).all():
                break
            self.distance = closer
        ends = np.append(self.dfa.starts[1:], 0x110000)
        self.intervals = [
            [(int(a), int(b)) for a, b, k in zip(self.dfa.starts, ends, self.dfa.classes, strict=True) if k == c]
            for c in range(self.dfa.num_classes)
        ]

    def draw(self, rng: random.Random, length: int) -> str:
        """One accepted string, about `length` characters."""
        state, text = self.dfa.start, ""
        while not (self.distance[state] == 0 and (len(text) >= length or rng.random() < 0.02)):
            row = self.distance[self.dfa.delta[state]]
            live = np.flatnonzero(row < (10**6 if len(text) < length else self.distance[state]))
            if not len(live):
                break
            chosen = int(rng.choice(live))
            low, high = rng.choice(self.intervals[chosen])
            text += chr(rng.choice([low, high - 1, rng.randrange(low, high)]))
            state = int(self.dfa.delta[state, chosen])
        return text


@cache
def samples(name: str, count: int = 300) -> list[str]:
    """Distinct accepted strings without surrogates, of many lengths."""
    sampler, rng = Sampler(name), random.Random(name)
    drawn = {sampler.draw(rng, rng.choice([1, 5, 20, 60, 200])) for _ in range(count)}
    return sorted(text for text in drawn if not any("\ud800" <= char <= "\udfff" for char in text))


@pytest.mark.parametrize("name", NAMES)
def test_format_agrees_with_all_cases(name: str) -> None:
    """No invalid case is accepted, and exactly the marked valid ones are refused."""
    cases = [case for case in CASES if case["format"] == name]
    assert [case["data"] for case in cases if not case["valid"] and accepts(name, case["data"])] == []
    refused = [case["data"] for case in cases if case["valid"] and not accepts(name, case["data"])]
    assert refused == [case["data"] for case in cases if case.get("refused")]
    assert any(case["valid"] for case in cases)


def test_exact_formats_refuse_nothing_valid() -> None:
    """Only formats that say so in `departure` refuse valid cases."""
    assert {case["format"] for case in CASES if case.get("refused")} <= {n for n in NAMES if not FORMATS[n].exact}
    assert all(bool(FORMATS[name].departure) != FORMATS[name].exact for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_universe_holds_where_the_verdict_is_right(name: str) -> None:
    """A valid string outside the format's language is outside its universe, so negation never accepts it."""
    universe = format_universe(name)
    if universe is None:
        assert FORMATS[name].exact
        return
    for case in CASES:
        if case["format"] == name and int(universe.labels[run(universe, case["data"])]) == 0:
            assert accepts(name, case["data"]) == case["valid"]
    for text in samples(name):
        assert int(universe.labels[run(universe, text)]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_format_is_small(name: str) -> None:
    """Every format has fewer than 2,000 states."""
    assert dfa_of(name).num_states < 2_000


def test_unknown_format_is_none() -> None:
    """A name that is not listed is an annotation."""
    assert format_dfa("unknown") is None
    assert format_universe("color") is None


@pytest.mark.parametrize("year", [*range(2015, 2026), 0, 1, 4, 100, 400, 1582, 1900, 2000, 2100, 2400, 9996, 9999])
def test_date_is_the_calendar(year: int) -> None:
    """Every month and day of a year is accepted iff the Gregorian calendar has it (2000 stands for year 0)."""
    for month in range(14):
        for day in range(33):
            try:
                datetime.date(year or 2000, month, day)
                exists = True
            except ValueError:
                exists = False
            assert accepts("date", f"{year:04}-{month:02}-{day:02}") == exists


@given(
    st.integers(0, 23), st.integers(0, 59), st.sampled_from("+-"), st.integers(0, 23), st.sampled_from([0, 15, 30, 59])
)
def test_leap_second_is_the_last_of_the_day_in_utc(hour: int, minute: int, sign: str, oh: int, om: int) -> None:
    """Second 60 is accepted only at 23:59 UTC; always there with offsets of whole and half hours."""
    offset = (oh * 60 + om) * (1 if sign == "+" else -1)
    for local in (hour * 60 + minute, (23 * 60 + 59 + offset) % 1440):
        text = f"{local // 60:02}:{local % 60:02}:60{sign}{oh:02}:{om:02}"
        last = (local - offset) % 1440 == 23 * 60 + 59
        assert accepts("time", text) == (last and om in (0, 30))


@given(
    st.datetimes(datetime.datetime(1972, 1, 1), datetime.datetime(2040, 1, 1)),
    st.sampled_from(["06-30", "12-31", "03-31", None]),
    st.integers(-23, 23),
)
def test_leap_second_of_a_date_time_ends_june_or_december(when: datetime.datetime, day: str | None, hours: int) -> None:
    """With any whole-hour offset, second 60 is accepted iff it ends June 30 or December 31 in UTC."""
    utc = when.replace(hour=23, minute=59)
    if day:
        utc = utc.replace(month=int(day[:2]), day=int(day[3:]))
    local = utc + datetime.timedelta(hours=hours)
    text = f"{local:%Y-%m-%dT%H:%M}:60.5{'-' if hours < 0 else '+'}{abs(hours):02}:00"
    assert accepts("date-time", text) == ((utc.month, utc.day) in [(6, 30), (12, 31)])
    assert not accepts("date-time", text.replace(":60.5", ":61"))
    assert accepts("date-time", text.replace(":60.5", ":59.5"))


def address_like() -> st.SearchStrategy[str]:
    """Groups and gaps that are often addresses, often nearly."""
    group = st.sampled_from(
        ["0", "1", "ff", "12AB", "0000", "12345", "g", "", "1.2.3.4", "255.255.255.255", "256.1.1.1"]
    )
    free = st.text("01af:.", max_size=12)
    octets = st.lists(st.sampled_from(["0", "9", "00", "01", "99", "199", "249", "255", "256", "999", ""]), max_size=5)
    joined = st.lists(group, max_size=9).flatmap(
        lambda groups: st.sampled_from([":", "::"]).map(
            lambda gap: gap.join([":".join(groups[:3]), ":".join(groups[3:])])
        )
    )
    return joined | st.lists(group, max_size=9).map(":".join) | free | octets.map(".".join)


@given(address_like())
@settings(max_examples=600, deadline=None)
def test_addresses_agree_with_ipaddress(text: str) -> None:
    """ipv4 and ipv6 are exactly what the standard library parses (which knows no zone here: no % is drawn)."""
    for name, parse in (("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)):
        try:
            parse(text)
            valid = True
        except ValueError:
            valid = False
        assert accepts(name, text) == valid, text


def test_sampled_addresses_parse() -> None:
    """What the automata generate, the standard library parses; uri and email embed the same addresses."""
    for text in samples("ipv6"):
        ipaddress.IPv6Address(text)
        assert accepts("uri", f"http://[{text}]:80/")
    for text in samples("ipv4"):
        ipaddress.IPv4Address(text)
        assert accepts("email", f"a@[{text}]")


def test_sampled_names_keep_both_length_limits() -> None:
    """No accepted name has a label over 63 or more than 253 characters, no mailbox more than 64 and 254 octets."""
    for text in samples("hostname"):
        assert len(text) <= 253
        assert all(0 < len(label) <= 63 and label.strip("-") == label for label in text.split("."))
    for name in ("email", "idn-email"):
        for text in samples(name):
            local, _, domain = text.rpartition("@")
            assert 0 < len(local.encode()) <= 64
            assert len(text.encode()) <= 254
            assert all(len(label) <= 63 for label in domain.split(".")) or domain.startswith("[")


@pytest.mark.parametrize("size", [1, 31, 32, 63, 64])
def test_label_lengths(size: int) -> None:
    """Labels reach 63 characters and no further; three long ones fit, four do not."""
    label = "a" * size
    assert accepts("hostname", label) == (size <= 63)
    assert accepts("hostname", f"{label}.{label}.com") == (size <= 63)
    assert not accepts("hostname", ".".join(["a" * 63] * 4))
    assert accepts("email", f"{label}@{'b' * min(size, 63)}.com") == (size <= 64)
    assert not accepts("email", f"{label}a@b.com") or size < 64


def test_sampled_international_names_are_valid_idna() -> None:
    """Every label of a generated idn-hostname encodes under IDNA 2008, within 63 characters."""
    idna = pytest.importorskip("idna")
    for text in samples("idn-hostname"):
        for label in text.translate({ord(dot): "." for dot in "\u3002\uff0e\uff61"}).split("."):
            assert len(idna.alabel(label)) <= 63


@pytest.mark.skipif(NODE is None, reason="needs node, whose RegExp is the oracle")
def test_sampled_regexes_compile_in_javascript() -> None:
    """Every generated regex is valid under the u flag."""
    script = (
        "const bad = JSON.parse(require('fs').readFileSync(0, 'utf8'))"
        ".filter(p => { try { new RegExp(p, 'u'); return false } catch (e) { return true } });"
        "console.log(JSON.stringify(bad))"
    )
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-e", script], check=True, input=json.dumps(samples("regex", 1_000)), text=True, capture_output=True
    )
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-zA-Z0-9_]{3,16}$",
        r"^(\+\d{1,2}\s)?\(?\d{3}\)?[\s.-]\d{3}$",
        r"(?=.*\d)[A-Z]{10,20}",
        r"^(?:a|b(c|(d)*))+?\b$",
    ],
)
def test_everyday_regexes_are_accepted(pattern: str) -> None:
    """The subset has what people write."""
    assert accepts("regex", pattern)


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "[", "a**", "{1}", "a{2,1}", "[z-a]", "[a-\\d]", "\\", "\\y", "(?=a)*", "(?<n>a)(?<n>b)"]
)
def test_broken_regexes_are_refused(pattern: str) -> None:
    """Early errors of ECMA-262, among them those that need memory (order of bounds and ranges, unique names)."""
    assert not accepts("regex", pattern)


@pytest.mark.parametrize("name", ["uri", "uri-reference", "iri", "iri-reference", "uri-template"])
def test_uri_refuses_forbidden_characters_everywhere(name: str) -> None:
    """A space, a quote, a bracket in a path or half an escape spoils a URI at every position."""
    good = "http://user@example.com:80/a/b;c=1?q=%20x#frag"
    assert accepts(name, good)
    for bad in (" ", '"', "<", ">", "\\", "^", "`", "|", "\n", "\x7f", "%g", "%4g"):
        for i in range(len(good) + 1):
            assert not accepts(name, good[:i] + bad + good[i:]), (i, bad)


@given(st.text(max_size=12))
def test_json_pointer_escapes_any_keys(key: str) -> None:
    """Any key, escaped by RFC 6901, is a pointer; a bare tilde is not."""
    escaped = key.replace("~", "~0").replace("/", "~1")
    assert accepts("json-pointer", f"/{escaped}/0")
    assert accepts("relative-json-pointer", f"1/{escaped}")
    assert not accepts("json-pointer", f"/{escaped}~")


def test_years_and_durations_of_any_size() -> None:
    """A duration's components have no bound; a year has four digits."""
    assert accepts("duration", f"P{10**40}Y")
    assert not accepts("date", "12024-01-01")


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_kept_tables_are_what_the_patterns_give(name: str) -> None:
    """formats.npz is not stale: `python -m stcon.grammar.json_schema.formats` writes it anew."""
    kept, built = format_dfa(name), build_format(FORMATS[name])
    assert kept is not None
    assert equivalent(kept, built)
    universe = build_universe(FORMATS[name])
    kept_universe = format_universe(name)
    assert (universe is None) == (kept_universe is None)
    assert universe is None or equivalent(kept_universe, universe)
