r"""Regular expressions to syntax trees: ECMAScript (with the `u` flag's code points) and Python syntax.

Both dialects share one grammar; where they disagree the dialect decides:

======================  =====================================  ====================================
construct               ``ecma`` (JSON Schema)                 ``python``
======================  =====================================  ====================================
``\d \w \s \b``         ASCII, ASCII, ECMA's white space       Unicode
``.``                   no ``\n \r U+2028 U+2029``             no ``\n``
``$``                   the end                                the end, or before a final newline
``[]`` ``[^]``          no character, any character            ``]`` is the first member
``\0``                  U+0000                                 octal
======================  =====================================  ====================================

Lazy quantifiers read as their greedy language. Refused with `Unsupported`: backreferences, possessive quantifiers and
atomic groups, conditionals, verbose mode. ECMA's Annex B literals ``{``, ``}`` and ``]`` are taken; an escaped ASCII
letter without a meaning is an error in both dialects.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NoReturn

from stcon.automata import charset, unicode_data
from stcon.automata.charset import CharSet
from stcon.errors import InvalidPattern, TooLarge, Unsupported

Dialect = Literal["ecma", "python"]

MAX_NESTING = 100
MAX_LOOK_NESTING = 16
MAX_LENGTH = 200_000
# Ranges of all character classes together, and what making them costs.
MAX_CLASS_WORK = 1_000_000

_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class AnchorKind(Enum):
    """Zero-width assertions about the neighbouring characters."""

    START = "the start of the text"
    END = "the end of the text"
    LINE_START = "the start of a line"
    LINE_END = "the end of a line"
    FINAL_END = "the end of the text, or before a newline that ends it"
    WORD_BOUNDARY = "a word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The parts in order; no parts: the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body `low` to `high` times (None: without end)."""

    body: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position; `members` is what counts as a word character or as a line end, for the kinds that ask."""

    kind: AnchorKind
    members: CharSet = charset.EMPTY


@dataclass(frozen=True, slots=True)
class Look:
    """A position before which (`behind`) or after which the body matches, or does not (`negative`)."""

    body: Node
    behind: bool
    negative: bool


Node = Characters | Concatenation | Alternation | Repeat | Anchor | Look

EMPTY = Concatenation(())
ANY_TEXT = Repeat(Characters(charset.ANY), 0, None)


def concatenation(parts: list[Node]) -> Node:
    """`parts` in order, without a wrapper around a single one."""
    return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))


def parse(pattern: str, dialect: Dialect = "ecma") -> Node:
    """Parse `pattern`.

    Raises:
        InvalidPattern: not a pattern of the dialect; the message gives the offset.
        Unsupported: a construct outside the regular languages, or not handled here.
        TooLarge: too long, nested too deep, or with too large character classes.

    Cost: linear in the pattern and the ranges of its classes (no recursion).
    """
    return _Parser(pattern, dialect).parse()


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False
    ascii: bool = False


@dataclass(slots=True)
class _Group:
    """An open group: what it becomes when it closes, and what was read of it."""

    opened_at: int
    outer_flags: _Flags
    look: tuple[bool, bool] | None = None
    options: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def close(self) -> Node:
        self.next_option()
        body = self.options[0] if len(self.options) == 1 else Alternation(tuple(self.options))
        return body if self.look is None else Look(body, *self.look)

    def next_option(self) -> None:
        self.options.append(concatenation(self.parts))
        self.parts = []


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern = pattern
        self.dialect = dialect
        self.python = dialect == "python"
        self.at = 0
        self.flags = _Flags()
        self.names: set[str] = set()
        self.class_work = 0

    # ------------------------------------------------------------------------------------------------- structure

    def parse(self) -> Node:
        if len(self.pattern) > MAX_LENGTH:
            raise TooLarge("characters of the pattern", given=len(self.pattern), limit=MAX_LENGTH)
        self._global_flags()
        groups = [_Group(0, self.flags)]
        while self.at < len(self.pattern):
            character = self.pattern[self.at]
            if character == "(":
                self._open(groups)
            elif character == ")":
                if len(groups) == 1:
                    self._invalid("unmatched )", self.at)
                self.at += 1
                group = groups.pop()
                self.flags = group.outer_flags
                groups[-1].parts.append(self._quantified(group.close(), group.opened_at))
            elif character == "|":
                self.at += 1
                groups[-1].next_option()
            else:
                started = self.at
                groups[-1].parts.append(self._quantified(self._atom(), started))
        if len(groups) > 1:
            self._invalid("unclosed group", groups[-1].opened_at)
        return groups[0].close()

    def _open(self, groups: list[_Group]) -> None:
        """Read an opening parenthesis and what follows it up to the group's body."""
        started = self.at
        if len(groups) > MAX_NESTING:
            raise TooLarge("nested groups in the pattern", given=len(groups), limit=MAX_NESTING)
        group = _Group(started, self.flags)
        self.at += 1
        if self._take("?"):
            if self._take("#") and self.python:
                self._skip_past(")", started, "unclosed comment")
                return
            self._group_kind(group)
        if group.look and sum(g.look is not None for g in groups) >= MAX_LOOK_NESTING:
            raise TooLarge("nested lookarounds in the pattern", given=MAX_LOOK_NESTING + 1, limit=MAX_LOOK_NESTING)
        groups.append(group)

    def _group_kind(self, group: _Group) -> None:
        """Read what stands between ``(?`` and the body."""
        for text, look in (("=", (False, False)), ("!", (False, True)), ("<=", (True, False)), ("<!", (True, True))):
            if self._take(text):
                group.look = look
                return
        if self._take(":"):
            return
        if self._take("<") or (self.python and self._take("P<")):
            self._group_name(group.opened_at)
            return
        if self.pattern.startswith("P=", self.at):
            self._unsupported("a backreference", group.opened_at)
        if self._take(">"):
            self._unsupported("an atomic group", group.opened_at)
        if self._take("("):
            self._unsupported("a conditional group", group.opened_at)
        self._flag_group(group)

    def _group_name(self, started: int) -> None:
        end = self.pattern.find(">", self.at)
        name = self.pattern[self.at : end] if end >= 0 else ""
        if not name.replace("$", "_").isidentifier():
            self._invalid("bad group name", started)
        if name in self.names and self.python:
            self._invalid(f"group name {name} twice", started)
        self.names.add(name)
        self.at = end + 1

    # ------------------------------------------------------------------------------------------------- flags

    def _global_flags(self) -> None:
        """Flags for the whole pattern, ``(?i)``, are taken at its very start only."""
        while self.pattern.startswith("(?", self.at):
            end = self.at + 2
            while end < len(self.pattern) and self.pattern[end].isascii() and self.pattern[end].isalpha():
                end += 1
            if end == self.at + 2 or not self.pattern.startswith(")", end):
                return
            self._set_flags(self.pattern[self.at + 2 : end], "", self.at)
            self.at = end + 1

    def _flag_group(self, group: _Group) -> None:
        """``(?i-s:`` …: flags for one group."""
        end = self.pattern.find(":", self.at)
        on, minus, off = self.pattern[self.at : max(end, self.at)].partition("-")
        letters = on + off
        if end < 0 or not (letters.isascii() and letters.isalpha()) or (minus and not off):
            close = self.pattern.find(")", self.at)
            if close > self.at and self.pattern[self.at : close].isalpha():
                self._unsupported("a flag that does not stand at the start of the pattern", group.opened_at)
            self._invalid("unknown group (?" + self.pattern[self.at : self.at + 1], group.opened_at)
        self._set_flags(on, off, group.opened_at)
        self.at = end + 1

    def _set_flags(self, on: str, off: str, started: int) -> None:
        names = {"i": "ignore_case", "m": "multi_line", "s": "dot_all"}
        if self.python:
            names["a"] = "ascii"
        for letters, value in ((on, True), (off, False)):
            for letter in letters:
                if letter in names:
                    self.flags = replace(self.flags, **{names[letter]: value})
                elif letter != "u":
                    self._unsupported(f"the flag {letter}", started)
        if self.flags.ascii and self.flags.ignore_case:
            self._unsupported("the flags a and i together", started)

    # ------------------------------------------------------------------------------------------------- quantifiers

    def _quantified(self, node: Node, started: int) -> Node:
        """`node` with the quantifier that follows it, if one does."""
        bounds = self._bounds()
        if bounds is None:
            return node
        if isinstance(node, Anchor) and self.pattern[started] != "(":
            self._invalid("nothing to repeat", started)
        quantifier_at = self.at
        if not self._take("?") and self._take("+"):
            self._unsupported("a possessive quantifier", quantifier_at)
        if self._bounds() is not None:
            self._invalid("multiple repeat", quantifier_at)
        low, high = bounds
        if high is not None and low > high:
            self._invalid("numbers out of order in a quantifier", started)
        return Repeat(node, low, high)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read a quantifier's bounds; None (and nothing read) where none stands: a lone brace is a literal."""
        for text, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(text):
                return bounds
        if not self.pattern.startswith("{", self.at):
            return None
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : max(end, self.at)].partition(",")
        if end < 0 or not all(text == "" or (text.isascii() and text.isdigit()) for text in (low, high)):
            return None
        if not low and not (self.python and comma):
            return None
        if max(len(low), len(high)) > 20:
            raise TooLarge("digits of a repeat count in the pattern", given=max(len(low), len(high)), limit=20)
        self.at = end + 1
        least = int(low or 0)
        return least, (int(high) if high else None) if comma else least

    # ------------------------------------------------------------------------------------------------- atoms

    def _atom(self) -> Node:
        started = self.at
        character = self.pattern[started]
        self.at += 1
        if character == "\\":
            return self._escape(started)
        if character == "[":
            return Characters(self._class(started))
        if character == ".":
            ends = charset.NEWLINE if self.python else charset.ECMA_LINE_TERMINATOR
            return Characters(charset.ANY if self.flags.dot_all else charset.complement(ends))
        if character in "^$":
            return self._line_anchor(character)
        if character in "*+?":
            self._invalid("nothing to repeat", started)
        if character == "{":
            self.at = started
            if self._bounds() is not None:
                self._invalid("nothing to repeat", started)
            self.at = started + 1
        return Characters(self._cased(charset.single(ord(character))))

    def _line_anchor(self, character: str) -> Anchor:
        if self.flags.multi_line:
            ends = charset.NEWLINE if self.python else charset.ECMA_LINE_TERMINATOR
            return Anchor(AnchorKind.LINE_START if character == "^" else AnchorKind.LINE_END, ends)
        if character == "^":
            return Anchor(AnchorKind.START)
        return Anchor(AnchorKind.FINAL_END if self.python else AnchorKind.END)

    def _escape(self, started: int) -> Node:
        """An escape outside of classes; the backslash has been read."""
        letter = self.pattern[self.at : self.at + 1]
        if letter and letter in "bB":
            self.at += 1
            kind = AnchorKind.WORD_BOUNDARY if letter == "b" else AnchorKind.NO_WORD_BOUNDARY
            return Anchor(kind, self._word())
        if letter and letter in "AZz":
            self.at += 1
            return Anchor(AnchorKind.START if letter == "A" else AnchorKind.END)
        if letter and letter in "123456789" and not self._is_octal():
            self._unsupported("a backreference", started)
        if letter == "k":
            self._unsupported("a backreference", started)
        found = self._shorthand(started)
        return Characters(self._cased(charset.single(self._code_point(started))) if found is None else found)

    def _is_octal(self) -> bool:
        """Python reads three octal digits as a character."""
        digits = self.pattern[self.at : self.at + 3]
        return self.python and len(digits) == 3 and digits[0] in "0123" and all(d in "01234567" for d in digits)

    def _shorthand(self, started: int) -> CharSet | None:
        r"""Read ``d w s D W S p{…} P{…}`` after a backslash; None (and nothing read) where none stands."""
        letter = self.pattern[self.at : self.at + 1]
        if not letter or letter not in "dDwWsSpP":
            return None
        self.at += 1
        if letter in "pP":
            found = self._property(started)
        elif letter in "wW":
            found = self._word()
        elif letter in "dD":
            found = charset.ASCII_DIGIT if self._ascii() else unicode_data.unicode_digit()
        elif self.python:
            found = charset.ASCII_SPACE if self.flags.ascii else unicode_data.unicode_space()
        else:
            found = charset.ECMA_SPACE
        return charset.complement(found) if letter in "DWSP" else found

    def _ascii(self) -> bool:
        return self.flags.ascii or not self.python

    def _word(self) -> CharSet:
        return charset.ASCII_WORD if self._ascii() else unicode_data.unicode_word()

    def _property(self, started: int) -> CharSet:
        if not self._take("{"):
            self._invalid("a property is written \\p{…}", started)
        body = self._braced(started)
        name, equals, value = body.partition("=")
        if not name or (equals and not value):
            self._invalid("an empty property", started)
        try:
            return unicode_data.property_set(name, value if equals else None)
        except Unsupported as error:
            raise Unsupported(f"{error.message} (position {started} of the pattern)", advice=error.advice) from None

    def _cased(self, characters: CharSet) -> CharSet:
        if not self.flags.ignore_case:
            return characters
        self._charge(sum(min(high - low, 3_000) for low, high in characters))
        return unicode_data.case_closure(characters)

    def _charge(self, ranges: int) -> None:
        self.class_work += ranges
        if self.class_work > MAX_CLASS_WORK:
            raise TooLarge("ranges of the pattern's classes", given=self.class_work, limit=MAX_CLASS_WORK)

    # ------------------------------------------------------------------------------------------------- characters

    def _code_point(self, started: int) -> int:
        """The character of an escape whose backslash has been read."""
        if self.at >= len(self.pattern):
            self._invalid("a backslash at the end", started)
        letter = self.pattern[self.at]
        self.at += 1
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self._hex(2, started)
        if letter == "u":
            return self._unicode_escape(started)
        if letter in "01234567":
            return self._octal(letter, started)
        if self.python and letter in "aUN":
            return self._python_escape(letter, started)
        if letter == "c" and not self.python:
            return self._control(started)
        if letter.isascii() and letter.isalnum():
            self._invalid(f"unknown escape \\{letter}", started)
        return ord(letter)

    def _unicode_escape(self, started: int) -> int:
        if not self.python and self._take("{"):
            body = self._braced(started)
            if not body or len(body) > 16 or any(c not in "0123456789abcdefABCDEF" for c in body):
                self._invalid("\\u{…} takes hexadecimal digits", started)
            if int(body, 16) > 0x10FFFF:
                self._invalid("\\u{…} past U+10FFFF", started)
            return int(body, 16)
        unit = self._hex(4, started)
        # ECMA-262, 22.2.1 (RegExpUnicodeEscapeSequence): two escapes that form a surrogate pair are one code point
        if not self.python and 0xD800 <= unit < 0xDC00 and self.pattern.startswith("\\u", self.at):
            digits = self.pattern[self.at + 2 : self.at + 6]
            if len(digits) == 4 and digits[0] in "dD" and digits[1] in "cdefCDEF" and _is_hex(digits):
                self.at += 6
                return 0x10000 + ((unit - 0xD800) << 10) + (int(digits, 16) - 0xDC00)
        return unit

    def _octal(self, first: str, started: int) -> int:
        digits = first
        while self.python and len(digits) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567"):
            digits += self.pattern[self.at]
            self.at += 1
        if not self.python and (first != "0" or self.pattern[self.at : self.at + 1] in tuple("0123456789")):
            self._invalid("an octal escape", started)
        if self.python and first != "0" and len(digits) < 3:
            self._invalid("an octal escape takes three digits", started)
        if int(digits, 8) > 0o377:
            self._invalid("an octal escape past \\377", started)
        return int(digits, 8)

    def _python_escape(self, letter: str, started: int) -> int:
        if letter == "a":
            return 7
        if letter == "U":
            value = self._hex(8, started)
            if value > 0x10FFFF:
                self._invalid("\\U past U+10FFFF", started)
            return value
        if not self._take("{"):
            self._invalid("a named character is written \\N{…}", started)
        try:
            return ord(unicodedata.lookup(self._braced(started)))
        except (KeyError, TypeError):
            self._invalid("unknown character name", started)

    def _control(self, started: int) -> int:
        letter = self.pattern[self.at : self.at + 1]
        if not (letter.isascii() and letter.isalpha()):
            self._invalid("\\c takes a letter", started)
        self.at += 1
        return ord(letter) % 32

    def _hex(self, count: int, started: int) -> int:
        digits = self.pattern[self.at : self.at + count]
        if len(digits) < count or not _is_hex(digits):
            self._invalid(f"an escape that takes {count} hexadecimal digits", started)
        self.at += count
        return int(digits, 16)

    # ------------------------------------------------------------------------------------------------- classes

    def _class(self, started: int) -> CharSet:
        """A class whose ``[`` has been read."""
        negated = self._take("^")
        plain: list[tuple[int, int]] = []
        shorthands: set[CharSet] = set()
        first = True
        while not (self.pattern.startswith("]", self.at) and not (first and self.python)):
            first = False
            low = self._class_member(started)
            if isinstance(low, tuple):
                shorthands.add(low)
            high: int | CharSet = low
            if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
                at = self.at
                self.at += 1
                high = self._class_member(started)
                if isinstance(low, tuple) or isinstance(high, tuple):
                    if self.python:
                        self._invalid("a range with a class as its end", at)
                    # ECMA-262, B.1.2.4 (CharacterRangeOrUnion): the hyphen is then a member itself
                    plain.extend((c, c + 1) for c in (low, ord("-"), high) if isinstance(c, int))
                    shorthands.update(c for c in (low, high) if isinstance(c, tuple))
                    continue
                if low > high:
                    self._invalid("a range out of order", at)
            if not isinstance(low, tuple) and not isinstance(high, tuple):
                plain.append((low, high + 1))
        self.at += 1
        self._charge(len(plain) + 3 * sum(map(len, shorthands)))
        result = charset.union(self._cased(charset.normalize(plain)), *shorthands)
        return charset.complement(result) if negated else result

    def _class_member(self, started: int) -> int | CharSet:
        """One character, or the set of a shorthand."""
        if self.at >= len(self.pattern):
            self._invalid("unclosed character class", started)
        at = self.at
        character = self.pattern[at]
        self.at += 1
        if character != "\\":
            return ord(character)
        if self._take("b"):
            return 8
        found = self._shorthand(at)
        return self._code_point(at) if found is None else found

    # ------------------------------------------------------------------------------------------------- reading

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _braced(self, started: int) -> str:
        """The text up to the closing brace, which is read too."""
        end = self.pattern.find("}", self.at)
        if end < 0:
            self._invalid("an unclosed brace in an escape", started)
        body = self.pattern[self.at : end]
        self.at = end + 1
        return body

    def _skip_past(self, text: str, started: int, message: str) -> None:
        end = self.pattern.find(text, self.at)
        if end < 0:
            self._invalid(message, started)
        self.at = end + len(text)

    def _invalid(self, message: str, at: int) -> NoReturn:
        raise InvalidPattern(f"{message} (position {at} of the pattern)")

    def _unsupported(self, what: str, at: int) -> NoReturn:
        raise Unsupported(
            f"{what} (position {at} of the pattern) is not handled", advice="rewrite the pattern without it"
        )


def _is_hex(digits: str) -> bool:
    return all(d in "0123456789abcdefABCDEF" for d in digits)
