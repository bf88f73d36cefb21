"""Which names and items a schema's keywords evaluate: `unevaluated*` and the closed reading, as plain formulas.

A name is evaluated by a schema if a keyword of it, or of a schema applied in place that the value satisfies, speaks
of it. "The schemas that the value satisfies" is itself a formula, so ``unevaluatedProperties: U`` becomes, for each
class of names that the same keywords speak of: *every value under such a name satisfies U, or one of the conditions
under which the name is evaluated holds*. Nothing has to be remembered while reading beyond the formula itself.

Source: JSON Schema 2020-12 core, section 11 and the annotation rules of section 7.7.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from stcon.errors import Unsupported
from stcon.grammar.json_schema.atoms import JsonType
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.instances import name_in
from stcon.grammar.json_schema.schema import SchemaNode

if TYPE_CHECKING:
    from stcon.grammar.json_schema.keywords import Expander

MAX_PATTERN_CLASSES = 64


class Speaker(NamedTuple):
    """A keyword that speaks of names: of `name` if given, else of those that satisfy `names`; if `condition` holds."""

    name: str | None
    names: Formula | None
    condition: Formula


def applied(expander: Expander, node: SchemaNode, kind: JsonType = "object") -> Iterator[tuple[SchemaNode, Formula]]:
    """The schemas applied in place of `node`, itself first, each with the condition under which its annotations count.

    Order: the order of keywords in the text, references expanded where they stand.
    """
    yield from _applied(expander, node, expander.formulas.true, kind, set())


def _applied(
    expander: Expander, node: SchemaNode, condition: Formula, kind: JsonType, seen: set[tuple[SchemaNode, Formula]]
) -> Iterator[tuple[SchemaNode, Formula]]:
    contents, f, schemas = node.contents, expander.formulas, expander.schemas
    if isinstance(contents, bool) or (node, condition) in seen or condition is f.false:
        return
    seen.add((node, condition))
    yield node, condition
    hides = node.dialect.ref_hides_siblings and "$ref" in contents

    def below(child: SchemaNode, *, extra: Formula) -> Iterator[tuple[SchemaNode, Formula]]:
        return _applied(expander, child, f.and_([condition, extra]), kind, seen)

    for keyword, value in contents.items():
        if keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            yield from below(schemas.follow(node, keyword), extra=f.true)
        elif hides:
            continue
        elif keyword == "allOf":
            for i in range(len(value)):
                yield from below(schemas.child(node, keyword, i), extra=f.true)
        elif keyword in ("anyOf", "oneOf"):
            for i in range(len(value)):
                child = schemas.child(node, keyword, i)
                yield from below(child, extra=expander.formula(child, kind))
        elif keyword == "if" and node.dialect.version >= 7:
            child = schemas.child(node, "if")
            holds = expander.formula(child, kind)
            yield from below(child, extra=holds)
            if node.has("then"):
                yield from below(schemas.child(node, "then"), extra=holds)
            if node.has("else"):
                yield from below(schemas.child(node, "else"), extra=f.not_(holds))
        elif keyword in ("dependentSchemas", "dependencies") and kind == "object" and isinstance(value, dict):
            for name, needed in value.items():
                if not isinstance(needed, list):
                    yield from below(schemas.child(node, keyword, name), extra=f.atom(("has", name)))


def speakers(expander: Expander, node: SchemaNode, *, without_own_unevaluated: bool) -> Iterator[Speaker]:
    """Every keyword in place of `node` that evaluates names."""
    f = expander.formulas
    for schema, condition in applied(expander, node):
        if schema.dialect.ref_hides_siblings and schema.has("$ref"):
            continue
        for name in schema.contents.get("properties", {}):
            yield Speaker(name, None, condition)
        for pattern in schema.contents.get("patternProperties", {}):
            yield Speaker(None, f.atom(("pattern", pattern)), condition)
        if schema.has("additionalProperties"):
            yield Speaker(None, expander.additional_names(schema), condition)
        if schema.has("unevaluatedProperties") and not (schema is node and without_own_unevaluated):
            yield Speaker(None, f.true, condition)


def unevaluated_properties(expander: Expander, node: SchemaNode, child: Formula) -> Formula:
    """Every value under a name that nothing in place of `node` evaluates satisfies `child`."""
    f = expander.formulas
    if child is f.true:
        return f.true
    spoken = list(speakers(expander, node, without_own_unevaluated=True))
    named: dict[str, list[Formula]] = {}
    sets: dict[Formula, list[Formula]] = {}
    for speaker in spoken:
        if speaker.name is not None:
            named.setdefault(speaker.name, []).append(speaker.condition)
        else:
            assert speaker.names is not None
            sets.setdefault(speaker.names, []).append(speaker.condition)
    if 2 ** len(sets) > MAX_PATTERN_CLASSES:
        raise Unsupported(
            f"unevaluatedProperties beside {len(sets)} patterns", pointer=node.pointer, keyword="unevaluatedProperties"
        )
    parts = []
    others = expander._other_names(named)
    for name, conditions in named.items():
        # a name may also lie in one of the sets; the sets' share is decided name by name
        inside = [c for names, cs in sets.items() for c in cs if name_in(expander, names, name)]
        parts.append(_unless(expander, f.atom(("prop", name, child)), [*conditions, *inside]))
    for chosen in _subsets(list(sets)):
        names = f.and_([others, *(s if s in chosen else f.not_(s) for s in sets)])
        conditions = [condition for s in chosen for condition in sets[s]]
        parts.append(_unless(expander, expander.each(names, child), conditions))
    return f.and_(parts)


def unevaluated_items(expander: Expander, node: SchemaNode, child: Formula) -> Formula:
    """Every item that nothing in place of `node` evaluates satisfies `child`.

    ``contains`` evaluates the items that match it (2020-12), whatever their place.
    """
    f = expander.formulas
    if child is f.true:
        return f.true
    prefixes: list[tuple[int, Formula]] = []  # items before this index are evaluated if the condition holds
    whole: list[Formula] = []
    contained: list[Formula] = []
    for schema, condition in applied(expander, node, "array"):
        contents = schema.contents
        items = contents.get("items")
        prefix = contents.get("prefixItems", items if isinstance(items, list) else None)
        if isinstance(prefix, list):
            prefixes.append((len(prefix), condition))
        if (items is not None and not isinstance(items, list)) or (
            isinstance(items, list) and "additionalItems" in contents
        ):
            whole.append(condition)
        if "unevaluatedItems" in contents and schema is not node:
            whole.append(condition)
        if "contains" in contents and schema.dialect.version >= 2020:
            if condition is not f.true:
                raise Unsupported(
                    "unevaluatedItems beside a conditional contains", pointer=node.pointer, keyword="unevaluatedItems"
                )
            contained.append(expander.schema(expander.schemas.child(schema, "contains")))
    accepted = f.or_([child, *contained])
    last = max((length for length, _ in prefixes), default=0)
    parts = []
    for index in range(last):
        conditions = [*whole, *(condition for length, condition in prefixes if index < length)]
        parts.append(_unless(expander, expander._item(index, accepted), conditions))
    parts.append(_unless(expander, expander._items_from(last, accepted), whole))
    return f.and_(parts)


def _unless(expander: Expander, demand: Formula, conditions: list[Formula]) -> Formula:
    return expander.formulas.or_([demand, *conditions])


def _subsets(items: list[Formula]) -> Iterator[list[Formula]]:
    for mask in range(2 ** len(items)):
        yield [item for i, item in enumerate(items) if mask >> i & 1]


def closed_reading(expander: Expander, condition: Formula) -> Formula:
    """The conjunct of the *closed* reading for an object that must satisfy a value formula.

    An object whose schemas list ``properties`` and say nothing of other names takes none; where a schema applies only
    under a condition, its names count only under that condition. True where the reading says nothing.
    """
    f = expander.formulas
    named: dict[str, list[Formula]] = {}
    for node, certain in _positive(condition, certain=True):
        top = f.true if certain else expander.formula(node, "object")
        for speaker in speakers(expander, node, without_own_unevaluated=False):
            if speaker.name is None:
                return f.true
            named.setdefault(speaker.name, []).append(f.and_([top, speaker.condition]))
    if not named:
        return f.true
    parts = [expander.each(expander._other_names(named), f.false)]
    for name, conditions in named.items():
        parts.append(f.or_([f.not_(f.atom(("has", name))), *conditions]))
    return f.and_(parts)


def _positive(condition: Formula, *, certain: bool) -> Iterator[tuple[SchemaNode, bool]]:
    """The schemas that a value formula asks for, each with whether it asks in every case."""
    match condition.kind:
        case "atom":
            yield condition.atom[1], certain
        case "and":
            for part in condition.parts:
                yield from _positive(part, certain=certain)
        case "or" | "one":
            for part in condition.parts:
                yield from _positive(part, certain=False)


def declared_names(expander: Expander, conditions: tuple[Formula, ...]) -> tuple[str, ...]:
    """The names of an object in the machine's order.

    First a stable topological merge of all ``properties`` lists among the schemas applied in place, by first
    appearance where the lists leave a choice; then names that are only required or depended on.
    """
    lists: list[list[str]] = []
    extra: dict[str, None] = {}
    seen: set[SchemaNode] = set()
    atoms = sorted({atom for condition in conditions for atom in condition.atoms}, key=lambda atom: atom.index)
    for atom in atoms:
        _collect_names(expander, atom.atom[1], lists, extra, seen)
    merged = _merge(lists)
    return tuple(dict.fromkeys([*merged, *extra]))


def _collect_names(
    expander: Expander, node: SchemaNode, lists: list[list[str]], extra: dict[str, None], seen: set[SchemaNode]
) -> None:
    contents, schemas = node.contents, expander.schemas
    if isinstance(contents, bool) or node in seen:
        return
    seen.add(node)
    hides = node.dialect.ref_hides_siblings and "$ref" in contents

    def below(child: SchemaNode) -> None:
        _collect_names(expander, child, lists, extra, seen)

    for keyword, value in contents.items():
        if keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            below(schemas.follow(node, keyword))
        elif hides:
            continue
        elif keyword == "properties":
            lists.append(list(value))
        elif keyword == "required" and isinstance(value, list):
            extra.update(dict.fromkeys(value))
        elif keyword in ("allOf", "anyOf", "oneOf"):
            for i in range(len(value)):
                below(schemas.child(node, keyword, i))
        elif keyword in ("not", "if", "then", "else"):
            below(schemas.child(node, keyword))
        elif keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, needed in value.items():
                extra[name] = None
                if isinstance(needed, list):
                    extra.update(dict.fromkeys(needed))
                else:
                    below(schemas.child(node, keyword, name))
        elif keyword in ("enum", "const"):
            lists += [list(item) for item in (value if keyword == "enum" else [value]) if isinstance(item, dict)]


def _merge(lists: list[list[str]]) -> list[str]:
    """A stable topological merge; where lists contradict each other, first appearance decides."""
    if len(lists) == 1:
        return lists[0]
    position: dict[str, int] = {}
    for names in lists:
        for name in names:
            position.setdefault(name, len(position))
    after: dict[str, set[str]] = {name: set() for name in position}
    blocked = dict.fromkeys(position, 0)
    for names in lists:
        for first, second in itertools.pairwise(names):
            if second not in after[first]:
                after[first].add(second)
                blocked[second] += 1
    ready = [(position[name], name) for name, count in blocked.items() if count == 0]
    heapq.heapify(ready)
    waiting = dict.fromkeys(sorted(position, key=position.__getitem__))
    merged = []
    while waiting:
        name = heapq.heappop(ready)[1] if ready else next(iter(waiting))
        if name not in waiting:
            continue
        del waiting[name]
        merged.append(name)
        for following in after[name]:
            blocked[following] -= 1
            if blocked[following] == 0 and following in waiting:
                heapq.heappush(ready, (position[following], following))
    return merged
