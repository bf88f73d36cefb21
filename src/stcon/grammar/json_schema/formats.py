"""The formats that are enforced, each as a regular language over code points.

Most are *exact*. The others accept a **sound subset**: no string that is invalid by the source is accepted, some valid
ones are refused (`Format.departure` says which). Such a subset must not be negated as it stands: the strings on which
it is exact are `format_universe`, and where a format stands under ``not``, ``oneOf`` or ``if``, the others have to be
refused.

Of the official suite's 255 valid strings 37 are refused: hostname 15 (all A-labels), idn-hostname 20 (A-labels, letters
that depend on context or are read right to left, a label of 52 letters), idn-email 1 (a domain that is not in NFC),
regex 1 (a back reference); of its 388 invalid strings none is accepted.

A name that is not in `FORMATS` is an annotation, as the standard has it (JSON Schema 2020-12 validation §7.2.3).

Cost: fewer than 2,000 states each. Building one takes up to half a second, so they are kept ready in ``formats.npz``
(`python -m stcon.grammar.json_schema.formats` writes it; a test compares it with what the patterns give).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stcon.automata.compile import compile_pattern
from stcon.automata.dfa import CharDfa
from stcon.automata.operations import complement, difference, intersection, union
from stcon.grammar.json_schema.format_grammars import hosts, regexes, times, uris
from stcon.grammar.json_schema.format_grammars.language import Format

__all__ = ["FORMATS", "Format", "format_dfa", "format_universe"]

_PARTS = ("starts", "classes", "delta", "labels", "start")

FORMATS: dict[str, Format] = {
    entry.name: entry for entry in (*times.FORMATS, *hosts.FORMATS, *uris.FORMATS, *regexes.FORMATS)
}


_TABLES = Path(__file__).with_name("formats.npz")


@lru_cache(maxsize=64)
def format_dfa(name: str) -> CharDfa | None:
    """The strings of a format, or a sound subset of them (`Format.exact`); None for an unknown format."""
    return _load(f"{name}/dfa") if name in FORMATS else None


@lru_cache(maxsize=64)
def format_universe(name: str) -> CharDfa | None:
    """The strings whose verdict by `format_dfa` is the source's; None if all are, or for an unknown format."""
    entry = FORMATS.get(name)
    return None if entry is None or entry.outer is None else _load(f"{name}/universe")


def build_format(entry: Format) -> CharDfa:
    """The automaton of a format, from its patterns."""
    dfa = compile_pattern(entry.pattern)
    for pattern in entry.within:
        dfa = intersection(dfa, compile_pattern(pattern))
    for pattern in entry.without:
        dfa = difference(dfa, compile_pattern(pattern))
    return dfa


def build_universe(entry: Format) -> CharDfa | None:
    """The automaton of a format's universe, from its patterns; None where it is all strings."""
    return None if entry.outer is None else union(build_format(entry), complement(compile_pattern(entry.outer)))


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, NDArray[np.int32]]:
    tables: Mapping[str, NDArray[np.int32]] = np.load(_TABLES)
    return tables


def _load(key: str) -> CharDfa:
    starts, classes, delta, labels, start = (_tables()[f"{key}/{part}"] for part in _PARTS)
    return CharDfa(starts, classes, delta.astype(np.int32), labels, int(start))


def write_tables() -> None:
    """Build every format and write ``formats.npz``."""
    tables: dict[str, Any] = {}
    for entry in FORMATS.values():
        for key, dfa in ((f"{entry.name}/dfa", build_format(entry)), (f"{entry.name}/universe", build_universe(entry))):
            if dfa is not None:
                parts = (dfa.starts, dfa.classes, dfa.delta.astype(np.int16), dfa.labels, np.int32(dfa.start))
                tables.update({f"{key}/{part}": value for part, value in zip(_PARTS, parts, strict=True)})
    np.savez_compressed(_TABLES, **tables)


if __name__ == "__main__":
    write_tables()
