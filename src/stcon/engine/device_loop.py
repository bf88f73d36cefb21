"""One stream on a device: the model, the mask and the draw run there; the host plans forced text meanwhile.

Same outputs as `stcon.engine.loop`, token for token, where the model gives the same logits. A step is one launch
(`stcon.models.graphs`); what the host does between two of them is all that the device waits for::

    launch a step  ─►  read the token  ─►  is it quiet? launch the next step at once, from what the device holds
                                           plan (control.choose), emit, stream: while that step runs
                   ◄─  the plan brought forced text, or another mask: feed it in one launch

**Running ahead.** The step launched before the plan is known feeds the drawn token alone and draws from the machine's
own mask. If the plan says the same, its draw counts. If forced text follows, the token is fed already, only the rest is
fed in the next pass, and the draw is dropped: nothing is computed twice, but it is a pass more. If the token is healed,
the pass is undone: attention caches by their length, recurrent states from a copy made before.

``ahead`` says when to do so: ``"quiet"`` (default) when `Control.is_quiet` expects no forced text, and even before the
token is read where none can ever come; ``"always"`` before every token is read; ``"never"``. What pays is a matter of
the model's speed and the grammar: `benchmarks/gpu_extract.py` measures all three.

**What the host hands over.** A cover as a number; everything else that the machine's own mask lacks (history
constraints) as a row of words, and-ed to it. Limits: a token is drawn as without one; only if no completion fits behind
it the logits come to the host, which then draws as `stcon.engine.loop` does. So do outputs with penalties or logprobs.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args
from weakref import WeakKeyDictionary

import numpy as np

from stcon.engine.output import Generation, Output
from stcon.engine.sampling import Float32
from stcon.errors import DecodingError, InvalidOption, ModelUnavailable
from stcon.models.graphs import MAX_SPAN, StepGraphs, Walker

if TYPE_CHECKING:
    from stcon.grammar.machine import Machine
    from stcon.models.base import Model
    from stcon.models.static import StaticModel

Ahead: TypeAlias = Literal["quiet", "always", "never"]

SMALLEST_CAPACITY = 512
MAX_GRAMMARS = 64
MAX_REPEATS = 100_000


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

    Cost: the first stream captures its graphs as it goes (a second or so in all); a longer context than any before
    makes new caches and graphs.
    """

    def __init__(self, model: StaticModel, kernels: Kernels, *, vocab_size: int, ahead: Ahead = "quiet") -> None:
        if ahead not in get_args(Ahead):
            raise InvalidOption(f"ahead: expected one of {', '.join(get_args(Ahead))}, got {ahead!r}")
        self.model = model
        self.ahead = ahead
        self.vocab_size = vocab_size
        self._kernels = kernels
        self._made: tuple[Grammars, Walker] | None = None
        self._graphs: StepGraphs | None = None
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
            self._graphs = None  # frees the old caches first
            walker = self._walker_and_grammars()[1]
            self._graphs = StepGraphs(self.model, walker, vocab_size=self.vocab_size, capacity=capacity)
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
        if output.grammar is not None and output.step.place is not None:
            grammar = self._index(output.grammar.machine)
        try:
            _Decoding(graphs, output, grammar, self.ahead).run()
        finally:
            graphs.drain()

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
        return grammars, CudaWalker(vocabulary, grammars, max_rows=1)

    engine = DeviceEngine(static, kernels, vocab_size=vocabulary.size)
    try:
        engine.prepare()
    except ModelUnavailable as error:
        warnings.warn(f"decoding runs without the GPU kernels, slowly: {error}", RuntimeWarning, stacklevel=4)
        return None
    return engine


_engines: WeakKeyDictionary[Model, DeviceEngine | None] = WeakKeyDictionary()
_making = threading.Lock()


