"""The front ends of GBNF (llama.cpp) and of EBNF as xgrammar has it. Both are W3C's notation with `{m,n}`.

=====================  ====================================  ==================================================
construct              ``gbnf``                              ``ebnf``
=====================  ====================================  ==================================================
names                  letters, digits, ``-``, ``_``         also ``.``; a digit does not come first
a rule ends            at the end of its line, out of ``()``  where the next ``name ::=`` begins
``.``                  any character                         refused
escapes                ``\\n \\t \\r \\\\ \\" \\[ \\] \\xXX``    also ``\\' \\a \\b \\f \\v \\0 \\e`` and ``\\u{…}``
                       ``\\uXXXX \\UXXXXXXXX``
macros                 refused: ``<token>``, ``<[1000]>``    refused: ``TagDispatch(…)``, ``(= lookahead)``
=====================  ====================================  ==================================================

Source: llama.cpp, grammars/README.md and src/llama-grammar.cpp; xgrammar, cpp/grammar_parser.cc.
"""

from __future__ import annotations

from stcon.automata import charset, regex
from stcon.automata.charset import CharSet
from stcon.errors import TooLarge
from stcon.grammar.cfg.reader import Reader
from stcon.grammar.cfg.syntax import (
    EMPTY,
    MAX_NESTING,
    MAX_RULES,
    Alternative,
    Expression,
    Pattern,
    Place,
    Reference,
    Rule,
    Source,
    check_size,
    choice,
    invalid,
    literal,
    repetition,
    sequence,
    unsupported,
)

_MACROS = frozenset({"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex"})


def parse_bnf(text: str, *, syntax: str, start: str = "root") -> Source:
    """Read a grammar.

    Args:
        text: the grammar.
        syntax: "gbnf" or "ebnf".
        start: name of the start rule.

    Raises:
        InvalidGrammar: with line and column.
        Unsupported: a construct that is refused.
        TooLarge: text, nesting or counts past the limits.
    """
    check_size(text)
    return _Parser(text, syntax == "gbnf", start).parse()


