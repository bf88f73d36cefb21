"""From logits to one token: greedy, or temperature with top-k, top-p and min-p.

**Order.** The constraint's mask first, then what transformers does, in its order: temperature, top-k, top-p, min-p,
each renormalised over what the ones before it left. So no filter leaves only tokens that the constraint forbids.

- *temperature* t: logits / t; 0 is greedy: the largest logit, on a tie the lowest id, and no other option counts.
- *top-k*: keep every token whose logit is at least the k-th largest (ties stay). 0: off.
- *top-p*: in order of probability (on a tie the lowest id first), keep the fewest tokens whose probabilities sum to p
  or more: token i stays iff those before it sum to less than p. At least one stays. 1: off.
- *min-p*: keep tokens with at least p times the largest probability. 0: off.

**Randomness** is counter-based: the draw at position n of an output uses Philox keyed by (seed, n), so it depends on
nothing else: not on batching, on other streams, or on how forced tokens were fed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stcon.errors import DecodingError, InvalidOption

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    Args:
        temperature: ≥ 0; 0 is greedy.
        top_k: ≥ 0; 0 keeps all.
        top_p: in (0, 1]; 1 keeps all.
        min_p: in [0, 1]; 0 keeps all.
        seed: 0 … 2**64 - 1; None takes one from the system (see `seeded`).

    Raises:
        InvalidOption: an option is out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, float("inf"), "0 (greedy) or more")
        _check_integer("top_k", self.top_k, 0, 2**31 - 1, "0 (off) or more")
        _check_number("top_p", self.top_p, 0.0, 1.0, "above 0 and at most 1")
        if self.top_p == 0:
            raise InvalidOption("top_p: expected a number above 0 and at most 1, got 0; for greedy set temperature=0")
        _check_number("min_p", self.min_p, 0.0, 1.0, "from 0 to 1")
        if self.seed is not None:
            _check_integer("seed", self.seed, 0, MAX_SEED, "from 0 to 2**64 - 1")

    @property
    def greedy(self) -> bool:
        """Whether no randomness is used."""
        return self.temperature == 0

    def seeded(self) -> Sampling:
        """The same options with a seed; one from the system where there was none."""
        if self.seed is not None:
            return self
        seed = 0 if self.greedy else secrets.randbits(63)
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, seed)

    def draw(self, logits: Float32, position: int) -> int:
        """One token id.

        Args:
            logits: float32[V], -inf where the constraint forbids the token.
            position: tokens of the output before this one.

        Raises:
            DecodingError: no token has a finite logit, or the model gave a NaN or +inf.

        Cost: O(V), and a sort of the admissible tokens with top-p.
        """
        best = int(np.argmax(logits))  # argmax stops at a NaN, so this one test finds NaN, +inf and an empty mask
        if not np.isfinite(logits[best]):
            raise _no_draw(logits)
        if self.greedy:
            return best
        tokens, probabilities = self.distribution(logits)
        return int(tokens[_pick(probabilities, _uniform(self.seed or 0, position))])

    def distribution(self, logits: Float32) -> tuple[NDArray[np.int64], Float64]:
        """The tokens that can be drawn, ascending, with their probabilities (float64, summing to 1); not for greedy."""
        tokens = np.flatnonzero(logits > -np.inf)
        # temperature and maximum in float64: float32 ties of huge logits at tiny temperatures would become infinities
        scaled = (logits[tokens].astype(np.float64) - float(logits[tokens].max())) / self.temperature
        tokens, scaled = _top_k(tokens, scaled, self.top_k)
        tokens, scaled = _top_p(tokens, scaled, self.top_p)
        if self.min_p > 0:
            keep = scaled >= np.log(self.min_p)  # the largest is 0, so this is p ≥ min_p · max p
            tokens, scaled = tokens[keep], scaled[keep]
        return tokens, _softmax(scaled)


def apply_bitmask(logits: Float32, words: Int32) -> Float32:
    """`logits` with -inf where `words` has no bit, in place.

    Args:
        logits: float32[V].
        words: int32[W], token t = bit t % 32 of word t // 32.

    Cost: V/8 bytes read, at most 4·V written.
    """
    logits[~unpack_bitmask(words, len(logits))] = -np.inf
    return logits


def unpack_bitmask(words: Int32, size: int) -> Bool:
    """bool[size]: the bits of `words` in token order."""
    octets = np.ascontiguousarray(words, dtype="<i4").view(np.uint8)
    return np.unpackbits(octets, count=size, bitorder="little").view(np.bool_)


def count_bits(words: Int32) -> int:
    """Tokens set in a bitmask."""
    return int(np.bitwise_count(words.view(np.uint32)).sum())


def _top_k(tokens: NDArray[np.int64], scaled: Float64, k: int) -> tuple[NDArray[np.int64], Float64]:
    if k == 0 or k >= len(tokens):
        return tokens, scaled
    keep = scaled >= np.partition(scaled, len(scaled) - k)[len(scaled) - k]
    return tokens[keep], scaled[keep]


def _top_p(tokens: NDArray[np.int64], scaled: Float64, p: float) -> tuple[NDArray[np.int64], Float64]:
    if p >= 1:
        return tokens, scaled
    order = np.argsort(-scaled, kind="stable")
    cumulative = np.cumsum(_softmax(scaled)[order])
    kept = np.sort(order[: int(np.searchsorted(cumulative, p)) + 1])
    return tokens[kept], scaled[kept]


def _softmax(scaled: Float64) -> Float64:
    weights: Float64 = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    return weights


def _pick(probabilities: Float64, uniform: float) -> int:
    """The index at which the cumulative sum passes `uniform`."""
    cumulative = np.cumsum(probabilities)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    # rounding may put the product on the last sum; step back over entries of probability 0
    return min(index, int(np.flatnonzero(probabilities)[-1]))


def _uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the seed and the position alone."""
    key = np.array([seed, position], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key)).random())


def _no_draw(logits: Float32) -> DecodingError:
    if np.isneginf(logits).all():
        return DecodingError("no token is admissible here: the vocabulary cannot spell any continuation")
    return DecodingError("the model's logits are not finite numbers (NaN or infinity); try another dtype")


def _check_number(name: str, value: object, low: float, high: float, rule: str) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not low <= float(value) <= high or float(value) == float("inf"):  # type: ignore[arg-type]
        raise InvalidOption(f"{name}: expected a number {rule}, got {value!r}")


def _check_integer(name: str, value: object, low: int, high: int, rule: str) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not low <= int(value) <= high:
        raise InvalidOption(f"{name}: expected an integer {rule}, got {value!r}")
