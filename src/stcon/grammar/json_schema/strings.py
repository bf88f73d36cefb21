"""String machines: from a vector of string formulas to a labelled byte automaton.

A vector (f_1 … f_L) over string atoms, at most one of them true of any string, becomes a deterministic automaton that
reads a JSON string's text after its opening quote and accepts, at the closing quote, with label l iff f_l holds. The
product of the atoms' complete DFAs is taken over code points and only then spelled as JSON text, so lengths count code
points however they are spelled.

Length bounds are not states where one interval bounds the whole: the machine's counter register counts code points,
and a state may be entered only while what was read and the fewest characters still needed stay within the maximum.

Source: DESIGN §3; JSON Schema validation 6.3 (lengths are counts of Unicode code points, RFC 8259).
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stcon.automata import (
    ByteDfa,
    CharDfa,
    compile_pattern,
    count_words,
    encode_json_string,
    everything,
    length_between,
    literals,
    product,
)
from stcon.automata.operations import intervals, live_states
from stcon.errors import TooLarge
from stcon.grammar.json_schema.formula import Formula, Formulas
from stcon.grammar.json_schema.products import MAX_PRODUCT_STATES, labelled_product
from stcon.grammar.machine import COUNT, RESET, UNBOUNDED

Escapes = Literal["minimal", "any"]

MAX_LENGTH = 2**30
MAX_COUNTED_LENGTH = 256
MAX_NAME_LENGTH = 2_000
FAR = UNBOUNDED // 2


@dataclass(frozen=True)
class Words:
    """Finitely many strings: (JSON text after the opening quote, label), sorted by text."""

    texts: tuple[tuple[bytes, int], ...]

    @property
    def labels(self) -> frozenset[int]:
        """The labels that some string has."""
        return frozenset(label for _, label in self.texts)


@dataclass(frozen=True, eq=False)
class Block:
    """A byte automaton with bounds on the counter of code points, ready for `Machine.add_dfa`.

    Attributes:
        dfa: reads from after the opening quote through the closing one.
        effects, counter_lo, counter_hi: per state, None without length bounds.
        infinite: bool[Q], whether infinitely many texts are accepted from the state.
    """

    dfa: ByteDfa
    effects: NDArray[np.uint8] | None
    counter_lo: NDArray[np.int32] | None
    counter_hi: NDArray[np.int32] | None
    infinite: NDArray[np.bool_]

    @property
    def endless(self) -> bool:
        """Whether infinitely many strings go on from every state: however many are taken, none is without a way on."""
        return bool((self.infinite | (self.dfa.labels >= 0)).all())

    @property
    def labels(self) -> frozenset[int]:
        """The labels that some string has."""
        return frozenset(int(label) for label in np.unique(self.dfa.labels) if label >= 0)


EMPTY = Words(())
Strings = Words | Block


class StringLanguages:
    """String machines of one compilation; what depends on the atoms' text alone is cached across compilations."""

    def __init__(self, formulas: Formulas, escapes: Escapes) -> None:
        self._formulas = formulas
        self._escapes = escapes
        self._done: dict[tuple[tuple[Formula, ...], bool], Strings] = {}

    def language(self, vector: tuple[Formula, ...], *, counter: bool = True) -> Strings:
        """The strings of each label.

        Args:
            vector: string formulas, at most one true of any string.
            counter: whether the counter register may hold length bounds; otherwise they become states.

        Raises:
            TooLarge: the product of the atoms passes its budget.
        """
        key = (vector, counter)
        done = self._done.get(key)
        if done is None:
            possible = [label for label, formula in enumerate(vector) if formula is not self._formulas.false]
            if len(vector) > 1 and len(possible) == 1:
                done = _labelled(self.language((vector[possible[0]],), counter=counter), possible[0])
            else:
                words = self._words(vector)
                done = self._block(vector, counter) if words is None else words
            self._done[key] = done
        return done

    def satisfiable(self, formula: Formula) -> bool:
        """Whether some string satisfies `formula`."""
        if formula.kind == "atom" and formula.atom[0] in ("minlen", "maxlen"):
            return bool(formula.atom[0] == "maxlen" or formula.atom[1] <= MAX_LENGTH)
        return formula is self._formulas.true or bool(self.language((formula,)).labels)

    def spells_name(self, formula: Formula) -> bool:
        """Whether some name satisfies `formula`."""
        return formula is self._formulas.true or bool(self.language((formula,), counter=False).labels)

    def count(self, formula: Formula, cap: int) -> int:
        """How many strings satisfy `formula`, at most `cap`; of long ones there are taken to be enough."""
        lengths = (atom.atom[1] for atom in formula.atoms if atom.atom[0] in ("minlen", "maxlen"))
        if formula is self._formulas.true or any(count > MAX_COUNTED_LENGTH for count in lengths):
            return cap
        language = self.language((formula,), counter=False)
        if isinstance(language, Words):
            return min(cap, len(language.texts))
        if language.infinite[language.dfa.start]:
            return cap
        return count_words(_characters((_shape(formula),)), cap)

    def words(self, formula: Formula, most: int) -> list[str] | None:
        """The strings that satisfy `formula`; None if they are more than `most`."""
        if self.count(formula, most + 1) > most:
            return None
        characters = _characters((_shape(formula),))
        live = live_states(characters.delta.tolist(), characters.labels.tolist())
        edges = intervals(characters)
        level, found = [(characters.start, "")], []
        while level:
            found += [word for state, word in level if characters.labels[state] >= 0]
            level = [
                (target, word + chr(code_point))
                for state, word in level
                for low, high, k in edges
                if (target := int(characters.delta[state, k])) in live
                for code_point in range(low, high)
            ]
        return [word for word in found if spell(word) is not None]

    def _words(self, vector: tuple[Formula, ...]) -> Words | None:
        """The language as a list, if outside the strings that the formulas name nothing is accepted."""
        f = self._formulas
        named = {atom for formula in vector for atom in formula.atoms if atom.atom[0] == "strings"}
        none = dict.fromkeys(named, f.false)
        if not named or self._escapes == "any" or any(f.replace(part, none) is not f.false for part in vector):
            return None
        texts = {}
        for word in sorted({word for atom in named for word in atom.atom[1]}):
            label = self._label(vector, word)
            spelled = spell(word)
            if label >= 0 and spelled is not None:
                texts[spelled] = label
        return Words(tuple(sorted(texts.items())))

    def _label(self, vector: tuple[Formula, ...], word: str) -> int:
        from stcon.grammar.json_schema.instances import string_truth

        for label, formula in enumerate(vector):
            if self._formulas.evaluate(formula, lambda atom: string_truth(atom.atom, word)):
                return label
        return -1

    def _block(self, vector: tuple[Formula, ...], counter: bool) -> Strings:
        if not counter:
            _check_lengths(vector, MAX_NAME_LENGTH)
        low, high, rest = 0, None, vector
        if counter and len(vector) == 1:
            low, high, parts = _interval(vector[0])
            rest = (self._formulas.and_(parts),)
            if low > MAX_LENGTH:
                return EMPTY
            high = None if high is None else min(high, MAX_LENGTH)  # no longer string is ever written
        short, longest = self._short(rest)
        if longest is not None:
            block = self._short_block(short, low, longest if high is None else min(high, longest), counter)
            if block is not None:
                return block
        _check_lengths(rest, MAX_PRODUCT_STATES)
        return _bounded_block(tuple(map(_shape, rest)), low, high, self._escapes) or EMPTY

    def _short_block(self, short: tuple[Formula, ...], low: int, high: int, counter: bool) -> Block | None:
        if counter:
            return _bounded_block(tuple(map(_shape, short)), low, high, self._escapes)
        # names are not counted: no longer than a state a character allows
        limit = ("maxlen", min(high, MAX_COUNTED_LENGTH))
        shapes = tuple(("and", frozenset({_shape(formula), limit})) for formula in short)
        return _bounded_block(shapes, 0, None, self._escapes)

    def _short(self, vector: tuple[Formula, ...]) -> tuple[tuple[Formula, ...], int | None]:
        """`vector` over strings so short that its large length bounds are decided, and how long these strings may be.

        A large bound that only distinguishes outcomes would be a state a code point. Narrower, never wider.
        """
        f = self._formulas
        longest: int | None = None
        values = {}
        for atom in {atom for formula in vector for atom in formula.atoms}:
            tag, count = atom.atom[0], atom.atom[1]
            if tag in ("minlen", "maxlen") and count > MAX_COUNTED_LENGTH:
                values[atom] = f.constant(tag == "maxlen")
                bound = count if tag == "maxlen" else count - 1
                longest = min(bound, MAX_LENGTH) if longest is None else min(longest, bound)
        return tuple(f.replace(formula, values) for formula in vector), longest


