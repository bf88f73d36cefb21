"""The part of SGLang that a grammar backend meets, in few lines: base classes, the registry, and a scheduler's steps.

It mirrors names, arguments and the order of calls of ``sglang/srt/constrained/base_grammar_backend.py`` (releases 0.5)
and of the sampler, so that our backend can be tested without it. It is not SGLang: that our backend works in it is
not shown by this.
"""

import torch

REGISTRY = {}


def register_grammar_backend(name, init_func):
    REGISTRY[name] = init_func


class BaseGrammarObject:
    def __init__(self):
        self._finished = False
        self.grammar_stats = None
        self.current_token = None

    def maybe_init_reasoning(self, reasoning):
        pass

    @property
    def finished(self):
        return self._finished

    @finished.setter
    def finished(self, finished):
        self._finished = finished

    def _missing(self, *arguments, **options):
        raise NotImplementedError

    accept_token = rollback = allocate_vocab_mask = fill_vocab_mask = move_vocab_mask = apply_vocab_mask = _missing
    try_jump_forward = jump_forward_str_state = jump_and_retokenize = reset_vocab_mask = _missing

    def is_terminated(self):
        return False

    def copy(self):
        return self


class InvalidGrammarObject(BaseGrammarObject):
    def __init__(self, error_message="Unknown grammar error"):
        super().__init__()
        self.error_message = error_message


class BaseGrammarBackend:
    def __init__(self):
        self.cache = {}

    def dispatch_json(self, key_string):
        raise NotImplementedError

    dispatch_regex = dispatch_ebnf = dispatch_structural_tag = dispatch_json

    def get(self, kind, text, reasoning=False):
        """The object of a request: compiled, or a copy of the one in the cache."""
        if (kind, text) not in self.cache:
            self.cache[kind, text] = getattr(self, f"dispatch_{kind}")(text)
        found = self.cache[kind, text].copy()
        found.maybe_init_reasoning(reasoning)
        return found


class ServerArgs:
    grammar_backend = "stcon"
    constrained_json_disable_any_whitespace = True
    constrained_json_whitespace_pattern = None


def step(objects, logits):
    """One step of a batch (None: a request without a grammar): masks, then greedy tokens, which are accepted."""
    first = next(found for found in objects if found is not None)
    mask = first.allocate_vocab_mask(vocab_size=logits.shape[1], batch_size=len(objects), device=logits.device)
    for row, found in enumerate(objects):
        if found is not None and not found.finished and not found.is_terminated():
            found.fill_vocab_mask(mask, row)
    mask = first.move_vocab_mask(mask, logits.device)
    first.apply_vocab_mask(logits=logits, vocab_mask=mask)
    tokens = torch.argmax(logits, dim=-1).tolist()
    for found, token in zip(objects, tokens, strict=True):
        if found is not None:
            found.accept_token(token)
    return tokens
