"""How models write tool calls: the texts around a call's name and arguments.

To add a format whose arguments are one JSON object, add it to `FORMATS` and to `detect_format`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Format:
    """The texts of one format.

    Attributes:
        name: as users set it.
        triggers: texts that free text may not contain; the first is how calls begin. None: calls can only be the whole
            reply, and free text may not begin with `opener` (after spaces).
        opening, lead: before the first call; before each call's name.
        after_name: between the name and the arguments.
        tail, between, closing: after each call's arguments; between two calls; after the last.
        xml: arguments are ``<parameter=…>`` elements, not one JSON object.
        python: arguments are ``name=value``, values as Python writes them.
    """

    name: str
    triggers: tuple[str, ...]
    lead: str
    after_name: str
    tail: str
    opening: str = ""
    between: str = ""
    closing: str = ""
    xml: bool = False
    python: bool = False

    @property
    def by_parameter(self) -> bool:
        """Whether each parameter is written by itself."""
        return self.xml or self.python

    @property
    def opener(self) -> str:
        """What the first call begins with."""
        return self.triggers[0] if self.triggers else (self.opening + self.lead)[:1]

    def head(self, name: str) -> str:
        """The text of a call up to its arguments."""
        return f"{self.lead}{name}{self.after_name}"

    def call(self, name: str, arguments: str) -> str:
        """The text of a call."""
        return f"{self.head(name)}{arguments}{self.tail}"

    def calls(self, calls: list[tuple[str, str]]) -> str:
        """The text of several, as a reply ends with them."""
        return self.opening + self.between.join(self.call(*call) for call in calls) + self.closing


def python_literal(value: Any) -> str:
    """A JSON value as Python writes it, strings as JSON has them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python_literal(name)}: {python_literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(python_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


PARAMETER, PARAMETER_NAME_END, PARAMETER_END = "<parameter=", ">\n", "\n</parameter>\n"
VALUE_ENDS = "</parameter>"  # no value written as plain text contains it

FORMATS = {
    found.name: found
    for found in (
        Format(
            "hermes",
            ("<tool_call>",),
            '<tool_call>\n{"name": "',
            '", "arguments": ',
            "}\n</tool_call>",
            between="\n",
        ),
        Format(
            "qwen_xml",
            ("<tool_call>", "<function="),
            "<tool_call>\n<function=",
            ">\n",
            "</function>\n</tool_call>",
            between="\n",
            xml=True,
        ),
        Format("llama3", (), '{"name": "', '", "parameters": ', "}", between="; "),
        Format(
            "mistral",
            ("[TOOL_CALLS]",),
            '{"name": "',
            '", "arguments": ',
            "}",
            opening="[TOOL_CALLS] [",
            between=", ",
            closing="]",
        ),
        Format("mistral_args", ("[TOOL_CALLS]",), "[TOOL_CALLS]", "[ARGS]", ""),
        Format("pythonic", (), "", "(", ")", opening="[", between=", ", closing="]", python=True),
    )
}

# in a chat template, what tells its format: all of the texts; the first that fits
_SIGNS = (
    ("qwen_xml", ("<tool_call>", "<function=")),
    ("hermes", ("<tool_call>",)),
    ("mistral_args", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("pythonic", ("[func_name1(",)),  # templates for Llama 3.2, Llama 4 and Gemma that show tools
    ("pythonic", ("<start_of_turn>",)),  # Gemma 3 itself, whose template shows none
    ("llama3", ("tools", '"parameters"', "<|start_header_id|>")),
)


def detect_format(template: str | None) -> Format | None:
    """The format in which a chat template's model writes calls; None where the template has none that we know."""
    for name, signs in _SIGNS:
        if template is not None and all(sign in template for sign in signs):
            return FORMATS[name]
    return None
