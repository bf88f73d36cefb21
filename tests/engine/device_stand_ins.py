"""Stand-ins for a device: a walker on the CPU's kernel, and static models whose logits are a hash of the prefix.

The walker keeps tables of its own, as a device does: a state is missing there until `build_missing`, once each.
`HashModel` is recurrent: its state is the hash so far; a token fed twice, or not taken back, changes everything.
`PrefixModel` keeps what attention keeps: the tokens by their places, of which those past the length are nothing.
"""

import numpy as np
import torch

from stcon.constraint.sharing import kernel_for
from stcon.engine.sampling import Sampling, apply_bitmask, unpack_bitmask
from stcon.grammar.machine import CONFIG_WORDS
from stcon.models.fake import FakeModel, _absorb, hash_prefix


class HostGrammars:
    """Machines by number, and the states whose rows are there."""

    def __init__(self, is_lazy=True):
        self.machines = {}
        self.known = {}
        self.is_lazy = is_lazy
        self.num_added = self.num_built = 0

    def add(self, machine):
        index = self.num_added
        self.num_added += 1
        self.machines[index] = machine
        self.known[index] = {machine.start}
        return index

    def remove(self, index):
        del self.machines[index], self.known[index]


class HostWalker:
    """See ``docs/gpu.md``; one kernel call a row."""

    def __init__(self, vocabulary, grammars, rows=8):
        self.vocabulary = vocabulary
        self.grammars = grammars
        zeros = lambda *shape: torch.zeros(shape, dtype=torch.int32)  # noqa: E731
        self.config, self.grammar = zeros(rows, CONFIG_WORDS), zeros(rows) - 1
        self.min_bytes, self.is_restricted = zeros(rows), zeros(rows)
        self.allowed = zeros(rows, vocabulary.num_words)
        self.missing = zeros(rows) - 1
        self.num_stalls = 0

    def _mask(self, row):
        """int32[W], or None where a row is missing."""
        words = np.full(self.vocabulary.num_words, -1, np.int32)
        index, config = int(self.grammar[row]), self.config[row].numpy().copy()
        if index >= 0 and config[0] >= 0:
            if self.grammars.is_lazy and int(config[0]) not in self.grammars.known[index]:
                self.missing[row] = int(config[0])
                return None
            kernel_for(self.grammars.machines[index], self.vocabulary).mask(config, words)
        elif config[0] < 0:
            words[:] = 0
            for token in self.vocabulary.end_ids:
                words[token >> 5] |= 1 << (token & 31)
        least = int(self.min_bytes[row])
        for token in np.flatnonzero(unpack_bitmask(words, self.vocabulary.size)).tolist() if least > 1 else ():
            data = self.vocabulary.token_bytes(token)
            if data is not None and len(data) < least:
                words.view(np.uint32)[token >> 5] &= ~np.uint32(1 << (token & 31))
        return words & self.allowed[row].numpy() if self.is_restricted[row] else words

    def _draw(self, logits, out, draw):
        for row in range(len(out)):
            out[row] = -1
            words = self._mask(row) if self.missing[row] < 0 else None
            if words is None:
                self.num_stalls += 1
                continue
            masked = apply_bitmask(logits[row].numpy().copy(), words)
            if np.isfinite(masked.max()):
                out[row] = draw(row, masked)

    def argmax(self, logits, out):
        self._draw(logits, out, lambda row, masked: int(np.argmax(masked)))

    def sample(self, logits, sampling, out):
        def draw(row, masked):
            options = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.seeds)
            temperature, k, p, low, seed = (tensor[row].item() for tensor in options)
            token = Sampling(temperature, k, p, low, seed % 2**64).draw(masked, int(sampling.positions[row]))
            sampling.positions[row] += 1
            return token

        self._draw(logits, out, draw)

    def advance(self, tokens):
        for row, token in enumerate(tokens.tolist()):
            if token < 0 or self.missing[row] >= 0:
                continue
            if token in self.vocabulary.end_ids:
                self.config[row, 0] = -1
            elif self.grammar[row] >= 0:
                kernel = kernel_for(self.grammars.machines[int(self.grammar[row])], self.vocabulary)
                config = self.config[row].numpy()
                assert kernel.advance(config, self.vocabulary.token_bytes(token)), "only admissible tokens are drawn"

    def include(self, grammar, config):
        assert int(config[0]) < self.grammars.machines[grammar].num_states, "the host has built what it gives"

    def build_missing(self):
        stalled = [row for row in range(len(self.missing)) if self.missing[row] >= 0]
        for row in stalled:
            index, state = int(self.grammar[row]), int(self.missing[row])
            assert state < self.grammars.machines[index].num_states, "a state of the row's own machine"
            self.grammars.known[index].add(state)
            self.grammars.num_built += 1
        self.missing.fill_(-1)
        return bool(stalled)


