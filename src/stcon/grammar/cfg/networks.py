"""Rules as networks: small automata whose edges read bytes, lexemes or texts of other rules (Thompson's construction).

Source: K. Thompson, Regular expression search algorithm (1968); W. A. Woods, Transition network grammars (1970).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stcon.automata import encode_utf8, minimize, regex
from stcon.automata.budget import Budget
from stcon.automata.compile import compile_tree
from stcon.automata.dfa import ByteDfa
from stcon.errors import GrammarError, TooLarge
from stcon.grammar.cfg.pushdown import MAX_STATES, Origin
from stcon.grammar.cfg.syntax import (
    Choice,
    Embedded,
    Expression,
    Free,
    Lexeme,
    Pattern,
    Reference,
    Repetition,
    Rule,
    Sequence,
    Source,
    invalid,
)
from stcon.grammar.cfg.triggers import free_text

READ, CALL, LEXEME, EMBED = range(4)


@dataclass
class Network:
    """One rule. State 0 is its start, state 1 its end.

    Attributes:
        epsilons: state → states reached without reading.
        edges: state → (kind, letter, target): a bit set of bytes, or the number of a rule, terminal or schema.
        origins: state → the alternative that it belongs to.
    """

    epsilons: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[int, int, int]]] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)


class Networks:
    """The networks of all rules of `source`.

    Attributes:
        rules: by number.
        names: of the rules, by number.

    Raises:
        InvalidGrammar: a name without a rule.
        GrammarError: a pattern past its limits.
        TooLarge: too many states.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = list(source.rules)
        self.number = {name: index for index, name in enumerate(self.names)}
        self.terminal = {name: index for index, name in enumerate(source.terminals)}
        self.num_states = 0
        self._patterns: dict[regex.Node, ByteDfa] = {}
        self._budget = Budget()
        self.rules = [self._rule(source.rules[name]) for name in self.names]

    def _rule(self, rule: Rule) -> Network:
        network = Network()
        top = Origin(rule.name, 0, "", str(rule.place))
        start, end = self._state(network, top), self._state(network, top)
        for index, (body, text, place) in enumerate(rule.alternatives):
            origin = Origin(rule.name, index + 1, text, str(place))
            begin, stop = self._state(network, origin), self._state(network, origin)
            network.epsilons[start].append(begin)
            network.epsilons[stop].append(end)
            self._expression(network, origin, body, begin, stop)
        return network

    def _state(self, network: Network, origin: Origin) -> int:
        self.num_states += 1
        if self.num_states > 4 * MAX_STATES:
            raise TooLarge(
                "states of the grammar", given=self.num_states, limit=4 * MAX_STATES, advice="lower its repeat counts"
            )
        network.epsilons.append([])
        network.edges.append([])
        network.origins.append(origin)
        return len(network.edges) - 1

    def _expression(self, network: Network, origin: Origin, node: Expression, begin: int, end: int) -> None:
        """Ways from `begin` to `end` that read a text of `node`."""
        if isinstance(node, Pattern):
            self._pattern(network, origin, node.node, begin, end)
        elif isinstance(node, Reference):
            if node.name not in self.number:
                invalid(f"there is no rule named {node.name}", node.place)
            network.edges[begin].append((CALL, self.number[node.name], end))
        elif isinstance(node, Lexeme):
            network.edges[begin].append((LEXEME, self.terminal[node.name], end))
        elif isinstance(node, Embedded):
            network.edges[begin].append((EMBED, node.index, end))
        elif isinstance(node, Free):
            self._free(network, origin, node, begin, end)
        elif isinstance(node, Sequence):
            self._sequence(network, origin, node.parts, begin, end)
        elif isinstance(node, Choice):
            for option in node.options:
                self._expression(network, origin, option, begin, end)
        else:
            self._repetition(network, origin, node, begin, end)

    def _sequence(self, network: Network, origin: Origin, parts: tuple[Expression, ...], begin: int, end: int) -> None:
        for part in parts:
            middle = self._state(network, origin)
            self._expression(network, origin, part, begin, middle)
            begin = middle
        network.epsilons[begin].append(end)

    def _repetition(self, network: Network, origin: Origin, node: Repetition, begin: int, end: int) -> None:
        for _ in range(node.low):
            middle = self._state(network, origin)
            self._expression(network, origin, node.body, begin, middle)
            begin = middle
        if node.high is None:
            loop = self._state(network, origin)
            network.epsilons[begin].append(loop)
            self._expression(network, origin, node.body, loop, loop)
            network.epsilons[loop].append(end)
            return
        for _ in range(node.high - node.low):
            middle = self._state(network, origin)
            network.epsilons[begin].append(end)
            self._expression(network, origin, node.body, begin, middle)
            begin = middle
        network.epsilons[begin].append(end)

    def _pattern(self, network: Network, origin: Origin, node: regex.Node, begin: int, end: int) -> None:
        """The UTF-8 of the pattern's texts: of one text byte by byte, else from its minimal automaton."""
        text = _only_text(node)
        if text is not None:
            for byte in text:
                after = self._state(network, origin)
                network.edges[begin].append((READ, 1 << byte, after))
                begin = after
            network.epsilons[begin].append(end)
            return
        dfa = self._patterns.get(node)
        if dfa is None:
            dfa = self._patterns[node] = self._compiled(node, origin)
        self._automaton(network, origin, dfa, begin, [end])

    def _free(self, network: Network, origin: Origin, node: Free, begin: int, end: int) -> None:
        ends = [end]
        if node.bodies:
            ends = [self._state(network, origin) for _ in node.bodies]
            for body, after in zip(node.bodies, ends, strict=True):
                self._expression(network, origin, body, after, end)
        self._automaton(network, origin, free_text(node.triggers, stops=bool(node.bodies)), begin, ends)

    def _automaton(self, network: Network, origin: Origin, dfa: ByteDfa, begin: int, ends: list[int]) -> None:
        """The states of `dfa`; those that accept lead to the end that their label numbers."""
        base = [self._state(network, origin) for _ in range(dfa.num_states)]
        masks = class_masks(dfa)
        for state in range(dfa.num_states):
            for target, mask in targets_of(dfa, state, masks).items():
                network.edges[base[state]].append((READ, mask, base[target]))
            if dfa.labels[state] >= 0:
                network.epsilons[base[state]].append(ends[int(dfa.labels[state])])
        if dfa.num_states:
            network.epsilons[begin].append(base[dfa.start])

    def _compiled(self, node: regex.Node, origin: Origin) -> ByteDfa:
        return compile_node(node, origin.place, self._budget)


