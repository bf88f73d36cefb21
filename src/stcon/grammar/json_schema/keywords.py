"""From a schema to what it asks of a value of one JSON type: one function a keyword.

`Expander.formula(node, type)` is the conjunction of what each keyword says about a value of that type, applicators and
references expanded in place. A keyword that says nothing about the type is not asked. Unknown keywords are annotations.

To add a keyword: write ``_keyword(self, node, value, type)``, enter it in `KEYWORDS` with the types it applies to, and
add its cases to tests/grammar.

Source: JSON Schema 2020-12 core sections 10 and 11, validation section 6.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from stcon.errors import GrammarError, InvalidSchema, TooLarge, Unsupported
from stcon.grammar.json_schema.atoms import TYPES, JsonType
from stcon.grammar.json_schema.formula import Formula, Formulas
from stcon.grammar.json_schema.schema import SchemaNode, Schemas, canonical, escape, number

MAX_ITEMS = 50_000
MAX_PROPERTIES = 5_000
MAX_CONTAINERS = 200
MAX_DIVISOR_DIGITS = 60
MAX_COUNT = 10**30

_COUNTED_CLASS = re.compile(r"\^(\[(?:[^\[\]\\]|\\[^bBcux])+\]|\\[dDwWsS])\{(\d{1,7})(,?)(\d{0,7})\}\$")

_NUMERIC = {"integer": "number"}
_ONE_TYPE: dict[str, tuple[JsonType, ...]] = {**{kind: (kind,) for kind in TYPES}, "integer": ("number",)}


class Expander:
    """Expands schemas of one compilation into formulas, each (schema, type) once.

    Args:
        formulas: the table the results live in.
        schemas: the compilation's schemas.
        assert_formats: the names of formats that are enforced; others are annotations.

    Attributes:
        spellings: how the schemas expanded so far write the numbers they enumerate.
    """

    def __init__(self, formulas: Formulas, schemas: Schemas, assert_formats: frozenset[str]) -> None:
        self.formulas = formulas
        self.schemas = schemas
        self.assert_formats = assert_formats
        self.spellings: dict[Decimal, set[str]] = {}
        self._done: dict[tuple[SchemaNode, JsonType], Formula | None] = {}

    def schema(self, node: SchemaNode) -> Formula:
        """The value formula "satisfies `node`"; true and false schemas become constants."""
        if node.contents is True or node.contents == {}:
            return self.formulas.true
        if node.contents is False:
            return self.formulas.false
        return self.formulas.atom(("schema", node))

    def expand(self, value_formula: Formula, kind: JsonType) -> Formula:
        """A value formula as a formula over the atoms of one type."""
        return self.formulas.map_atoms(value_formula, lambda atom: self.formula(atom.atom[1], kind))

    def formula(self, node: SchemaNode, kind: JsonType) -> Formula:
        """What `node` asks of a value of type `kind`.

        Raises:
            InvalidSchema: a keyword has a value it cannot have, or the schema refers to itself in place, endlessly.
            Unsupported: a keyword that is not enforced here.
        """
        if isinstance(node.contents, bool):
            return self.formulas.constant(node.contents)
        key = (node, kind)
        if key in self._done:
            done = self._done[key]
            if done is None:
                raise InvalidSchema("the schema refers to itself without end", pointer=node.pointer, keyword="$ref")
            return done
        self._done[key] = None
        try:
            result = self._conjunction(node, kind)
        except BaseException:
            del self._done[key]
            raise
        self._done[key] = result
        return result

    def _conjunction(self, node: SchemaNode, kind: JsonType) -> Formula:
        contents = node.contents
        if node.dialect.ref_hides_siblings and "$ref" in contents:
            return self._ref(node, contents["$ref"], kind, "$ref")
        if kind not in self.kinds(node):
            return self.formulas.false
        parts = []
        # `unevaluated*` reads its neighbours: after they have been looked at
        for keyword, value in sorted(contents.items(), key=lambda item: item[0].startswith("unevaluated")):
            entry = KEYWORDS.get(keyword)
            if entry is not None and kind in entry.kinds and entry.since <= node.dialect.version:
                try:
                    parts.append(entry.function(self, node, value, kind, keyword))
                except GrammarError as error:
                    if error.pointer is None:
                        error.at(f"{node.pointer}/{keyword}", keyword)
                    raise
        return self.formulas.and_(parts)

    def kinds(self, node: SchemaNode) -> tuple[JsonType, ...]:
        """The types that the schema's own ``type`` leaves; all without one, or where `_type` has to refuse it."""
        name = node.contents.get("type") if isinstance(node.contents, dict) else None
        if not isinstance(name, str) or (node.dialect.ref_hides_siblings and "$ref" in node.contents):
            return TYPES
        return _ONE_TYPE.get(name, TYPES)

    # ------------------------------------------------------------------------------------------ references, booleans

    def _ref(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formula(self.schemas.follow(node, keyword), kind)

    def _all_of(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.and_(self._each(node, value, kind, keyword))

    def _any_of(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.or_(self._each(node, value, kind, keyword))

    def _one_of(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.one(self._each(node, value, kind, keyword))

    def _not(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.not_(self.formula(self.schemas.child(node, "not"), kind))

    def _if(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        condition = self.formula(self.schemas.child(node, "if"), kind)
        parts = []
        if node.has("then"):
            then = self.formula(self.schemas.child(node, "then"), kind)
            parts.append(self.formulas.or_([self.formulas.not_(condition), then]))
        if node.has("else"):
            parts.append(self.formulas.or_([condition, self.formula(self.schemas.child(node, "else"), kind)]))
        return self.formulas.and_(parts)

    def _each(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> list[Formula]:
        _require(isinstance(value, list) and len(value) > 0, node, keyword, "a non-empty array of schemas")
        return [self.formula(self.schemas.child(node, keyword, i), kind) for i in range(len(value))]

    # ------------------------------------------------------------------------------------------------- any type

    def _type(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        names = value if isinstance(value, list) else [value]
        known = all(isinstance(name, str) and _NUMERIC.get(name, name) in TYPES for name in names)
        _require(known and len(names) > 0, node, keyword, "a type name or an array of type names")
        if kind in names:
            return self.formulas.true
        if kind == "number" and "integer" in names:
            return self.formulas.atom(("integer", not node.dialect.integer_has_no_fraction))
        return self.formulas.false

    def _const(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self._one_value_of((value,), node, kind)

    def _enum(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, list), node, keyword, "an array")
        return self._one_value_of(tuple(value), node, kind)

    def _one_value_of(self, values: tuple[Any, ...], node: SchemaNode, kind: JsonType) -> Formula:
        f = self.formulas
        values = tuple(value for value in values if type_of(value) == kind)
        if not values:
            return f.false
        if kind in ("array", "object"):
            _limit("enumerated arrays or objects", len(values), MAX_CONTAINERS)
        match kind:
            case "null":
                return f.true
            case "boolean":
                true = f.atom(("true",))
                return f.or_(true if value else f.not_(true) for value in values)
            case "number":
                for value in values:
                    exact = number(value)
                    if not node.dialect.integer_has_no_fraction or exact != exact.to_integral_value():
                        self.spellings.setdefault(exact, set()).add(str(value))
                return f.atom(("numbers", frozenset(number(value) for value in values)))
            case "string":
                return f.atom(("strings", frozenset(values)))
            case "array":
                if node.contents.get("uniqueItems") is True:
                    values = tuple(value for value in values if len(set(map(canonical, value))) == len(value))
                return f.or_(self._exact_array(value, node) for value in values)
        return f.or_(self._exact_object(value, node) for value in values)

    def _exact_array(self, value: list[Any], node: SchemaNode) -> Formula:
        f = self.formulas
        items = (f.atom(("item", i, self._exactly(item, node))) for i, item in enumerate(value))
        return f.and_([self._at_least("minitems", len(value)), f.atom(("maxitems", len(value))), *items])

    def _exact_object(self, value: dict[str, Any], node: SchemaNode) -> Formula:
        f = self.formulas
        parts = [f.atom(("has", name)) for name in value]
        parts += [f.atom(("prop", name, self._exactly(inner, node))) for name, inner in value.items()]
        parts.append(f.atom(("each", self._other_names(value), f.false)))
        return f.and_(parts)

    def _exactly(self, value: Any, node: SchemaNode) -> Formula:
        return self.schema(self.schemas.values((value,), node))

    # ------------------------------------------------------------------------------------------------- numbers

    def _minimum(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        exclusive = node.contents.get("exclusiveMinimum") is True
        return self._bound("min", node, value, keyword, exclusive=exclusive)

    def _maximum(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        exclusive = node.contents.get("exclusiveMaximum") is True
        return self._bound("max", node, value, keyword, exclusive=exclusive)

    def _exclusive_minimum(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        # a boolean is draft 4's spelling: it says how `minimum` beside it is meant
        return (
            self.formulas.true if isinstance(value, bool) else self._bound("min", node, value, keyword, exclusive=True)
        )

    def _exclusive_maximum(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return (
            self.formulas.true if isinstance(value, bool) else self._bound("max", node, value, keyword, exclusive=True)
        )

    def _bound(self, side: str, node: SchemaNode, value: Any, keyword: str, *, exclusive: bool) -> Formula:
        return self.formulas.atom((side, _decimal(node, keyword, value), exclusive))

    def _multiple_of(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        divisor = _decimal(node, keyword, value)
        _limit("digits of multipleOf", len(divisor.as_tuple().digits) + abs(divisor.adjusted()), MAX_DIVISOR_DIGITS)
        _require(divisor > 0, node, keyword, "a number greater than 0")
        return self._leaf(("multiple", divisor))

    def _leaf(self, atom: tuple[Any, ...]) -> Formula:
        """An atom whose automaton is built now: what it refuses is refused here, where the place is known."""
        from stcon.grammar.json_schema import numbers, strings

        (numbers if atom[0] == "multiple" else strings).atom_dfa(atom)
        return self.formulas.atom(atom)

    # ------------------------------------------------------------------------------------------------- strings

    def _pattern(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, str), node, keyword, "a string")
        counted = _COUNTED_CLASS.fullmatch(value)
        if counted is None:
            return self._leaf(("pattern", value))
        # one class, counted: its length is a bound like any other, for which the machine has a register
        character, least, comma, most = counted.groups()
        parts = [self._leaf(("pattern", f"^{character}*$")), self._at_least("minlen", int(least))]
        if most or not comma:
            parts.append(self.formulas.atom(("maxlen", int(most or least))))
        return self.formulas.and_(parts)

    def _format(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, str), node, keyword, "a string")
        if value not in self.assert_formats:
            return self.formulas.true
        return self._leaf(("format", value))

    def _min_length(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        from stcon.grammar.json_schema.strings import MAX_LENGTH

        count = _count(node, keyword, value)
        _limit(keyword, count, MAX_LENGTH)
        return self._at_least("minlen", count)

    def _max_length(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.atom(("maxlen", _count(node, keyword, value)))

    def _at_least(self, tag: str, count: int) -> Formula:
        return self.formulas.atom((tag, count)) if count > 0 else self.formulas.true

    # ------------------------------------------------------------------------------------------------- arrays

    def _prefix_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, list), node, keyword, "an array of schemas")
        f = self.formulas
        children = (self.schema(self.schemas.child(node, keyword, i)) for i in range(len(value)))
        return f.and_(self._item(i, child) for i, child in enumerate(children))

    def _items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        if isinstance(value, list):  # the spelling up to 2019-09
            return self._prefix_items(node, value, kind, keyword)
        prefix = node.contents.get("prefixItems") if node.dialect.version >= 2020 else None
        first = len(prefix) if isinstance(prefix, list) else 0
        return self._items_from(first, self.schema(self.schemas.child(node, keyword)))

    def _additional_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        prefix = node.contents.get("items")
        if not isinstance(prefix, list):
            return self.formulas.true
        return self._items_from(len(prefix), self.schema(self.schemas.child(node, keyword)))

    def _item(self, index: int, child: Formula) -> Formula:
        return self.formulas.true if child is self.formulas.true else self.formulas.atom(("item", index, child))

    def _items_from(self, first: int, child: Formula) -> Formula:
        return self.formulas.true if child is self.formulas.true else self.formulas.atom(("items", first, child))

    def _contains(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        contents = node.contents
        least = _count(node, "minContains", contents.get("minContains", 1))
        _limit("minContains", least, MAX_ITEMS)
        most = _count(node, "maxContains", contents["maxContains"]) if "maxContains" in contents else None
        if node.dialect.version < 2019:  # minContains and maxContains came then
            least, most = 1, None
        child = self.schema(self.schemas.child(node, keyword))
        if least == 0 and most is None:
            return self.formulas.true
        return self.formulas.atom(("contains", child, least, most))

    def _min_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        count = _count(node, keyword, value)
        _limit(keyword, count, MAX_ITEMS)
        return self._at_least("minitems", count)

    def _max_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.atom(("maxitems", _count(node, keyword, value)))

    def _unique_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, bool), node, keyword, "a boolean")
        return self.formulas.atom(("unique", node.pointer)) if value else self.formulas.true

    def _unevaluated_items(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        from stcon.grammar.json_schema.evaluated import unevaluated_items

        return unevaluated_items(self, node, self.schema(self.schemas.child(node, keyword)))

    # ------------------------------------------------------------------------------------------------- objects

    def _properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, dict), node, keyword, "an object of schemas")
        f = self.formulas
        parts = []
        for name in value:
            child = self.schema(self.schemas.child(node, keyword, name))
            if child is not f.true:
                parts.append(f.atom(("prop", name, child)))
        return f.and_(parts)

    def _pattern_properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        _require(isinstance(value, dict), node, keyword, "an object of schemas")
        parts = []
        for pattern in value:
            child = self.schema(self.schemas.child(node, keyword, pattern))
            try:
                parts.append(self.each(self._leaf(("pattern", pattern)), child))
            except GrammarError as error:
                raise error.at(f"{node.pointer}/{keyword}/{escape(pattern)}", keyword) from None
        return self.formulas.and_(parts)

    def _additional_properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.each(self.additional_names(node), self.schema(self.schemas.child(node, keyword)))

    def additional_names(self, node: SchemaNode) -> Formula:
        """The names that ``additionalProperties`` of `node` speaks of, as a string formula."""
        patterns = node.contents.get("patternProperties", {})
        for keyword in ("properties", "patternProperties"):
            _require(isinstance(node.contents.get(keyword, {}), dict), node, keyword, "an object of schemas")
        f = self.formulas
        matched = [f.atom(("pattern", pattern)) for pattern in patterns]
        return f.and_([self._other_names(node.contents.get("properties", {})), *(f.not_(part) for part in matched)])

    def each(self, names: Formula, child: Formula) -> Formula:
        """Every value under a name in `names` satisfies `child`."""
        if child is self.formulas.true or names is self.formulas.false:
            return self.formulas.true
        return self.formulas.atom(("each", names, child))

    def _other_names(self, names: Any) -> Formula:
        f = self.formulas
        return f.not_(f.atom(("strings", frozenset(names)))) if names else f.true

    def _property_names(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        allowed = self.formula(self.schemas.child(node, keyword), "string")
        return self.each(self.formulas.not_(allowed), self.formulas.false)

    def _required(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        if isinstance(value, bool):  # draft 3's spelling, seen beside `type`; it constrains the parent, which we refuse
            raise Unsupported(
                "draft 3's boolean required",
                pointer=f"{node.pointer}/required",
                keyword=keyword,
                advice="list the names in the parent's required",
            )
        _require(_is_names(value), node, keyword, "an array of strings")
        return self._all_present(value)

    def _all_present(self, names: list[str]) -> Formula:
        return self.formulas.and_(self.formulas.atom(("has", name)) for name in names)

    def _min_properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        count = _count(node, keyword, value)
        _limit(keyword, count, MAX_PROPERTIES)
        return self._at_least("minprops", count)

    def _max_properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        return self.formulas.atom(("maxprops", _count(node, keyword, value)))

    def _dependencies(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        """dependencies, dependentRequired and dependentSchemas: a name's presence asks for names or a schema."""
        _require(isinstance(value, dict), node, keyword, "an object")
        f = self.formulas
        parts = []
        for name, needed in value.items():
            if isinstance(needed, list) and keyword != "dependentSchemas":
                _require(_is_names(needed), node, keyword, "arrays of strings")
                consequence = self._all_present(needed)
            else:
                _require(keyword != "dependentRequired", node, keyword, "arrays of strings")
                consequence = self.formula(self.schemas.child(node, keyword, name), kind)
            parts.append(f.or_([f.not_(f.atom(("has", name))), consequence]))
        return f.and_(parts)

    def _unevaluated_properties(self, node: SchemaNode, value: Any, kind: JsonType, keyword: str) -> Formula:
        from stcon.grammar.json_schema.evaluated import unevaluated_properties

        return unevaluated_properties(self, node, self.schema(self.schemas.child(node, keyword)))


Function = Callable[[Expander, SchemaNode, Any, JsonType, str], Formula]


class Keyword(NamedTuple):
    """A keyword: the types it speaks of, the function that expands it, and the draft that introduced it.

    Drafts are numbered 4, 6, 7, 2019, 2020. Spellings that a later draft dropped (``dependencies``, array ``items``)
    are still read in it: nobody writes them to mean nothing.
    """

    kinds: frozenset[JsonType]
    function: Function
    since: int = 4


_ALL = frozenset(TYPES)
_NUMBER: frozenset[JsonType] = frozenset({"number"})
_STRING: frozenset[JsonType] = frozenset({"string"})
_ARRAY: frozenset[JsonType] = frozenset({"array"})
_OBJECT: frozenset[JsonType] = frozenset({"object"})

KEYWORDS: dict[str, Keyword] = {
    "$ref": Keyword(_ALL, Expander._ref),
    "$dynamicRef": Keyword(_ALL, Expander._ref, since=2020),
    "$recursiveRef": Keyword(_ALL, Expander._ref, since=2019),
    "allOf": Keyword(_ALL, Expander._all_of),
    "anyOf": Keyword(_ALL, Expander._any_of),
    "oneOf": Keyword(_ALL, Expander._one_of),
    "not": Keyword(_ALL, Expander._not),
    "if": Keyword(_ALL, Expander._if, since=7),
    "type": Keyword(_ALL, Expander._type),
    "const": Keyword(_ALL, Expander._const, since=6),
    "enum": Keyword(_ALL, Expander._enum),
    "minimum": Keyword(_NUMBER, Expander._minimum),
    "maximum": Keyword(_NUMBER, Expander._maximum),
    "exclusiveMinimum": Keyword(_NUMBER, Expander._exclusive_minimum),
    "exclusiveMaximum": Keyword(_NUMBER, Expander._exclusive_maximum),
    "multipleOf": Keyword(_NUMBER, Expander._multiple_of),
    "pattern": Keyword(_STRING, Expander._pattern),
    "format": Keyword(_STRING, Expander._format),
    "minLength": Keyword(_STRING, Expander._min_length),
    "maxLength": Keyword(_STRING, Expander._max_length),
    "prefixItems": Keyword(_ARRAY, Expander._prefix_items, since=2020),
    "items": Keyword(_ARRAY, Expander._items),
    "additionalItems": Keyword(_ARRAY, Expander._additional_items),
    "contains": Keyword(_ARRAY, Expander._contains, since=6),
    "minItems": Keyword(_ARRAY, Expander._min_items),
    "maxItems": Keyword(_ARRAY, Expander._max_items),
    "uniqueItems": Keyword(_ARRAY, Expander._unique_items),
    "unevaluatedItems": Keyword(_ARRAY, Expander._unevaluated_items, since=2019),
    "properties": Keyword(_OBJECT, Expander._properties),
    "patternProperties": Keyword(_OBJECT, Expander._pattern_properties),
    "additionalProperties": Keyword(_OBJECT, Expander._additional_properties),
    "propertyNames": Keyword(_OBJECT, Expander._property_names, since=6),
    "required": Keyword(_OBJECT, Expander._required),
    "minProperties": Keyword(_OBJECT, Expander._min_properties),
    "maxProperties": Keyword(_OBJECT, Expander._max_properties),
    "dependencies": Keyword(_OBJECT, Expander._dependencies),
    "dependentRequired": Keyword(_OBJECT, Expander._dependencies, since=2019),
    "dependentSchemas": Keyword(_OBJECT, Expander._dependencies, since=2019),
    "unevaluatedProperties": Keyword(_OBJECT, Expander._unevaluated_properties, since=2019),
}


def type_of(value: Any) -> JsonType:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    raise InvalidSchema(f"not a JSON value: {value!r}")


def equal(a: Any, b: Any) -> bool:
    """JSON Schema's equality of values."""
    return bool(canonical(a) == canonical(b))


def _require(condition: bool, node: SchemaNode, keyword: str, expected: str) -> None:
    if not condition:
        raise InvalidSchema(f"{keyword} must be {expected}", pointer=f"{node.pointer}/{keyword}", keyword=keyword)


def _limit(what: str, given: int, limit: int) -> None:
    if given > limit:
        raise TooLarge(what, given=given, limit=limit)


def _count(node: SchemaNode, keyword: str, value: Any) -> int:
    """A length or a number of items; all past `MAX_COUNT` are alike."""
    if isinstance(value, (float, Decimal)):
        exact = Decimal(value)
        integral = exact.is_finite() and exact == exact.to_integral_value()
        value = int(min(exact, Decimal(MAX_COUNT))) if integral else None
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    _require(valid, node, keyword, "a non-negative integer")
    assert isinstance(value, int)
    return min(value, MAX_COUNT)


def _decimal(node: SchemaNode, keyword: str, value: Any) -> Decimal:
    valid = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    _require(valid, node, keyword, "a number")
    return number(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
