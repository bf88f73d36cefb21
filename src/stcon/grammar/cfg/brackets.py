"""Brackets made rules: what stands after an opening text up to the text that closes it, where it can nest.

In ``"[" ws expression ws "]"`` the part after ``"["`` becomes a rule of its own. A text of it cannot go on past its
last byte, so it can be called without risk, whatever comes before and after it (`stcon.grammar.cfg.determine`). Only
parts that lead to a recursive rule are of use, and only these are changed; the language stays the same.
"""

from __future__ import annotations

from stcon.grammar.cfg.leftrec import strongly_connected
from stcon.grammar.cfg.syntax import (
    Alternative,
    Choice,
    Expression,
    Free,
    Lexeme,
    Pattern,
    Reference,
    Repetition,
    Rule,
    Sequence,
    Source,
    sequence,
)


def with_brackets(source: Source) -> Source:
    """`source` with its brackets as rules."""
    recursive = _recursive(source)
    return _Hoist(source, recursive).run() if recursive else source


class _Hoist:
    def __init__(self, source: Source, recursive: set[str]) -> None:
        self.source = source
        self.recursive = recursive
        self.rules: dict[str, Rule] = {}
        self.rule: Rule
        self.alternative: Alternative
        self.count = 0

    def run(self) -> Source:
        for name, rule in self.source.rules.items():
            self.rule, self.count = rule, 0
            alternatives = []
            for self.alternative in rule.alternatives:
                alternatives.append(self.alternative._replace(body=self._changed(self.alternative.body)))
            self.rules[name] = Rule(name, tuple(alternatives), rule.place)
        source = self.source
        return Source(source.start, self.rules, source.terminals, source.ignored, source.schemas)

    def _changed(self, body: Expression) -> Expression:
        if isinstance(body, Choice):
            return Choice(tuple(self._changed(option) for option in body.options))
        if isinstance(body, Repetition):
            return Repetition(self._changed(body.body), body.low, body.high)
        if isinstance(body, Free):
            return Free(body.triggers, tuple(self._changed(each) for each in body.bodies))
        return self._sequence(body) if isinstance(body, Sequence) else body

    def _sequence(self, body: Sequence) -> Expression:
        parts: list[Expression] = []
        opened = -1  # where the present bracket begins, after the text that opens it
        for part in body.parts:
            changed = self._changed(part)
            if not isinstance(part, Pattern | Lexeme):
                parts.append(changed)
                continue
            if opened >= 0 and any(self._recurs(inner) for inner in parts[opened:]):
                inside = self._hoisted([*parts[opened:], changed])
                parts[opened:] = [inside]
            else:
                parts.append(changed)
            opened = len(parts)
        return Sequence(tuple(parts))

    def _hoisted(self, parts: list[Expression]) -> Reference:
        self.count += 1
        name = f"{self.rule.name} ({self.count})"  # no name that can be written
        alternative = self.alternative._replace(body=sequence(parts))
        self.rules[name] = Rule(name, (alternative,), self.rule.place)
        self.recursive.add(name)
        return Reference(name, self.rule.place)

    def _recurs(self, body: Expression) -> bool:
        return not self.recursive.isdisjoint(_references(body))


def _references(body: Expression) -> set[str]:
    """The rules that `body` names."""
    found: set[str] = set()
    todo = [body]
    while todo:
        node = todo.pop()
        if isinstance(node, Reference):
            found.add(node.name)
        elif isinstance(node, Sequence):
            todo.extend(node.parts)
        elif isinstance(node, Choice):
            todo.extend(node.options)
        elif isinstance(node, Free):
            todo.extend(node.bodies)
        elif isinstance(node, Repetition):
            todo.append(node.body)
    return found


def _recursive(source: Source) -> set[str]:
    """The rules that lead to themselves."""
    names = list(source.rules)
    number = {name: index for index, name in enumerate(names)}
    graph = {
        index: sorted(
            {number[name] for a in source.rules[rule].alternatives for name in _references(a.body) if name in number}
        )
        for index, rule in enumerate(names)
    }
    parts = strongly_connected(graph)
    return {names[i] for part in parts for i in part if len(part) > 1 or i in graph[i]}
