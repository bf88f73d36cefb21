"""Sample grammars in this engine and its peers: verdicts on the same texts, and what masks cost, in one run.

llguidance reads the Lark form of each grammar and xgrammar the EBNF form; stcon reads both. Verdicts come first: a text
is given byte by byte, and is accepted if every byte is admitted and the end is. Then each accepted text is decoded in
tokens of a real vocabulary: the first mask of a fresh output after compiling, and the masks between tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from stcon.bench.masks_engines import Refused, Session, Settings, load_vocabulary
from stcon.errors import ModelUnavailable, RequestError, StconError

if TYPE_CHECKING:
    from stcon.vocab.vocabulary import Vocabulary

# (engine, the syntax that it is given)
PAIRS = (("stcon", "ebnf"), ("xgrammar", "ebnf"), ("stcon", "lark"), ("llguidance", "lark"))


class Sample(NamedTuple):
    """A grammar in both syntaxes, with texts that belong to it and texts that do not."""

    name: str
    ebnf: str
    lark: str
    accept: list[str]
    reject: list[str]


class Row(NamedTuple):
    """One engine on one grammar. Times in microseconds, None where nothing was timed.

    Attributes:
        wrong_accepts, wrong_rejects: texts on which it differs from the sample.
        conflict: why stcon's machine is not deterministic, or "".
        refused: why the engine does not take the grammar, or "".
    """

    grammar: str
    engine: str
    syntax: str
    compile_us: float | None = None
    first_us: float | None = None
    between_us: float | None = None
    between_max_us: float | None = None
    masks: int = 0
    wrong_accepts: tuple[str, ...] = ()
    wrong_rejects: tuple[str, ...] = ()
    conflict: str = ""
    refused: str = ""


def read_samples(folder: Path) -> Iterator[Sample]:
    """The samples of a folder: NAME.json with its texts, beside NAME.ebnf and NAME.lark. Raises `RequestError`."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise RequestError(f"{folder}: no sample grammars (NAME.json, NAME.ebnf, NAME.lark); give their folder")
    for path in paths:
        try:
            texts = json.loads(path.read_text("utf-8"))
            ebnf, lark = (path.with_suffix(suffix).read_text("utf-8") for suffix in (".ebnf", ".lark"))
            yield Sample(path.stem, ebnf, lark, list(texts["accept"]), list(texts["reject"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RequestError(f"{path}: not a sample ({error})") from None


def measure(folder: Path, tokenizer: str, progress: Callable[[str], None]) -> list[Row]:
    """Every engine on every sample.

    Raises:
        RequestError: no samples.
        ModelUnavailable: a peer is not installed.
    """
    samples = list(read_samples(folder))
    rows = []
    for engine, syntax in PAIRS:
        spelled = _compiler(engine, syntax, load_vocabulary("bytes"))
        timed = _compiler(engine, syntax, vocabulary := load_vocabulary(tokenizer))
        for sample in samples:
            progress(f"{engine} {sample.name}")
            rows.append(_row(sample, engine, syntax, spelled, timed, vocabulary))
    return rows


Compile = Callable[[str], tuple[Callable[[], Session], str]]


def _row(sample: Sample, engine: str, syntax: str, spelled: Compile, timed: Compile, vocabulary: Vocabulary) -> Row:
    text = sample.ebnf if syntax == "ebnf" else sample.lark
    row = Row(sample.name, engine, syntax)
    try:
        start, conflict = spelled(text)
        verdicts = {each: _accepts(start, each.encode()) for each in (*sample.accept, *sample.reject)}
        row = row._replace(
            conflict=conflict,
            wrong_accepts=tuple(each for each in sample.reject if verdicts[each]),
            wrong_rejects=tuple(each for each in sample.accept if not verdicts[each]),
        )
        return _timed(row, sample, text, timed, vocabulary)
    except Refused as refusal:
        return row._replace(refused=str(refusal))


def _accepts(start: Callable[[], Session], data: bytes) -> bool:
    """Whether each byte is in the mask before it, and the end token in the last (vocabulary "bytes")."""
    session = start()
    for token in (*data, 256):
        session.fill()
        if not session.mask[token >> 5] >> (token & 31) & 1:
            return False
        if token < 256 and not session.accept(token):
            return False
    return True


def _timed(row: Row, sample: Sample, text: str, timed: Compile, vocabulary: Vocabulary) -> Row:
    begin = perf_counter()
    start, _ = timed(text)
    compiled = perf_counter() - begin
    first: float | None = None
    between: list[float] = []
    for each in sample.accept:
        session = start()
        for token in vocabulary.encode(each):
            begin = perf_counter()
            session.fill()
            taken = perf_counter() - begin
            if first is None:
                first = taken
            else:
                between.append(taken)
            if not session.accept(token):
                break
    return row._replace(
        compile_us=1e6 * compiled,
        first_us=None if first is None else 1e6 * first,
        between_us=1e6 * median(between) if between else None,
        between_max_us=1e6 * max(between) if between else None,
        masks=len(between) + (first is not None),
    )


def _compiler(engine: str, syntax: str, vocabulary: Vocabulary) -> Compile:
    if engine == "stcon":
        return _stcon(syntax, vocabulary)
    from stcon.bench import masks_peers as peers

    try:
        if engine == "xgrammar":
            return _xgrammar(peers.XgrammarEngine(vocabulary, Settings()))
        return _llguidance(peers.LlguidanceEngine(vocabulary, Settings()))
    except ImportError as error:
        raise ModelUnavailable(
            f"engine {engine} needs a package that is not installed ({error}); run: pip install 'stcon[bench]'"
        ) from error


def _stcon(syntax: str, vocabulary: Vocabulary) -> Compile:
    import stcon
    from stcon.bench.masks_engines import _StconSession

    def compiled(text: str) -> tuple[Callable[[], Session], str]:
        try:
            grammar = stcon.compile_grammar(text, syntax=syntax)  # type: ignore[arg-type]
        except StconError as error:
            raise Refused("refused", str(error)) from error
        conflict = "" if grammar.conflict is None else str(grammar.conflict)
        return lambda: _StconSession(stcon.Matcher(grammar, vocabulary)), conflict

    return compiled


def _xgrammar(engine: Any) -> Compile:
    from stcon.bench.masks_peers import _XgrammarSession, by_message

    def compiled(text: str) -> tuple[Callable[[], Session], str]:
        try:
            grammar = engine._compiler.compile_grammar(text)
        except Exception as error:
            raise by_message(str(error)) from error
        library = engine._library

        def start() -> Session:
            mask = library.allocate_token_bitmask(1, engine._size)
            return _XgrammarSession(library.GrammarMatcher(grammar), mask)

        return start, ""

    return compiled


def _llguidance(engine: Any) -> Compile:
    from stcon.bench.masks_peers import _LlguidanceSession, by_message

    def compiled(text: str) -> tuple[Callable[[], Session], str]:
        grammar = engine._new.grammar_from_lark(text)
        matcher = engine._new(engine._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise by_message(matcher.get_error())

        def start() -> Session:
            if not matcher.reset():
                raise by_message(matcher.get_error())
            return _LlguidanceSession(matcher, engine._num_words)

        return start, ""

    return compiled


def failures(rows: list[Row]) -> list[str]:
    """What is red: texts on which stcon's verdict is not the sample's."""
    return [
        f"{row.grammar} ({row.syntax}): {kind} {text!r}"
        for row in rows
        if row.engine == "stcon"
        for kind, texts in (("accepts", row.wrong_accepts), ("rejects", row.wrong_rejects), ("refused", row.refused))
        for text in ([texts] if isinstance(texts, str) and texts else texts)
    ]
