"""uri, uri-reference (RFC 3986), iri, iri-reference (RFC 3987), uri-template (RFC 6570), JSON pointers (RFC 6901)."""

from __future__ import annotations

from stcon.grammar.json_schema.format_grammars.hosts import IPV6
from stcon.grammar.json_schema.format_grammars.language import Format

_PERCENT = "%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9._~\-"
_SUB_DELIMS = "!$&'()*+,;="
_BASIC_PLANE = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
_UCSCHAR = _BASIC_PLANE + "".join(
    f"{chr(plane << 16 | (0x1000 if plane == 14 else 0))}-{chr(plane << 16 | 0xFFFD)}" for plane in range(1, 15)
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _one_of(characters: str) -> str:
    return f"(?:[{characters}]|{_PERCENT})"


def _reference(more: str, more_in_query: str, *, scheme: bool) -> str:
    """A URI with a scheme, or a relative reference.

    Args:
        more: characters allowed wherever unreserved ones are (IRIs).
        more_in_query: characters allowed in the query only (IRIs).
    """
    plain = _UNRESERVED + _SUB_DELIMS + more
    segment = _one_of(plain + ":@")
    authority = (
        f"(?:{_one_of(plain + ':')}*@)?"
        rf"(?:\[(?:{IPV6}|[Vv][0-9A-Fa-f]+\.[{_UNRESERVED}{_SUB_DELIMS}:]+)\]|{_one_of(plain)}*)(?::[0-9]*)?"
    )
    more_segments = f"(?:/{segment}*)*"
    first = segment if scheme else _one_of(plain + "@")
    # Without a scheme the first segment has no colon, or it would read as one.
    rootless = f"{first}+{more_segments}"
    path = f"(?://{authority}{more_segments}|/(?:{segment}+{more_segments})?|(?:{rootless})?)"
    query = rf"(?:\?{_one_of(plain + ':@/?' + more_in_query)}*)?"
    fragment = f"(?:#{_one_of(plain + ':@/?')}*)?"
    return ("[A-Za-z][A-Za-z0-9+.-]*:" if scheme else "") + path + query + fragment


_URI = _reference("", "", scheme=True)
_IRI = _reference(_UCSCHAR, _PRIVATE, scheme=True)

_LITERAL = rf"(?:[!#$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~{_UCSCHAR}{_PRIVATE}]|{_PERCENT})"
_VARIABLE_CHARACTER = f"(?:[A-Za-z0-9_]|{_PERCENT})"
_VARIABLE = rf"{_VARIABLE_CHARACTER}(?:\.?{_VARIABLE_CHARACTER})*(?::[1-9][0-9]{{0,3}}|\*)?"


def _template(operators: str) -> str:
    return rf"(?:{_LITERAL}|\{{[{operators}]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"


_POINTER = "(?:/(?:[^~/]|~[01])*)*"

FORMATS = (
    Format("uri", "RFC 3986 §3", _URI),
    Format("uri-reference", "RFC 3986 §4.1", f"{_URI}|{_reference('', '', scheme=False)}"),
    Format("iri", "RFC 3987 §2.2", _IRI),
    Format("iri-reference", "RFC 3987 §2.2", f"{_IRI}|{_reference(_UCSCHAR, _PRIVATE, scheme=False)}"),
    Format(
        "uri-template",
        "RFC 6570 §2",
        _template("+#./;?&"),
        outer=_template("+#./;?&=,!@|"),
        departure="the operators that RFC 6570 reserves for extensions (= , ! @ |)",
    ),
    Format("json-pointer", "RFC 6901 §3, §5", _POINTER),
    Format(
        "relative-json-pointer",
        "draft-bhutton-relative-json-pointer-00 §3",
        f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
        outer=f"(?:0|[1-9][0-9]*)(?:[+-][1-9][0-9]*)?(?:#|{_POINTER})",
        departure="index manipulation (0+1, 0-1), which earlier drafts do not have",
    ),
)
