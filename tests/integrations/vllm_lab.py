"""A small vocabulary and a decode loop as vLLM's engine runs it, for the tests of `stcon.integrations.vllm`.

`decode` follows vLLM 0.32.0 step by step: masks for each draft position with the drafts tried and taken back
(``StructuredOutputManager.grammar_bitmask``), the drafts verified and one more token drawn (the rejection sampler, for
greedy requests), the tokens cut at the first that ends the request (``check_stop``) and taken
(``Scheduler.update_from_output``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stcon.integrations.vllm.session import Session
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

PIECES = (
    '{"',
    '":',
    '","',
    '"}',
    '":"',
    '{"na',
    "name",
    "me",
    "age",
    "ab",
    "abc",
    "12",
    "true",
    "],",
    "[[",
    "]]",
    "  ",
)
END, OTHER_END = 256 + len(PIECES), 257 + len(PIECES)

# speculators: what was written so far → drafts
Speculator = Callable[[Sequence[int]], list[int]]


def vocabulary() -> Vocabulary:
    """All bytes, a few longer tokens, and two end tokens."""
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    tokens += [piece.encode() for piece in PIECES]
    return Vocabulary.from_bytes([*tokens, None, None], (END, OTHER_END))


@dataclass
class Decoded:
    """What a loop wrote.

    Attributes:
        tokens: its tokens, an end token included.
        steps: passes of the model.
        num_accepted: drafts that were accepted, `num_drafted` of them made.
        is_refused: the grammar refused a token, which ends a request with an error.
    """

    tokens: list[int] = field(default_factory=list)
    steps: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    is_refused: bool = False


def decode(
    session: Session,
    model: FakeModel,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    drafts: int = 0,
    speculator: Speculator | None = None,
) -> Decoded:
    """Decode greedily.

    Args:
        session: of the request.
        model: gives logits.
        prompt: its tokens.
        max_tokens: where the engine cuts.
        drafts: forced tokens drafted a step.
        speculator: drafts of another kind, checked by the session as vLLM does.
    """
    found, ends = Decoded(), session.stops.ids
    while not found.is_refused and len(found.tokens) < max_tokens and not set(ends) & set(found.tokens):
        drafted: list[int] = []
        if found.tokens:
            drafted = session.drafts(drafts) if speculator is None else session.validate(speculator(found.tokens))
        new = _verify(session, model, [*prompt, *found.tokens], drafted)
        found.steps += 1
        found.num_drafted += len(drafted)
        found.num_accepted += len(new) - 1
        for count, token in enumerate(new, 1):
            found.tokens.append(token)
            if token in ends or len(found.tokens) == max_tokens:
                new = new[:count]
                break
        found.is_refused = not all(map(session.accept, new))
    return found


def _verify(session: Session, model: FakeModel, prefix: Sequence[int], drafted: Sequence[int]) -> list[int]:
    """The tokens of one step: the drafts that are the masked model's own, and the token after them."""
    masks = _masks(session, drafted)
    new: list[int] = []
    for mask, draft in zip(masks, [*drafted, None], strict=True):
        stream = model.session()
        logits = stream.append([*prefix, *new])
        allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
        new.append(int(np.where(allowed, logits, -np.inf).argmax()))
        if new[-1] != draft:
            break
    return new


def _masks(session: Session, drafted: Sequence[int]) -> list[np.ndarray]:
    words = session.vocabulary.num_words
    masks, tried = [np.full(words, -1, np.int32) for _ in range(len(drafted) + 1)], 0
    for mask, draft in zip(masks, [*drafted, None], strict=True):
        if not session.is_finished:
            session.fill(mask)
        if draft is not None:
            assert session.accept(draft), "vLLM logs an error where a draft that was validated is refused"
            tried += 1
    session.rollback(tried)
    return masks
