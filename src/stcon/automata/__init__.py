"""Automata over characters and bytes: patterns, boolean operations, encodings. Knows nothing of tokens."""

from stcon.automata.compile import compile_pattern
from stcon.automata.dfa import NUM_CODE_POINTS, ByteDfa, CharDfa
from stcon.automata.encode import byte_accepts, byte_run, encode_json_string, encode_utf8
from stcon.automata.minimize import minimize
from stcon.automata.operations import (
    accepts,
    complement,
    count_words,
    difference,
    equivalent,
    everything,
    intersection,
    is_empty,
    labels_reachable,
    length_between,
    literals,
    nothing,
    product,
    shortest_word,
    union,
)

__all__ = [
    "NUM_CODE_POINTS",
    "ByteDfa",
    "CharDfa",
    "accepts",
    "byte_accepts",
    "byte_run",
    "compile_pattern",
    "complement",
    "count_words",
    "difference",
    "encode_json_string",
    "encode_utf8",
    "equivalent",
    "everything",
    "intersection",
    "is_empty",
    "labels_reachable",
    "length_between",
    "literals",
    "minimize",
    "nothing",
    "product",
    "shortest_word",
    "union",
]
