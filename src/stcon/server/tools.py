"""``tools``, ``tool_choice`` and ``parallel_tool_calls`` of a body: what the model is shown, and what it may write.

The format of calls is the one of the model's chat template; a model whose template knows no tools is shown them in
a system message, and writes Hermes calls. ``stcon.tool_format`` sets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcon.server.refusals import BadRequest

if TYPE_CHECKING:
    from stcon.grammar.tools import Format, Tool

_SYSTEM = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return {shape}"""
_SHAPES = {
    "hermes": "a json object with function name and arguments within <tool_call></tool_call> XML tags:\n",
    "qwen_xml": "its name and one element a parameter within <tool_call></tool_call> XML tags:\n",
    "pythonic": "its name and arguments as in Python, in a list of calls, and no other text:\n",
}
_EXAMPLE = '{"<parameter>": <value>}'
_EXAMPLES = {
    "qwen_xml": "<parameter=parameter-name>\nvalue\n</parameter>\n",
    "pythonic": "parameter_name=value, parameter_name2=value2",
}


@dataclass(frozen=True)
class Offer:
    """Tools that a reply may call.

    Attributes:
        entries: as the body has them; the model is shown them all.
        tools: those that may be called.
        format: of the calls.
        required: the reply is calls alone.
        parallel: there may be several.
        in_template: the chat template shows tools.
    """

    entries: Sequence[Mapping[str, Any]]
    tools: tuple[Tool, ...]
    format: Format
    required: bool
    parallel: bool
    in_template: bool

    @property
    def key(self) -> str:
        """What the grammar depends on."""
        tools = [[tool.name, tool.pointer, tool.schema] for tool in self.tools]
        return json.dumps([self.format.name, self.required, self.parallel, tools], default=str)


def read_offer(body: Mapping[str, Any], template: str | None) -> Offer | None:
    """The tools of a chat body, or None where it has none or ``tool_choice`` is "none".

    Args:
        body: as sent.
        template: the model's chat template.

    Raises:
        BadRequest: a tool or a choice that cannot be served; names the parameter and the JSON pointer.
    """
    from stcon.grammar.tools import ToolError, read_tools

    choice, entries = body.get("tool_choice"), body.get("tools")
    parallel = body.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise BadRequest(f"parallel_tool_calls: expected true or false, got {parallel!r}", "parallel_tool_calls")
    if entries is None or entries == []:
        if choice not in (None, "none", "auto"):
            raise BadRequest("tool_choice: there are no tools to choose from", "tool_choice")
        return None
    try:
        tools = read_tools(entries)
    except ToolError as error:
        raise refused(error) from None
    if choice == "none":
        return None
    named = _named(choice, tools)
    return Offer(
        entries,
        tools if named is None else (named,),
        _format(body, template),
        required=named is not None or choice == "required",
        parallel=named is None and parallel is not False,
        in_template=_shows_tools(template),
    )


def refused(error: Exception) -> BadRequest:
    """A `ToolError` as the server's."""
    pointer, reason = getattr(error, "pointer", ""), getattr(error, "reason", "invalid tool")
    return BadRequest(f"tools: {error} at #{pointer}", f"tools{pointer}", reason.replace(" ", "_"))


def messages_for(messages: Any, offer: Offer | None, template: str | None) -> Any:
    """The conversation as the chat template takes it: calls with their arguments as data.

    Where the template knows no tools, calls and their results become text, and the tools offered a system message.
    """
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return messages  # refused by whoever renders them
    if _shows_tools(template):
        return [_with_data(message) for message in messages]
    from stcon.grammar.tools import FORMATS

    plain = [_as_text(message, offer.format if offer else FORMATS["hermes"]) for message in messages]
    return plain if offer is None else _with_system(plain, _instructions(offer))


# ----------------------------------------------------------------------------------------------------------- inside


def _named(choice: Any, tools: Sequence[Tool]) -> Tool | None:
    """The one tool that a choice names; None for "auto" and "required"."""
    if choice in (None, "auto", "required"):
        return None
    if not isinstance(choice, dict) or choice.get("type") != "function":
        raise BadRequest("tool_choice: expected auto, none, required or a function", "tool_choice")
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, dict) else None
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None:
        raise BadRequest(f"tool_choice: no tool is named {name!r}", "tool_choice")
    return found


def _format(body: Mapping[str, Any], template: str | None) -> Format:
    from stcon.grammar.tools import FORMATS, detect_format

    own = body.get("stcon")
    name = own.get("tool_format") if isinstance(own, dict) else None
    if name is not None:
        if not isinstance(name, str) or name not in FORMATS:
            raise BadRequest(f"stcon.tool_format: one of {', '.join(FORMATS)}, not {name!r}", "stcon.tool_format")
        return FORMATS[name]
    found = detect_format(template)
    if found is None and _shows_tools(template):
        advice = f"set stcon.tool_format to one of {', '.join(FORMATS)}"
        raise BadRequest(f"tools: the model's chat template has a format that is not known here; {advice}", "tools")
    return found or FORMATS["hermes"]


def _shows_tools(template: str | None) -> bool:
    return template is not None and "tools" in template


def _with_data(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """`message` with its calls' arguments read."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "content": message.get("content") or "", "tool_calls": [_call_with_data(call) for call in calls]}


def _call_with_data(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise BadRequest("messages: a tool call has a function with a name and arguments", "messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise BadRequest("messages: a tool call's arguments are not JSON", "messages") from None
    return {**call, "function": {**function, "arguments": arguments}}


def _as_text(message: Mapping[str, Any], format: Format) -> Mapping[str, Any]:
    """A message without calls, nor results of calls: they are written out."""
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message.get('content')}\n</tool_response>"}
    if not isinstance(message.get("tool_calls"), list):
        return message
    functions = [_call_with_data(call)["function"] for call in message["tool_calls"]]
    calls = [(str(one.get("name")), _arguments(one.get("arguments"), format)) for one in functions]
    return {"role": message.get("role"), "content": (message.get("content") or "") + format.calls(calls)}


def _arguments(arguments: Any, format: Format) -> str:
    if not format.by_parameter:
        return json.dumps(arguments, ensure_ascii=False)
    from stcon.grammar.tools.formats import PARAMETER, PARAMETER_END, PARAMETER_NAME_END, python_literal

    if not isinstance(arguments, dict):
        raise BadRequest("messages: a tool call's arguments are an object", "messages")
    if format.python:
        return ", ".join(f"{name}={python_literal(value)}" for name, value in arguments.items())
    texts = [value if isinstance(value, str) else json.dumps(value) for value in arguments.values()]
    return "".join(
        PARAMETER + name + PARAMETER_NAME_END + text + PARAMETER_END
        for name, text in zip(arguments, texts, strict=True)
    )


def _instructions(offer: Offer) -> str:
    tools = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in offer.entries)
    name = "function_name" if offer.format.python else "<function-name>"
    example = offer.format.calls([(name, _EXAMPLES.get(offer.format.name, _EXAMPLE))])
    shape = _SHAPES.get(offer.format.name, "its name and arguments as:\n") + example
    return _SYSTEM.format(tools=tools, shape=shape)


def _with_system(messages: list[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """`messages` with `text` at the end of the system message, which is added where there is none."""
    if messages and messages[0].get("role") == "system":
        first = {**messages[0], "content": f"{messages[0].get('content') or ''}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
