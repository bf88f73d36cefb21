"""One stream on a device: the model, the mask and the draw run there; the host plans forced text meanwhile.

Same outputs as `stcon.engine.loop`, token for token, where the model gives the same logits. A step is one launch
(`stcon.models.graphs`); what the host does between two of them is all that the device waits for::

    launch a step  ─►  read the token drawn  ─►  decide what it implies (control.choose: 10 to 20 µs, mostly)
                   ◄─  launch the next: the token alone, from what the device holds; or with forced text and guesses
                       emit, stream, look up: while that step runs

**Running ahead.** ``ahead`` says whether a step is launched before the token that it feeds is read: ``"quiet"``
(default) where nothing is ever forced (mode ``mask``, no grammar); ``"always"``; ``"never"``. Such a step draws from
the machine's own mask. If forced text follows its token, the token is fed already, only the rest is fed in the next
pass, and the draw is dropped: nothing is computed twice, but it is a pass more. If the token is healed, the pass is
undone: attention caches by their length, recurrent states from a copy made before.

**Guesses** of the next tokens are checked in the pass that feeds them (`stcon.engine.guesses`): the same output in
fewer passes.

**What the host hands over.** A cover as a number; everything else that the machine's own mask lacks (history
constraints) as a row of words, and-ed to it. Limits: a token is drawn as without one; only if no completion fits behind
it the logits come to the host, which then draws as `stcon.engine.loop` does. So do outputs with penalties or logprobs.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias, get_args
from weakref import WeakKeyDictionary

from stcon.engine.device_decoding import Ahead, Decoding
from stcon.engine.output import Generation, Output
from stcon.errors import InvalidOption, ModelUnavailable
from stcon.models.graphs import MAX_SPAN, StepGraphs, Walker
from stcon.models.span_draws import MAX_DRAWS, SpanDraws

if TYPE_CHECKING:
    from stcon.grammar.machine import Machine
    from stcon.models.base import Model
    from stcon.models.static import StaticModel

SMALLEST_CAPACITY = 512
MAX_GRAMMARS = 64


class Grammars(Protocol):
    """Tables of machines on a device: `stcon.kernels.cuda.CudaGrammars`, or a portable one."""

    def add(self, machine: Machine, /) -> int:
        """Upload a machine's tables; returns their number."""

    def remove(self, index: int, /) -> None:
        """Forget them."""


Kernels: TypeAlias = Callable[[], tuple[Grammars, Walker]]
"""Makes the grammars and a walker of one row, for the model's vocabulary and device."""


