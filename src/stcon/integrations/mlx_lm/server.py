"""``mlx_lm.server`` with constraints: it ignores ``response_format`` silently, this one enforces it or answers 400.

A request's constraint is read as our own server reads it (`stcon.server.requests`): ``response_format``,
``structured_outputs``, ``guided_…``, ``grammar``, ``json_schema``; ``tools`` are left to mlx-lm, unconstrained, and
refused together with a constraint. It travels to the generating thread with the request's ``logit_bias``, the one
argument that mlx-lm passes on as it is, and becomes a processor there; the output is complete within ``max_tokens``.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from mlx_lm import server

from stcon.errors import RequestError
from stcon.grammar.grammar import Grammar
from stcon.integrations.mlx_lm.processor import GrammarProcessor, vocabulary_of

_plain_processors = server._make_logits_processors
_plain_run = server._run_http_server


class ConstrainedBias(dict[int, float]):
    """A request's ``logit_bias``, and the processor of its constraint."""

    processor: GrammarProcessor


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
            try:
                tokenizer = self.response_generator.model_provider.tokenizer
                processor = GrammarProcessor(self.constraint, vocabulary_of(tokenizer), self.max_tokens)
            except RequestError as error:  # no text of the grammar is so short
                self._refuse(str(error))
                return
            bias = ConstrainedBias(self.logit_bias or {})  # type: ignore[has-type]  # the base class sets it
            bias.processor = processor
            self.logit_bias = bias
        super().handle_completion(request, stop_words)

    def _refuse(self, message: str) -> None:
        self._set_completion_headers(400)
        self.end_headers()
        self.wfile.write(json.dumps({"error": message}).encode())


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
    server._run_http_server = partial(_plain_run, handler_class=ConstrainedHandler)
