"""A grammar backend for SGLang. **Written from its source and tested against a stand-in; not run in SGLang itself.**

::

    # serve.py
    from stcon.integrations import sglang
    sglang.register()                                   # before the server's arguments are parsed
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    run_server(prepare_server_args(["--model-path", "…", "--grammar-backend", "stcon"]))

SGLang asks a *grammar object* of each request for masks (int32 words, bit t % 32 of word t // 32 for token t), tells it
the tokens drawn and takes drafts back. A *backend* compiles grammars by kind: JSON Schema, regular expression, EBNF,
structural tag. It is not told how many tokens a request may have, so no limit is kept here.

Source: ``sglang/srt/constrained/base_grammar_backend.py`` and its ``xgrammar`` and ``llguidance`` backends, as of
releases 0.5; what differs between versions (`INVALID_GRAMMAR_OBJ` or `InvalidGrammarObject`, more arguments of the
factory) is looked for when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stcon.constraint.matcher import Matcher
from stcon.errors import ModelUnavailable, StconError
from stcon.vocab.shared import vocabulary_of

if TYPE_CHECKING:
    from stcon.grammar.grammar import Grammar
    from stcon.vocab.vocabulary import Vocabulary

Tensor = Any

NAME = "stcon"
ANY_JSON = "$$ANY$$"  # SGLang's key for JSON without a schema


class MatcherObject:
    """What SGLang asks of a request's grammar, on a `Matcher`. `register` mixes it into SGLang's base class.

    Args:
        grammar: the request's.
        vocabulary: the model's.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.grammar = grammar
        self.matcher = Matcher(grammar, vocabulary)

    def accept_token(self, token: int) -> None:
        """Take a token that was drawn. Raises ValueError, at which SGLang ends the request, if it is not admissible."""
        if not self.is_terminated() and not self.matcher.accept(token):
            raise ValueError(f"token {token} is not admissible after {self.matcher.text[-40:]!r}")

    def rollback(self, k: int) -> None:
        """Take back the last `k` tokens."""
        self.matcher.rollback(k)

    def is_terminated(self) -> bool:
        """Whether an end token was taken."""
        return self.matcher.is_finished

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> Tensor:
        """int32[batch, ceil(V / 32)] on the host, every token admitted."""
        import torch

        return torch.full((batch_size, -(-vocab_size // 32)), -1, dtype=torch.int32)

    def fill_vocab_mask(self, vocab_mask: Tensor, idx: int) -> None:
        """Write the request's mask to row `idx`; tokens past the vocabulary (padding of the logits) are left out."""
        row = vocab_mask[idx].numpy()
        words = self.matcher.bitmask()
        shared = min(len(row), len(words))
        row[:shared] = words[:shared]
        row[shared:] = 0

    @staticmethod
    def reset_vocab_mask(vocab_mask: Tensor) -> None:
        """Admit every token again."""
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: Tensor, device: Any) -> Tensor:
        """The masks on `device`."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: Tensor, vocab_mask: Tensor) -> None:
        """Write -inf over the logits (float[batch, V or less]) of tokens that may not come, in place."""
        import torch

        places = torch.arange(32, device=vocab_mask.device, dtype=torch.int32)
        refused = ((vocab_mask[:, :, None] >> places) & 1 == 0).flatten(1)
        width = min(logits.shape[1], refused.shape[1])
        logits[:, :width].masked_fill_(refused[:, :width], -torch.inf)
        logits[:, width:] = -torch.inf

    def copy(self) -> MatcherObject:
        """Another request's object of the same grammar, at its beginning."""
        return type(self)(self.grammar, self.matcher.vocabulary)

    def try_jump_forward(self, tokenizer: Any) -> tuple[list[int], str] | None:
        """The text that must follow, as whole characters, for SGLang to tokenize; None if there is none."""
        forced = self.matcher.forced_bytes()
        text = forced.decode("utf-8", "ignore") if forced else ""
        return ([], text) if text and forced.startswith(text.encode()) else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        """The text of `try_jump_forward`; a matcher has no state to be named."""
        return helper[1], -1

    def jump_and_retokenize(
        self, old_output_ids: Sequence[int], new_output_ids: Sequence[int], next_state: int
    ) -> None:
        """The output's tokens are now `new_output_ids`: back to the common prefix, and on."""
        from stcon.integrations.prefixes import num_common

        kept = num_common(list(old_output_ids), list(new_output_ids))
        self.rollback(len(old_output_ids) - kept)
        for token in new_output_ids[kept:]:
            self.accept_token(token)


class CompilingBackend:
    """Compiles requests' grammars. `register` mixes it into SGLang's base class, which runs it in its threads.

    Args:
        vocabulary: the model's.
        make: makes the grammar object.
        refuse: makes what stands for a grammar that does not compile, from the reason.
        any_whitespace: JSON may have whitespace wherever it is allowed.
        whitespace_pattern: a regular expression for it instead.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        make: Callable[[Grammar, Vocabulary], Any],
        refuse: Callable[[str], Any],
        *,
        any_whitespace: bool = True,
        whitespace_pattern: str | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self._make = make
        self._refuse = refuse
        self._json: dict[str, Any] = {"whitespace": "flexible" if any_whitespace else "compact"}
        if whitespace_pattern is not None:
            self._json["whitespace_pattern"] = whitespace_pattern

    def dispatch_json(self, key_string: str) -> Any:
        """A JSON Schema, or JSON without one."""
        import stcon

        return self._made(partial(stcon.compile, True if key_string == ANY_JSON else key_string, **self._json))

    def dispatch_regex(self, key_string: str) -> Any:
        """A regular expression."""
        import stcon

        return self._made(partial(stcon.compile_regex, key_string))

    def dispatch_ebnf(self, key_string: str) -> Any:
        """A grammar in EBNF, as xgrammar has it."""
        import stcon

        return self._made(partial(stcon.compile_grammar, key_string, syntax="ebnf"))

    def dispatch_structural_tag(self, key_string: str) -> Any:
        """A structural tag, as JSON."""
        import stcon

        return self._made(partial(stcon.compile_grammar, key_string, syntax="structural_tag"))

    def _made(self, compiled: Callable[[], Grammar]) -> Any:
        try:
            return self._make(compiled(), self.vocabulary)
        except StconError as error:
            return self._refuse(str(error))


def register(name: str = NAME) -> None:
    """Make ``--grammar-backend stcon`` known to SGLang, in this process.

    Raises:
        ModelUnavailable: SGLang is not installed, or is of a version without a registry of grammar backends.
    """
    try:
        from sglang.srt.constrained import base_grammar_backend as base
    except ImportError as error:
        raise ModelUnavailable(f"SGLang is not installed ({error}); run: pip install sglang") from error
    if not hasattr(base, "register_grammar_backend"):
        raise ModelUnavailable("this SGLang has no registry of grammar backends; use 0.5 or newer")
    base.register_grammar_backend(name, partial(create_backend, base))
    try:
        from sglang.srt.server_args import add_grammar_backend_choices
    except ImportError:  # in newer versions it lies elsewhere, and the registry is enough from Python
        return
    add_grammar_backend_choices([name])


def create_backend(
    base: Any, server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int] | None = None, *_: Any
) -> Any:
    """The factory that SGLang calls.

    Args:
        base: SGLang's module of base classes.
        server_args: its settings of whitespace are followed.
        tokenizer: the model's.
        vocab_size: of the logits; masks are as wide as SGLang asks for.
        eos_token_ids: the model's end tokens.
    """
    grammar_class = type("StconGrammar", (MatcherObject, base.BaseGrammarObject), {})
    backend_class = type("StconBackend", (CompilingBackend, base.BaseGrammarBackend), {})
    return backend_class(
        vocabulary_of(tokenizer, sorted(eos_token_ids or ())),
        grammar_class,
        partial(_refused, base),
        any_whitespace=not getattr(server_args, "constrained_json_disable_any_whitespace", False),
        whitespace_pattern=getattr(server_args, "constrained_json_whitespace_pattern", None),
    )


def _refused(base: Any, reason: str) -> Any:
    """What SGLang's version takes for a grammar that does not compile."""
    if hasattr(base, "InvalidGrammarObject"):
        return base.InvalidGrammarObject(reason)
    return getattr(base, "INVALID_GRAMMAR_OBJ", None)