class HashCache:
    """One digest a row, and how many tokens it is of."""

    recurrent = True

    def __init__(self, rows, capacity, start):
        self.rows, self.capacity = rows, capacity
        self.start = start
        self.digests = [(start, 0)] * rows
        self.saved = list(self.digests)
        self.nbytes = 0

    def slice(self, start, stop):
        assert (start, stop) == (0, self.rows)
        return self

    def save(self):
        self.saved = list(self.digests)

    def restore(self, rows=None):
        self.digests = list(self.saved)


class HashModel:
    """`FakeModel` as a `StaticModel`: the same logits after the same tokens."""

    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, fake):
        self.fake = fake
        self.vocab_size = fake.vocabulary.size
        self.context_length = fake.context_length
        self.spans = []

    def new_cache(self, rows, capacity):
        return HashCache(rows, capacity, hash_prefix(self.fake.seed, ()))

    def forward(self, tokens, lengths, cache, counts=None, all_positions=False):
        self.spans.append(tokens.shape[1])
        rows = []
        for row in range(len(tokens)):
            assert int(lengths[row]) + tokens.shape[1] <= cache.capacity
            digest, length = (cache.start, 0) if int(lengths[row]) == 0 else cache.digests[row]
            assert length == int(lengths[row]), "the state is one of as many tokens as the cache holds"
            count = tokens.shape[1] if counts is None else int(counts[row])
            after = []
            for token in tokens[row, :count].tolist():
                assert 0 <= token < self.vocab_size
                digest = _absorb(digest, token)
                after.append(digest)
            cache.digests[row] = digest, length + count
            rows.append(self._logits(after if all_positions else [digest]))
        return torch.stack(rows) if all_positions else torch.cat(rows)

    def _logits(self, digests):
        return torch.stack([torch.from_numpy(self.fake.logits((), digest)) for digest in digests])


class PrefixCache:
    """Tokens by place, a row."""

    recurrent = False
    nbytes = 0

    def __init__(self, rows, capacity):
        self.rows, self.capacity = rows, capacity
        self.tokens = np.full((rows, capacity), -1, np.int64)

    def slice(self, start, stop):
        assert (start, stop) == (0, self.rows)
        return self

    def save(self):
        """Nothing is lost by going on."""

    def restore(self, rows=None):
        """So nothing needs to be restored."""


class PrefixModel(HashModel):
    """`HashModel` with attention's memory."""

    def new_cache(self, rows, capacity):
        return PrefixCache(rows, capacity)

    def forward(self, tokens, lengths, cache, counts=None, all_positions=False):
        assert counts is None
        self.spans.append(tokens.shape[1])
        rows = []
        for row in range(len(tokens)):
            begin, end = int(lengths[row]), int(lengths[row]) + tokens.shape[1]
            cache.tokens[row, begin:end] = tokens[row].numpy()
            text = cache.tokens[row, :end].tolist()
            assert min(text) >= 0, "every place before the length was written"
            first = begin + 1 if all_positions else end
            rows.append(self._logits([hash_prefix(self.fake.seed, text[:n]) for n in range(first, end + 1)]))
        return torch.stack(rows) if all_positions else torch.cat(rows)


class MoodyModel(FakeModel):
    """A fake model of a few moods, in each of which it says the same: what it wrote before is often what comes next."""

    moods = 3

    def logits(self, tokens, digest=None):
        state = hash_prefix(self.seed, tokens) if digest is None else digest
        return super().logits(tokens, state % self.moods)