@lru_cache(maxsize=1 << 16)
def spell(word: str) -> bytes | None:
    """The JSON text of `word` with minimal escapes, after the opening quote; None for lone surrogates."""
    try:
        return json.dumps(word, ensure_ascii=False)[1:].encode()
    except UnicodeEncodeError:
        return None


@lru_cache(maxsize=4096)
def atom_dfa(atom: tuple[Any, ...]) -> CharDfa:
    """The complete DFA of one string atom. Cost: cached by the atom's text."""
    match atom:
        case ("pattern", text):
            return compile_pattern(text, search=True)
        case ("format", name):
            from stcon.grammar.json_schema.formats import format_dfa

            dfa = format_dfa(name)
            assert dfa is not None, name
            return dfa
        case ("strings", values):
            return literals(sorted(values))
        case ("minlen", count):
            return length_between(count, None)
        case ("maxlen", count):
            return length_between(0, count)
    raise AssertionError(atom)


def _shape(formula: Formula) -> Hashable:
    """A formula over string atoms as a value that means the same in every compilation."""
    if formula.kind == "atom":
        return formula.atom
    parts = (_shape(part) for part in formula.parts)
    return (formula.kind, frozenset(parts)) if formula.kind != "one" else (formula.kind, tuple(parts))


def _evaluate(shape: Any, truth: dict[Hashable, bool]) -> bool:
    if shape in truth:
        return truth[shape]
    kind, parts = shape
    match kind:
        case "true":
            return True
        case "false":
            return False
        case "not":
            return not any(_evaluate(part, truth) for part in parts)
        case "and":
            return all(_evaluate(part, truth) for part in parts)
        case "or":
            return any(_evaluate(part, truth) for part in parts)
    return sum(_evaluate(part, truth) for part in parts) == 1


