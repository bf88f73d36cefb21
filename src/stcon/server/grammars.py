"""Constraints of requests, compiled once each: the most recently used are kept, within a limit of bytes.

With a grammar goes what is found out about it and one vocabulary (`stcon.kernels.cpu.CpuKernel`, its mask rows and the
table of its budget), which takes longer to make than the grammar itself.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption
from stcon.grammar.grammar import Grammar

if TYPE_CHECKING:
    from stcon.api import GrammarSyntax
    from stcon.kernels.cpu import CpuKernel
    from stcon.server.tools import Offer
    from stcon.vocab.vocabulary import Vocabulary

MAX_KEPT = 256
MAX_BYTES = 512 << 20
MAX_CHOICES = 10_000


@dataclass
class _Kept:
    grammar: Grammar
    kernel: CpuKernel | None = None

    @property
    def nbytes(self) -> int:
        """What it takes as it has grown so far, about."""
        from stcon.constraint.budget import budget_bytes

        machine = self.grammar.machine
        size = machine.num_states * (4 * machine.num_classes + 13)
        if self.kernel is not None:
            size += len(self.kernel.rows) * 4 * self.kernel.vocabulary.num_words + budget_bytes(self.kernel)
        return size


class Grammars:
    """A bounded cache of grammars by what they were compiled from. Safe to use from any thread.

    Args:
        most: grammars kept.
        max_bytes: of all of them; the newest is kept whatever it takes.
        vocabulary: whose kernels are kept with them; None: none.
    """

    def __init__(
        self, most: int = MAX_KEPT, *, max_bytes: int = MAX_BYTES, vocabulary: Vocabulary | None = None
    ) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._vocabulary = vocabulary
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """What all of them take. Cost: O(grammars)."""
        with self._lock:
            return sum(kept.nbytes for kept in self._kept.values())

    def schema(self, schema: Any) -> Grammar:
        """The grammar of a JSON Schema."""
        from stcon.api import compile as compile_schema

        return self._get(("schema", json.dumps(schema, default=str)), lambda: compile_schema(schema))

    def regex(self, pattern: str) -> Grammar:
        """The grammar of a regular expression."""
        from stcon.api import compile_regex

        return self._get(("regex", pattern), lambda: compile_regex(pattern))

    def grammar(self, text: str) -> Grammar:
        """A context-free grammar as vLLM takes them: EBNF, or Lark where no rule has ``::=``."""
        return self._grammar(text, "ebnf" if isinstance(text, str) and "::=" in text else "lark")

    def gbnf(self, text: str) -> Grammar:
        """A context-free grammar as llama.cpp takes them."""
        return self._grammar(text, "gbnf")

    def structural_tag(self, value: Any) -> Grammar:
        """A structural tag, as JSON text or as data."""
        return self._grammar(value if isinstance(value, str) else json.dumps(value, default=str), "structural_tag")

    def reply(self, offer: Offer, answer: Any) -> Grammar:
        """The replies that may call tools.

        Args:
            offer: the tools.
            answer: a JSON Schema of what comes instead of calls, or None: free text before them.
        """
        from stcon.constraint.need import MAX_POINTS
        from stcon.grammar.tools import compile_reply

        def build() -> Grammar:
            return compile_reply(
                offer.tools,
                offer.format,
                required=offer.required,
                parallel=offer.parallel,
                answer=answer,
                max_states=MAX_POINTS,  # with more, no limit of tokens can be kept
            )

        return self._get(("reply", offer.key + json.dumps(answer, default=str)), build)

    def _grammar(self, text: str, syntax: GrammarSyntax) -> Grammar:
        from stcon.api import compile_grammar

        return self._get((syntax, text), lambda: compile_grammar(text, syntax=syntax))

    def choice(self, texts: Sequence[str]) -> Grammar:
        """The grammar of a list of texts.

        Raises:
            InvalidOption: not a list of one to `MAX_CHOICES` non-empty texts.
        """
        import re

        usable = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
        if not usable or not 1 <= len(texts) <= MAX_CHOICES:
            raise InvalidOption(f"expected a list of 1 to {MAX_CHOICES:,} non-empty texts")
        return self.regex("|".join(f"(?:{re.escape(text)})" for text in texts))

    def _get(self, key: tuple[str, str], build: Callable[[], Grammar]) -> Grammar:
        with self._lock:
            kept = self._kept.get(key)
        if kept is None:
            kept = _Kept(build())  # outside the lock: others need not wait for a slow one; two of the same are harmless
        kernel = self._kernel(kept.grammar)
        with self._lock:
            kept = self._kept.setdefault(key, kept)
            kept.kernel = kernel
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and self._is_over():
                self._kept.popitem(last=False)
        return kept.grammar

    def _kernel(self, grammar: Grammar) -> CpuKernel | None:
        """The kernel that requests under `grammar` share, as long as it is kept here."""
        if self._vocabulary is None:
            return None
        from stcon.constraint.sharing import kernel_for, machine_of

        return kernel_for(machine_of(grammar), self._vocabulary)

    def _is_over(self) -> bool:
        return len(self._kept) > self._most or sum(kept.nbytes for kept in self._kept.values()) > self._max_bytes