class DeviceEngine:
    """What one model needs to decode on its device: graphs, caches, the grammars' tables.

    One stream at a time; callers take turns. For many streams see `stcon.engine.batch`.

    Args:
        model: on its device.
        kernels: gives the walker; called when the first constrained stream comes.
        vocab_size: of the vocabulary that the walker masks.
        ahead: see the module's docstring.
        guess: whether tokens are guessed from the text so far.

    Cost: the first stream captures its graphs as it goes (a second or so in all); a longer context than any before
    makes new caches and graphs.
    """

    def __init__(
        self, model: StaticModel, kernels: Kernels, *, vocab_size: int, ahead: Ahead = "quiet", guess: bool = True
    ) -> None:
        if ahead not in get_args(Ahead):
            raise InvalidOption(f"ahead: expected one of {', '.join(get_args(Ahead))}, got {ahead!r}")
        self.model = model
        self.ahead = ahead
        self.guess = guess
        self.vocab_size = vocab_size
        self._kernels = kernels
        self._made: tuple[Grammars, Walker] | None = None
        self._graphs: StepGraphs | None = None
        self._draws: SpanDraws | None = None
        self._indices: dict[Machine, int] = {}
        self._lock = threading.Lock()
        self._owner: int | None = None

    @property
    def context_length(self) -> int:
        """Most tokens of a stream here."""
        return self.model.context_length

    def graphs(self, tokens: int) -> StepGraphs:
        """The graphs with room for `tokens`, made anew if those at hand are too small."""
        if self._graphs is None or self._graphs.capacity < tokens:
            capacity = min(max(SMALLEST_CAPACITY, 1 << (tokens - 1).bit_length()), self.context_length)
            self._graphs = self._draws = None  # frees the old caches first
            walker = self._walker_and_grammars()[1]
            self._graphs = StepGraphs(self.model, walker, vocab_size=self.vocab_size, capacity=capacity)
            num_draws = min(MAX_DRAWS, len(walker.config))
            self._draws = SpanDraws(self._graphs, walker, num_draws) if num_draws > 1 else None
        return self._graphs

    def prepare(self) -> None:
        """Compile and load the kernels now. Raises `ModelUnavailable` where that cannot be done."""
        self._walker_and_grammars()

    def takes(self, output: Output) -> bool:
        """Whether `output` can be decoded here: it fits, and is not made while this thread decodes another."""
        return output.num_prompt + output.limit <= self.context_length and self._owner != threading.get_ident()

    def decode(self, output: Output) -> Generation:
        """Run `output`, which was not begun, to its end.

        Raises:
            What `stcon.engine.loop.generate` raises.
        """
        started = perf_counter()
        output.begin()
        if output.finish is None and not output.pending:
            raise InvalidOption("the prompt is empty; a model needs at least one token to go on from")
        if output.finish is None:
            with self._lock:
                self._owner = threading.get_ident()
                try:
                    self._decode(output)
                finally:
                    self._owner = None
        return output.result(perf_counter() - started)

    def _decode(self, output: Output) -> None:
        graphs = self.graphs(output.num_prompt + output.limit)
        grammar = -1
        if output.grammar is not None and output.control.mode != "free":
            grammar = self._index(output.grammar.machine)
        try:
            Decoding(graphs, output, grammar, self.ahead, self._draws if self.guess else None).run()
        finally:
            graphs.drain()
            if self._draws is not None:
                self._draws.drain()

    def _index(self, machine: Machine) -> int:
        """The number of a machine on the device; the one used longest ago makes room."""
        grammars = self._walker_and_grammars()[0]
        index = self._indices.pop(machine, None)
        if index is None:
            if len(self._indices) == MAX_GRAMMARS:
                grammars.remove(self._indices.pop(next(iter(self._indices))))
            index = grammars.add(machine)
        self._indices[machine] = index  # a dictionary keeps the order of insertion
        return index

    def _walker_and_grammars(self) -> tuple[Grammars, Walker]:
        if self._made is None:
            self._made = self._kernels()
        return self._made


def engine_for(model: Model) -> DeviceEngine | None:
    """The engine of a model on a GPU, made when first asked for; None: it has no static form, or kernels are missing.

    Where the kernels cannot be had, a `RuntimeWarning` says so once, and the plain loop decodes.
    """
    with _making:
        if model not in _engines:
            _engines[model] = _made_for(model)
        return _engines[model]


def _made_for(model: Model) -> DeviceEngine | None:
    static = model.static
    if static is None or str(static.device).partition(":")[0] != "cuda":
        return None
    vocabulary = model.vocabulary
    from stcon.kernels.cuda import CudaGrammars, CudaWalker

    def kernels() -> tuple[Grammars, Walker]:
        grammars = CudaGrammars(static.device)
        return grammars, CudaWalker(vocabulary, grammars, max_rows=MAX_DRAWS)

    engine = DeviceEngine(static, kernels, vocab_size=vocabulary.size)
    try:
        engine.prepare()
    except ModelUnavailable as error:
        warnings.warn(f"decoding runs without the GPU kernels, slowly: {error}", RuntimeWarning, stacklevel=4)
        return None
    return engine


_engines: WeakKeyDictionary[Model, DeviceEngine | None] = WeakKeyDictionary()
_making = threading.Lock()


def warm_up(engine: DeviceEngine, tokens: int, spans: Sequence[int] = tuple(range(1, MAX_SPAN + 1))) -> None:
    """Capture the greedy graphs for streams of up to `tokens` before the first one comes."""
    engine.graphs(tokens).warm_up(spans)
