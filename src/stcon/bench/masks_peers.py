"""The peers of `stcon bench masks`, as adapters: llguidance, xgrammar and outlines_core.

None raises errors of kinds that one could tell apart, so that a refusal's reason is read off its message.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stcon.bench.masks_engines import Refused, Session, Settings

if TYPE_CHECKING:
    from stcon.bench.masks_corpus import Case
    from stcon.vocab.vocabulary import Vocabulary

# reason: what a message that means it contains
_REASONS = {
    "unsatisfiable": ("unsatisfiable", "cannot accept any value", "no possible"),
    "too large": ("too large", "too complex", "too many", "too big", "exceed", "limit", "fuel", "out of memory"),
    "not supported": ("unimplemented", "not implemented", "unsupported", "not supported", "cannot be supported"),
    "invalid pattern": ("regex", "regular expression", "pattern"),
    "invalid schema": ("invalid", "must be", "should be", "expected", "cannot find", "unresolvable", "unknown"),
}
_PLACE_IN_SOURCE = re.compile(r"^\[[\d:]+\] \S+?:\d+: ")


def by_message(message: str) -> Refused:
    """A refusal for an error of which the message is all there is."""
    text = _PLACE_IN_SOURCE.sub("", message.strip())
    lower = text.lower()
    found = (reason for reason, marks in _REASONS.items() if any(mark in lower for mark in marks))
    return Refused(next(found, "other"), text)


def _token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """[V] the bytes of each token, empty where it has none: all three take that for one never allowed as text."""
    return [vocabulary.token_bytes(token) or b"" for token in range(vocabulary.size)]


# --------------------------------------------------------------------------------------------------- llguidance


class LlguidanceEngine:
    """llguidance with the defaults of its JSON compiler, among them ``whitespace_flexible``."""

    def __init__(self, vocabulary: Vocabulary, settings: Settings) -> None:
        from llguidance import LLMatcher, LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        self.end_ids = vocabulary.end_ids
        self.options = {"whitespace_flexible": True, "slices": "general_slices() (default)"}
        self._new = LLMatcher
        self._num_words = vocabulary.num_words
        wrapper = TokenizerWrapper(Spelling(vocabulary))
        self._tokenizer = LLTokenizer(wrapper, n_vocab=vocabulary.size, eos_token=list(vocabulary.end_ids))

    def compile(self, case: Case) -> Callable[[], Session]:
        # off by default, and asked for by texts that spell characters so
        settings = {"json_allow_general_unicode_escapes": True} if case.escapes == "any" else None
        grammar = self._new.grammar_from_json_schema(case.schema, defaults=settings)
        matcher = self._new(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise by_message(matcher.get_error())
        num_started = 0

        def start() -> Session:
            nonlocal num_started
            num_started += 1
            if num_started > 1 and not matcher.reset():  # what its lexer has built is kept from output to output
                raise by_message(matcher.get_error())
            return _LlguidanceSession(matcher, self._num_words)

        return start


class Spelling:
    """What llguidance asks of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.end_ids[0]
        self.bos_token_id = None
        self.tokens = _token_bytes(vocabulary)
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._encode = vocabulary.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.decode() if isinstance(text, bytes) else text)


class _LlguidanceSession:
    accept: Callable[[int], bool]

    def __init__(self, matcher: Any, num_words: int) -> None:
        import numpy as np

        self.mask = np.zeros(num_words, np.int32)
        self.accept = matcher.consume_token
        self._matcher = matcher
        self._compute = matcher.unsafe_compute_mask_ptr
        self._address, self._nbytes = self.mask.ctypes.data, self.mask.nbytes

    def fill(self) -> None:
        self._compute(self._address, self._nbytes)

    def error(self) -> Refused | None:
        return by_message(self._matcher.get_error()) if self._matcher.is_error() else None


# --------------------------------------------------------------------------------------------------- xgrammar


class XgrammarEngine:
    """xgrammar with any whitespace and without `strict_mode`, which would close every object.

    Args:
        dynamic: mask tables are made when first needed, not at compile time (``xgrammar_dynamic``).
    """

    def __init__(self, vocabulary: Vocabulary, settings: Settings, *, dynamic: bool = False) -> None:
        import xgrammar

        self.end_ids = vocabulary.end_ids
        threads = os.cpu_count() or 1
        self.options = {
            "any_whitespace": True,
            "strict_mode": False,
            "any_order": False,
            "max_threads": threads,
            "enable_dynamic_compilation": dynamic,
        }
        self._library = xgrammar
        self._size = vocabulary.size
        info = xgrammar.TokenizerInfo(
            _token_bytes(vocabulary),
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=list(vocabulary.end_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=threads, enable_dynamic_compilation=dynamic)

    def compile(self, case: Case) -> Callable[[], Session]:
        try:
            compiled = self._compiler.compile_json_schema(case.schema, any_whitespace=True, strict_mode=False)
        except Exception as error:
            raise by_message(str(error)) from error

        def start() -> Session:
            matcher = self._library.GrammarMatcher(compiled)
            return _XgrammarSession(matcher, self._library.allocate_token_bitmask(1, self._size))

        return start


class _XgrammarSession:
    accept: Callable[[int], bool]

    def __init__(self, matcher: Any, bitmask: Any) -> None:
        self.mask = bitmask.numpy()[0]  # the same memory
        self.accept = matcher.accept_token
        self._fill = matcher.fill_next_token_bitmask
        self._bitmask = bitmask

    def fill(self) -> None:
        self._fill(self._bitmask)

    def error(self) -> Refused | None:
        return None


def dynamic_xgrammar(vocabulary: Vocabulary, settings: Settings) -> XgrammarEngine:
    """`XgrammarEngine` with dynamic compilation."""
    return XgrammarEngine(vocabulary, settings, dynamic=True)


# --------------------------------------------------------------------------------------------------- outlines_core


class OutlinesEngine:
    """outlines_core: JSON Schema to a regular expression to an index of all states and tokens.

    It knows one end token, the vocabulary's first, and optional single spaces as whitespace (its default).
    """

    def __init__(self, vocabulary: Vocabulary, settings: Settings) -> None:
        import outlines_core

        self.end_ids = vocabulary.end_ids[:1]
        self.options = {"whitespace_pattern": outlines_core.json_schema.WHITESPACE}
        self._library = outlines_core
        self._num_words = vocabulary.num_words
        ids: defaultdict[bytes, list[int]] = defaultdict(list)
        for token, data in enumerate(_token_bytes(vocabulary)):
            if data:
                ids[data].append(token)
        self._vocabulary = outlines_core.Vocabulary(self.end_ids[0], dict(ids))

    def compile(self, case: Case) -> Callable[[], Session]:
        try:
            pattern = self._library.json_schema.build_regex_from_schema(case.schema)
            index = self._library.Index(pattern, self._vocabulary)
        except Exception as error:
            raise by_message(str(error)) from error
        return lambda: _OutlinesSession(self._library.Guide(index), self._num_words)


class _OutlinesSession:
    def __init__(self, guide: Any, num_words: int) -> None:
        import numpy as np

        self.mask = np.zeros(num_words, np.int32)
        self._advance = guide.advance
        self._write = guide.write_mask_into
        self._place = (self.mask.ctypes.data, self.mask.size, self.mask.itemsize)

    def fill(self) -> None:
        self._write(*self._place)

    def accept(self, token: int) -> bool:
        self._advance(token, False)  # raises if it does not take it
        return True

    def error(self) -> Refused | None:
        return None