def _only_text(node: regex.Node) -> bytes | None:
    """The text of a pattern that plainly has only one."""
    parts = node.parts if isinstance(node, regex.Concatenation) else (node,)
    codes = [part.charset for part in parts if isinstance(part, regex.Characters)]
    if len(codes) < len(parts) or any(
        len(c) != 1 or c[0][1] - c[0][0] != 1 or 0xD800 <= c[0][0] < 0xE000 for c in codes
    ):
        return None
    return "".join(chr(c[0][0]) for c in codes).encode()


def compile_node(node: regex.Node, place: object, budget: Budget) -> ByteDfa:
    """The minimal automaton over bytes of `node`. Raises `GrammarError` with `place`."""
    try:
        return encode_utf8(minimize(compile_tree(node, False, budget)))
    except GrammarError as error:
        error.message = f"{place}: {error.message}"
        raise error.at(error.pointer, error.keyword) from None


def class_masks(dfa: ByteDfa) -> list[int]:
    """The bytes of each class, as bit sets."""
    masks = [0] * dfa.delta.shape[1]
    for byte, k in enumerate(dfa.byte_class.tolist()):
        masks[k] |= 1 << byte
    return masks


def targets_of(dfa: ByteDfa, state: int, masks: list[int]) -> dict[int, int]:
    """Target → bytes that lead there from `state`."""
    found: dict[int, int] = {}
    row = dfa.delta[state]
    for k in np.flatnonzero(row >= 0).tolist():
        target = int(row[k])
        found[target] = found.get(target, 0) | masks[k]
    return found
