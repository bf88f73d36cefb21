"""Unicode properties as character sets, computed on first use from the standard library's `unicodedata`.

The Unicode version is therefore the interpreter's (``unicodedata.unidata_version``). Properties that the standard
library does not know exactly (scripts, Alphabetic, Emoji, …) are refused rather than approximated.

Cost: the first use of a table scans all 1,114,112 code points, about a tenth of a second; tables are cached.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stcon.automata import charset
from stcon.automata.charset import CharSet
from stcon.automata.dfa import NUM_CODE_POINTS
from stcon.errors import Unsupported

# Unicode's PropertyValueAliases.txt, property gc: long name → short name. One letter stands for a group.
_CATEGORY_NAMES = {
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Unassigned": "Cn",
    "Private_Use": "Co",
    "Surrogate": "Cs",
    "Letter": "L",
    "Cased_Letter": "LC",
    "Lowercase_Letter": "Ll",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Titlecase_Letter": "Lt",
    "Uppercase_Letter": "Lu",
    "Mark": "M",
    "Combining_Mark": "M",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Nonspacing_Mark": "Mn",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Close_Punctuation": "Pe",
    "Final_Punctuation": "Pf",
    "Initial_Punctuation": "Pi",
    "Other_Punctuation": "Po",
    "Open_Punctuation": "Ps",
    "Symbol": "S",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Math_Symbol": "Sm",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Space_Separator": "Zs",
}
_SHORT_CATEGORIES = frozenset(_CATEGORY_NAMES.values())
# PropList.txt, White_Space: stable since Unicode 6.3.
_WHITE_SPACE = charset.normalize(
    low_high
    for low_high in (
        *((0x09, 0x0E), (0x20, 0x21), (0x85, 0x86), (0xA0, 0xA1), (0x1680, 0x1681), (0x2000, 0x200B)),
        *((0x2028, 0x202A), (0x202F, 0x2030), (0x205F, 0x2060), (0x3000, 0x3001)),
    )
)
_HEX_ASCII = charset.of("0123456789abcdefABCDEF")
_HEX = charset.union(_HEX_ASCII, ((0xFF10, 0xFF1A), (0xFF21, 0xFF27), (0xFF41, 0xFF47)))


def property_set(name: str, value: str | None) -> CharSet:
    r"""The set of ``\p{name}`` or ``\p{name=value}``.

    Args:
        name: a general category or a binary property (value None), or ``gc``/``General_Category``.
        value: the part after ``=``, or None.

    Raises:
        Unsupported: a property for which the standard library has no exact data, or no property at all.
    """
    if value is not None:
        if name in ("gc", "General_Category") and (found := _category(value)) is not None:
            return found
        what = "scripts are" if name in ("sc", "scx", "Script", "Script_Extensions") else "this property is"
        raise Unsupported(
            f"Unicode property {name}={value}: {what} not known here", advice="list the code point ranges instead"
        )
    found = _category(name)
    if found is None and name in _BINARY:
        found = _BINARY[name]()
    if found is None:
        raise Unsupported(
            f"Unicode property {name} is not known here", advice="use a general category (L, Lu, Nd, P, …) or ranges"
        )
    return found


def _category(name: str) -> CharSet | None:
    """The set of a general category by short or long name; None if there is none of that name."""
    short = _CATEGORY_NAMES.get(name, name)
    return _category_by_short_name(short) if short in _SHORT_CATEGORIES else None


@cache
def _category_by_short_name(short: str) -> CharSet:
    names, index = _categories()
    cased = ("Lu", "Ll", "Lt")
    wanted = [i for i, n in enumerate(names) if (n in cased if short == "LC" else n.startswith(short))]
    return _from_mask(np.isin(index, wanted))


@cache
def _categories() -> tuple[list[str], NDArray[np.uint8]]:
    """(names, index): code point c has general category ``names[index[c]]``."""
    text = "".join(map(unicodedata.category, map(chr, range(NUM_CODE_POINTS))))
    names = sorted(_SHORT_CATEGORIES)
    number = np.zeros(1 << 16, np.uint8)
    for i, name in enumerate(names):
        if len(name) == 2:
            number[int.from_bytes(name.encode("ascii"), "little")] = i
    return names, number[np.frombuffer(text.encode("ascii"), "<u2")]


def _scan(predicate: Callable[[str], bool]) -> CharSet:
    """The code points whose character satisfies `predicate`."""
    return _from_mask(np.fromiter(map(predicate, map(chr, range(NUM_CODE_POINTS))), np.bool_, NUM_CODE_POINTS))


def _from_mask(mask: NDArray[np.bool_]) -> CharSet:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


@cache
def unicode_digit() -> CharSet:
    r"""Python's ``\d``: category Nd."""
    return _scan(str.isdecimal)


