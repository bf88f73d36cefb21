"""`warm_up`: have every kernel compiled, or loaded from disk, before there are requests that would wait for it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from stcon.errors import StconError
from stcon.integrations.vllm.session import Session, SessionMode, Stops

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

# strings with a length and with a pattern, bounded numbers, recursion, names in any order, items that may not repeat
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
        "name": {"type": "string", "maxLength": 4},
        "code": {"type": "string", "pattern": "^[a-c]+$"},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "more": {"$ref": "#"},
    },
    "required": ["ids", "name", "code", "size"],
    "additionalProperties": {"type": "null"},
}
_PALINDROMES = 'root ::= "a" root "a" | "b" root "b" | ""'  # not deterministic: a set of stacks
_TOKENS = 48
_MARGINS = (None, 200, 8)

_warm: weakref.WeakSet[Vocabulary] = weakref.WeakSet()


def warm_up(vocabulary: Vocabulary) -> None:
    """Write a few outputs at random, under all modes and with limits far and near; once for a vocabulary."""
    from stcon.api import compile as compile_schema
    from stcon.api import compile_grammar

    if vocabulary in _warm:
        return
    _warm.add(vocabulary)
    chance = np.random.default_rng(0)
    modes: tuple[SessionMode, ...] = ("canonical", "any", "mask")
    schema, palindromes = compile_schema(_SCHEMA), compile_grammar(_PALINDROMES, syntax="gbnf")
    for mode in modes:
        _write(schema, vocabulary, mode, chance)
    _write(palindromes, vocabulary, "mask", chance)


def _write(grammar: Grammar, vocabulary: Vocabulary, mode: SessionMode, chance: np.random.Generator) -> None:
    from stcon.constraint.matcher import Matcher

    stops = Stops(vocabulary, vocabulary.end_ids[:1])
    least = Matcher(grammar, vocabulary).need() or 0
    mask = np.zeros(vocabulary.num_words, np.int32)
    for margin in _MARGINS:
        try:
            session = Session(grammar, vocabulary, stops, mode=mode, limit=None if margin is None else least + margin)
        except StconError:  # no such limit can be kept: nothing to warm up
            continue
        for _ in range(_TOKENS):
            session.fill(mask)
            tokens = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            if session.is_finished or not session.accept(int(chance.choice(tokens))):
                break
