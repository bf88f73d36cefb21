"""From formulas to the control machine, state by state and on demand.

A *value machine* V(φ_1 … φ_L) reads one JSON value and accepts with the label l of the condition φ_l that the value
satisfies; the conditions exclude each other, and a value that satisfies none is refused on the way. Containers call the
value machines of their items and continue by label. Everything is memoised by the conditions, so recursive schemas
close into calls by themselves, and equal schemas share their states.

States come in two kinds. *Event states* stand between tokens of JSON (an object before a key, an array after an item)
and carry residual formulas; they are numbered when first mentioned, and their rows are built when first read. *Scalar
blocks* (strings, numbers) are whole automata appended at once.

Source: DESIGN §3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stcon.errors import Unsatisfiable
from stcon.grammar.json_schema.arrays import ArrayBuilder
from stcon.grammar.json_schema.atoms import JsonType
from stcon.grammar.json_schema.decisions import Vector
from stcon.grammar.json_schema.few_names import with_possible_counts
from stcon.grammar.json_schema.formula import Formula
from stcon.grammar.json_schema.layout import SPACES, Layout
from stcon.grammar.json_schema.objects import ObjectBuilder
from stcon.grammar.json_schema.rows import CallRow, Edges, Entries, Row, branches
from stcon.grammar.json_schema.satisfy import Satisfiability
from stcon.grammar.json_schema.strings import Block, Escapes, Words, with_entry
from stcon.grammar.json_schema.unique import with_distinct_items
from stcon.grammar.machine import BEGIN, COUNT, DEFAULT_MAX_STATES, RESET, Machine

KeyOrder = Literal["schema", "any"]


@dataclass(frozen=True)
class Options:
    """How documents are spelled and read.

    Attributes:
        layout: where whitespace stands.
        key_order: "schema", or "any" (any order without repeats).
        escapes: "minimal", or "any" (every character may be written \\uXXXX, and / as \\/).
        closed: an object that lists properties and says nothing of others takes none.
        max_states: state budget of the machine.
        words: how null, true and false are written.
    """

    layout: Layout = field(default_factory=Layout)
    key_order: KeyOrder = "schema"
    escapes: Escapes = "minimal"
    closed: bool = True
    max_states: int = DEFAULT_MAX_STATES
    words: tuple[bytes, bytes, bytes] = (b"null", b"true", b"false")


class MachineBuilder:
    """Builds the machine of one compilation, lazily.

    Args:
        satisfiability: answers about the compilation's formulas.
        options: spelling and reading.
    """

    def __init__(self, satisfiability: Satisfiability, options: Options) -> None:
        self.sat = satisfiability
        self.formulas = satisfiability.formulas
        self.expander = satisfiability.expander
        self.options = options
        self.layout = options.layout
        self.machine = Machine(max_states=options.max_states, row_builder=self._build_row)
        self.objects = ObjectBuilder(self)
        self.arrays = ArrayBuilder(self)
        self._events: dict[Hashable, int] = {}
        self._rows: dict[int, Callable[[], Row]] = {}
        self._gaps: set[int] = set()
        self._start_edges: dict[tuple[Vector, int], Edges] = {}
        self._number_edges: dict[Vector, Edges] = {}
        self._string_entries: dict[tuple[Vector, bool], int] = {}
        self._accepts: dict[int, int] = {}

    def build(self, root: Formula) -> Machine:
        """The machine whose texts are the JSON values that satisfy the value formula `root`.

        Raises:
            Unsatisfiable: there are none.
        """
        if not self.sat.value(root):
            raise Unsatisfiable(
                "no JSON value satisfies the schema", pointer="", advice="look for parts that exclude each other"
            )
        conditions = (root,)
        self.machine.start = self.event(("root", conditions), lambda: self.start_edges(conditions, 0))
        return self.machine

    def build_ahead(self, most: int, steps: int) -> None:
        """Build the rows nearest to the start, at most `most` and while they take `steps` of search."""
        limit = self.sat.effort.steps + steps
        while self._rows and most > 0 and self.sat.effort.steps < limit:
            self.machine.build(next(iter(self._rows)))
            most -= 1

    # ------------------------------------------------------------------------------------------------- states

    def event(self, key: Hashable, edges: Callable[[], Row], *, gap: bool = True, mark: int = 0) -> int:
        """The event state named `key`; `edges` gives its row when first read.

        Args:
            gap: whether whitespace may stand here, where it is free.
            mark: as in `Machine.new_state`.
        """
        state = self._events.get(key)
        if state is None:
            free = gap and self.layout.free
            counts = free and self.layout.longest_run > 0
            state = self._events[key] = self.machine.new_state(effect=RESET if counts else 0, mark=mark)
            self._rows[state] = edges
            if free:
                self._gaps.add(state)
        return state

    def once(self, key: Hashable, add: Callable[[], int]) -> int:
        """The state named `key`, whose row is built where it is first mentioned, by `add`."""
        state = self._events.get(key)
        if state is None:
            state = self._events[key] = add()
        return state

    def accept(self, label: int) -> int:
        """The state in which a value has ended with `label`."""
        state = self._accepts.get(label)
        if state is None:
            state = self._accepts[label] = self.machine.new_state(label=label, final=True)
        return state

    def path(self, text: bytes, target: int) -> int:
        """The state from which `text` leads to `target`."""
        return self.trie(((text, target),)) if text else target

    def led(self, text: bytes, key: Hashable, edges: Callable[[], Edges], *, mark: int = 0) -> Edges:
        """The row that reads `text` and then has the row `edges` (of the event `key`, where there is a text)."""
        if not text:
            return edges()
        return {text[0]: self.path(text[1:], self.event(key, edges, mark=mark))}

    def closed(self, bracket: int, label: int, text: bytes) -> Edges:
        """The row that closes a container with `label`, after `text`."""
        return self.led(text, ("close", bracket, label), lambda: {bracket: self.accept(label)})

    def called(self, conditions: Vector, symbol: int, depth: int) -> Edges:
        """The row of a state at which the value machine of `conditions` is called, returning to `symbol`."""
        return {byte: self.machine.call(edge, symbol) for byte, edge in self.start_edges(conditions, depth).items()}

    def trie(self, entries: Entries, depth: int = 0, *, mark: int = 0) -> int:
        """The state after `depth` bytes of `entries` (sorted (text, target) pairs; no text is a prefix of another)."""
        if len(entries) == 1 and not mark:
            text, target = entries[0]
            return self.once(("trie", entries, depth, 0), lambda: self.machine.add_chain(text[depth:], target))
        return self.event(("trie", entries, depth, mark), lambda: self._branches(entries, depth), gap=False, mark=mark)

    def _branches(self, entries: Entries, depth: int) -> Edges:
        return {byte: self._branch(group, depth + 1) for byte, group in branches(entries, depth).items()}

    def _branch(self, entries: Entries, depth: int) -> int:
        text, target = entries[0]
        return target if len(text) == depth else self.trie(entries, depth)

    def _build_row(self, state: int) -> None:
        self.sat.effort.row_begins()
        row = self._rows[state]()
        if isinstance(row, CallRow):
            self.machine.set_call_row(state, row.callee, row.symbol, row.edges)
        elif state in self._gaps:
            self._set_gap(state, row)
        else:
            self.machine.set_edges(state, row)
        del self._rows[state]

    def _set_gap(self, state: int, edges: Edges) -> None:
        """The rows of `state` and of the states inside the whitespace that may stand before what `edges` reads."""
        mark = self.machine.marks.get(state, 0) & BEGIN  # an element begins after the whitespace
        gap = self.layout.gap
        if gap is None:
            run = self.machine.new_state(effect=COUNT, counter_hi=self.layout.longest_run, mark=mark)
            edges = {**dict.fromkeys(SPACES, run), **edges}
            self.machine.set_edges(run, edges)
            self.machine.set_edges(state, edges)
            return
        inside = {q: self.machine.new_state(mark=mark) for q in range(gap.num_states)}
        for q, own in [(gap.start, state), *inside.items()]:
            spaces = {b: inside[t] for b in SPACES if (t := int(gap.delta[q, gap.byte_class[b]])) >= 0}
            self.machine.set_edges(own, {**spaces, **(edges if gap.labels[q] >= 0 else {})})

    # ------------------------------------------------------------------------------------------------- values

    def start_edges(self, conditions: Vector, depth: int) -> Edges:
        """The first row of the value machine of `conditions`, for a value at `depth`."""
        key = (conditions, depth)
        edges = self._start_edges.get(key)
        if edges is None:
            edges = {}
            self._scalars(conditions, edges)
            vector = self.local(conditions, "object")
            if any(formula is not self.formulas.false for formula in vector):
                edges[0x7B] = self.objects.start(conditions, vector, depth)
            vector = self.local(conditions, "array")
            if any(formula is not self.formulas.false for formula in vector):
                edges[0x5B] = self.arrays.start(vector, depth)
            self._start_edges[key] = edges
        return edges

    def local(self, conditions: Vector, kind: JsonType) -> Vector:
        """The conditions as formulas over one type's atoms, false where no value of the type satisfies them."""
        return tuple(self._local(condition, kind) for condition in conditions)

    def _local(self, condition: Formula, kind: JsonType) -> Formula:
        formula = self.expander.expand(condition, kind)
        if kind == "array":
            formula = with_distinct_items(self.sat, formula)
        elif kind == "object":
            formula = with_possible_counts(self.sat, formula)
        if not self.sat.of_type(kind, formula):
            return self.formulas.false
        if kind == "object" and self.options.closed:
            return self.objects.closed(condition, formula)
        return formula

    def _scalars(self, conditions: Vector, edges: Edges) -> None:
        f = self.formulas
        true = f.atom(("true",))
        null_word, true_word, false_word = self.options.words
        for text, formulas in (
            (null_word, self.local(conditions, "null")),
            (true_word, tuple(f.replace(part, {true: f.true}) for part in self.local(conditions, "boolean"))),
            (false_word, tuple(f.replace(part, {true: f.false}) for part in self.local(conditions, "boolean"))),
        ):
            label = next((i for i, formula in enumerate(formulas) if formula is f.true), None)
            if label is not None:
                edges[text[0]] = self.trie(((text[1:], self.accept(label)),))
        vector = self.local(conditions, "number")
        if any(formula is not f.false for formula in vector):
            edges.update(self._number(vector))
        vector = self.local(conditions, "string")
        if any(formula is not f.false for formula in vector) and self.sat.strings_of(vector).labels:
            edges[0x22] = self.string(vector)

    def _number(self, vector: Vector) -> Edges:
        edges = self._number_edges.get(vector)
        if edges is None:
            dfa = self.sat.numbers_of(vector)
            assert dfa is not None, "a satisfiable number formula without numbers"
            base = self.machine.add_dfa(dfa)
            row = dfa.delta[dfa.start, dfa.byte_class]
            edges = self._number_edges[vector] = {int(b): base + int(row[b]) for b in np.flatnonzero(row >= 0)}
        return edges

    def string(self, vector: Vector, *, counter: bool = True) -> int:
        """The state after a string's opening quote."""
        key = (vector, counter)
        state = self._string_entries.get(key)
        if state is None:
            language = self.sat.strings_of(vector, counter=counter)
            state = self._words(language) if isinstance(language, Words) else self._block(language)
            self._string_entries[key] = state
        return state

    def _words(self, words: Words) -> int:
        return self.trie(tuple((text, self.accept(label)) for text, label in words.texts))

    def _block(self, block: Block) -> int:
        base = self.machine.add_dfa(
            block.dfa, effects=block.effects, counter_lo=block.counter_lo, counter_hi=block.counter_hi
        )
        start = base + block.dfa.start
        if block.counter_hi is None:
            return start
        effect, high = with_entry(block)
        entry = self.machine.new_state(effect=effect, counter_hi=high)
        self.machine.copy_row(entry, start)
        return entry
