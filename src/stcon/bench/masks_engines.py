"""The engines that `stcon bench masks` compares, each behind the same two small protocols.

All of them get the same token bytes and end tokens (those of our `Vocabulary`) and the schema as JSON text. Each is set
as its authors recommend for text that may hold any whitespace, and its settings are part of the report (`options`).
An adapter keeps what is timed (`Session.accept`, `Session.fill`) down to the library's own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, Protocol

from stcon.errors import GrammarError, InvalidOption, ModelUnavailable, StconError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stcon.bench.masks_corpus import Case
    from stcon.vocab.vocabulary import Vocabulary

ENGINES = ("stcon", "llguidance", "xgrammar", "xgrammar_dynamic", "outlines_core")
TOKENIZERS = ("qwen3.5", "smollm2", "bytes")


class Refused(Exception):
    """An engine does not take a schema, or gives up on it while decoding."""

    def __init__(self, reason: str, message: str, pointer: str | None = None, keyword: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.pointer = pointer
        self.keyword = keyword


class Session(Protocol):
    """One output."""

    @property
    def mask(self) -> NDArray[np.int32]:
        """int32[W]: what `fill` wrote last; always the same array."""

    def fill(self) -> None:
        """Write the mask of what was accepted so far to `mask`."""

    def accept(self, token: int) -> bool:
        """Take a token that is in the mask; False if the engine does not."""

    def error(self) -> Refused | None:
        """The error state the engine is in, for libraries that raise nothing. Not timed."""


class Engine(Protocol):
    """A library over one vocabulary, ready to compile."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Its settings, for the report."""

    @property
    def end_ids(self) -> Sequence[int]:
        """The tokens that end a text."""

    def compile(self, case: Case) -> Callable[[], Session]:
        """Compile `case`; what it returns starts an output, as often as called. Raises `Refused`."""


@dataclass(frozen=True)
class Settings:
    """What all engines of a run have in common.

    Attributes:
        tokenizer: one of `TOKENIZERS`.
        key_order: of stcon; the peers have their own one way.
        documents: URI → schema; stcon alone takes them.
    """

    tokenizer: str = "qwen3.5"
    key_order: Literal["schema", "any"] = "any"
    documents: Mapping[str, Any] = field(default_factory=dict)


def load_vocabulary(name: str) -> Vocabulary:
    """The vocabulary of `name`: Qwen3.5's 248,077 tokens, the default model's, or the 256 bytes and an end token."""
    from stcon.vocab.vocabulary import Vocabulary

    if name == "qwen3.5":
        from stcon.vocab.qwen import qwen35_vocabulary

        return qwen35_vocabulary()
    if name == "smollm2":
        from stcon.models.pull import default_model_path

        return Vocabulary.from_gguf(default_model_path())
    if name == "bytes":
        return Vocabulary.from_bytes([*(bytes([value]) for value in range(256)), None], end_ids=(256,))
    raise InvalidOption(f"tokenizer is one of {', '.join(TOKENIZERS)}, not {name!r}")


def build_engine(name: str, vocabulary: Vocabulary, settings: Settings) -> Engine:
    """The engine of `name`, set up (not timed).

    Raises:
        InvalidOption: no such engine.
        ModelUnavailable: its package is not installed.
    """
    if name == "stcon":
        return StconEngine(vocabulary, settings)
    from stcon.bench import masks_peers as peers

    builders: dict[str, Callable[[Vocabulary, Settings], Engine]] = {
        "llguidance": peers.LlguidanceEngine,
        "xgrammar": peers.XgrammarEngine,
        "xgrammar_dynamic": peers.dynamic_xgrammar,
        "outlines_core": peers.OutlinesEngine,
    }
    if name not in builders:
        raise InvalidOption(f"engines are {', '.join(ENGINES)}; not {name!r}")
    try:
        return builders[name](vocabulary, settings)
    except ImportError as error:
        raise ModelUnavailable(
            f"engine {name} needs a package that is not installed ({error}); run: pip install 'stcon[bench]'"
        ) from error


def versions(names: Sequence[str]) -> dict[str, str]:
    """The installed version of each engine's package."""
    found = {}
    for name in names:
        package = name.removesuffix("_dynamic")
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# --------------------------------------------------------------------------------------------------- stcon


class StconEngine:
    """This library. ``closed=False``: what a schema leaves open stays open, as for the peers."""

    def __init__(self, vocabulary: Vocabulary, settings: Settings) -> None:
        self.vocabulary = vocabulary
        self.end_ids = vocabulary.end_ids
        self.key_order = settings.key_order
        self.documents = settings.documents
        self.options: dict[str, Any] = {"whitespace": "flexible", "closed": False, "key_order": settings.key_order}

    def compile(self, case: Case) -> Callable[[], Session]:
        import stcon

        try:
            grammar = stcon.compile(
                case.schema,
                whitespace="flexible",
                key_order=self.key_order,
                closed=False,
                escapes=case.escapes,
                format=case.format,
                documents=self.documents,
            )
        except StconError as error:
            raise _refused(error) from error
        return lambda: _StconSession(stcon.Matcher(grammar, self.vocabulary))


class _StconSession:
    def __init__(self, matcher: Any) -> None:
        import numpy as np

        self.mask = np.zeros(matcher.vocabulary.num_words, np.int32)
        self._bitmask = matcher.bitmask
        self._accept = matcher.accept

    def fill(self) -> None:
        try:
            self._bitmask(self.mask)
        except StconError as error:
            raise _refused(error) from error

    def accept(self, token: int) -> bool:
        try:
            return bool(self._accept(token))
        except StconError as error:
            raise _refused(error) from error

    def error(self) -> Refused | None:
        return None


def _refused(error: StconError) -> Refused:
    if isinstance(error, GrammarError):
        return Refused(error.reason, str(error), error.pointer, error.keyword)
    return Refused("internal error", f"{type(error).__name__}: {error}")
