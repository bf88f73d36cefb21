"""Plain tokens: text that leaves a JSON string's body where it is.

A constraint is in the body of a free string most of the time, and there 98 % of the tokens do the same thing. Their
bitmask is computed once; only the rest is walked (DESIGN §4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NOT_PLAIN = re.compile(rb'["\\\x00-\x1f]')


def plain_tokens(token_bytes: Sequence[bytes]) -> tuple[NDArray[np.bool_], int]:
    """Which tokens are a run of whole UTF-8 characters without ``"``, ``\\`` and controls below U+0020.

    Returns:
        bool[N] in the order given, and the most code points in a plain token (0 if there is none).
    """
    points = np.fromiter((_plain_points(data) for data in token_bytes), np.int32, len(token_bytes))
    return points > 0, int(points.max(initial=0))


def _plain_points(data: bytes) -> int:
    """Code points of a plain token, 0 for any other."""
    if _NOT_PLAIN.search(data):
        return 0
    try:
        return len(data.decode())
    except UnicodeDecodeError:
        return 0
