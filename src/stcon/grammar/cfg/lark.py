r"""The front end of Lark grammars, in llguidance's dialect.

**Read**: rules and terminals with ``| () [] ? * + ~n ~m..n {m,n}``, strings (``"x"``, ``"x"i``), ranges
(``"a".."z"``), regular expressions (``/x/ims``), priorities of terminals (``NAME.2``), aliases (``-> name``) and the
marks ``?`` and ``!`` (which only shape trees), ``%ignore``, ``%import common.X``, and llguidance's ``%json {…}``,
``%regex {…}`` (substrings) and ``-`` in names.

**Refused**: templates, ``%declare``, ``%extend``, ``%override``, other imports, special tokens (``<…>``), other
grammars (``@name``), attributes (``rule[lazy]``), and the operators ``&`` and ``~`` of terminals.

Regular expressions are Python's. A string or expression in a rule is a terminal without a name.

Source: lark, docs/grammar.md; llguidance, docs/syntax.md.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, cast

from stcon.automata import charset, regex
from stcon.errors import GrammarError, TooLarge
from stcon.grammar.cfg.lark_common import COMMON
from stcon.grammar.cfg.reader import Reader
from stcon.grammar.cfg.syntax import (
    EMPTY,
    MAX_NESTING,
    MAX_RULES,
    Alternative,
    Choice,
    Embedded,
    Expression,
    Lexeme,
    Pattern,
    Place,
    Reference,
    Repetition,
    Rule,
    Sequence,
    Source,
    Terminal,
    check_size,
    invalid,
    unsupported,
)

_NAME = re.compile(r"[?!]{0,2}(_*[A-Za-z][A-Za-z0-9_-]*|_+[A-Za-z0-9_-]+)")
_FLAGS = re.compile(r"[imslux]*")
_WORDS = re.compile(r"\w+|\W")
_MAX_CHUNKS = 300
_MAX_TERMINAL = 200_000


def parse_lark(text: str, *, start: str = "start") -> Source:
    """Read a grammar.

    Raises:
        InvalidGrammar: with line and column.
        Unsupported: a construct that is refused.
        InvalidPattern: a regular expression that is not one.
        TooLarge: text, nesting or counts past the limits.
    """
    check_size(text)
    return _Parser(text, start).parse()


class _Parser(Reader):
    """Reads definitions; those of terminals are turned into expressions once all are known."""

    def __init__(self, text: str, start: str) -> None:
        super().__init__(text)
        self.source = Source(start)
        self.defined: dict[str, tuple[Expression, int, Place]] = {}
        self.ignored: list[tuple[Expression, Place]] = []
        self.nodes: dict[str, regex.Node] = {}
        self.sizes: dict[int, int] = {}
        self.sized: list[regex.Node] = []
        self.anonymous: dict[regex.Node, str] = {}
        self.depth = 0

    def parse(self) -> Source:
        self._space(newlines=True)
        while not self.at_end:
            if self.peek("%"):
                self._directive()
            else:
                self._definition()
            self._end_of_line()
        if self.source.start not in self.source.rules:
            invalid(f"there is no start rule named {self.source.start}", Place(1, 1))
        self._resolve()
        return self.source

    # ------------------------------------------------------------------------------------------------- statements

    def _definition(self) -> None:
        place = self.place
        name = self._name("a rule or terminal")
        priority = 0
        if self.peek("["):
            unsupported("rule attributes", self.place)
        if self.peek("{"):
            unsupported("templates", self.place)
        if self.take("."):
            priority = self._integer()
        self._space()
        if not self.take(":"):
            invalid(f"expected : after {name}", self.place)
        alternatives = self._alternatives(nested=False)
        if name in self.source.rules or name in self.defined:
            invalid(f"{name} is defined twice", place)
        if len(self.source.rules) + len(self.defined) >= MAX_RULES:
            raise TooLarge("rules of the grammar", given=MAX_RULES + 1, limit=MAX_RULES)
        if _is_terminal(name):
            self.defined[name] = (_choice([a.body for a in alternatives]), priority, place)
        else:
            self.source.rules[name] = Rule(name, tuple(alternatives), place)

    def _directive(self) -> None:
        place = self.place
        if self.take("%ignore"):
            self.ignored.append((_choice([a.body for a in self._alternatives(nested=False)]), place))
        elif self.take("%import"):
            self._import()
        elif self.take("%llguidance"):
            self._space()
            if self._json() not in ({}, {"no_forcing": True}, {"no_forcing": False}):
                unsupported("options of llguidance", place)
        else:
            word = self.text[self.at : self.at + 20].split()[0]
            unsupported(f"the directive {word}", place)

    def _import(self) -> None:
        self._space()
        place = self.place
        if not self.take("common"):
            unsupported("an import from anything but common", place)
        if self.take("."):
            self._imported(self._name("a terminal"), place)
            return
        self._space()
        if not self.take("("):
            invalid("expected .NAME or (NAME, …) after common", self.place)
        while not self.take(")"):
            self._space(newlines=True)
            self._imported(self._name("a terminal"), place, alias=False)
            self._space(newlines=True)
            if not self.take(",") and not self.peek(")"):
                invalid("expected , or )", self.place)

    def _imported(self, name: str, place: Place, *, alias: bool = True) -> None:
        if name not in COMMON:
            invalid(f"there is no terminal {name} in common", place)
        known = name
        self._space()
        if alias and self.take("->"):
            self._space()
            known = self._name("a terminal")
        self.defined[known] = (Pattern(regex.parse(COMMON[name], "python")), 0, place)

    def _end_of_line(self) -> None:
        self._space()
        if not self.at_end and self.text[self.at] not in "\r\n":
            invalid(f"unexpected {self.text[self.at]!r}", self.place)
        self._space(newlines=True)

    # ------------------------------------------------------------------------------------------------- expressions

    def _alternatives(self, *, nested: bool) -> list[Alternative]:
        found = [self._alternative(nested=nested)]
        while self._bar():
            found.append(self._alternative(nested=nested))
        return found

    def _bar(self) -> bool:
        """Read ``|``, which may stand at the beginning of a later line."""
        begin = self.at
        self._space(newlines=True)
        if self.take("|"):
            return True
        self.at = begin
        return False

    def _alternative(self, *, nested: bool) -> Alternative:
        self._space(newlines=nested)
        begin, place = self.at, self.place
        parts: list[Expression] = []
        end = self.at
        while (part := self._element()) is not None:
            parts.append(part)
            end = self.at
            self._space(newlines=nested)
        if self.take("->"):
            self._space()
            self._name("an alias")
            self._space(newlines=nested)
        body = parts[0] if len(parts) == 1 else Sequence(tuple(parts))
        return Alternative(body, self.text[begin:end] or "nothing", place)

    def _element(self) -> Expression | None:
        if self.at_end or self.text[self.at] in "|)]\r\n" or self.peek("->"):
            return None
        place = self.place
        atom = self._atom(place)
        while True:
            self._space()
            bounds = self._repeat()
            if bounds is None:
                return atom
            low, high = bounds
            if high is not None and low > high:
                invalid("numbers out of order in a repetition", place)
            atom = EMPTY if high == 0 else Repetition(atom, low, high)

    def _repeat(self) -> tuple[int, int | None] | None:
        if not self.take("~"):
            return None if self.at_end else self.quantifier()
        self._space()
        low = self._integer()
        return (low, self._integer()) if self.take("..") else (low, low)

    def _atom(self, place: Place) -> Expression:
        character = self.text[self.at]
        if character == '"':
            return self._string_or_range()
        if character == "/":
            return self._regex(place)
        if character in "([":
            return self._group(place)
        if self.take("%json"):
            self._space(newlines=True)
            self.source.schemas.append(self._json())
            return Embedded(len(self.source.schemas) - 1, place)
        if self.take("%regex"):
            self._space(newlines=True)
            return Pattern(self._structured(place))
        if character == "<":
            unsupported("special tokens", place)
        if character == "@":
            unsupported("other grammars by name", place)
        if character in "&~":
            unsupported(f"the operator {character} of terminals", place)
        name = self._name("a name, a string or an expression")
        if self.peek("{") and not re.match(r"\{\s*[0-9,]", self.text[self.at : self.at + 20]):
            unsupported("templates", self.place)
        return Lexeme(name, place) if _is_terminal(name) else Reference(name, place)

    def _group(self, place: Place) -> Expression:
        is_optional = self.take("[")
        if not is_optional:
            self.at += 1
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise TooLarge("nested groups of the grammar", given=self.depth, limit=MAX_NESTING)
        body = _choice([alternative.body for alternative in self._alternatives(nested=True)])
        self._space(newlines=True)
        if not self.take("]" if is_optional else ")"):
            invalid("this group is not closed", place)
        self.depth -= 1
        return Repetition(body, 0, 1) if is_optional else body

    # ------------------------------------------------------------------------------------------------- letters

    def _string_or_range(self) -> Expression:
        place = self.place
        text = self._string(place)
        if self.peek(".."):
            self.at += 2
            end = self._string(self.place)
            if len(text) != 1 or len(end) != 1 or text > end:
                invalid("a range has one character on each side, in order", place)
            return Pattern(regex.Characters(((ord(text), ord(end) + 1),)))
        if not text:
            return Pattern(regex.EMPTY)
        if self.peek("i") and not self.text[self.at + 1 : self.at + 2].isalnum():
            self.at += 1
            return Pattern(regex.parse(f"(?i){re.escape(text)}", "python"))
        nodes: list[regex.Node] = [regex.Characters(charset.single(ord(c))) for c in text]
        return Pattern(regex.concatenation(nodes))

    def _string(self, place: Place) -> str:
        if not self.take('"'):
            invalid("expected a string", place)
        characters = []
        while not self.take('"'):
            if self.at_end or self.text[self.at] in "\r\n":
                invalid("this string is not closed", place)
            if self.peek("\\"):
                characters.append(chr(self.escape("'abfv0/", braces=False)))
            else:
                characters.append(self.text[self.at])
                self.at += 1
        return "".join(characters)

    def _regex(self, place: Place) -> Pattern:
        self.at += 1
        begin = self.at
        while not self.peek("/"):
            if self.at_end or self.text[self.at] in "\r\n":
                invalid("this regular expression is not closed", place)
            self.at += 2 if self.peek("\\") else 1
        pattern = self.text[begin : self.at].replace("\\/", "/")
        self.at += 1
        found = _FLAGS.match(self.text, self.at)
        flags = found.group() if found else ""
        self.at += len(flags)
        if set(flags) - set("imsu"):
            unsupported(f"the flags {flags} of a regular expression", place)
        letters = flags.replace("u", "")
        try:
            return Pattern(regex.parse(f"(?{letters}){pattern}" if letters else pattern, "python"))
        except GrammarError as error:
            error.message = f"{place}: {error.message}"
            raise error.at(error.pointer) from None

    def _structured(self, place: Place) -> regex.Node:
        """What ``%regex`` describes: any run of consecutive chunks."""
        value = self._json()
        if not isinstance(value, dict) or len(value) != 1:
            unsupported("a %regex that is not one of substring_chunks, substring_words, substring_chars", place)
        kind, given = next(iter(value.items()))
        if kind == "substring_chunks" and isinstance(given, list) and all(isinstance(c, str) for c in given):
            chunks = given
        elif kind == "substring_words" and isinstance(given, str):
            chunks = _WORDS.findall(given)
        elif kind == "substring_chars" and isinstance(given, str):
            chunks = list(given)
        else:
            unsupported("a %regex that is not one of substring_chunks, substring_words, substring_chars", place)
        if len(chunks) > _MAX_CHUNKS:
            raise TooLarge("chunks of a %regex", given=len(chunks), limit=_MAX_CHUNKS)
        return _runs(chunks)

    def _json(self) -> Any:
        try:
            value, end = json.JSONDecoder(parse_float=Decimal).raw_decode(self.text, self.at)
        except (ValueError, RecursionError, ArithmeticError):
            invalid("expected JSON", self.place)
        self.at = end
        return value

    def _name(self, what: str) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            invalid(f"expected {what}, not {self.text[self.at : self.at + 1]!r}", self.place)
        self.at = found.end()
        return found.group(1)

    def _integer(self) -> int:
        found = re.compile(r"[0-9]+").match(self.text, self.at)
        if found is None:
            invalid("expected a number", self.place)
        self.at = found.end()
        return self.count(found.group())

    def _space(self, *, newlines: bool = False) -> None:
        while True:
            self.skip(newlines=newlines)
            if not self.peek("//"):
                return
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    # ------------------------------------------------------------------------------------------------- terminals

    def _resolve(self) -> None:
        """Terminals to regular expressions; strings and expressions of rules to terminals without a name."""
        for name, (_, priority, place) in self.defined.items():
            self.source.terminals[name] = Terminal(name, self._node(Lexeme(name, place), []), priority, place)
        for name, rule in self.source.rules.items():
            alternatives = tuple(a._replace(body=self._in_rule(a.body, a.place)) for a in rule.alternatives)
            self.source.rules[name] = Rule(name, alternatives, rule.place)
        for body, place in self.ignored:
            used = (
                self._in_rule(body, place) if isinstance(body, Lexeme) else self._unnamed(self._node(body, []), place)
            )
            name = cast(Lexeme, used).name
            if name not in self.source.ignored:
                self.source.ignored.append(name)

    def _in_rule(self, body: Expression, place: Place) -> Expression:
        if isinstance(body, Pattern):
            return EMPTY if body.node == regex.EMPTY else self._unnamed(body.node, place)
        if isinstance(body, Lexeme):
            if body.name not in self.source.terminals:
                invalid(f"there is no terminal named {body.name}", body.place)
            return body
        if isinstance(body, Sequence):
            return Sequence(tuple(self._in_rule(part, place) for part in body.parts))
        if isinstance(body, Choice):
            return Choice(tuple(self._in_rule(option, place) for option in body.options))
        if isinstance(body, Repetition):
            return Repetition(self._in_rule(body.body, place), body.low, body.high)
        return body

    def _unnamed(self, node: regex.Node, place: Place) -> Lexeme:
        name = self.anonymous.get(node)
        if name is None:
            name = self.anonymous[node] = f"#{len(self.anonymous)}"
            self.source.terminals[name] = Terminal(name, node, 0, place)
        return Lexeme(name, place)

    def _node(self, body: Expression, path: list[str]) -> regex.Node:
        """The regular expression of a terminal's expression."""
        if isinstance(body, Pattern):
            return body.node
        if isinstance(body, Lexeme):
            return self._named(body, path)
        if isinstance(body, Sequence):
            return regex.Concatenation(tuple(self._node(part, path) for part in body.parts))
        if isinstance(body, Choice):
            return regex.Alternation(tuple(self._node(option, path) for option in body.options))
        if isinstance(body, Repetition):
            return regex.Repeat(self._node(body.body, path), body.low, body.high)
        place = body.place if isinstance(body, Reference | Embedded) else Place(1, 1)
        invalid("a terminal is made of strings, expressions and terminals only", place)

    def _named(self, body: Lexeme, path: list[str]) -> regex.Node:
        if body.name in self.nodes:
            return self.nodes[body.name]
        if body.name not in self.defined:
            invalid(f"there is no terminal named {body.name}", body.place)
        if body.name in path:
            invalid(f"terminal {body.name} contains itself", body.place)
        if len(path) > MAX_NESTING:
            raise TooLarge("terminals inside one another", given=len(path), limit=MAX_NESTING)
        node = self._node(self.defined[body.name][0], [*path, body.name])
        size = self._size(node)
        if size > _MAX_TERMINAL:
            raise TooLarge(f"parts of the terminal {body.name}", given=size, limit=_MAX_TERMINAL)
        self.nodes[body.name] = node
        return node

    def _size(self, node: regex.Node) -> int:
        """How many parts `node` has when terminals are written out in it; they are counted once each."""
        known = self.sizes.get(id(node))
        if known is None:
            inner: tuple[regex.Node, ...] = ()
            if isinstance(node, regex.Concatenation):
                inner = node.parts
            elif isinstance(node, regex.Alternation):
                inner = node.options
            elif isinstance(node, regex.Repeat | regex.Look):
                inner = (node.body,)
            known = self.sizes[id(node)] = 1 + sum(map(self._size, inner))
            self.sized.append(node)  # kept, so that its id is not given away again
        return known


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _choice(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _runs(chunks: list[str]) -> regex.Node:
    """Any run of consecutive `chunks`, the empty one included."""
    options: list[regex.Node] = [regex.EMPTY]
    for begin in range(len(chunks)):
        rest: regex.Node = regex.EMPTY
        for chunk in reversed(chunks[begin:]):
            letters: list[regex.Node] = [regex.Characters(charset.single(ord(c))) for c in chunk]
            rest = regex.Concatenation((*letters, regex.Repeat(rest, 0, 1)))
        options.append(rest)
    return regex.Alternation(tuple(options))
