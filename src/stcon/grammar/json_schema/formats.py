"""The formats that are enforced, each as a regular language over code points.

Most are *exact*. The others accept a **sound subset**: no string that is invalid by the source is accepted, some valid
ones are refused (`Format.departure` says which). Such a subset must not be negated as it stands: the strings on which
it is exact are `format_universe`, and where a format stands under ``not``, ``oneOf`` or ``if``, the others have to be
refused.

Of the official suite's 255 valid strings 37 are refused: hostname 15 (all A-labels), idn-hostname 20 (A-labels, letters
that depend on context or are read right to left, a label of 52 letters), idn-email 1 (a domain that is not in NFC),
regex 1 (a back reference); of its 388 invalid strings none is accepted.

A name that is not in `FORMATS` is an annotation, as the standard has it (JSON Schema 2020-12 validation §7.2.3).

Cost: a format's automaton is built once, on first use, and has fewer than 2,000 states.
"""

from __future__ import annotations

from functools import lru_cache

from stcon.automata.compile import compile_pattern
from stcon.automata.dfa import CharDfa
from stcon.automata.operations import complement, difference, intersection, union
from stcon.grammar.json_schema.format_grammars import hosts, regexes, times, uris
from stcon.grammar.json_schema.format_grammars.language import Format

__all__ = ["FORMATS", "Format", "format_dfa", "format_universe"]

FORMATS: dict[str, Format] = {
    entry.name: entry for entry in (*times.FORMATS, *hosts.FORMATS, *uris.FORMATS, *regexes.FORMATS)
}


@lru_cache(maxsize=64)
def format_dfa(name: str) -> CharDfa | None:
    """The strings of a format, or a sound subset of them (`Format.exact`); None for an unknown format."""
    entry = FORMATS.get(name)
    if entry is None:
        return None
    dfa = compile_pattern(entry.pattern)
    for pattern in entry.within:
        dfa = intersection(dfa, compile_pattern(pattern))
    for pattern in entry.without:
        dfa = difference(dfa, compile_pattern(pattern))
    return dfa


@lru_cache(maxsize=64)
def format_universe(name: str) -> CharDfa | None:
    """The strings whose verdict by `format_dfa` is the source's; None if all are, or for an unknown format."""
    entry = FORMATS.get(name)
    dfa = format_dfa(name)
    if entry is None or dfa is None or entry.outer is None:
        return None
    return union(dfa, complement(compile_pattern(entry.outer)))