class _Parser(Reader):
    def __init__(self, text: str, is_gbnf: bool, start: str) -> None:
        super().__init__(text)
        self.is_gbnf = is_gbnf
        self.source = Source(start)
        self.depth = 0

    def parse(self) -> Source:
        self.skip(newlines=True)
        while not self.at_end:
            self._rule()
            self.skip(newlines=True)
        if self.source.start not in self.source.rules:
            invalid(f"there is no start rule named {self.source.start}", Place(1, 1))
        return self.source

    def _rule(self) -> None:
        place, name = self.place, self._name()
        self.skip(newlines=False)
        if self.peek("["):
            unsupported("rule attributes", self.place)
        if not self.take("::="):
            invalid(f"expected ::= after the rule name {name}", self.place)
        self.skip(newlines=True)
        if name in self.source.rules:
            invalid(f"rule {name} is defined twice", place)
        if len(self.source.rules) >= MAX_RULES:
            raise TooLarge("rules of the grammar", given=MAX_RULES + 1, limit=MAX_RULES)
        self.source.rules[name] = Rule(name, tuple(self._alternatives(nested=False)), place)
        if not self.at_end and self.is_gbnf and not self.peek("\n") and not self.peek("\r"):
            invalid(f"unexpected {self.text[self.at]!r}", self.place)

    def _name(self) -> str:
        begin = self.at
        more = "-_" if self.is_gbnf else "-_."
        while not self.at_end and (self.text[self.at] in more or self._is_alphanumeric(self.text[self.at])):
            self.at += 1
        if begin == self.at:
            invalid(f"expected a rule name, not {self.text[self.at]!r}", self.place)
        if not self.is_gbnf and self.text[begin].isdigit():
            self.at = begin
            invalid("a rule name begins with a letter", self.place)
        return self.text[begin : self.at]

    @staticmethod
    def _is_alphanumeric(character: str) -> bool:
        return character.isascii() and character.isalnum()

    def _alternatives(self, *, nested: bool) -> list[Alternative]:
        """Alternatives up to the end of the rule, or to the parenthesis that closes them."""
        found = [self._alternative(nested=nested)]
        while self.take("|"):
            self.skip(newlines=True)
            found.append(self._alternative(nested=nested))
        return found

    def _alternative(self, *, nested: bool) -> Alternative:
        begin, place = self.at, self.place
        parts: list[Expression] = []
        end = self.at
        while True:
            part = self._element(nested=nested)
            if part is None:
                break
            parts.append(part)
            end = self.at
            self.skip(newlines=nested or not self.is_gbnf)
        return Alternative(sequence(parts), self.text[begin:end].strip() or '""', place)

    def _element(self, *, nested: bool) -> Expression | None:
        if self.at_end or self.text[self.at] in "|)\r\n" or (not nested and not self.is_gbnf and self._at_rule()):
            return None
        place = self.place
        atom = self._atom(place)
        self.skip(newlines=False, comments=False)
        return self._quantified(atom, place)

    def _at_rule(self) -> bool:
        """Whether the next rule begins here (EBNF has no other end of a rule)."""
        begin = self.at
        while not self.at_end and (self.text[self.at] in "-_." or self._is_alphanumeric(self.text[self.at])):
            self.at += 1
        found = self.at > begin
        self.skip(newlines=False)
        found = found and self.peek("::=")
        self.at = begin
        return found

    def _atom(self, place: Place) -> Expression:
        character = self.text[self.at]
        if character == '"':
            return self._string(place)
        if character == "[":
            return Pattern(regex.Characters(self._class(place)))
        if character == "(":
            return self._group(place)
        if character == "." and self.is_gbnf:
            self.at += 1
            return Pattern(regex.Characters(charset.ANY))
        if character in "<!" and self.is_gbnf:
            unsupported("tokens by name or number", place)
        if not self._is_alphanumeric(character) and character not in "-_.":
            invalid(f"unexpected {character!r}", place)
        name = self._name()
        if name in _MACROS and not self.is_gbnf and self.peek("("):
            unsupported(f"the macro {name}", place)
        return Reference(name, place)

    def _group(self, place: Place) -> Expression:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise TooLarge("nested groups of the grammar", given=self.depth, limit=MAX_NESTING)
        self.at += 1
        if self.peek("="):
            unsupported("lookahead", place)
        self.skip(newlines=True)
        options = [alternative.body for alternative in self._alternatives(nested=True)]
        self.skip(newlines=True)
        if not self.take(")"):
            invalid("this group is not closed", place)
        self.depth -= 1
        return choice(options)

    def _quantified(self, atom: Expression, place: Place) -> Expression:
        while not self.at_end:
            bounds = self.quantifier()
            if bounds is None:
                break
            low, high = bounds
            if high is not None and low > high:
                invalid("numbers out of order in a repetition", place)
            atom = EMPTY if high == 0 else repetition(atom, low, high)
            self.skip(newlines=False, comments=False)
        return atom

    # ------------------------------------------------------------------------------------------------- characters

    def _string(self, place: Place) -> Expression:
        self.at += 1
        characters = []
        while not self.peek('"'):
            if self.at_end or (self.text[self.at] in "\r\n" and not self.is_gbnf):
                invalid("this string is not closed", place)
            characters.append(chr(self._character()))
        self.at += 1
        return literal("".join(characters)) if characters else EMPTY

    def _class(self, place: Place) -> CharSet:
        self.at += 1
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.peek("]"):
            if self.at_end:
                invalid("this character class is not closed", place)
            low = high = self._character()
            if self.peek("-") and not self.text.startswith("]", self.at + 1) and self.at + 1 < len(self.text):
                self.at += 1
                high = self._character()
            if low > high:
                invalid("this character class has a range out of order", place)
            ranges.append((low, high + 1))
        self.at += 1
        members = charset.normalize(ranges)
        return charset.complement(members) if negated else members

    def _character(self) -> int:
        if self.peek("\\"):
            return self.escape("" if self.is_gbnf else "'abfv0e^$.*+?(){}|/-", braces=not self.is_gbnf)
        self.at += 1
        return ord(self.text[self.at - 1])
