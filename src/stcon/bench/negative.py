"""What does not help, run and shown: siblings and fields without a certificate, whole labels, prompt lookup.

* **Siblings in parallel** (Table 35): the children of a recursive array are written side by side, each after its
  parent's text and its own first member (which the output in turn gave it), and not after its siblings. Nothing checks
  them. Counted: how many children are as in turn, objects invented or lost, tokens, passes.
* **Fields without a certificate** (Table 34, last row): every field of the six extractions is written by itself, after
  its path, and the texts are put together as they are. Counted: leaves as in turn, gold facts, passes.
* **Finite regions** (Table 34): a label among sixteen decided as a whole text, and token by token; how many are the
  intended ones, and passes.
* **Prompt lookup** (Table 34): certified decoding with guesses from the prompt, and without: passes, time, identity.

Not here: what concerns the paper's own kernels (recurrent-state writes, a low-rank head, fused norms), a tree of few
choices, and drafts in its batch engine.

Source: the paper's Tables 34 and 35 (Appendix I).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from time import perf_counter
from typing import TYPE_CHECKING, Any

import stcon
from stcon.bench.uncertified import Branch, branches, fields_apart, write_side_by_side
from stcon.bench.workloads import leaves, load_all
from stcon.bench.workloads.recursive import load_recursive
from stcon.engine.loop import generate as in_turn
from stcon.engine.parallel import Settings, decide
from stcon.engine.parallel import generate as certified

if TYPE_CHECKING:
    from stcon.models.base import Model

LOOKUP = 4
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Siblings:
    """One recursive task.

    Attributes:
        task: its name.
        branches: children written side by side.
        same: of them those that are as in turn.
        objects_in_turn, objects: in all children.
        tokens_in_turn, tokens: written.
        passes_in_turn, passes: of the model; those side by side with what comes before the children.
        example: a child that is another, and what it should have been; "" if there is none.
    """

    task: str
    branches: int
    same: int
    objects_in_turn: int
    objects: int
    tokens_in_turn: int
    tokens: int
    passes_in_turn: int
    passes: int
    example: str


@dataclass(frozen=True)
class Apart:
    """One extraction whose fields are written apart.

    Attributes:
        task: its name.
        leaves, same: values of the output in turn; of them those that are the same apart.
        facts, facts_in_turn, facts_apart: gold facts, and those reproduced.
        passes_in_turn, passes: of the model.
    """

    task: str
    leaves: int
    same: int
    facts: int
    facts_in_turn: int
    facts_apart: int
    passes_in_turn: int
    passes: int


@dataclass(frozen=True)
class Label:
    """One ticket: the label that was meant, the one token by token, and the most probable text; passes of both."""

    ticket: str
    wanted: str
    by_tokens: str
    by_texts: str
    passes_by_tokens: int
    passes_by_texts: int


@dataclass(frozen=True)
class Lookup:
    """One extraction, certified: passes and seconds without and with prompt lookup; the same tokens as in turn."""

    task: str
    passes_in_turn: int
    passes: int
    passes_with: int
    s: float
    s_with: float
    is_same: bool


def siblings(model: Model, *, most: int | None, max_tokens: int, progress: Progress) -> Iterator[Siblings]:
    """Every recursive task; one whose output in turn is cut off, or has no siblings, has no branches."""
    for task in load_recursive()[:most]:
        progress(f"siblings: {task.name}")
        grammar, prompt = stcon.compile(task.schema), model.prompt_ids(task.prompt)
        whole = in_turn(model, prompt, grammar, max_tokens=max_tokens, budget=True)
        found = branches(whole.text) if whole.complete else []
        if not found:
            yield Siblings(task.name, 0, 0, 0, 0, len(whole.tokens), 0, whole.passes, 0, "")
            continue
        before = sum(1 for token in _tokens_until(whole, found[0].before) if token != "forced")
        written = write_side_by_side(model, prompt, grammar, found, max_tokens=max_tokens)
        yield _siblings(task.name, found, written, len(whole.tokens), whole.passes, before)


def _siblings(
    name: str, found: Sequence[Branch], written: Sequence[Any], tokens: int, passes: int, before: int
) -> Siblings:
    texts = [one.text for one in written]
    wrong = [(theirs, ours.text) for ours, theirs in zip(found, texts, strict=True) if theirs != ours.text]
    return Siblings(
        task=name,
        branches=len(found),
        same=len(found) - len(wrong),
        objects_in_turn=sum(branch.text.count("{") for branch in found),
        objects=sum(text.count("{") for text in texts),
        tokens_in_turn=tokens,
        tokens=sum(one.tokens for one in written),
        passes_in_turn=passes,
        passes=before + max(one.passes for one in written),
        example=f"{wrong[0][0]} instead of {wrong[0][1]}" if wrong else "",
    )


def _tokens_until(whole: Any, text: str) -> Iterator[str]:
    """The kinds of the tokens that write the first bytes of an output."""
    size = 0
    for token in whole.tokens:
        if size >= len(text.encode()):
            return
        size += len(token.data)
        yield token.kind


def apart(model: Model, *, most: int | None, max_tokens: int, progress: Progress) -> Iterator[Apart]:
    """The six extractions."""
    for work in load_all()[:most]:
        progress(f"apart: {work.name}")
        grammar, prompt = stcon.compile(work.schema), model.prompt_ids(work.prompt)
        whole = in_turn(model, prompt, grammar, max_tokens=max_tokens, budget=True)
        text, passes = fields_apart(model, prompt, grammar, max_tokens=max_tokens)
        try:
            value = json.loads(text)
        except ValueError:  # a field was cut off
            value = None
        ours, theirs = leaves(value), leaves(whole.value)
        yield Apart(
            work.name,
            len(theirs),
            sum(ours.get(place, ours) == leaf for place, leaf in theirs.items()),
            len(work.gold),
            work.correct(whole.value),
            work.correct(value),
            whole.passes,
            passes,
        )


def labels(model: Model, *, most: int | None, progress: Progress) -> Iterator[Label]:
    """The tickets."""
    data = json.loads(resources.files("stcon.bench.workloads").joinpath("tickets.json").read_text("utf-8"))
    names = data["labels"]
    grammar = stcon.compile({"type": "object", "properties": {"label": {"enum": names}}, "required": ["label"]})
    for text, wanted in data["tickets"][:most]:
        progress(f"labels: {text}")
        prompt = model.prompt_ids(
            f"Give the label of this message to a shop as compact JSON. Labels: {', '.join(names)}.\n\nMessage: {text}"
        )
        one, two = (decode(model, prompt, grammar, max_tokens=32, budget=True) for decode in (in_turn, decide))
        yield Label(text, wanted, _label(one.value), _label(two.value), one.passes, two.passes)


def _label(value: Any) -> str:
    return str(value["label"]) if isinstance(value, dict) else ""


def lookups(model: Model, *, most: int | None, max_tokens: int, progress: Progress) -> Iterator[Lookup]:
    """The six extractions, certified."""
    for work in load_all()[:most]:
        progress(f"lookup: {work.name}")
        grammar, prompt = stcon.compile(work.schema), model.prompt_ids(work.prompt)
        whole = in_turn(model, prompt, grammar, max_tokens=max_tokens, budget=True)
        runs = []
        for settings in (Settings(), Settings(lookup=LOOKUP)):
            started = perf_counter()
            output = certified(model, prompt, grammar, max_tokens=max_tokens, budget=True, settings=settings)
            runs.append((output, perf_counter() - started))
        ids = [[token.id for token in output.tokens] for output in (whole, *(output for output, _ in runs))]
        yield Lookup(
            work.name,
            whole.passes,
            runs[0][0].passes,
            runs[1][0].passes,
            runs[0][1],
            runs[1][1],
            ids[0] == ids[1] == ids[2],
        )


def as_json(
    siblings: Sequence[Siblings],
    apart: Sequence[Apart],
    labels: Sequence[Label],
    lookups: Sequence[Lookup],
    about: dict[str, Any],
) -> dict[str, Any]:
    """The measurement as data."""
    return {
        **about,
        "siblings": [asdict(one) for one in siblings],
        "apart": [asdict(one) for one in apart],
        "labels": [asdict(one) for one in labels],
        "lookup": [asdict(one) for one in lookups],
    }
