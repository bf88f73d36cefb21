"""`Constrained`: a decoding loop for ``generate(custom_generate=…)`` that writes forced text without asking the model.

``generate`` prepares everything as usual (inputs, cache, processors, stopping criteria) and hands it over; what comes
back is what it gives. The loop is that of `stcon.engine.loop` on the user's model and cache: one pass feeds the token
drawn last with the forced text behind it. Beam search and assisted generation stay the library's own, under
`GrammarProcessor`.

**Where passes are saved**: see `stcon.integrations.transformers.feeding`. Everywhere else the output is the same and
every token takes a pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from stcon.engine.control import Mode, control_for
from stcon.errors import InvalidOption
from stcon.integrations.prefixes import check_ends
from stcon.integrations.transformers.decoding import Decoding, token_ids
from stcon.integrations.transformers.feeding import Feeder
from stcon.integrations.transformers.processor import GrammarProcessor
from stcon.integrations.transformers.rows import ForcedRow
from stcon.vocab.shared import vocabulary_of

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

Tensor = Any


class Constrained:
    """A decoding loop; give it to ``generate`` as ``custom_generate``. May be used again and again.

    Args:
        grammar: what every output must be, or one for each prompt of the batch (None: that prompt is free).
        tokenizer: the model's fast tokenizer, or its `Vocabulary`.
        mode: how forced text is written: ``"canonical"``, ``"any"``, or ``"mask"``: not at all
            (`stcon.engine.control.Mode`).
        budget: outputs are complete within ``max_new_tokens``; False: they may be cut.
        streamer: gets the prompt, and each token as it is emitted; for one prompt. Give it here and not to
            ``generate``, which does not hand it on.

    Attributes:
        passes: of the model in the last call, the prompt's included; None where the library's own loop ran.
    """

    def __init__(
        self,
        grammar: Grammar | Sequence[Grammar | None],
        tokenizer: Any,
        *,
        mode: Mode = "canonical",
        budget: bool = True,
        streamer: Any = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise InvalidOption(f"mode: expected one of {', '.join(get_args(Mode))}, got {mode!r}")
        self.grammars = tuple(grammar) if isinstance(grammar, Sequence) else (grammar,)
        if not self.grammars:
            raise InvalidOption("give a grammar")
        self.tokenizer = tokenizer
        self.mode = mode
        self.budget = budget
        self.streamer = streamer
        self.passes: int | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Decode; called by ``generate``.

        Returns:
            int64[R, N + tokens], or a ``GenerateDecoderOnlyOutput`` with ``return_dict_in_generate``.

        Raises:
            LimitTooSmall: no output fits ``max_new_tokens``.
            InvalidOption: an option of ``generate`` that is not served here.
            DecodingError: a processor forbids everything that the grammar admits.
        """
        ends = token_ids(generation_config, "eos")
        vocabulary = vocabulary_of(self.tokenizer, ends)
        streamer = streamer or self._streamer(input_ids)
        kind = _library_loop(generation_config)
        if kind != "_sample" or self.mode == "mask":
            self.passes = None
            decode = getattr(type(model), kind)
            taken = inspect.signature(decode).parameters
            options = {"synced_gpus": synced_gpus, "streamer": streamer}
            return decode(
                model,
                input_ids,
                logits_processor=self._processors(input_ids, logits_processor, generation_config, vocabulary, ends),
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                **{name: value for name, value in options.items() if name in taken},
                **model_kwargs,
            )
        _refuse(model, generation_config, input_ids, synced_gpus, streamer)
        pad = (*token_ids(generation_config, "pad"), *ends, 0)[0]
        mask_length = getattr(generation_config, "_mask_length", None)
        feeder = Feeder(model, input_ids, model_kwargs, mask_length=mask_length, pad=pad)
        decoding = Decoding(
            feeder, input_ids, vocabulary, logits_processor, generation_config, pad=pad, streamer=streamer
        )
        rows = self._rows(input_ids, vocabulary, generation_config, decoding.stops(stopping_criteria))
        try:
            return decoding.run(rows)
        finally:
            self.passes = decoding.passes

    def _streamer(self, input_ids: Tensor) -> Any:
        """The streamer given to the constructor, the prompt written to it."""
        if self.streamer is not None:
            self.streamer.put(input_ids.cpu())
        return self.streamer

    def _processors(
        self, input_ids: Tensor, before: Any, config: Any, vocabulary: Vocabulary, ends: Sequence[int]
    ) -> Any:
        """The library's processors under ours; a second time behind them, since some set scores anew."""
        from transformers import LogitsProcessorList

        limit = config.max_length - input_ids.shape[1] if self.budget else None
        processor = GrammarProcessor(self.grammars, vocabulary, limit, eos_token_id=ends)
        return LogitsProcessorList([processor, *before, processor] if before else [processor])

    def _rows(self, input_ids: Tensor, vocabulary: Vocabulary, config: Any, stops: Any) -> list[ForcedRow]:
        """A row for each output, with what its grammar begins with."""
        count, rest = divmod(len(input_ids), len(self.grammars))
        if rest:
            raise InvalidOption(
                f"{len(input_ids)} rows where there are {len(self.grammars)} grammars; give one, or one for each prompt"
            )
        limit = config.max_length - input_ids.shape[1]
        ends = token_ids(config, "eos")
        check_ends(ends, vocabulary)
        end = next((token for token in ends if token in vocabulary.end_ids), None)
        rows = []
        for number in range(len(input_ids)):
            grammar = self.grammars[number // count] if self.mode != "free" else None
            control = control_for(grammar, vocabulary, self.mode, limit if self.budget else None)
            machine = None if grammar is None else grammar.machine
            stop_at = ends if machine is None else vocabulary.end_ids
            rows.append(ForcedRow(control, machine, number, limit=limit, end_ids=stop_at, end=end, stops=stops))
        return rows


# generation mode → the method of GenerationMixin that decodes so
_LOOPS = {
    "greedy_search": "_sample",
    "sample": "_sample",
    "beam_search": "_beam_search",
    "beam_sample": "_beam_search",
    "assisted_generation": "_assisted_decoding",
}


def _library_loop(config: Any) -> str:
    """The method of ``GenerationMixin`` that would decode."""
    mode = str(config.get_generation_mode(None).value)
    if mode not in _LOOPS:
        raise InvalidOption(f"generation by {mode} is not served; use greedy search, sampling or beams")
    return _LOOPS[mode]


def _refuse(model: Any, config: Any, input_ids: Tensor, synced_gpus: bool, streamer: Any) -> None:
    """Raise `InvalidOption` for what the loop does not do."""
    instead = "use Constrained(…, mode='mask')"
    if model.config.is_encoder_decoder:
        raise InvalidOption(f"forced text is written by decoders alone; {instead}")
    for name in ("output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, name, False) and config.return_dict_in_generate:
            raise InvalidOption(f"{name}: forced tokens are written without logits; {instead}")
    if synced_gpus:
        raise InvalidOption(f"synced_gpus: every GPU must make the same passes; {instead}")
    if streamer is not None and len(input_ids) > 1:
        raise InvalidOption("a streamer takes one prompt at a time")
