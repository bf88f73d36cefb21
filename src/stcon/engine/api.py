"""`generate`: from a prompt and a grammar to an output; what `Model.generate` calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from stcon.engine.control import Mode
from stcon.engine.loop import Generation
from stcon.engine.loop import generate as decode
from stcon.engine.sampling import Sampling
from stcon.engine.stream import Token
from stcon.errors import InvalidOption

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.models.base import Message, Model


def generate(
    model: Model,
    prompt: str | Sequence[Message],
    grammar: Grammar | None = None,
    max_tokens: int = 256,
    *,
    mode: Mode | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    stream: Callable[[str], None] | None = None,
    on_token: Callable[[Token], None] | None = None,
    raw: bool = False,
    budget: bool = True,
    parallel: bool = False,
    decide: Literal["token", "sequence"] = "token",
) -> Generation:
    """Answer `prompt` in the format of `grammar`.

    Args:
        model: from `stcon.load_model`.
        prompt: a text, which becomes a user message where the model has a chat template; or messages, each with
            ``role`` and ``content``.
        grammar: from `stcon.compile` or `stcon.compile_regex`; None: free text.
        max_tokens: most tokens to emit, sampled and forced together.
        mode: ``"canonical"`` (default), ``"any"``, ``"mask"`` or ``"free"``; see `stcon.engine.control`.
        temperature, top_k, top_p, min_p, seed: see `stcon.engine.sampling.Sampling`; greedy by default.
        stop: a string or strings that end the output where they appear.
        stream: called with each piece of text as it is written.
        on_token: called with each token as it is written.
        raw: take a text prompt as it is, without the chat template.
        budget: with a grammar, the output is complete when `max_tokens` is reached, and a limit that no output fits is
            refused (``docs/budgets.md``); False: it may be cut anywhere.
        parallel: draft the fields of the format side by side and certify them: the same output in fewer passes
            (``docs/parallel.md``); needs a grammar.
        decide: ``"sequence"``: fields that can be only a few texts are decided by the probability of each text
            (`Generation.decisions`); needs a grammar.

    Returns:
        A `Generation`: ``text``, ``value``, ``tokens``, ``finish_reason`` and counts.

    Raises:
        RequestError: the prompt does not fit, no output fits `max_tokens` (`LimitTooSmall`), the grammar is too large
            for that to be known (`TooLarge`), or an option is out of its range.
        DecodingError: no token is admissible, or the logits are not numbers.
    """
    return _decoder(parallel, decide)(
        model,
        model.prompt_ids(prompt, raw=raw),
        grammar,
        max_tokens=max_tokens,
        mode="canonical" if mode is None else mode,
        sampling=Sampling(temperature, top_k, top_p, min_p, seed),
        stop=(stop,) if isinstance(stop, str) else stop,
        stream=stream,
        on_token=on_token,
        budget=budget,
    )


def _decoder(parallel: bool, decide: str) -> Callable[..., Generation]:
    """What decodes in the way asked for."""
    if decide not in ("token", "sequence"):
        raise InvalidOption(f"decide: expected token or sequence, got {decide!r}")
    if decide == "sequence":
        if parallel:
            raise InvalidOption(
                "decide='sequence' writes another output than parallel=True certifies; ask for one of them"
            )
        from stcon.engine.parallel import decide as by_texts

        return by_texts
    if parallel:
        from stcon.engine.parallel import generate as side_by_side

        return side_by_side
    return decode
