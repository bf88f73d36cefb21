"""One case under one engine: what it says of each instance, and how long its masks take.

The result comes as a stream of events, so that what was known before an engine hung or died is kept.

**What is timed.** *First mask*: from the schema's text to the mask of the empty output (compile, matcher, mask).
*Between masks*: taking one token and computing the mask after it, for every token of every instance up to the one
rejected. Starting over for a case's later instances is not timed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal, TypeAlias

from stcon.bench.masks_engines import Refused

if TYPE_CHECKING:
    from stcon.bench.masks_corpus import Case
    from stcon.bench.masks_engines import Engine, Session

Tokens: TypeAlias = Sequence[int]

Status = Literal["passing", "refused", "unsatisfiable", "valid rejected", "invalid accepted"]


@dataclass(frozen=True)
class Compiled:
    """The first mask is there."""

    compile_ns: int
    first_mask_ns: int


@dataclass(frozen=True)
class Fed:
    """An instance was read.

    Attributes:
        index: of the instance in its case.
        accepted: every token was in its mask, and an end token in the last.
        taken: tokens accepted.
        gaps_ns: int64 array, one between-masks time a token taken.
    """

    index: int
    accepted: bool
    taken: int
    gaps_ns: array[int]


@dataclass(frozen=True)
class Refusal:
    """The engine gave up: at compile time, or `late`, while reading instance `index`."""

    reason: str
    message: str
    pointer: str | None = None
    keyword: str | None = None
    late: bool = False


Event: TypeAlias = Compiled | Fed | Refusal


@dataclass
class Record:
    """What one engine did with one case.

    Attributes:
        compiled: None if there was no first mask.
        fed: the instances read, in order; those that have no spelling in the vocabulary are missing.
    """

    case: Case
    engine: str
    compiled: Compiled | None = None
    refusal: Refusal | None = None
    fed: list[Fed] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Take in what the engine reported next."""
        if isinstance(event, Compiled):
            self.compiled = event
        elif isinstance(event, Fed):
            self.fed.append(event)
        else:
            self.refusal = event

    @property
    def wrong(self) -> list[Fed]:
        """The instances judged otherwise than the corpus does."""
        return [fed for fed in self.fed if fed.accepted != self.case.instances[fed.index].valid]

    @property
    def status(self) -> Status:
        """The worst that can be said: wrong accepts first, then refusals, then wrong rejections."""
        wrong = self.wrong
        if any(fed.accepted for fed in wrong):
            return "invalid accepted"
        if self.refusal is not None:
            return "unsatisfiable" if self.refusal.reason == "unsatisfiable" else "refused"
        return "valid rejected" if wrong else "passing"

    @property
    def rightly_unsatisfiable(self) -> bool:
        """Refused as unsatisfiable where the corpus indeed has no valid instance."""
        return self.status == "unsatisfiable" and not any(instance.valid for instance in self.case.instances)


def measure(engine: Engine, case: Case, spelled: Sequence[Tokens | None]) -> Iterator[Event]:
    """Compile `case` and feed its instances.

    Args:
        spelled: the tokens of each instance; None where the vocabulary cannot spell it (it is left out).

    Cost: one compilation, and two calls of the engine a token.
    """
    late = False
    try:
        begin = perf_counter_ns()
        start = engine.compile(case)
        compiled = perf_counter_ns()
        session = start()
        session.fill()
        first = perf_counter_ns()
        _require_sound(session)
        yield Compiled(compiled - begin, first - begin)
        late = True
        fresh = True
        for index, tokens in enumerate(spelled):
            if tokens is None:
                continue
            if not fresh:
                session = start()
                session.fill()
            fresh = False
            accepted, gaps = feed(session, tokens, engine.end_ids)
            yield Fed(index, accepted, len(gaps), gaps)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except Refused as refused:
        yield Refusal(refused.reason, refused.message, refused.pointer, refused.keyword, late)
    except BaseException as error:  # Rust panics in the peers are no `Exception`
        yield Refusal("internal error", f"{type(error).__name__}: {error}", late=late)


def feed(session: Session, tokens: Tokens, end_ids: Sequence[int]) -> tuple[bool, array[int]]:
    """Read `tokens` in a session whose first mask is filled.

    Returns:
        whether all of them and then an end token were in their masks; the times of those taken, in nanoseconds.

    Raises:
        Refused: the engine is in an error state, or takes back what its mask allowed.
    """
    mask, accept, fill, clock = session.mask, session.accept, session.fill, perf_counter_ns
    gaps = array("q")
    for token in tokens:
        if not mask[token >> 5] >> (token & 31) & 1:
            _require_sound(session)
            return False, gaps
        begin = clock()
        accepted = accept(token)
        fill()
        gaps.append(clock() - begin)
        if not accepted:
            _require_sound(session)
            raise Refused("internal error", f"token {token} is in the mask and was not accepted")
    _require_sound(session)
    return any(mask[token >> 5] >> (token & 31) & 1 for token in end_ids), gaps


def _require_sound(session: Session) -> None:
    if (refused := session.error()) is not None:
        raise refused
