"""What the parser refuses, and how it says so."""

from __future__ import annotations

import pytest

from stcon.automata import compile_pattern
from stcon.errors import GrammarError, InvalidOption, InvalidPattern, TooLarge, Unsupported

INVALID = [
    ("a(b", 1),
    ("ab)", 2),
    ("a[b", 1),
    ("*a", 0),
    ("a|+", 2),
    ("a**", 2),
    ("a{2}{3}", 4),
    ("x{3,2}", 0),
    ("[b-a]", 2),
    ("a\\", 1),
    (r"\u12", 0),
    (r"\x1", 0),
    (r"\u{110000}", 0),
    (r"\u{}", 0),
    (r"\e", 0),
    (r"\01", 0),
    ("a^*", 1),
    (r"a\b+", 1),
    ("{2}", 0),
    ("(?<1>a)", 0),
    ("(?<a", 0),
    (r"\pL", 0),
    (r"\p{}", 0),
    (r"\p{L", 0),
    ("(?_a)", 0),
]


@pytest.mark.parametrize("pattern, position", INVALID)
def test_malformed_pattern_is_refused_with_its_position(pattern: str, position: int) -> None:
    """Every syntax error names the offset of what is wrong."""
    with pytest.raises(InvalidPattern, match=rf"\(position {position} of the pattern\)"):
        compile_pattern(pattern)


UNSUPPORTED = [
    (r"(a)\1", "backreference", 3),
    (r"(?<n>a)\k<n>", "backreference", 7),
    ("a++", "possessive", 2),
    ("(?>a)", "atomic", 0),
    ("(a)(?(1)b)", "conditional", 3),
    ("(?x)a b", "flag x", 0),
    ("a(?i)b", "start of the pattern", 1),
    (r"\p{Script=Greek}", "scripts", 0),
    (r"a\p{Emoji}", "not known", 1),
]


@pytest.mark.parametrize("pattern, what, position", UNSUPPORTED)
def test_construct_that_is_not_handled_is_named_with_its_position(pattern: str, what: str, position: int) -> None:
    """A valid pattern outside of what is handled is refused, not weakened."""
    with pytest.raises(Unsupported, match=rf"{what}.*\(?position {position} of the pattern"):
        compile_pattern(pattern)


PYTHON_INVALID = ["[a-\\d]", "(?P<n>a)(?P<n>b)", r"\q", "[]", r"\N{no such name}"]


@pytest.mark.parametrize("pattern", PYTHON_INVALID)
def test_python_dialect_refuses_what_re_refuses(pattern: str) -> None:
    """Errors of `re` that ECMA's Annex B does not have."""
    with pytest.raises(GrammarError):
        compile_pattern(pattern, dialect="python")


PYTHON_VALID = [
    r"(?P<n>a)",
    r"\N{BULLET}",
    r"\a",
    r"\U0001F600",
    r"[]a]",
    r"a(?#comment)b",
    r"\012",
    r"x{,2}",
    r"x{,}",
    r"(?u)a",
    r"\0",
]


@pytest.mark.parametrize("pattern", PYTHON_VALID)
def test_python_dialect_takes_python_syntax(pattern: str) -> None:
    """Constructs of `re` that ECMAScript does not have compile to a non-empty language."""
    assert (compile_pattern(pattern, dialect="python").labels >= 0).any()


def test_unknown_dialect_is_refused() -> None:
    """A dialect is one of two."""
    with pytest.raises(InvalidOption, match="ecma, python"):
        compile_pattern("a", dialect="pcre")  # type: ignore[arg-type]


HOSTILE = [
    "[ab]*a[ab]{20}",
    "[ab]*a[ab]{1000}",
    "(a{1,1000}){1,1000}",
    "((a{100}){100}){100}",
    "a{99999999999999999999999}",
    "(" * 10_000 + "a" + ")" * 10_000,
    "(?=" * 50 + "a" + ")" * 50,
    "a?" * 3_000,
    "x" * 100_000,
    "(?:[ab]?[bc]?[cd]?){600}" * 20,
    "(?=.*a.{12})(?=.*b.{12}).*",
    "(?<=a.{15})b(?=.{15}c)",
    "(?:(?=.*a.{9})(?!.*b.{9})[ab])*c",
    r"(?:^|\b|$|\B)*" * 200 + "a.{19000}",
    r"(?:" + r"\b|" * 2_000 + "a)*",
    "(?<=[ab]{0,5000}c)x",
    "(?:(?<=a)|(?<=b)|(?=c)|(?=d)|(?!e)|(?!f))*" * 20,
    "".join(map(chr, range(0x4E00, 0x4E00 + 15_000))),
    "".join(f"[a-{chr(0x4E00 + i)}]" for i in range(15_000)),
    "".join(rf"[\w{chr(0x4E00 + i)}]" for i in range(15_000)),
    "(?i)" + "".join(f"[a-{chr(0x4E00 + i)}]" for i in range(15_000)),
    r"[\p{L}\p{N}\p{P}\p{S}]" * 8_000,
    "a" * 10**7,
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda pattern: pattern[:30])
@pytest.mark.parametrize("search", [False, True])
def test_hostile_pattern_ends_in_an_error_or_a_small_automaton(pattern: str, search: bool) -> None:
    """Exponential, huge and deep patterns end, and soon: what is too large says what and how much."""
    error = None
    try:
        size = compile_pattern(pattern, search=search).num_states
    except TooLarge as refusal:
        error = refusal
    assert size <= 20_000 if error is None else error.given > error.limit


def test_exponential_pattern_is_too_large_in_a_full_match() -> None:
    """The state budget bites where the minimal DFA has 2^21 states, and can be set."""
    with pytest.raises(TooLarge, match="states of the pattern's automaton"):
        compile_pattern("[ab]*a[ab]{20}")
    with pytest.raises(TooLarge):
        compile_pattern("[ab]*a[ab]{8}", max_states=100)
    assert compile_pattern("[ab]*a[ab]{8}").num_states == 2**9 + 1


LARGE = [
    ("[ab]*a[ab]{13}", 2**14 + 1),
    (r"^[^\n\r]{1,129}$", 131),
    ("^.{0,2000}$", 2002),
    (r"^[a-z]{1,63}(\.[a-z]{1,63}){0,10}$", 705),
    ("(a?){2000}", 2002),
    ("((a*)*)*", 2),
]


@pytest.mark.parametrize("pattern, states", LARGE)
def test_large_but_reasonable_pattern_compiles_to_its_minimal_automaton(pattern: str, states: int) -> None:
    """Length bounds and repeated labels stay linear."""
    assert compile_pattern(pattern).num_states == states