class _Decoding:
    """One stream under way.

    Attributes:
        length: tokens in the cache, without those of a step that ran ahead.
        chained: a step that ran ahead is under way.
    """

    def __init__(self, graphs: StepGraphs, output: Output, grammar: int, ahead: Ahead) -> None:
        self.graphs = graphs
        self.output = output
        self.grammar = grammar
        self.ahead = ahead
        self.length = 0
        self.chained = False
        self.greedy = output.sampling.greedy
        options: Any = output.sampling
        if not self.greedy:
            graphs.sampling.set_row(0, options)

    def run(self) -> None:
        """Decode to the end."""
        output = self.output
        self._prompt()
        while output.finish is None:
            self._run_ahead(None)
            token = self._read()
            if token is not None:
                self._run_ahead(token)
            self._take(token)
            if output.finish is None:
                self._go_on(token)

    # ------------------------------------------------------------------------------------------------- launches

    def _prompt(self) -> None:
        """Feed the prompt with the forced beginning, and draw."""
        started = perf_counter()
        output = self.output
        self.graphs.prefill(0, output.pending)
        self.length = len(output.pending)
        output.pending.clear()
        output.passes = 1
        self._draw_again()
        self.graphs.wait()
        output.prefill_s = perf_counter() - started

    def _feed(self) -> None:
        """Feed what is pending, `MAX_SPAN` tokens a pass, and draw after the last."""
        output, inbox = self.output, self.graphs.inbox.host
        while True:
            part = output.pending[:MAX_SPAN]
            del output.pending[:MAX_SPAN]
            inbox["tokens"][0, : len(part)] = part
            inbox["lengths"][0] = self.length
            self.length += len(part)
            output.passes += 1
            if not output.pending:
                break
            self.graphs.push(len(part))
            self.graphs.drain()  # the inbox is written again
        later = output.step.later
        self._place()
        if later is None:
            self.graphs.feed(len(part), greedy=self.greedy)
            return
        self.graphs.push(len(part))
        self.graphs.restrict(0, later())  # found while the model runs
        self.graphs.draw(greedy=self.greedy)
        self.graphs.read()

    def _draw_again(self) -> None:
        """Draw from the logits at hand, under the mask of the output's last step."""
        later = self.output.step.later
        self._place()
        if later is not None:
            self.graphs.restrict(0, later())
        self.graphs.draw(greedy=self.greedy)

    def _place(self) -> None:
        """Write to the inbox where the walk begins, and hand over what the host adds to it."""
        inbox, step = self.graphs.inbox.host, self.output.step
        place = step.place
        inbox["positions"][0] = len(self.output.tokens)
        inbox["grammar"][0] = -1 if place is None else self.grammar
        inbox["config"][0] = 0 if place is None else place.config
        inbox["min_bytes"][0] = 0 if place is None else place.min_bytes
        is_whole = step.later is None and (step.mask is None or (place is not None and place.is_exact))
        inbox["is_restricted"][0] = not is_whole
        if not is_whole and step.mask is not None:
            self.graphs.restrict(0, step.mask)

    # ------------------------------------------------------------------------------------------------- running ahead

    def _may_chain(self, token: int | None) -> bool:
        """Whether to launch the next step before `token` (None: it is not read yet) was planned for."""
        output, step = self.output, self.output.step
        if self.ahead == "never" or output.needs_logits or step.limit is not None or step.later is not None:
            return False
        if step.mask is not None and (step.place is None or not step.place.is_exact or step.place.min_bytes):
            return False
        if self.length + 2 > self.graphs.capacity or len(output.tokens) + 1 >= output.limit:
            return False
        return self.ahead == "always" or output.is_quiet(token)

    def _run_ahead(self, token: int | None) -> None:
        """Launch the next step, if it is not yet and if that is likely to pay."""
        if self.chained or not self._may_chain(token):
            return
        constrained = self.output.step.mask is not None
        # before the token is read it may be none (a row was missing); and healing may take it back
        careful = constrained and (token is None or self.graphs.cache.recurrent)
        self.graphs.chain(greedy=self.greedy, careful=careful)
        self.chained = True

    def _go_on(self, token: int | None) -> None:
        """Launch the next step, unless the one that ran ahead is it."""
        output = self.output
        if not self.chained:
            self._feed()
            return
        self.chained = False
        output.passes += 1
        if output.pending[:1] != [token]:  # healed: the token was fed in vain
            self._undo()
            self._feed()
            return
        del output.pending[0]
        self.length += 1
        place = output.step.place
        if output.pending:
            self.graphs.drain()
            self._feed()
        elif place is not None and (place.min_bytes or not place.is_exact):
            self.graphs.drain()
            self._draw_again()

    def _undo(self) -> None:
        """Forget the step that ran ahead."""
        self.graphs.drain()
        self.graphs.cache.restore()
        self.chained = False

    # ------------------------------------------------------------------------------------------------- drawing

    def _read(self) -> int | None:
        """The token drawn by the oldest launch; None where the host must draw from the logits.

        Where a row of the machine was missing on the device, it is built and the draw repeated.
        """
        token = int(self.graphs.read()[0])
        if self.output.needs_logits:
            return None
        for _ in range(MAX_REPEATS):
            if token >= 0:
                return token
            if self.chained:
                if self.output.step.mask is None:  # without a constraint only the model can be at fault
                    raise DecodingError("the model's logits are not finite numbers (NaN or infinity)")
                self._undo()
            assert self.graphs.walker is not None
            if not self.graphs.walker.build_missing():
                return None
            self._draw_again()
            token = int(self.graphs.read()[0])
        raise DecodingError("a row of the grammar's machine stays unbuilt on the device")

    def _take(self, token: int | None) -> None:
        """Emit the token drawn, or draw on the host."""
        if token is None or not self.output.take_greedy(token):
            self.output.take(self._logits())

    def _logits(self) -> Float32:
        """float32[V], a copy of the logits at hand."""
        return np.array(self.graphs.logits[0].cpu().numpy())


def warm_up(engine: DeviceEngine, tokens: int, spans: Sequence[int] = tuple(range(1, MAX_SPAN + 1))) -> None:
    """Capture the greedy graphs for streams of up to `tokens` before the first one comes."""
    engine.graphs(tokens).warm_up(spans)
