"""regex: a part of the patterns that ECMA-262 accepts both with and without the ``u`` flag.

Valid patterns are no regular language (groups nest, names are unique, bounds and ranges are ordered), so groups nest at
most three deep here, and what needs counting or remembering is left out.
"""

from __future__ import annotations

from stcon.grammar.json_schema.format_grammars.language import Format

MAX_NESTING = 3

_HEX = "[0-9A-Fa-f]"
_CATEGORY = "(?:L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|C[cfno]?)"
_ESCAPED = (
    r"(?:[dDwWsSfnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]"
    rf"|x{_HEX}{{2}}|u(?:{_HEX}{{4}}|\{{(?:{_HEX}{{1,5}}|10{_HEX}{{4}})\}})|[pP]\{{{_CATEGORY}\}})"
)
_CHARACTER = r"[^\^$\\.*+?()\[\]{}|]"

_RANGES = "|".join(f"{low}-[{low}-9]" for low in "012345678") + "|9-9|a-[a-z]|A-[A-Z]| -~"
_CLASS = rf"\[\^?-?(?:{_RANGES}|[^\\\]-]|\\(?:{_ESCAPED}|[b\-]))*-?\]"

# {n}, {n,} and {n,m} with n ≤ m: a longer m, or an m with a greater first digit, or one digit each.
_LATER_DIGITS = "|".join(f"{digit}[0-9]?,[{digit + 1}-9][0-9]" for digit in range(1, 9))
_SAME_DIGITS = "|".join(f"{digit},[{digit}-9]" for digit in range(10))
_BOUNDS = rf"\{{(?:[0-9]{{1,3}},?|[0-9],[1-9][0-9]{{1,2}}|[1-9][0-9],[1-9][0-9]{{2}}|{_LATER_DIGITS}|{_SAME_DIGITS})\}}"
_QUANTIFIER = rf"(?:(?:[*+?]|{_BOUNDS})\??)?"


def _alternatives(nesting: int, more_terms: str = "") -> str:
    """Terms and bars, with groups nested at most `nesting` deep."""
    group = rf"|\((?:\?:)?{_alternatives(nesting - 1)}\)" if nesting else ""
    return rf"(?:[|^$]|\\[bB]|(?:{_CHARACTER}|\.|\\{_ESCAPED}|{_CLASS}{group}){_QUANTIFIER}{more_terms})*"


_LOOK_AROUND = rf"|\(\?<?[=!]{_alternatives(1)}\)"
_NAMED = rf"\(\?<[A-Za-z_$][A-Za-z0-9_$]*>{_alternatives(1)}\){_QUANTIFIER}"

FORMATS = (
    Format(
        "regex",
        "ECMA-262 §22.2.1",
        rf"\^?(?:{_NAMED})?{_alternatives(MAX_NESTING, _LOOK_AROUND)}",
        outer=r"[\s\S]*",
        departure=f"groups nested more than {MAX_NESTING} deep; lookarounds inside of groups, and more than one level "
        "of groups inside of lookarounds and named groups; a named group that is not first or not the only one; back "
        "references and \\0; class ranges other than of digits, from a or A, and from space to ~; bounds past 999, and "
        "two-digit bounds with the same first digit",
    ),
)
