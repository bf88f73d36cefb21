"""Addresses and names: ipv4, ipv6, hostname, idn-hostname, email, idn-email, uuid.

Names have limits on two lengths at once (a label 63, a name 253 characters), whose product is too many states. So a
name has one of three shapes, each within both limits: few long labels, one long label before shorter ones, short ones.
"""

from __future__ import annotations

from stcon.grammar.json_schema.format_grammars.language import Format

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"(?:{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET})"
_H16 = "[0-9A-Fa-f]{1,4}"


def _ipv6(*, most_beside_gap: int) -> str:
    """Eight groups, the last two possibly an IPv4 address, or fewer around "::" (`most_beside_gap`: how many)."""
    last = f"(?:{_H16}:{_H16}|{IPV4})"
    choices = [f"(?:{_H16}:){{6}}{last}"]
    for after in range(most_beside_gap + 1):
        before = most_beside_gap - after
        head = f"(?:(?:{_H16}:){{0,{before - 1}}}{_H16})?" if before else ""
        tail = f"(?:{_H16}:){{{after - 2}}}{last}" if after >= 2 else _H16 * after
        choices.append(f"{head}::{tail}")
    return f"(?:{'|'.join(choices)})"


IPV6 = _ipv6(most_beside_gap=7)

_ALNUM = "[A-Za-z0-9]"


def _label(most: int) -> str:
    return f"{_ALNUM}(?:[A-Za-z0-9-]{{0,{most - 2}}}{_ALNUM})?"


def _names(limit: int) -> str:
    """Dotted labels of at most `limit` characters in all."""
    long, short = _label(63), _label(31)
    return (
        rf"(?:{long}(?:\.{long}){{0,{(limit + 1) // 64 - 1}}}"
        rf"|{long}(?:\.{short}){{0,{(limit + 1 - 64) // 32}}}"
        rf"|{short}(?:\.{short}){{0,{(limit + 1) // 32 - 1}}})"
    )


_HOSTNAME = _names(253)
_DOTS = ".\u3002\uff0e\uff61"
_A_LABEL = rf"(?:[\s\S]*[{_DOTS}])?[Xx][Nn]--[\s\S]*"
# Letters that RFC 5892 allows in any context, that are read left to right, and that no normalisation changes.
_SMALL_LETTERS = "\u00df-\u00f6\u00f8-\u00ff\u03ac-\u03ce\u0430-\u045f"
_LARGE_LETTERS = "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"


def _idn_label() -> str:
    """Labels of letters, digits and inner hyphens, none longer than 62 characters in ASCII form.

    In Punycode a letter takes at most 2 + log10(distance in code points) characters: n letters below U+0600 take 5.2·n,
    others 6.9·n in all, beside the prefix and the delimiter (5).
    """
    choices = [_label(31)]
    for letters, most in ((_SMALL_LETTERS, 11), (_SMALL_LETTERS + _LARGE_LETTERS, 8)):
        edge = f"[a-z0-9{letters}]"
        choices.append(f"{edge}(?:[a-z0-9{letters}-]{{0,{most - 2}}}{edge})?")
    return f"(?:{'|'.join(choices)})"


_IDN_LABEL = _idn_label()
_IDN_NAME = rf"{_IDN_LABEL}(?:[{_DOTS}]{_IDN_LABEL}){{0,3}}"
_DOUBLE_HYPHEN = rf"(?:[\s\S]*[{_DOTS}])?[\s\S]{{2}}--[\s\S]*"

_ANY_LITERAL = r"\[[!-Z^-~]*\]"
_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_ADDRESS_LITERAL = rf"\[(?:{IPV4}|IPv6:{_ipv6(most_beside_gap=6)})\]"
_QUOTED_LOCAL_PART = r'"[\s\S]*"'
_SHORT_LOCAL_PART = rf'(?:[^@"]{{1,64}}|{_QUOTED_LOCAL_PART})@[^@]*'
_SHORT_LOCAL_PART_UTF8 = rf'(?:[\0-!#-?A-\x7f]{{1,64}}|[^@"]{{1,16}}|{_QUOTED_LOCAL_PART})@[^@]*'
_DOMAIN = _names(189)


def _mailbox(more: str, most_quoted: int, domain: str) -> str:
    """A mailbox.

    Args:
        more: characters of the local part beside those of RFC 5321.
        most_quoted: how many characters or escapes may stand in quotes, so that the local part has at most 64 octets.
    """
    atom = f"[{_ATEXT}{more}]+"
    quoted = rf'"(?:[ !#-\[\]-~{more}]|\\[ -~]){{0,{most_quoted}}}"'
    return rf"(?:{atom}(?:\.{atom})*|{quoted})@(?:{domain}|{_ADDRESS_LITERAL})"


_NON_ASCII = "\u0080-\ud7ff\ue000-\U0010ffff"

FORMATS = (
    Format("ipv4", "RFC 2673 §3.2", IPV4),
    Format("ipv6", "RFC 4291 §2.2", IPV6),
    Format(
        "hostname",
        "RFC 1123 §2.1, RFC 5891 §4.4",
        _HOSTNAME,
        without=(_A_LABEL,),
        outer=rf"{_label(63)}(?:\.{_label(63)})*",
        departure="A-labels (xn--…), whose validity depends on what they decode to; names of more than seven labels, "
        "or of more than three if one behind the first has more than 31 characters",
    ),
    Format(
        "idn-hostname",
        "RFC 5890 §2.3.2.3",
        _IDN_NAME,
        without=(_A_LABEL, _DOUBLE_HYPHEN),
        outer=r"[\s\S]*",
        departure="all but small Latin, Greek and Cyrillic letters (at most 11 in a label with ASCII ones), Hangul "
        "syllables, kana and Han characters (at most 8); A-labels; more than four labels",
    ),
    Format(
        "email",
        "RFC 5321 §4.1.2 Mailbox, §4.5.3.1",
        _mailbox("", 31, _DOMAIN),
        within=(_SHORT_LOCAL_PART,),
        outer=rf"[ -~]+@(?:[A-Za-z0-9.-]+|{_ANY_LITERAL})",
        departure="domains of more than five labels, or of more than two if one behind the first has more than 31 "
        "characters; quoted local parts of more than 31 characters; general address literals",
    ),
    Format(
        "idn-email",
        "RFC 6531 §3.3",
        _mailbox(_NON_ASCII, 15, _IDN_NAME),
        within=(_SHORT_LOCAL_PART_UTF8,),
        without=(rf"[\s\S]*@{_A_LABEL}", rf"[\s\S]*@{_DOUBLE_HYPHEN}"),
        outer=r"[\s\S]+@[\s\S]+",
        departure="domains as idn-hostname; general address literals; local parts of more than 16 characters if "
        "they are quoted or not ASCII",
    ),
    Format("uuid", "RFC 4122 §3", "-".join(f"[0-9A-Fa-f]{{{n}}}" for n in (8, 4, 4, 4, 12))),
)
