"""Object states: which names may come next, which outcomes of their values can still do, and how names are spelled.

In the order of the schema a name is taken or passed over, and what was passed over stays forbidden; in any order the
state holds the names still to come. Undeclared names are read by an automaton over strings that runs beside the trie of
declared names, so that a declared name is never spelled as an undeclared one.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from stcon.grammar.json_schema.decisions import Vector
from stcon.grammar.json_schema.evaluated import closed_reading, declared_names
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.many_names import ManyNames
from stcon.grammar.json_schema.residual import Names, Parts
from stcon.grammar.json_schema.rows import CallRow, Edges, Entries, branches
from stcon.grammar.json_schema.satisfy import NameClass
from stcon.grammar.json_schema.strings import Block, Strings, Words, spell
from stcon.grammar.machine import BEGIN, DEAD, END, SCARCE, SCOPE

if TYPE_CHECKING:
    from stcon.grammar.json_schema.builder import MachineBuilder


class ObjectBuilder:
    """The object part of a `MachineBuilder`."""

    def __init__(self, builder: MachineBuilder) -> None:
        self.builder = builder
        self.machine = builder.machine
        self.sat = builder.sat
        self.residuals = builder.sat.residuals
        self.formulas = builder.formulas
        self.layout = builder.layout
        self._many = ManyNames(self)
        self._roots: dict[tuple[Vector, Names], int | None] = {}
        self._closed: dict[tuple[Formula, Formula], Formula] = {}
        self._along: dict[tuple[int, bytes], bool] = {}

    def start(self, conditions: Vector, vector: Vector, depth: int) -> int:
        """The state after ``{``, for an object at `depth`."""
        declared = declared_names(self.builder.expander, conditions)
        mentioned = [name for formula in vector for name in self.sat.undeclared(formula).declared]
        declared = tuple(name for name in dict.fromkeys([*declared, *mentioned]) if spell(name) is not None)
        names = Names(declared, declared, any_order=self.builder.options.key_order == "any", depth=depth)
        return self.builder.event(("object", vector, names), lambda: self._first(vector, names), mark=SCOPE)

    def closed(self, condition: Formula, formula: Formula) -> Formula:
        """`formula` with the closed reading of `condition`, unless that leaves no object."""
        key = (condition, formula)
        done = self._closed.get(key)
        if done is None:
            narrowed = self.formulas.and_([formula, closed_reading(self.builder.expander, condition)])
            done = self._closed[key] = narrowed if self.sat.of_type("object", narrowed) else formula
        return done

    def _first(self, vector: Vector, names: Names) -> Edges:
        edges = self._close(vector, b"")
        if self._root(vector, names) is not None:
            text, mark = self.layout.first(names.depth), self._scarcity(vector, names)
            edges.update(self.builder.led(text, ("key", vector, names), lambda: self._quote(vector, names), mark=mark))
        return edges

    def _after_value(self, vector: Vector, names: Names) -> int:
        return self.builder.event(
            ("value", vector, names),
            lambda: {**self._close(vector, self.layout.last(names.depth)), **self._comma(vector, names)},
        )

    def _close(self, vector: Vector, text: bytes) -> Edges:
        for label, formula in enumerate(vector):
            if formula is not self.formulas.false and self.residuals.end_object(formula):
                return self.builder.closed(0x7D, label, text)
        return {}

    def _comma(self, vector: Vector, names: Names) -> Edges:
        if self._root(vector, names) is None:
            return {}
        mark = self._scarcity(vector, names)
        key = self.builder.event(("key", vector, names), lambda: self._quote(vector, names), mark=mark)
        return {0x2C: self.builder.path(self.layout.next(names.depth), key)}

    def _scarcity(self, vector: Vector, names: Names) -> int:
        """The mark of the state before a name: `SCARCE` where names that are not declared may run out."""
        root = self._root(vector, names)
        return 0 if root is None else self.machine.marks.get(root, 0) & SCARCE

    def _quote(self, vector: Vector, names: Names) -> Edges:
        root = self._root(vector, names)
        assert root is not None, "a name where none can come"
        return {0x22: root}

    def _root(self, vector: Vector, names: Names) -> int | None:
        """The state after a name's opening quote; None if no name can come."""
        key = (vector, names)
        if key not in self._roots:
            self._roots[key] = self._build_root(vector, names)
        return self._roots[key]

    # ------------------------------------------------------------------------------------------------- which names

    def _build_root(self, vector: Vector, names: Names) -> int | None:
        if self._many.applies(vector, names):
            return self._many.root(vector, names, self._classes(vector, names))
        targets, current = self._declared(vector, names)
        classes = self._classes(current, names)
        if not targets and not classes:
            return None
        return self._spellings(targets, classes, names)

    def _classes(self, vector: Vector, names: Names) -> list[tuple[NameClass, int]]:
        """The undeclared names that may come, with the state after each."""
        after = names if names.any_order else names.none()
        found = ((group, self._value_of(group.after, after, mark=END)) for group in self.sat.other_names(vector, names))
        return [(group, target) for group, target in found if target is not None]

    def _declared(self, vector: Vector, names: Names) -> tuple[dict[str, int], Vector]:
        """The declared names that may come, with the state after each; and the vector once all are passed over."""
        parts = self.sat.independent(vector[0]) if len(vector) == 1 else None
        if parts is not None and parts.counts and parts.required <= names.remaining_set:
            return self._counted(vector[0], parts, names)
        targets = {}
        current = vector
        waiting = []
        for index, name in enumerate(names.remaining):
            following = names.after(index)
            if names.any_order and not self._is_listable(vector, name):
                waiting.append((name, following))  # once other names are read, less may depend on its value
                continue
            target = self.declared_target(current, name, following)
            if target is not None:
                targets[name] = target
            if not names.any_order:
                current = self._possible(tuple(self.residuals.skip(f, name) for f in current), following)
                if self._dead(current):
                    break
        if not targets:
            found = ((name, self.declared_target(vector, name, following)) for name, following in waiting)
            targets = {name: target for name, target in found if target is not None}
        return targets, current

    def _is_listable(self, vector: Vector, name: str) -> bool:
        """Whether the outcomes of the value of `name` are few enough to list."""
        parts = self.sat.independent(vector[0]) if len(vector) == 1 else None
        if parts is not None and not parts.counts:
            return True
        return self.sat.decisions.is_listable(tuple(self.residuals.take(formula, name) for formula in vector))

    def declared_target(self, vector: Vector, name: str, following: Names) -> int | None:
        """The state after the declared name `name`; None if no value of it leaves anything possible."""
        parts = self.sat.independent(vector[0]) if len(vector) == 1 else None
        if parts is None or parts.counts:  # counts remain only where a required name cannot come
            taken = tuple(self.residuals.take(formula, name) for formula in vector)
            return self._value_of(taken, following)
        if not self.sat.value(parts.demand(name)):
            return None
        return self.builder.event(
            ("named", vector, name, following),
            lambda: self._colon((self.residuals.take(vector[0], name),), following),
        )

    def _value_of(self, vector: Vector, names: Names, *, mark: int = 0) -> int | None:
        """The state after a name, before its colon; None if no value of it leaves anything possible.

        Args:
            mark: `END` for names that are not declared: the history constraint keeps them from coming twice.
        """
        if not self._live(vector, names):
            return None
        return self.builder.event(("colon", vector, names, mark), lambda: self._colon(vector, names), mark=mark)

    def _counted(self, formula: Formula, parts: Parts, names: Names) -> tuple[dict[str, int], Vector]:
        """`_declared` where the number of names matters and nothing else ties them together.

        The formulas after passing names over are made only for the name that is read: one for each number of names and
        each name would be too many.
        """
        targets = {}
        others = self.sat.others(formula, names, parts.least) if parts.least else 0
        for index, name in enumerate(names.remaining):
            following = names.after(index)
            required = parts.required - {name}
            missing = parts.least - 1 - len(required)
            fits = (parts.most is None or len(required) < parts.most) and required <= following.remaining_set
            enough = missing <= others or others + self.sat.optional(parts, following) >= missing
            if fits and enough and self.sat.value(parts.demand(name)):
                row = partial(self._counted_colon, formula, names, index)
                targets[name] = self.builder.event(("counted", formula, name, names), row)
            if name in parts.required and not names.any_order:
                break
        if names.any_order:
            return targets, (formula,)
        return targets, self._possible((self.residuals.skip_all(formula, names.remaining),), names.none())

    def _counted_colon(self, formula: Formula, names: Names, index: int) -> Edges:
        passed = formula if names.any_order else self.residuals.skip_all(formula, names.remaining[:index])
        return self._colon((self.residuals.take(passed, names.remaining[index]),), names.after(index))

    def _live(self, vector: Vector, names: Names) -> bool:
        """Whether some outcome of the next value leaves something possible."""
        return any(
            not self._dead(self._possible(decision.rest, names))
            for decision in itertools.chain(self.sat.decisions.hints(vector), self.sat.decisions.cases(vector))
        )

    def _colon(self, vector: Vector, names: Names) -> Edges:
        by_rest = self.sat.decisions.distinct(vector, lambda rest: self._possible(rest, names))
        conditions = tuple(self.formulas.or_(parts) for parts in by_rest.values())
        symbol = self.machine.return_symbol([self._after_value(rest, names) for rest in by_rest])
        depth = self.layout.deeper(names.depth)
        value = self.builder.event(
            ("call", conditions, symbol, depth), lambda: self.builder.called(conditions, symbol, depth)
        )
        return {0x3A: self.builder.path(self.layout.separator, value)}

    def _possible(self, vector: Vector, names: Names) -> Vector:
        return tuple(f if self.sat.object(f, names) else self.formulas.false for f in vector)

    def _dead(self, vector: Vector) -> bool:
        return all(formula is self.formulas.false for formula in vector)

    # ------------------------------------------------------------------------------------------------- spelling names

    def _spellings(self, targets: dict[str, int], classes: list[tuple[NameClass, int]], names: Names) -> int | None:
        """The state after the opening quote of a name: declared ones by a trie, others by a string automaton."""
        if self.builder.options.escapes == "any":
            return self._any_spelling(targets, classes)
        vector, language = self.others(tuple(group.names for group, _ in classes), names.declared)
        if isinstance(language, Words):
            undeclared = {text: classes[label][1] for text, label in language.texts}
            return self._listed(targets, undeclared, names)
        # labels: first the classes, as the automaton has them, then the declared names, taken or not
        others = self.builder.string(vector, counter=False)
        resume = [target for _, target in classes] + [targets.get(name, DEAD) for name in names.declared]
        entries = []
        for i, name in enumerate(names.declared):
            text = spell(name)
            if text is not None:
                possible = name in targets or self._goes_along(others, text)
                entries.append((text, self.builder.accept(len(classes) + i) if possible else DEAD))
        start = self._name(tuple(sorted(entries)), 0, others)
        return self._called(start, self.machine.return_symbol(resume), BEGIN if language.endless else BEGIN | SCARCE)

    def _goes_along(self, others: int, text: bytes) -> bool:
        """Whether the automaton `others` reads `text` but for its quote: the name may then be found impossible late."""
        key = (others, text)
        known = self._along.get(key)
        if known is None:
            for byte in text[:-1]:
                others = self.machine.edge(others, byte)
                if others == DEAD:
                    break
            known = self._along[key] = others != DEAD
        return known

    def _listed(self, targets: dict[str, int], undeclared: dict[bytes, int], names: Names) -> int | None:
        """`_spellings` where the names are a list.

        In any order the list loses a name with each one read, and few of its branches change: so that the others are
        shared, the names are a machine of their own, with a label for each.
        """
        entries = {text: target for name, target in targets.items() if (text := spell(name)) is not None}
        entries.update(undeclared)
        if not entries:
            return None
        mark = BEGIN | SCARCE if undeclared else 0
        if not names.any_order or undeclared or len(entries) == 1:
            return self.builder.trie(tuple(sorted(entries.items())), mark=mark)
        order = {text: i for i, name in enumerate(names.declared) if (text := spell(name)) is not None}
        labels = tuple(sorted((text, self.builder.accept(order[text])) for text in entries))
        resume = [targets.get(name, DEAD) for name in names.declared]
        return self._called(self.builder.trie(labels), self.machine.return_symbol(resume), mark)

    def _called(self, start: int, symbol: int, mark: int) -> int:
        """The state after the opening quote of a name that the machine at `start` reads."""
        return self.builder.event(("names", start, symbol), lambda: CallRow(start, symbol, {}), gap=False, mark=mark)

    def others(self, vector: Vector, declared: tuple[str, ...]) -> tuple[Vector, Strings]:
        """The automaton for undeclared names.

        The trie beside it takes the declared names out, so it need not exclude them itself, as long as from each of
        its states infinitely many names go on: then no state is left without a way on.
        """
        if not any(b"\\u" in (spell(name) or b"") for name in declared):  # \u001f has two spellings
            relaxed = tuple(self.sat.undeclared_part(names, declared) for names in vector)
            language = self.sat.strings_of(relaxed, counter=False)
            if isinstance(language, Block) and language.endless:
                return relaxed, language
        return vector, self.sat.strings_of(vector, counter=False)

    def _any_spelling(self, targets: dict[str, int], classes: list[tuple[NameClass, int]]) -> int:
        """All names by one automaton: any character may be escaped. Marked `SCARCE`: which spellings of a name are left
        is not looked at."""
        f = self.formulas
        vector = (*(f.atom(("strings", frozenset({name}))) for name in targets), *(group.names for group, _ in classes))
        symbol = self.machine.return_symbol([*targets.values(), *(target for _, target in classes)])
        return self._called(self.builder.string(vector, counter=False), symbol, BEGIN | SCARCE)

    def _name(self, entries: Entries, depth: int, others: int) -> int:
        """The state inside a name that may still become one of `entries` or one that the automaton `others` accepts."""
        if not entries:
            return others
        key = ("name", entries, depth, others)
        if len(entries) == 1:
            return self.builder.once(key, lambda: self._last_name(*entries[0], depth, others))
        return self.builder.event(key, lambda: self._name_row(entries, depth, others), gap=False)

    def _last_name(self, text: bytes, target: int, depth: int, others: int) -> int:
        """`_name` where one entry is left."""
        beside = [others]
        for end in range(depth + 1, len(text)):
            other = self.machine.edge(beside[-1], text[end - 1])
            if other == DEAD:  # from here on it is this name or none
                rest = DEAD if target == DEAD else self.builder.path(text[end:], target)
                return self.machine.add_chain(text[depth:end], rest, beside)
            beside.append(other)
        return self.machine.add_chain(text[depth:], target, beside)

    def _name_row(self, entries: Entries, depth: int, others: int) -> CallRow:
        edges: Edges = {}
        for byte, group in branches(entries, depth).items():
            text, target = group[0]
            other = self.machine.edge(others, byte)
            if len(text) == depth + 1:
                edges[byte] = target
            elif other != DEAD:
                edges[byte] = self._name(group, depth + 1, other)
            else:
                live = tuple(entry for entry in group if entry[1] != DEAD)
                edges[byte] = self.builder.trie(live, depth + 1) if live else DEAD
        return CallRow(others, None, edges)
