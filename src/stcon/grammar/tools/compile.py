"""`compile_reply`: tools to the grammar of the replies that may call them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stcon.automata import regex
from stcon.errors import GrammarError, InvalidOption, TooLarge, Unsupported
from stcon.grammar.cfg.compile import compile_source
from stcon.grammar.cfg.embedded import compile_embedded
from stcon.grammar.cfg.syntax import (
    Alternative,
    Choice,
    Embedded,
    Expression,
    Free,
    Pattern,
    Place,
    Reference,
    Repetition,
    Rule,
    Source,
    choice,
    literal,
    sequence,
)
from stcon.grammar.cfg.syntax import Sequence as Parts
from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import DEFAULT_MAX_STATES, Machine
from stcon.grammar.tools.formats import PARAMETER, PARAMETER_END, PARAMETER_NAME_END, VALUE_ENDS, Format
from stcon.grammar.tools.free import not_containing
from stcon.grammar.tools.read import ReplyReader
from stcon.grammar.tools.schemas import Parameter, Tool, escape, is_python_name

MAX_PARAMETERS = 1_000  # of all tools, where each is written by itself

_TOP = Place(1, 1)
_WRAPPED = "/allOf/0"  # where a parameter's schema stands in the one that is compiled
_WHITESPACE = "json"  # as models write arguments, and as chat templates show them


class ReplyGrammar(Grammar):
    """The replies that may call tools.

    Attributes:
        format: of the calls.
        tools: that may be called.
        anywhere: calls may follow free text.
    """

    def __init__(self, machine: Machine, *, source: Any, format: Format, tools: Sequence[Tool], anywhere: bool) -> None:
        super().__init__(machine, kind="grammar", source=source)
        self.format = format
        self.tools = tuple(tools)
        self.anywhere = anywhere
        self._plain = {tool.name: _plain(tool, format) for tool in tools}

    def reader(self) -> ReplyReader:
        """What takes one reply apart as it is written."""
        return ReplyReader(self.format, self._plain, anywhere=self.anywhere)


def compile_reply(
    tools: Sequence[Tool],
    format: Format,
    *,
    required: bool = False,
    parallel: bool = True,
    answer: Mapping[str, Any] | bool | None = None,
    max_states: int = DEFAULT_MAX_STATES,
) -> ReplyGrammar:
    """Compile the replies that may call `tools`.

    Args:
        tools: at least one, as `read_tools` gives them; those that may be called.
        format: in which they are called.
        required: the reply is calls, at least one, and no free text.
        parallel: there may be several.
        answer: a JSON Schema; without calls the reply is a value of it instead of free text, and with calls there is no
            free text.
        max_states: state budget of the machine.

    Raises:
        ToolError: a tool's schema cannot be enforced; names the tool and the place.
        GrammarError: the answer's schema cannot, or no machine can tell calls from the rest.

    Cost: that of each schema, and some milliseconds a tool.
    """
    if not tools:
        raise InvalidOption("a reply with calls needs at least one tool")
    build = _Builder(format, max_states)
    if format.by_parameter:
        num_parameters = sum(len(tool.parameters(as_python=format.python)) for tool in tools)
        if num_parameters > MAX_PARAMETERS:
            raise TooLarge("parameters of all tools", given=num_parameters, limit=MAX_PARAMETERS)
    build.rule("call", choice([build.call(tool) for tool in tools]))
    free = not required and answer is None
    # an answer is written as it is without tools
    value = None if answer is None else build.add_schema(answer, "compact")
    build.rule("root", build.root(value, required=required, parallel=parallel))
    try:
        found = compile_source(
            build.source,
            strategy="deterministic",
            whitespace=_WHITESPACE,
            max_states=max_states,
            embedded=build.machines,
        )
    except Unsupported as error:
        raise Unsupported(f"these tools in format {format.name}: {error.message}", advice=error.advice) from None
    names = [tool.name for tool in tools]
    return ReplyGrammar(
        found.machine, source=names, format=format, tools=tools, anywhere=free and bool(format.triggers)
    )


class _Builder:
    def __init__(self, format: Format, max_states: int) -> None:
        self.max_states = max_states
        self.num_states = 0
        self.format = format
        self.source = Source("root")
        self.machines: list[Machine] = []
        self._known: dict[str, int] = {}

    def rule(self, name: str, body: Expression) -> None:
        """Add a rule of one alternative."""
        self.source.rules[name] = Rule(name, (Alternative(body, name, _TOP),), _TOP)

    def root(self, answer: Expression | None, *, required: bool, parallel: bool) -> Expression:
        """The reply."""
        format = self.format
        call = Reference("call", _TOP)
        more: list[Expression] = [Repetition(Parts((literal(format.between + format.lead), call)), 0, None)]
        after: list[Expression] = [call, *(more if parallel else []), *_texts(format.closing)]
        start = format.opening + format.lead
        calls = sequence([literal(start), *after])
        if required:
            return calls
        if answer is not None:
            return Choice((answer, calls))
        if not format.triggers:
            free = regex.parse(rf"\s*(?:[^\s\{format.opener}][\s\S]*)?", "python")
            return Choice((Pattern(free), calls))
        rest = sequence([*_texts(start[len(format.opener) :]), *after])
        bodies = (rest, *(Choice(()) for _ in format.triggers[1:]))
        return Choice((Free(format.triggers), Free(format.triggers, bodies)))

    def call(self, tool: Tool) -> Expression:
        """A call of `tool`, from its name on."""
        format = self.format
        arguments: list[Expression]
        if format.xml:
            arguments = [self._parameter(tool, parameter) for parameter in tool.parameters()]
        elif format.python:
            arguments = [self._keywords(tool, tool.parameters(as_python=True))]
        else:
            arguments = [self._value(tool, tool.schema)]
        return sequence([literal(tool.name + format.after_name), *arguments, *_texts(format.tail)])

    def _parameter(self, tool: Tool, parameter: Parameter) -> Expression:
        begin = literal(PARAMETER + parameter.name + PARAMETER_NAME_END)
        value: Expression
        if parameter.schema is not None:
            value = self._value(tool, parameter.schema, f"/properties/{escape(parameter.name)}")
        elif parameter.texts is not None:
            value = choice([literal(text) if text else Parts(()) for text in parameter.texts])
        else:
            value = Pattern(not_containing([VALUE_ENDS]))
        element = sequence([begin, value, literal(PARAMETER_END)])
        return element if parameter.required else Repetition(element, 0, 1)

    def _keywords(self, tool: Tool, parameters: Sequence[Parameter]) -> Expression:
        """``name=value, name=value``: some of the parameters in their order, the required ones among them.

        A rule for each parameter says what may follow the one before it.
        """
        if not is_python_name(tool.name):
            raise tool.refusal("its name is not one of a function in Python")
        more: Expression = Parts(())
        first: list[Expression] = []
        for parameter in reversed(parameters):
            value = self._value(tool, parameter.schema or {}, f"/properties/{escape(parameter.name)}")
            begun = sequence([literal(f"{parameter.name}="), value, more])
            first = [begun] if parameter.required else [begun, *first]
            further = sequence([literal(f", {parameter.name}="), value, more])
            name = f"{tool.index} {parameter.name}"
            self.rule(name, further if parameter.required else Choice((further, more)))
            more = Reference(name, _TOP)
        return choice(first if any(one.required for one in parameters) else [*first, Parts(())])

    def _value(self, tool: Tool, schema: Mapping[str, Any], place: str = "") -> Expression:
        """A JSON value; what is wrong with its schema is said of the tool."""
        try:
            return self.add_schema(schema)
        except GrammarError as error:
            pointer = error.pointer or ""
            if place and pointer.startswith(_WRAPPED):
                pointer = place + pointer.removeprefix(_WRAPPED)
            message = error.message + (f"; {error.advice}" if error.advice else "")
            raise tool.refusal(message, pointer or place, error.reason) from error

    def add_schema(self, schema: Mapping[str, Any] | bool, whitespace: str = _WHITESPACE) -> Expression:
        """A JSON value of `schema`."""
        key = json.dumps([schema, whitespace], default=str)
        if key not in self._known:  # parameters are often of one kind
            as_python = self.format.python and whitespace == _WHITESPACE
            self.machines += compile_embedded([schema], whitespace, as_python=as_python)
            self.num_states += self.machines[-1].num_states
            if self.num_states > self.max_states:
                raise TooLarge("states", given=self.num_states, limit=self.max_states, advice="offer fewer tools")
            self.source.schemas.append(schema)
            self._known[key] = len(self.machines) - 1
        return Embedded(self._known[key], _TOP)


def _texts(text: str) -> list[Expression]:
    return [literal(text)] if text else []


def _plain(tool: Tool, format: Format) -> frozenset[str]:
    """The parameters whose values are written as plain text."""
    return frozenset(p.name for p in tool.parameters() if p.schema is None) if format.xml else frozenset()
