"""Random JSON Schemas, and random instances near them, from any source of choices.

`Choices` is the only source of randomness, so the same code runs under hypothesis (which shrinks) and under
`random.Random` (which is fast). Names, strings and numbers come from small pools, so that schemas and instances meet.
Strings hold no character on which Python's regular expressions and ECMA's differ, and numbers are exact in binary, so
that jsonschema is a dependable oracle; it is not for the `unevaluated*` of 2019-09, which are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")

SCHEMA_URIS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}

NAMES = ("a", "b", "c", "ab", "", "é", '"', "\\n", "\nc")
STRINGS = ("", "a", "b", "ab", "ba", "aab", "é", "😀", '"a', "b\\", "\nx", "c/", "\x1f")
PATTERNS = ("^a", "b$", "^[ab]*$", "a.b", "^.{1,2}$", "é|😀", "^$", "[^a]", "(a|b)+b", ".*", "^[^b]+$")
NUMBERS = (-3, -2, -1, 0, 1, 2, 3, 4, 6, 9, 10, 12, 100, -1.5, 0.5, 1.5, 2.25, 10.5)
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Choices:
    """Choices among finite ranges, made by ``pick(n)`` in ``range(n)``; 0 is the simplest."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        self.pick = pick

    @classmethod
    def seeded(cls, seed: int) -> Choices:
        """Choices from a seed."""
        return cls(random.Random(seed).randrange)

    def among(self, items: Sequence[Item]) -> Item:
        """One of `items`."""
        return items[self.pick(len(items))]

    def some(self, items: Sequence[Item], most: int) -> list[Item]:
        """Up to `most` of `items`, distinct."""
        found: list[Item] = []
        for _ in range(self.pick(most + 1)):
            item = self.among(items)
            if item not in found:
                found.append(item)
        return found

    def one_in(self, n: int) -> bool:
        """True once in `n` times."""
        return self.pick(n) == n - 1


