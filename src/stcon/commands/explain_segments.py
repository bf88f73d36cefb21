"""The part of `stcon explain` that shows what a grammar leaves to choose: the text from cut state to cut state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stcon.errors import TooLarge

if TYPE_CHECKING:
    from rich.console import Console

    from stcon.grammar.cuts import Segment
    from stcon.grammar.machine import Machine

CHOICE_CONFIGURATIONS = 128
ALL_CONFIGURATIONS = 8_192
SHOWN_CHARACTERS = 1_200
MANY_TEXTS = 99_999


def segment_facts(machine: Machine) -> list[dict[str, Any]] | None:
    """Every segment between cut states as data; None where they take too long to find.

    ``num_texts`` is how many texts a segment can have and ``decisions`` at how many places of it a model is asked; both
    are None where the texts are endlessly many or run through more than `CHOICE_CONFIGURATIONS` configurations (or, in
    all segments together, `ALL_CONFIGURATIONS`).
    """
    from stcon.grammar.cuts import cut_states

    try:
        segments = cut_states(machine).segments
    except TooLarge:
        return None
    limit = min(CHOICE_CONFIGURATIONS, ALL_CONFIGURATIONS // max(1, sum(not s.is_forced for s in segments)))
    return [_facts(machine, segment, limit) for segment in segments]


def _facts(machine: Machine, segment: Segment, limit: int) -> dict[str, Any]:
    from stcon.grammar.cuts import choices

    kernel = None if segment.is_forced else choices(machine, segment, limit=limit)
    num_texts, decisions = (1, 0) if segment.is_forced else (None, None)
    if kernel is not None:
        num_texts, decisions = kernel.terminal.num_paths, len(kernel.branch_vertices)
    return {
        "state": segment.start.state,
        "stack": list(segment.start.stack),
        "text": segment.text.decode("utf-8", "backslashreplace"),
        "is_forced": segment.is_forced,
        "remembers": segment.remembers,
        "num_texts": num_texts,
        "decisions": decisions,
    }


def print_segments(console: Console, segments: list[dict[str, Any]]) -> None:
    """Forced text as it is; ``⟨…⟩`` where there is something to choose, with the number of texts if it is small."""
    from rich.text import Text

    fields = sum(not segment["is_forced"] for segment in segments)
    console.print(Text(f"\nbetween cut states ({fields} to choose, each by itself)", style="bold"))
    line = Text("  ")
    for segment in segments:
        line.append("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in segment["text"]))
        if not segment["is_forced"]:
            count = segment["num_texts"]
            line.append("⟨…⟩" if count is None or count > MANY_TEXTS else f"⟨{count:,}⟩", style="bold")
        if len(line) > SHOWN_CHARACTERS:
            line.append(" … (--json FILE has all)")
            break
    console.print(line)
