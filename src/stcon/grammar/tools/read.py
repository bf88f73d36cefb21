"""Taking a reply apart as it is written: free text, and calls with their arguments as JSON.

`ReplyReader` relies on the reply's grammar: it looks for the texts that must come, and does not check them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from stcon.grammar.tools.formats import PARAMETER, PARAMETER_END, PARAMETER_NAME_END, Format


class Content(NamedTuple):
    """Free text."""

    text: str


class Begin(NamedTuple):
    """A call begins."""

    name: str


class Arguments(NamedTuple):
    """More of the JSON text of its arguments."""

    text: str


class End(NamedTuple):
    """The call is whole."""


Event: TypeAlias = Content | Begin | Arguments | End
_Step: TypeAlias = Callable[[], list[Event] | None]


class ReplyReader:
    """Reads one reply.

    Args:
        format: of its calls.
        plain: the tools' names → the names of those of their parameters that are written as plain text.
        anywhere: calls may follow free text; else the reply is either calls or free text, told by its beginning.
    """

    def __init__(self, format: Format, plain: Mapping[str, frozenset[str]], *, anywhere: bool) -> None:
        self.format = format
        self.num_calls = 0
        self._plain = plain
        self._anywhere = anywhere
        self._text = ""
        self._step: _Step = self._content if anywhere else self._beginning
        self._tool = ""
        self._json = _JsonEnd()
        self._literal = _Literal()
        self._quoted = False
        self._first = True

    def feed(self, text: str) -> list[Event]:
        """What `text`, the next of the reply, adds. Cost: linear in it."""
        self._text += text
        events: list[Event] = []
        while (found := self._step()) is not None:
            events += found
        return [event for event in events if not (isinstance(event, Content | Arguments) and not event.text)]

    def finish(self) -> list[Event]:
        """What was held back, if the reply is over."""
        if self._step not in (self._content, self._beginning) or not self._text:
            return []
        rest, self._text = self._text, ""
        return [Content(rest)]

    @property
    def calls_are_whole(self) -> bool:
        """Whether no call has begun that has not ended."""
        if self._step == self._head:
            return bool(self.num_calls) and self._text in ("", self.format.closing)
        return self._step in (self._content, self._beginning, self._rest)

    # ------------------------------------------------------------------------------- steps: None: more text is needed

    def _beginning(self) -> list[Event] | None:
        """Calls, or free text to the end."""
        opener = self.format.opener
        if self._text.startswith(opener):
            self._step = self._head
        elif not opener.startswith(self._text):
            self._step = self._rest
        else:
            return None
        return []

    def _rest(self) -> list[Event] | None:
        return [Content(self._take(len(self._text)))] if self._text else None

    def _content(self) -> list[Event] | None:
        """Free text, up to where a call may have begun."""
        opener = self.format.opener
        at = self._text.find(opener)
        if at >= 0:
            self._step = self._head
            return [Content(self._take(at))]
        held = next(n for n in range(len(opener) - 1, -1, -1) if self._text.endswith(opener[:n]))
        ready = len(self._text) - held
        return [Content(self._take(ready))] if ready else None

    def _head(self) -> list[Event] | None:
        before = self.format.between if self.num_calls else self.format.opening
        for name in self._plain:
            head = before + self.format.head(name)
            if self._text.startswith(head):
                self._take(len(head))
                return self._begin(name)
        return None

    def _begin(self, name: str) -> list[Event]:
        self.num_calls += 1
        self._tool, self._json, self._first = name, _JsonEnd(), True
        if not self.format.by_parameter:
            self._step = self._object
            return [Begin(name)]
        self._step = self._parameter if self.format.xml else self._keyword
        return [Begin(name), Arguments("{")]

    def _object(self) -> list[Event] | None:
        if not self._text:
            return None
        taken = self._json.feed(self._text)
        if self._json.over:
            self._step = self._tail
        return [Arguments(self._take(taken))]

    def _tail(self) -> list[Event] | None:
        if len(self._text) < len(self.format.tail):
            return None
        self._take(len(self.format.tail))
        self._step = self._head
        return [End()]

    def _parameter(self) -> list[Event] | None:
        """The next parameter, or the call's end."""
        end = self._text.find(PARAMETER_NAME_END)
        if self._text.startswith(PARAMETER) and end >= 0:
            name = self._take(end + len(PARAMETER_NAME_END))[len(PARAMETER) : end]
            self._quoted = name in self._plain[self._tool]
            self._step = self._value
            return [Arguments(self._member(name) + '"' * self._quoted)]
        if self._text.startswith(self.format.tail):
            self._step = self._tail
            return [Arguments("}")]
        return None

    def _keyword(self) -> list[Event] | None:
        """The next ``name=``, or the call's end."""
        if self._text.startswith(self.format.tail):
            self._step = self._tail
            return [Arguments("}")]
        end = self._text.find("=")
        if end < 0:
            return None
        name = self._take(end + 1)[:-1].removeprefix(", ")
        self._literal, self._step = _Literal(), self._python
        return [Arguments(self._member(name))]

    def _python(self) -> list[Event] | None:
        """A value as Python writes it."""
        if not self._text:
            return None
        taken, text = self._literal.feed(self._text)
        if self._literal.over:
            self._step = self._keyword
        self._take(taken)
        return [Arguments(text)]

    def _member(self, name: str) -> str:
        """What stands before the value of a parameter, as JSON."""
        comma, self._first = "" if self._first else ", ", False
        return f"{comma}{json.dumps(name, ensure_ascii=False)}: "

    def _value(self) -> list[Event] | None:
        end = self._text.find(PARAMETER_END)
        if end >= 0:
            text = self._written(self._take(end)) + '"' * self._quoted
            self._take(len(PARAMETER_END))
            self._step = self._parameter
            return [Arguments(text)]
        ready = len(self._text) - len(PARAMETER_END) + 1
        return [Arguments(self._written(self._take(ready)))] if ready > 0 else None

    def _written(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)[1:-1] if self._quoted else text

    def _take(self, length: int) -> str:
        taken, self._text = self._text[:length], self._text[length:]
        return taken


class _Literal:
    """Reads a value as Python writes it, up to the comma or parenthesis behind it, and gives it as JSON."""

    _WORDS = ("None", "null"), ("True", "true"), ("False", "false")

    def __init__(self) -> None:
        self.over = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._skipped = 0

    def feed(self, text: str) -> tuple[int, str]:
        """How many characters of `text` belong to the value, and what they are in JSON."""
        written: list[str] = []
        for place, letter in enumerate(text):
            if self._skipped:
                self._skipped -= 1
            elif self._in_string:
                self._in_string = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
                written.append(letter)
            elif not self._depth and letter in ",)":
                self.over = True
                return place, "".join(written)
            else:
                written.append(self._outside(letter))
        return len(text), "".join(written)

    def _outside(self, letter: str) -> str:
        """A character outside strings; a word is told by its first."""
        for python, found in self._WORDS:
            if letter == python[0]:
                self._skipped = len(python) - 1
                return found
        self._in_string = letter == '"'
        self._depth += (letter in "[{") - (letter in "]}")
        return letter


class _JsonEnd:
    """Finds the end of a JSON object."""

    def __init__(self) -> None:
        self.over = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> int:
        """How many characters of `text` belong to the object."""
        for place, letter in enumerate(text):
            if self._in_string:
                self._in_string = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.over = True
                    return place + 1
        return len(text)