class SchemaMaker:
    """Makes schemas of one draft.

    Args:
        choices: where randomness comes from.
        draft: 4, 6, 7, 2019 or 2020.
    """

    def __init__(self, choices: Choices, draft: int = 2020) -> None:
        self.c = choices
        self.draft = draft
        self.definitions = "$defs" if draft >= 2019 else "definitions"
        self.references = ["#", f"#/{self.definitions}/p", f"#/{self.definitions}/q"]
        self.groups: list[Callable[[dict[str, Any], int], None]] = [
            self._type, self._type, self._values, self._number, self._string, self._array, self._array,
            self._object, self._object, self._boolean, self._boolean, self._reference,
        ]  # fmt: skip

    def root(self, depth: int = 3) -> dict[str, Any]:
        """A whole document with two definitions."""
        schema = self.object_schema(depth)
        schema["$schema"] = SCHEMA_URIS[self.draft]
        if any(f"/{self.definitions}/" in text for text in _texts(schema)):
            schema[self.definitions] = {"p": self.schema(depth - 1), "q": self.schema(depth - 2)}
        return schema

    def schema(self, depth: int) -> Any:
        """A schema; true or false now and then."""
        if self.draft >= 6 and self.c.one_in(8):
            return self.c.one_in(2)
        return self.object_schema(depth)

    def object_schema(self, depth: int) -> dict[str, Any]:
        """A schema that is an object."""
        schema: dict[str, Any] = {}
        if depth > 0 and self.c.one_in(2):
            return self._coherent(schema, depth - 1)
        for _ in range(1 + self.c.pick(3)):
            self.c.among(self.groups if depth > 0 else self.groups[:5])(schema, depth - 1)
        return schema

    def _coherent(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """A schema whose keywords speak of one type: seldom unsatisfiable."""
        kind = self.c.among(("object", "array", "object", "string", "number"))
        group = {"object": self._object, "array": self._array, "string": self._string, "number": self._number}[kind]
        if self.c.pick(3):
            schema["type"] = kind
        for _ in range(1 + self.c.pick(2)):
            group(schema, depth)
        if self.c.one_in(3):
            self._boolean(schema, depth)
        return schema

    def _type(self, schema: dict[str, Any], depth: int) -> None:
        if self.c.one_in(4):
            schema["type"] = self.c.some(TYPES, 3) or ["string"]
        else:
            schema["type"] = self.c.among(TYPES)

    def _values(self, schema: dict[str, Any], depth: int) -> None:
        if self.draft >= 6 and self.c.one_in(3):
            schema["const"] = self.value(1)
        else:
            schema["enum"] = [self.value(1) for _ in range(1 + self.c.pick(4))]

    def _number(self, schema: dict[str, Any], depth: int) -> None:
        for keyword in self.c.some(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), 2):
            if keyword == "multipleOf":
                schema[keyword] = self.c.among((1, 2, 3, 0.5, 0.25, 7, 5))
            elif keyword.startswith("exclusive") and self.draft == 4:
                schema[keyword] = True
                schema[keyword[9:].lower()] = self.c.among(NUMBERS)
            else:
                schema[keyword] = self.c.among(NUMBERS)

    def _string(self, schema: dict[str, Any], depth: int) -> None:
        for keyword in self.c.some(("pattern", "minLength", "maxLength"), 2) or ["pattern"]:
            schema[keyword] = self.c.among(PATTERNS) if keyword == "pattern" else self.c.pick(4)

    def _array(self, schema: dict[str, Any], depth: int) -> None:
        keywords = ["items", "minItems", "maxItems", "prefix", "uniqueItems"]
        keywords += ["contains"] if self.draft >= 6 else []
        keywords += ["unevaluatedItems"] if self.draft >= 2020 else []
        for keyword in self.c.some(keywords, 3) or ["items"]:
            if keyword == "uniqueItems":
                schema[keyword] = True
            elif keyword in ("minItems", "maxItems"):
                schema[keyword] = self.c.pick(4)
            elif keyword == "prefix":
                items = [self.schema(depth) for _ in range(1 + self.c.pick(2))]
                schema["prefixItems" if self.draft >= 2020 else "items"] = items
                if self.draft < 2020 and self.c.one_in(2):
                    schema["additionalItems"] = self.schema(depth)
            else:
                schema[keyword] = self.schema(depth)
                if keyword == "contains" and self.draft >= 2019:
                    for bound in self.c.some(("minContains", "maxContains"), 2):
                        schema[bound] = self.c.pick(3)
        if not isinstance(schema.get("items"), list):
            schema.pop("additionalItems", None)  # says nothing here, and jsonschema stumbles over it

    def _object(self, schema: dict[str, Any], depth: int) -> None:
        keywords = ["properties", "properties", "required", "additionalProperties", "patternProperties"]
        keywords += ["minProperties", "maxProperties", "dependencies" if self.draft < 2019 else "dependentRequired"]
        keywords += ["propertyNames"] if self.draft >= 6 else []
        keywords += ["dependentSchemas"] if self.draft >= 2019 else []
        keywords += ["unevaluatedProperties"] if self.draft >= 2020 else []
        for keyword in self.c.some(keywords, 3) or ["properties"]:
            if keyword == "properties":
                schema[keyword] = {name: self.schema(depth) for name in self.c.some(NAMES, 3)}
            elif keyword == "required":
                schema[keyword] = self.c.some(NAMES, 2) or ["a"]
            elif keyword == "patternProperties":
                schema[keyword] = {pattern: self.schema(depth) for pattern in self.c.some(PATTERNS, 2)}
            elif keyword in ("minProperties", "maxProperties"):
                schema[keyword] = self.c.pick(4)
            elif keyword == "dependencies":
                schema[keyword] = {name: self._dependency(depth) for name in self.c.some(NAMES, 2)}
            elif keyword == "dependentRequired":
                schema[keyword] = {name: self.c.some(NAMES, 2) for name in self.c.some(NAMES, 2)}
            elif keyword == "dependentSchemas":
                schema[keyword] = {name: self.schema(depth) for name in self.c.some(NAMES, 2)}
            elif keyword == "propertyNames":
                schema[keyword] = self.schema(min(depth, 0))
            else:
                schema[keyword] = self.schema(depth)

    def _dependency(self, depth: int) -> Any:
        return (self.c.some(NAMES, 2) or ["a"]) if self.c.one_in(2) else self.schema(depth)

    def _boolean(self, schema: dict[str, Any], depth: int) -> None:
        keyword = self.c.among(("allOf", "anyOf", "oneOf", "not", "if" if self.draft >= 7 else "not"))
        if keyword == "not":
            schema[keyword] = self.schema(depth)
        elif keyword == "if":
            schema["if"] = self.schema(depth)
            for branch in self.c.some(("then", "else"), 2):
                schema[branch] = self.schema(depth)
        else:
            schema[keyword] = [self.schema(depth) for _ in range(1 + self.c.pick(3))]

    def _reference(self, schema: dict[str, Any], depth: int) -> None:
        schema["$ref"] = self.c.among(self.references)

    # ------------------------------------------------------------------------------------------------- instances

    def value(self, depth: int) -> Any:
        """Any JSON value from the pools."""
        kind = self.c.pick(6 if depth > 0 else 4)
        if kind == 0:
            return self.c.among((None, False, True))
        if kind == 1:
            return self.c.among(NUMBERS)
        if kind < 4:
            return self.c.among(STRINGS)
        if kind == 4:
            return [self.value(depth - 1) for _ in range(self.c.pick(4))]
        return {name: self.value(depth - 1) for name in self.c.some(NAMES, 3)}

    def near(self, schema: Any, root: Any, depth: int = 3) -> Any:
        """A value that tries to satisfy `schema`, one alternative of every choice."""
        parts = list(self._in_place(schema, root, 4))
        for part in parts:
            if "const" in part:
                return part["const"]
            if part.get("enum"):
                return self.c.among(part["enum"])
        kind = self._kind(parts)
        if kind == "object":
            return self._near_object(parts, root, depth)
        if kind == "array":
            return self._near_array(parts, root, depth)
        if kind == "string":
            return self.c.among(STRINGS)
        if kind in ("integer", "number"):
            numbers = [n for n in NUMBERS if kind == "number" or n == int(n)]
            return self.c.among(numbers)
        return self.c.among((True, False)) if kind == "boolean" else None

    def mutated(self, value: Any, depth: int = 3) -> Any:
        """`value` with one place changed."""
        if isinstance(value, dict) and value and self.c.pick(3):
            name = self.c.among(list(value))
            if self.c.one_in(3):
                return {k: v for k, v in value.items() if k != name}
            return {**value, name: self.mutated(value[name], depth - 1)}
        if isinstance(value, list) and value and self.c.pick(3):
            index = self.c.pick(len(value))
            if self.c.one_in(3):
                return value[:index] + value[index + 1 :]
            return [*value[:index], self.mutated(value[index], depth - 1), *value[index + 1 :]]
        if isinstance(value, dict):
            return {**value, self.c.among(NAMES): self.value(1)}
        if isinstance(value, list):
            return [*value, self.value(1)]
        return self.value(1)

    def _in_place(self, schema: Any, root: Any, fuel: int) -> Iterator[dict[str, Any]]:
        if not isinstance(schema, dict) or fuel == 0:
            return
        yield schema
        if "$ref" in schema:
            yield from self._in_place(lookup(root, schema["$ref"]), root, fuel - 1)
        for part in schema.get("allOf", ()):
            yield from self._in_place(part, root, fuel - 1)
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                yield from self._in_place(self.c.among(schema[keyword]), root, fuel - 1)
        for keyword in self.c.some(("if", "then", "else"), 2):
            yield from self._in_place(schema.get(keyword), root, fuel - 1)

    def _kind(self, parts: list[dict[str, Any]]) -> str:
        for part in parts:
            if "type" in part and not self.c.one_in(10):
                return self.c.among(part["type"]) if isinstance(part["type"], list) else part["type"]
        hints = [kind for kind, words in _HINTS.items() for part in parts if any(word in part for word in words)]
        return self.c.among(hints or TYPES)

    def _near_object(self, parts: list[dict[str, Any]], root: Any, depth: int) -> Any:
        named: dict[str, Any] = {}
        for part in parts:
            named.update(dict.fromkeys(name for name in part.get("required", ()) if self.c.pick(8)))
            named.update({n: s for n, s in part.get("properties", {}).items() if n in named or self.c.pick(2)})
        named.update(dict.fromkeys(name for name in self.c.some(NAMES, 2) if name not in named and self.c.one_in(3)))
        found = {}
        for name, schema in named.items():
            rest = [p[k] for p in parts for k in ("additionalProperties", "unevaluatedProperties") if k in p]
            rest += [s for p in parts for s in p.get("patternProperties", {}).values()]
            below = schema if schema is not None or not rest else self.c.among(rest)
            found[name] = self.near(below, root, depth - 1) if depth > 0 and below is not None else self.value(0)
        return found

    def _near_array(self, parts: list[dict[str, Any]], root: Any, depth: int) -> Any:
        found = []
        for index in range(self.c.pick(5)):
            schemas = []
            for part in parts:
                items = part.get("items")
                prefix = part.get("prefixItems", items if isinstance(items, list) else [])
                schemas += [prefix[index]] if index < len(prefix) else []
                schemas += [items] if items is not None and not isinstance(items, list) and index >= len(prefix) else []
                schemas += [part[k] for k in ("contains", "additionalItems", "unevaluatedItems") if k in part]
            below = self.c.among(schemas) if schemas else None
            found.append(self.near(below, root, depth - 1) if depth > 0 and below is not None else self.value(0))
        return found


_HINTS = {
    "object": ("properties", "required", "patternProperties", "additionalProperties", "minProperties", "propertyNames",
               "maxProperties", "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    "array": ("items", "prefixItems", "contains", "minItems", "maxItems", "unevaluatedItems"),
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip


def lookup(root: Any, reference: str) -> Any:
    """The schema in `root` that a local reference without escapes names."""
    for step in reference.removeprefix("#").split("/")[1:]:
        root = root[step]
    return root


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