def sorted_atoms(shape: tuple[Any, ...]) -> list[Any]:
    """The atoms of a vector of shapes, in an order that depends on their text only."""
    found: set[Hashable] = set()
    pending = list(shape)
    while pending:
        part = pending.pop()
        if part[0] in ("not", "and", "or", "one", "true", "false"):
            pending.extend(part[1])
        else:
            found.add(part)
    return sorted(found, key=_text) if len(found) > 1 else list(found)


def _text(atom: Any) -> str:
    """The atom in writing, sets in order."""
    return repr(tuple(sorted(part, key=repr) if isinstance(part, frozenset) else part for part in atom))


def _interval(formula: Formula) -> tuple[int, int | None, tuple[Formula, ...]]:
    """The length bounds among the conjuncts of `formula`, and the other conjuncts."""
    parts = formula.parts if formula.kind == "and" else (formula,)
    low, high = 0, None
    rest = []
    for part in parts:
        positive = part.kind == "atom"
        atom: Any = part.atom if positive else part.parts[0].atom if part.kind == "not" else None
        match (positive, atom):
            case (True, ("minlen", count)):
                low = max(low, count)
            case (False, ("maxlen", count)):
                low = max(low, count + 1)
            case (True, ("maxlen", count)):
                high = count if high is None else min(high, count)
            case (False, ("minlen", count)):
                high = count - 1 if high is None else min(high, count - 1)
            case _:
                rest.append(part)
    return low, high, tuple(rest)


def _labelled(language: Strings, label: int) -> Strings:
    """`language`, whose strings all have label 0, with another label."""
    if isinstance(language, Words):
        return Words(tuple((text, label) for text, _ in language.texts))
    dfa = replace(language.dfa, labels=np.where(language.dfa.labels >= 0, label, -1).astype(np.int32))
    return replace(language, dfa=dfa)


def _check_lengths(vector: tuple[Formula, ...], limit: int) -> None:
    """Refuse a least length that would be a state a character past `limit`."""
    for formula in vector:
        for atom in formula.atoms:
            if atom.atom[0] == "minlen" and atom.atom[1] > limit:
                raise TooLarge("length of a string", given=atom.atom[1], limit=limit)


@lru_cache(maxsize=4096)
def _characters(shape: tuple[Any, ...]) -> CharDfa:
    """The product of the atoms of a vector of shapes, labelled by the shape that holds."""
    order = sorted_atoms(shape)
    listed = [atom for atom in order if atom[0] == "strings"]
    others = [atom for atom in order if atom[0] != "strings"]
    words, members = _listing(listed)

    def label(labels: tuple[int, ...]) -> int:
        if min(labels[len(others) + 1 :], default=0) < 0:
            return -1
        inside = members[labels[len(others)]] if labels[len(others)] >= 0 else frozenset()
        truth = {atom: accepted >= 0 for atom, accepted in zip(others, labels, strict=False)}
        truth.update((atom, atom in inside) for atom in listed)
        return next((i for i, part in enumerate(shape) if _evaluate(part, truth)), -1)

    if not order:
        return everything() if label((-1,)) == 0 else product([everything()], lambda _: label((-1,)))
    if len(order) == 1 and len(shape) == 1 and shape[0] == order[0]:
        return atom_dfa(order[0])
    # a format whose language is narrower than its source's may be negated only where the two agree
    universes = [u for atom in others if (u := _universe(atom)) is not None]
    return labelled_product([*map(atom_dfa, others), words, *universes], label)


