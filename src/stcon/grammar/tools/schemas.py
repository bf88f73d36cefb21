"""Tools as clients offer them, checked: names, and the schemas of their parameters."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stcon.errors import RequestError
from stcon.grammar.tools.formats import VALUE_ENDS

MAX_TOOLS = 128  # as OpenAI has it

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_PARAMETER_NAME = re.compile(r"[^<>\s]+")
_SAYS_NOTHING = frozenset({
    "type", "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "strict",
})  # fmt: skip
_FOR_PEOPLE = frozenset({"title", "description", "default", "examples"})
_SHARED = ("$schema", "$id", "$defs", "definitions")
_OF_OBJECTS = _SAYS_NOTHING | {"properties", "required", "additionalProperties", "$defs", "definitions"}
_PLAIN_TEXT = _SAYS_NOTHING | {"enum", "const"}


class ToolError(RequestError):
    """A tool that cannot be offered.

    Attributes:
        pointer: JSON pointer of the place in the list of tools.
        reason: as of `GrammarError`.
    """

    def __init__(self, message: str, pointer: str, reason: str = "invalid tool") -> None:
        super().__init__(message)
        self.pointer = pointer
        self.reason = reason


@dataclass(frozen=True)
class Parameter:
    """A parameter that is written as an element of its own.

    Attributes:
        name, required: as the schema has them.
        schema: of the value as JSON; None where the value is plain text.
        texts: the only plain texts that it may be, if so.
    """

    name: str
    required: bool
    schema: Mapping[str, Any] | None = None
    texts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tool:
    """A function that a reply may call.

    Attributes:
        name: of the function.
        schema: of its arguments, which are an object.
        index: its place in the list.
        pointer: JSON pointer of the schema in the list of tools.
    """

    name: str
    schema: Mapping[str, Any]
    index: int = 0
    pointer: str = ""

    def refusal(self, message: str, place: str = "", reason: str = "unsupported") -> ToolError:
        """An error that names the tool."""
        return ToolError(f"tool {self.name!r}: {message}", self.pointer + place, reason)

    def parameters(self, *, as_python: bool = False) -> tuple[Parameter, ...]:
        """The parameters one by one, in the order of the schema.

        Args:
            as_python: their names are Python's, and no value is plain text.

        Raises:
            ToolError: the schema says more of them than what each is and which must be there.
        """
        schema = self.schema
        more = sorted(set(schema) - _OF_OBJECTS)
        if more or schema.get("additionalProperties", False) not in (True, False):
            place = more[0] if more else "additionalProperties"
            raise self.refusal(f"{place!r} beside the parameters cannot be enforced in this format", f"/{place}")
        if schema.get("additionalProperties") is True:
            raise self.refusal("parameters without names cannot be enforced", "/additionalProperties")
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict):
            raise self.refusal("expected an object", "/properties", "invalid schema")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self.refusal("expected a list of names", "/required", "invalid schema")
        for name in required:
            if name not in properties:
                raise self.refusal(f"parameter {name!r} is required and not described", "/required")
        return tuple(self._parameter(name, properties[name], name in required, as_python) for name in properties)

    def _parameter(self, name: str, schema: Any, required: bool, as_python: bool) -> Parameter:
        place = f"/properties/{escape(name)}"
        is_name = is_python_name(name) if as_python else _PARAMETER_NAME.fullmatch(name)
        if not is_name:
            raise self.refusal(f"parameter {name!r} cannot be written in this format", place)
        if not isinstance(schema, dict | bool):
            raise self.refusal("expected a schema", place, "invalid schema")
        is_text = isinstance(schema, dict) and schema.get("type") == "string" and not set(schema) - _PLAIN_TEXT
        if not isinstance(schema, dict) or as_python or not is_text:
            shared = {key: self.schema[key] for key in _SHARED if key in self.schema}
            if isinstance(schema, dict):
                schema = {key: value for key, value in schema.items() if key not in _FOR_PEOPLE}
            return Parameter(name, required, {**shared, "allOf": [schema]})
        if "enum" not in schema and "const" not in schema:
            return Parameter(name, required)
        return Parameter(name, required, texts=self._texts(schema, place))

    def _texts(self, schema: Mapping[str, Any], place: str) -> tuple[str, ...]:
        values = schema.get("enum", [schema.get("const")])
        if not isinstance(values, list):
            raise self.refusal("expected a list", f"{place}/enum", "invalid schema")
        texts = [value for value in values if isinstance(value, str) and schema.get("const", value) == value]
        if not texts:
            raise self.refusal("no text satisfies the parameter's schema", place, "unsatisfiable")
        if any(VALUE_ENDS in text for text in texts):
            raise self.refusal(f"{VALUE_ENDS!r} cannot be written in this format", place)
        if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
            raise self.refusal("half of a surrogate pair is no character", place)
        return tuple(dict.fromkeys(texts))


def read_tools(value: Any) -> tuple[Tool, ...]:
    """The functions of OpenAI's list of tools, in either spelling (``{"type": "function", "function": {…}}`` or flat).

    Raises:
        ToolError: naming the tool and the place.
    """
    if not isinstance(value, list) or not value:
        raise ToolError("expected a list of tools, not empty", "", "invalid tool")
    if len(value) > MAX_TOOLS:
        raise ToolError(f"{len(value)} tools, limit {MAX_TOOLS}", "", "too large")
    tools = [_read(entry, index) for index, entry in enumerate(value)]
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise ToolError(f"tool {tool.name!r} is there twice", f"/{tool.index}")
        seen.add(tool.name)
    return tuple(tools)


def _read(entry: Any, index: int) -> Tool:
    place = f"/{index}"
    if not isinstance(entry, dict) or entry.get("type") != "function":
        raise ToolError(f"tool {index}: expected a tool of type 'function'", f"{place}/type")
    function = entry
    if "function" in entry:
        function, place = entry["function"], f"{place}/function"
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ToolError(f"tool {index}: expected a function with a name", place)
    name = function["name"]
    if not _NAME.fullmatch(name):
        raise ToolError(f"tool {name[:80]!r}: a name has 1 to 64 letters, digits, '_', '.' and '-'", f"{place}/name")
    schema = function.get("parameters")
    place = f"{place}/parameters"
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        raise ToolError(f"tool {name!r}: expected a schema of an object", place, "invalid schema")
    if schema.get("type", "object") != "object":
        raise ToolError(f"tool {name!r}: arguments are an object", f"{place}/type", "invalid schema")
    return Tool(name, _as_object(schema), index, place)


def _as_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`schema` of objects alone; one that says nothing of parameters means that there are none."""
    if not set(schema) - _SAYS_NOTHING - {"additionalProperties"} and schema.get("additionalProperties") in (
        None,
        False,
    ):
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {**schema, "type": "object"}


def is_python_name(name: str) -> bool:
    """Whether Python takes `name` as that of a function or parameter."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def escape(name: str) -> str:
    """`name` as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
