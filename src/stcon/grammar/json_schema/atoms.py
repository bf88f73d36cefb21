"""The atoms of a value's formula: conditions local to one JSON type.

Atoms are tuples led by a tag, the payload of an atom `Formula`:

================  ==========================================  ====================================================
type              payload                                     true iff
================  ==========================================  ====================================================
any (φ)           ``("schema", node)``                        the value satisfies the schema
boolean           ``("true",)``                               the value is true
number            ``("integer", fraction_zeros)``             it is an integer (2.0 too if `fraction_zeros`)
number            ``("min", bound, exclusive)``, ``("max",`` …  it is at least / at most (more / less than) the bound
number            ``("multiple", divisor)``                   it is a multiple of the divisor
number            ``("numbers", values)``                     it is one of these decimals
string            ``("pattern", text)``                       the pattern matches somewhere
string            ``("format", name)``                        it has the format
string            ``("strings", values)``                     it is one of these strings
string            ``("minlen", n)``, ``("maxlen", n)``        it has at least / at most n code points
array             ``("item", i, φ)``                          item i satisfies φ, or there is none
array             ``("items", i, φ)``                         every item from i on satisfies φ
array             ``("contains", φ, least, most)``            between least and most items satisfy φ (most: None or n)
array             ``("minitems", n)``, ``("maxitems", n)``    it has at least / at most n items
array             ``("unique", pointer)``                     no two items are equal
object            ``("has", name)``                           the name is present
object            ``("prop", name, φ)``                       the name's value satisfies φ, or it is absent
object            ``("each", ψ, φ)``                          every value under a name that satisfies ψ satisfies φ
object            ``("minprops", n)``, ``("maxprops", n)``    it has at least / at most n names
================  ==========================================  ====================================================

φ is a `Formula` over ``schema`` atoms, ψ one over string atoms. While an object or array is read, its atoms turn into
smaller ones: a count goes down by one, an item index moves left, a name that has passed becomes true or false.
"""

from __future__ import annotations

from typing import Any, Literal

JsonType = Literal["null", "boolean", "number", "string", "array", "object"]
TYPES: tuple[JsonType, ...] = ("null", "boolean", "number", "string", "array", "object")

_LEAST = {"minlen": "maxlen", "minitems": "maxitems", "minprops": "maxprops"}
_MOST = {most: least for least, most in _LEAST.items()}


def complement(payload: Any) -> Any:
    """The count that is true where the count `payload` is false: at most n - 1 for at least n; None for other atoms."""
    tag = payload[0]
    if tag in _LEAST and payload[1] > 0:
        return (_LEAST[tag], payload[1] - 1)
    return (_MOST[tag], payload[1] + 1) if tag in _MOST else None
