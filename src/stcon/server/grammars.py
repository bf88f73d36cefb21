"""Constraints of requests, compiled once each: the most recently used are kept."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stcon.errors import InvalidOption
from stcon.grammar.grammar import Grammar

if TYPE_CHECKING:
    from stcon.api import GrammarSyntax
    from stcon.server.tools import Offer

MAX_KEPT = 256
MAX_CHOICES = 10_000


class Grammars:
    """A bounded cache of grammars by what they were compiled from. Safe to use from any thread.

    Args:
        most: grammars kept.
    """

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

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
        from stcon.grammar.tools import compile_reply

        def build() -> Grammar:
            return compile_reply(
                offer.tools, offer.format, required=offer.required, parallel=offer.parallel, answer=answer
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
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        grammar = build()  # outside the lock: others need not wait for a slow one; two of the same are harmless
        with self._lock:
            grammar = self._kept.setdefault(key, grammar)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return grammar