@cache
def unicode_word() -> CharSet:
    r"""Python's ``\w``: alphanumeric characters and the underscore."""
    return charset.union(_scan(str.isalnum), charset.of("_"))


@cache
def unicode_space() -> CharSet:
    r"""Python's ``\s``."""
    return _scan(str.isspace)


@cache
def _lowercase() -> CharSet:
    return _scan(str.islower)


@cache
def _uppercase() -> CharSet:
    return _scan(str.isupper)


_BINARY: dict[str, Callable[[], CharSet]] = {
    "Any": lambda: charset.ANY,
    "ASCII": lambda: ((0, 0x80),),
    "Assigned": lambda: charset.complement(_category_by_short_name("Cn")),
    "ASCII_Hex_Digit": lambda: _HEX_ASCII,
    "AHex": lambda: _HEX_ASCII,
    "Hex_Digit": lambda: _HEX,
    "Hex": lambda: _HEX,
    "White_Space": lambda: _WHITE_SPACE,
    "space": lambda: _WHITE_SPACE,
    "Lowercase": _lowercase,
    "Lower": _lowercase,
    "Uppercase": _uppercase,
    "Upper": _uppercase,
}


# Beyond this no character has case (Deseret 10400, Adlam 1E900 are the last cased scripts).
_CASED_END = 0x20000
# Equal in `re` though no one-character mapping says so: İ and i, ΐ, ΰ, and the two ligatures st.
_EXTRA_PAIRS = ((0x130, 0x69), (0x390, 0x1FD3), (0x3B0, 0x1FE3), (0xFB05, 0xFB06))


@cache
def _case_orbits() -> dict[int, tuple[int, ...]]:
    """Code point → every code point equal to it up to case (itself included), where there is more than one.

    The relation is that of Python's `re` (simple case mappings, closed transitively, and its few extra pairs).
    """
    root: dict[int, int] = {}

    def find(c: int) -> int:
        while root.get(c, c) != c:
            c = root[c]
        return c

    def join(c: int, d: int) -> None:
        a, b = find(c), find(d)
        if a != b:
            root[max(a, b)] = min(a, b)

    for c in range(_CASED_END):
        character = chr(c)
        for other in (character.lower(), character.upper()):
            if len(other) == 1 and other != character:
                join(c, ord(other))
    for c, d in _EXTRA_PAIRS:
        join(c, d)
    members: dict[int, list[int]] = {}
    for c in list(root):
        members.setdefault(find(c), [find(c)]).append(c)
    return {c: tuple(sorted(set(orbit))) for orbit in members.values() for c in orbit}


def case_closure(characters: CharSet) -> CharSet:
    """`characters` and all that equal one of them up to case (simple case folding)."""
    orbits = _case_orbits()
    extra: list[tuple[int, int]] = []
    for low, high in characters:
        if high - low > len(orbits):
            hits = [c for c in orbits if low <= c < high]
        else:
            hits = [c for c in range(low, high) if c in orbits]
        extra.extend((other, other + 1) for c in hits for other in orbits[c])
    return charset.normalize([*characters, *extra])