def _listing(listed: list[Any]) -> tuple[CharDfa, list[frozenset[Any]]]:
    """All enumerations as one automaton: a label is the number of a set of enumerations in which a string occurs."""
    if not listed:
        return everything(), [frozenset()]
    found: dict[str, set[Any]] = {}
    for atom in listed:
        for word in atom[1]:
            found.setdefault(word, set()).add(atom)
    numbers: dict[frozenset[Any], int] = {}
    labels = {word: numbers.setdefault(frozenset(atoms), len(numbers)) for word, atoms in found.items()}
    return literals(labels), list(numbers)


def _universe(atom: Any) -> CharDfa | None:
    from stcon.grammar.json_schema.formats import format_universe

    return format_universe(atom[1]) if atom[0] == "format" else None


@lru_cache(maxsize=4096)
def _bounded_block(shape: tuple[Any, ...], low: int, high: int | None, escapes: Escapes) -> Block | None:
    """The byte automaton of a vector of shapes within length bounds; None if no string is left."""
    characters = _characters(shape)
    plain = bool((characters.labels >= 0).all())
    if low > 0 and not plain:
        if low > MAX_PRODUCT_STATES:
            raise TooLarge("length of a string", given=low, limit=MAX_PRODUCT_STATES)
        characters = product([characters, length_between(low, None)], _both, max_states=MAX_PRODUCT_STATES)
        low = 0
    if (high is not None and high < low) or not (characters.labels >= 0).any():
        return None
    encoded = _encoded(shape, escapes) if characters is _characters(shape) else _encode(characters, escapes)
    if encoded is None:
        return None
    dfa, infinite = encoded
    if low == 0 and high is None:
        return Block(dfa, None, None, None, infinite)
    return _with_counter(dfa, low, high, infinite)


@lru_cache(maxsize=4096)
def _encoded(shape: tuple[Any, ...], escapes: Escapes) -> tuple[ByteDfa, NDArray[np.bool_]] | None:
    return _encode(_characters(shape), escapes)


def _encode(characters: CharDfa, escapes: Escapes) -> tuple[ByteDfa, NDArray[np.bool_]] | None:
    """The byte automaton and where it is infinite; None if no string can be spelled."""
    dfa = encode_json_string(characters, escapes=escapes)
    if dfa.num_states == 0 or not (dfa.labels >= 0).any():
        return None
    return dfa, _infinite(dfa)


def _both(labels: tuple[int, ...]) -> int:
    return labels[0] if labels[1] >= 0 else -1


def _with_counter(dfa: ByteDfa, low: int, high: int | None, infinite: NDArray[np.bool_]) -> Block | None:
    """Bounds on the number of code points: states count when they complete one."""
    final = dfa.labels >= 0
    counts = dfa.boundary & ~final
    needed = _fewest_characters(dfa, counts)
    effects = np.where(counts, COUNT, 0).astype(np.uint8)
    lo = np.where(final, low, 0).astype(np.int32)
    hi = np.full(dfa.num_states, UNBOUNDED, np.int32)
    if high is not None:
        if needed[dfa.start] > high:
            return None
        hi = np.where(final, UNBOUNDED, high - needed).astype(np.int32)
        infinite = np.zeros_like(infinite)
    return Block(dfa, effects, lo, hi, infinite)


def _fewest_characters(dfa: ByteDfa, counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Per state, the fewest code points still to complete before an accepting state."""
    targets = dfa.delta
    safe = np.where(targets < 0, 0, targets)
    weight = np.where(targets < 0, FAR, counts[safe].astype(np.int64))
    needed = np.where(dfa.labels >= 0, 0, FAR).astype(np.int64)
    while True:
        improved = np.minimum(needed, np.minimum(weight + needed[safe], FAR).min(axis=1, initial=FAR))
        if np.array_equal(improved, needed):
            return needed
        needed = improved


def _infinite(dfa: ByteDfa) -> NDArray[np.bool_]:
    """Per state of a trim DFA, whether a cycle can be reached: what peeling off dead ends leaves. Cost: edges."""
    sources, columns = np.nonzero(dfa.delta >= 0)
    edges = np.unique(np.stack([dfa.delta[sources, columns], sources]), axis=1)
    targets, sources = edges[0], edges[1]
    outgoing = np.bincount(sources, minlength=dfa.num_states)
    first = np.searchsorted(targets, np.arange(dfa.num_states + 1))
    alive = np.ones(dfa.num_states, np.bool_)
    ended = np.flatnonzero(outgoing == 0).tolist()
    alive[ended] = False
    while ended:
        state = ended.pop()
        for source in sources[first[state] : first[state + 1]].tolist():
            outgoing[source] -= 1
            if outgoing[source] == 0:
                alive[source] = False
                ended.append(source)
    return alive


def with_entry(block: Block) -> tuple[int, int]:
    """Effect and upper bound of the state after the opening quote, which starts the count."""
    assert block.counter_hi is not None
    return RESET, int(block.counter_hi[block.dfa.start])
