"""A small language of nondeterministic logspace machines, and their clocked configuration graphs.

A program has registers that hold numbers up to a polynomial in the input length n, reads its input a symbol at a time,
and guesses. A line is ``[label:] instruction``; ``#`` starts a comment. X and Y are registers, numbers, or ``n``.

=====================  ==============================================================
``set r X``            r := X
``add r X``            r := r + X; past the registers' bound the path halts
``sub r X``            r := r − X; below 0 the path halts
``read r X``           r := the X-th input symbol, 0 or 1; 2 past the end
``guess r X``          r := any of 0 … X
``if X = Y goto L``    also ``!=``, ``<``, ``<=``
``goto L``
``accept``, ``reject``  the path halts
=====================  ==============================================================

A configuration is (step, line, registers). The step is a clock, so that every path halts and the graph is acyclic;
paths that halt without accepting stay where they are and are not merged.

Source: Appendix B.5 (machines, clocks, halting), Theorem 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stcon.theory.graph import Digraph, GraphError
from stcon.theory.meters import TooMuchWork

Polynomial = Callable[[int], int]

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
}
ARITY = {"set": 2, "add": 2, "sub": 2, "read": 2, "guess": 2, "if": 5, "goto": 1, "accept": 0, "reject": 0}


class Configuration(NamedTuple):
    """A step number, the line to execute, and the registers' values."""

    step: int
    line: int
    registers: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A nondeterministic machine.

    Args:
        lines: (operation, operands…) each, labels resolved to line numbers.
        registers: their names.
        bound: the largest value of a register, by input length.
        clock: the steps a path may take, by input length.
    """

    lines: tuple[tuple[str, ...], ...]
    registers: tuple[str, ...]
    bound: Polynomial
    clock: Polynomial

    @classmethod
    def parse(cls, text: str, *, bound: Polynomial, clock: Polynomial) -> Program:
        """Read a program.

        Raises:
            GraphError: an instruction or a label that does not exist; the line is named.
        """
        labels, lines = _labelled(text)
        registers = sorted({words[1] for words in lines if words[0] in ("set", "add", "sub", "read", "guess")})
        resolved = tuple(_resolved(words, labels, registers) for words in lines)
        return cls(resolved, tuple(registers), bound, clock)

    @property
    def start(self) -> Configuration:
        """The first line, all registers 0."""
        return Configuration(0, 0, (0,) * len(self.registers))

    def accepts(self, configuration: Configuration) -> bool:
        """Whether the configuration is an accepting one."""
        return configuration.line < len(self.lines) and self.lines[configuration.line][0] == "accept"

    def successors(self, now: Configuration, word: Sequence[int]) -> list[Configuration]:
        """Where one step leads, one entry a guess; none where the path halts.

        Args:
            now: a configuration.
            word: the input, of 0s and 1s.
        """
        length = len(word)
        if now.line >= len(self.lines) or now.step >= self.clock(length):
            return []
        operation, *operands = self.lines[now.line]
        if operation in ("accept", "reject"):
            return []
        if operation == "goto":
            return [Configuration(now.step + 1, int(operands[0]), now.registers)]
        if operation == "if":
            left, comparison, right, _, target = operands
            holds = COMPARISONS[comparison](self._value(left, now, length), self._value(right, now, length))
            return [Configuration(now.step + 1, int(target) if holds else now.line + 1, now.registers)]
        place = self.registers.index(operands[0])
        values = self._assigned(operation, now.registers[place], self._value(operands[1], now, length), word)
        return [
            Configuration(now.step + 1, now.line + 1, (*now.registers[:place], value, *now.registers[place + 1 :]))
            for value in values
            if 0 <= value <= self.bound(length)
        ]

    def _value(self, operand: str, now: Configuration, length: int) -> int:
        if operand == "n":
            return length
        return int(operand) if _is_number(operand) else now.registers[self.registers.index(operand)]

    def _assigned(self, operation: str, old: int, given: int, word: Sequence[int]) -> Sequence[int]:
        match operation:
            case "set":
                return (given,)
            case "add":
                return (old + given,)
            case "sub":
                return (old - given,)
            case "read":
                return (word[given] if given < len(word) else 2,)
            case _:
                return range(min(given, self.bound(len(word))) + 1)


@dataclass(frozen=True)
class ConfigurationGraph:
    """A program's graph on an input.

    Args:
        graph: vertices are named by their configurations; those reachable from the start.
        start: the vertex of the initial configuration.
        accepting: the vertices of accepting configurations.
    """

    graph: Digraph
    start: int
    accepting: frozenset[int]


def configuration_graph(
    program: Program, word: Sequence[int], *, max_configurations: int | None = 100_000
) -> ConfigurationGraph:
    """Generate the clocked configuration graph; paths in it are computation paths.

    Args:
        program: the machine.
        word: its input.
        max_configurations: refuse past so many; None: never.

    Raises:
        TooMuchWork: past `max_configurations`.
    Cost: at most (clock + 1) · lines · (bound + 1)^registers configurations.
    """
    index = {program.start: 0}
    edges: list[tuple[int, int]] = []
    for configuration in (found := [program.start]):
        for successor in program.successors(configuration, word):
            if successor not in index:
                index[successor] = len(index)
                found.append(successor)
                if max_configurations is not None and len(found) > max_configurations:
                    raise TooMuchWork(max_configurations)
            edges.append((index[configuration], index[successor]))
    accepting = frozenset(index[configuration] for configuration in found if program.accepts(configuration))
    return ConfigurationGraph(Digraph(len(found), edges, found), 0, accepting)


def _labelled(text: str) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    labels: dict[str, int] = {}
    lines: list[tuple[str, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words and words[0].endswith(":"):
            label = words.pop(0)[:-1]
            if label in labels:
                raise GraphError(f"line {number}: the label {label!r} is there already")
            labels[label] = len(lines)
        if words:
            if ARITY.get(words[0]) != len(words) - 1:
                raise GraphError(f"line {number}: no instruction of the form {' '.join(words)!r}")
            lines.append(tuple(words))
    return labels, lines


def _resolved(words: tuple[str, ...], labels: dict[str, int], registers: Sequence[str]) -> tuple[str, ...]:
    operation, *operands = words
    values = {"if": [operands[0], operands[2]] if operation == "if" else [], "goto": []}.get(operation, operands[1:])
    for operand in values:
        if operand not in ("n", *registers) and not _is_number(operand):
            raise GraphError(f"{' '.join(words)!r}: {operand!r} is neither a register that is set, nor a number, nor n")
    if operation == "if" and (operands[1] not in COMPARISONS or operands[3] != "goto"):
        raise GraphError(f"{' '.join(words)!r}: not of the form 'if X = Y goto L'")
    if operation in ("if", "goto"):
        if operands[-1] not in labels:
            raise GraphError(f"{' '.join(words)!r}: there is no label {operands[-1]!r}")
        operands[-1] = str(labels[operands[-1]])
    if operation not in ("if", "goto") and operands and (operands[0] == "n" or operands[0][0].isdecimal()):
        raise GraphError(f"{' '.join(words)!r}: {operands[0]!r} is no register")
    return (operation, *operands)


def _is_number(operand: str) -> bool:
    return operand.isascii() and operand.isdecimal() and len(operand) <= 18
