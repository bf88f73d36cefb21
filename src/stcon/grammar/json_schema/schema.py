"""Schemas as nodes: dialects, references and identity.

A `SchemaNode` is one schema at one place with what its references resolve against. `$ref` and its relatives are
resolved by the library `referencing`, among the schema itself and the documents that the caller supplied; nothing is
ever fetched.

Source: JSON Schema 2020-12 core, sections 8 and 9; the older drafts' core documents for their spellings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any
from urllib.parse import urldefrag, urljoin

from stcon.errors import InvalidSchema, TooLarge
from stcon.grammar.json_schema.identifiers import ambiguous_identifiers, check_pointer

MAX_DEPTH = 400
MAX_EXPONENT = 1_000

Value = Any

# a step of a pointer that Python would read as a number and RFC 6901 does not
_ODD_INDEX = re.compile(r"/(?!(?:0|[1-9][0-9]*)(?:/|$))[^/]*\d[^/]*(?:/|$)")


@dataclass(frozen=True)
class Dialect:
    """What differs between drafts where it changes meaning.

    Attributes:
        name: as in `referencing.jsonschema`.
        version: 4, 6, 7, 2019 or 2020; a keyword that came later is an annotation.
        ref_hides_siblings: keywords beside ``$ref`` are ignored (up to draft 7).
        integer_has_no_fraction: 2.0 is not an integer (draft 4).
        id_keyword: ``$id``, or ``id`` in draft 4.
    """

    name: str
    version: int
    ref_hides_siblings: bool = False
    integer_has_no_fraction: bool = False
    id_keyword: str = "$id"


DRAFT_2020 = Dialect("draft2020-12", 2020)
DRAFT_2019 = Dialect("draft2019-09", 2019)
DRAFT_7 = Dialect("draft-07", 7, ref_hides_siblings=True)
DRAFT_6 = Dialect("draft-06", 6, ref_hides_siblings=True)
DRAFT_4 = Dialect("draft-04", 4, ref_hides_siblings=True, integer_has_no_fraction=True, id_keyword="id")

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": DRAFT_2020,
    "json-schema.org/draft/2019-09/schema": DRAFT_2019,
    "json-schema.org/draft-07/schema": DRAFT_7,
    "json-schema.org/draft-06/schema": DRAFT_6,
    "json-schema.org/draft-04/schema": DRAFT_4,
    "json-schema.org/schema": DRAFT_2020,
}


def dialect_of(contents: Value, default: Dialect) -> Dialect:
    """The dialect that ``$schema`` names; `default` without one, 2020-12 for a dialect that we do not know."""
    uri = contents.get("$schema") if isinstance(contents, dict) else None
    if uri is None:
        return default
    if not isinstance(uri, str):
        raise InvalidSchema("$schema must be a string", pointer="/$schema", keyword="$schema")
    return _DIALECTS.get(uri.split("://")[-1].rstrip("#"), DRAFT_2020)


class SchemaNode:
    """One schema at one place; equal places are one object.

    Attributes:
        contents: the schema: a dict or a bool.
        resolver: a `referencing` resolver based at the node's resource.
        pointer: JSON pointer for messages, after the document's URI where it is not the main document.
        dialect: the dialect in force.
        index: creation order, for stable sorting.
    """

    __slots__ = ("contents", "dialect", "index", "pointer", "resolver")

    def __init__(self, contents: Value, resolver: Any, pointer: str, dialect: Dialect, index: int) -> None:
        self.contents = contents
        self.resolver = resolver
        self.pointer = pointer
        self.dialect = dialect
        self.index = index

    def __repr__(self) -> str:
        return f"#{self.pointer}"

    def has(self, keyword: str) -> bool:
        """Whether the schema is an object with this keyword."""
        return isinstance(self.contents, dict) and keyword in self.contents


class Schemas:
    """The nodes of one compilation and the documents among which references resolve.

    Args:
        documents: URI → schema, supplied by the caller for remote references.
    """

    def __init__(self, root: Value, documents: Mapping[str, Value] | None = None) -> None:
        self._nodes: dict[tuple[int, tuple[str, ...]], SchemaNode] = {}
        self._synthetic: dict[str, SchemaNode] = {}
        self._targets: dict[tuple[int, str], SchemaNode] = {}
        self._keep: list[Value] = []
        dialect = dialect_of(root, DRAFT_2020)
        documents = dict(documents or {})
        self._dynamic = any(_is_dynamic(document) for document in (root, *documents.values()))
        resolver, self._ambiguous = _resolver(root, dialect, documents)
        self.root = self._intern(root, resolver, "", dialect)

    def child(self, parent: SchemaNode, *path: str | int) -> SchemaNode:
        """The subschema of `parent` at `path` (keyword, then key or index)."""
        contents = parent.contents
        for step in path:
            contents = contents[step]
        pointer = parent.pointer + "".join("/" + escape(str(step)) for step in path)
        return self._enter(contents, parent.resolver, pointer, parent.dialect)

    def follow(self, node: SchemaNode, keyword: str) -> SchemaNode:
        """The schema that the reference `keyword` of `node` names.

        Raises:
            InvalidSchema: it does not resolve, or does not name a schema.
        """
        reference = node.contents[keyword]
        place = f"{node.pointer}/{escape(keyword)}"
        if not isinstance(reference, str):
            raise InvalidSchema(f"{keyword} must be a string", pointer=place, keyword=keyword)
        key = (node.index, keyword)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._lookup(node, reference, keyword, place)
        return target

    def values(self, values: tuple[Value, ...], origin: SchemaNode) -> SchemaNode:
        """A schema for exactly these JSON values, as if written at `origin`; equal value lists are one node."""
        key = json.dumps([canonical(value) for value in values])
        node = self._synthetic.get(key)
        if node is None:
            contents = {"enum": list(values)}
            node = self._intern(contents, origin.resolver, origin.pointer, origin.dialect)
            self._synthetic[key] = node
        return node

    def anything(self, allowed: bool) -> SchemaNode:
        """The schema true or false."""
        return self._intern(allowed, self.root.resolver, "", self.root.dialect)

    def _lookup(self, node: SchemaNode, reference: str, keyword: str, place: str) -> SchemaNode:
        import referencing.exceptions
        import referencing.jsonschema

        uri = urldefrag(urljoin(node.resolver._base_uri, reference)).url if self._ambiguous else ""
        if uri in self._ambiguous:
            message = f"{keyword} {reference!r} is ambiguous: two schemas have the identifier {uri!r}"
            raise InvalidSchema(message, pointer=place, keyword=keyword)
        try:
            if keyword == "$recursiveRef":
                resolved = referencing.jsonschema.lookup_recursive_ref(node.resolver)
            else:
                resolved = node.resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchResource) as error:
            advice = "" if reference.startswith("#") else "; pass that document in `documents`"
            message = f"{keyword} {reference!r} does not resolve{advice}"
            raise InvalidSchema(message, pointer=place, keyword=keyword) from error
        except (AttributeError, TypeError, ValueError) as error:  # the library meets something that is not a schema
            message = f"{keyword} {reference!r} does not name a schema"
            raise InvalidSchema(message, pointer=place, keyword=keyword) from error
        if not isinstance(resolved.contents, (dict, bool)):
            raise InvalidSchema(f"{keyword} {reference!r} does not name a schema", pointer=place, keyword=keyword)
        base, _, fragment = reference.partition("#")
        if _ODD_INDEX.search(fragment):
            check_pointer(node.resolver.lookup(base + "#").contents, fragment, reference, place, keyword)
        pointer = (base + "#" if base else "") + fragment
        dialect = dialect_of(resolved.contents, node.dialect)
        return self._intern(resolved.contents, resolved.resolver, pointer, dialect)

    def _enter(self, contents: Value, resolver: Any, pointer: str, dialect: Dialect) -> SchemaNode:
        """Intern a subschema; one with an identifier of its own starts a new base for references."""
        if isinstance(contents, dict):
            dialect = dialect_of(contents, dialect)
            identifier = contents.get(dialect.id_keyword)
            if isinstance(identifier, str) and not (dialect.ref_hides_siblings and "$ref" in contents):
                resolver = resolver.in_subresource(_specification(dialect.name).create_resource(contents))
        return self._intern(contents, resolver, pointer, dialect)

    def _intern(self, contents: Value, resolver: Any, pointer: str, dialect: Dialect) -> SchemaNode:
        if not isinstance(contents, (dict, bool)):
            raise InvalidSchema(f"expected a schema (an object or a boolean), got {_kind(contents)}", pointer=pointer)
        if isinstance(contents, bool):
            key: tuple[int, tuple[str, ...]] = (-1 - contents, ())
        else:
            key = (id(contents), (resolver._base_uri, dialect.name, *self._scope(resolver)))
        node = self._nodes.get(key)
        if node is None:
            self._keep.append(contents)
            node = self._nodes[key] = SchemaNode(contents, resolver, pointer, dialect, len(self._nodes))
        return node

    def _scope(self, resolver: Any) -> tuple[str, ...]:
        """The resources through which a schema was reached, outermost first: on these ``$dynamicRef`` depends."""
        if not self._dynamic:
            return ()
        return tuple(dict.fromkeys(uri for uri, _ in reversed(list(resolver.dynamic_scope()))))


def canonical(value: Value) -> Value:
    """A JSON value with equal values (JSON Schema 2020-12, 4.2.2) made identical: numbers by value, objects by key.

    Returns:
        nested tuples of hashable values.
    """
    if value is None or isinstance(value, (bool, str)):
        return (type(value).__name__, value)
    if isinstance(value, (int, float, Decimal)):
        return ("number", number(value).as_tuple())
    if isinstance(value, list):
        return ("list", tuple(canonical(item) for item in value))
    if isinstance(value, dict):
        return ("dict", tuple(sorted((key, canonical(item)) for key, item in value.items())))
    raise InvalidSchema(f"not a JSON value: {value!r}")


def number(value: float | Decimal) -> Decimal:
    """The exact decimal that the schema's author wrote (floats by their shortest spelling), in lowest terms.

    Equal values get equal digits and exponents: no trailing zeros, 0 without a sign. `Decimal.normalize` would round
    to the context's precision.

    Raises:
        InvalidSchema: not a finite number.
        TooLarge: an exponent past `MAX_EXPONENT`.
    """
    if isinstance(value, int) and value.bit_length() > 4 * MAX_EXPONENT:  # repr of larger ones may be refused by Python
        raise TooLarge("bits of a number", given=value.bit_length(), limit=4 * MAX_EXPONENT)
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not exact.is_finite():
        raise InvalidSchema(f"{value} is not a JSON number")
    if exact and abs(exact.adjusted()) > MAX_EXPONENT:
        raise TooLarge("exponent of a number", given=abs(exact.adjusted()), limit=MAX_EXPONENT)
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    stripped = len(digits)
    while stripped > 1 and digits[stripped - 1] == 0:
        stripped -= 1
    if digits[:stripped] == (0,):
        return Decimal(0)
    return Decimal((sign, digits[:stripped], exponent + len(digits) - stripped))


def check_json(value: Value, limit: int = MAX_DEPTH) -> None:
    """Refuse what is not JSON or nested deeper than `limit`, without recursion. Cost: O(size).

    Raises:
        InvalidSchema: a key that is not a string, or a value of no JSON type.
        TooLarge: nested too deeply.
    """
    level: list[Value] = [value]
    depth = 0
    while level:
        if depth > limit:
            raise TooLarge("nesting of the schema", given=depth, limit=limit, pointer="")
        for item in level:
            if isinstance(item, dict) and not all(isinstance(key, str) for key in item):
                raise InvalidSchema("an object has a key that is not a string", pointer="")
            if not (item is None or isinstance(item, (dict, list, str, bool, int, float, Decimal))):
                raise InvalidSchema(f"{type(item).__name__} is not a JSON type", pointer="")
        level = [inner for item in level for inner in _inner(item)]
        depth += 1


def _inner(item: Value) -> Iterator[Value]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def _is_dynamic(document: Value) -> bool:
    """Whether what a schema means may depend on how it was reached."""
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            reference = item.get("$ref")
            metaschema = isinstance(reference, str) and "json-schema.org" in reference
            if metaschema or "$dynamicRef" in item or "$recursiveRef" in item:
                return True
        pending.extend(_inner(item))
    return False


def _resolver(root: Value, dialect: Dialect, documents: Mapping[str, Value]) -> tuple[Any, frozenset[str]]:
    """A resolver based at `root`, and the URIs that two schemas have."""
    import referencing

    specification = _specification(dialect.name)
    registry: Any = _metaschemas()
    ambiguous: frozenset[str] = frozenset()
    for uri, document in documents.items():
        own = dialect_of(document, dialect)
        resource = _specification(own.name).create_resource(document)
        ambiguous |= ambiguous_identifiers(resource, uri, own.id_keyword)
        registry = registry.with_resource(uri, resource)
    resource = specification.create_resource(root)
    base = root.get(dialect.id_keyword, "") if isinstance(root, dict) else ""
    if not isinstance(base, str):
        pointer = f"/{dialect.id_keyword}"
        raise InvalidSchema(f"{dialect.id_keyword} must be a string", pointer=pointer, keyword=dialect.id_keyword)
    ambiguous |= ambiguous_identifiers(resource, "", dialect.id_keyword)
    registry = registry.with_resource(base.rstrip("#"), resource)
    assert isinstance(registry, referencing.Registry)
    return registry.resolver(base.rstrip("#")), ambiguous


@cache
def _metaschemas() -> Any:
    import jsonschema_specifications

    return jsonschema_specifications.REGISTRY


@cache
def _specification(name: str) -> Any:
    import referencing.jsonschema as dialects

    return {
        "draft2020-12": dialects.DRAFT202012,
        "draft2019-09": dialects.DRAFT201909,
        "draft-07": dialects.DRAFT7,
        "draft-06": dialects.DRAFT6,
        "draft-04": dialects.DRAFT4,
    }[name]


def escape(step: str) -> str:
    """One step of a JSON pointer (RFC 6901, section 3)."""
    return step.replace("~", "~0").replace("/", "~1")


def _kind(value: Value) -> str:
    names = {type(None): "null", str: "a string", list: "an array", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
