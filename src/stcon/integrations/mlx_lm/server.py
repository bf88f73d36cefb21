"""``mlx_lm.server`` with constraints: it ignores ``response_format`` silently, this one enforces it or answers 400.

A request's constraint is read as our own server reads it (`stcon.server.requests`): ``response_format``,
``structured_outputs``, ``guided_…``, ``grammar``, ``json_schema``; ``tools`` are left to mlx-lm, unconstrained, and
refused together with a constraint. It travels to the generating thread with the request's ``logit_bias``, the one
argument that mlx-lm passes on as it is. There the model is loaded, at the first request that asks for it, and the
constraint becomes a processor for its tokens; the output is complete within ``max_tokens``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mlx_lm import server

from stcon.errors import RequestError
from stcon.grammar.grammar import Grammar
from stcon.integrations.mlx_lm.processor import GrammarProcessor, ends_of, vocabulary_of

_plain_processors = server._make_logits_processors
_plain_run = server._run_http_server
_plain_tokenize = server.ResponseGenerator._tokenize


class ConstrainedBias(dict[int, float]):
    """A request's ``logit_bias``, and its constraint.

    Args:
        bias: mlx-lm's own.
        grammar: what the output must be.
        max_tokens: its limit.

    Attributes:
        processor: the constraint's, once the model's tokens are known.
        refusal: why there can be none.
    """

    def __init__(self, bias: dict[int, float], grammar: Grammar, max_tokens: int) -> None:
        super().__init__(bias)
        self.grammar, self.max_tokens = grammar, max_tokens
        self.processor: GrammarProcessor | None = None
        self.refusal: RequestError | None = None

    def meet(self, tokenizer: Any) -> None:
        """Make the processor.

        Raises:
            RequestError: no text of the grammar is so short.
        """
        try:
            self.processor = GrammarProcessor(
                self.grammar, vocabulary_of(tokenizer), self.max_tokens, end_ids=ends_of(tokenizer)
            )
        except RequestError as error:
            self.refusal = error
            raise


class ConstrainedHandler(server.APIHandler):  # type: ignore[misc]
    """Reads the constraint of a request before anything is generated."""

    def validate_model_parameters(self) -> None:
        """Raises `ValueError`, which mlx-lm answers with 400."""
        super().validate_model_parameters()
        try:
            self.constraint = constraint_of(self.body)
        except RequestError as error:
            raise ValueError(str(error)) from error

    def handle_completion(self, request: Any, stop_words: list[str]) -> None:
        """As mlx-lm does, under the constraint."""
        if self.constraint is not None:
            bias = self.logit_bias or {}  # type: ignore[has-type]  # the base class sets it
            self.logit_bias = ConstrainedBias(bias, self.constraint, self.max_tokens)
        super().handle_completion(request, stop_words)

    def _set_completion_headers(self, status_code: int = 200) -> None:
        """400 where mlx-lm would say 404: to it a request that fails before its first token asks for no such model."""
        bias = getattr(self, "logit_bias", None)
        is_refused = isinstance(bias, ConstrainedBias) and bias.refusal is not None
        super()._set_completion_headers(400 if is_refused else status_code)


def tokenized(generator: Any, tokenizer: Any, request: Any, args: Any) -> Any:
    """What mlx-lm makes of a prompt, in the generating thread; the constraint meets the model's tokens there."""
    found = _plain_tokenize(generator, tokenizer, request, args)
    if isinstance(args.logits.logit_bias, ConstrainedBias):
        args.logits.logit_bias.meet(tokenizer)
    return found


def constraint_of(body: dict[str, Any]) -> Grammar | None:
    """The grammar that a request's body asks for, or None.

    Raises:
        RequestError: it cannot be enforced, or stands beside tools.
    """
    from stcon.server.grammars import Grammars
    from stcon.server.requests import body_constraints, constraint

    if not body_constraints(body):
        return None
    if body.get("tools"):
        raise RequestError("tools beside a constraint: mlx-lm's tool calls are not constrained; leave one of them out")
    return constraint(body, Grammars())


def processors(args: Any) -> list[Any]:
    """What mlx-lm makes of a request's arguments, and the constraint behind them."""
    found = list(_plain_processors(args))
    bias = args.logits.logit_bias
    return [*found, bias.processor] if isinstance(bias, ConstrainedBias) else found


def install() -> None:
    """Let mlx-lm's server enforce constraints, in this process."""
    server._make_logits_processors = processors
    server.ResponseGenerator._tokenize = tokenized
    server._run_http_server = partial(_plain_run, handler_class=ConstrainedHandler)
