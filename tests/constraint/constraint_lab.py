"""Small languages, small trained tokenizers and a decode loop with a fake chooser, for `stcon.constraint`'s tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from stcon.automata.dfa import ByteDfa
from stcon.constraint.forced import Plan, Planner
from stcon.constraint.sharing import kernel_for
from stcon.grammar.machine import DEAD, Configuration, Machine
from stcon.vocab import Vocabulary

CALL = 0x01  # in an expression: the whole language again

# ------------------------------------------------------------------------------------------------- expressions

Nfa = tuple[int, int]


class Builder:
    """Thompson's construction over bytes, and the subset construction."""

    def __init__(self) -> None:
        self.empty: list[list[int]] = []
        self.edges: list[list[tuple[frozenset[int], int]]] = []

    def state(self) -> int:
        self.empty.append([])
        self.edges.append([])
        return len(self.empty) - 1

    def build(self, expression: object) -> Nfa:
        begin, end = self.state(), self.state()
        match expression:
            case str():
                return self.build([frozenset((byte,)) for byte in expression.encode()])
            case frozenset():
                self.edges[begin].append((expression, end))
            case list():
                last = begin
                for part in expression:
                    first, after = self.build(part)
                    self.empty[last].append(first)
                    last = after
                self.empty[last].append(end)
            case ("alt", *parts):
                for part in parts:
                    first, after = self.build(part)
                    self.empty[begin].append(first)
                    self.empty[after].append(end)
            case ("star", part):
                first, after = self.build(part)
                self.empty[begin] += [first, end]
                self.empty[after] += [first, end]
            case _:
                raise TypeError(expression)
        return begin, end

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        todo, seen = list(states), set(states)
        while todo:
            for other in self.empty[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)


def byte_dfa(expression: object) -> ByteDfa:
    """The language of `expression` (str, frozenset of bytes, list: sequence, ("alt", …), ("star", e))."""
    nfa = Builder()
    begin, end = nfa.build(expression)
    start = nfa.closure([begin])
    numbers, todo, rows = {start: 0}, [start], []
    while todo:
        subset = todo.pop(0)
        row = np.full(256, -1, np.int32)
        reached: dict[int, set[int]] = {}
        for state in subset:
            for members, target in nfa.edges[state]:
                for byte in members:
                    reached.setdefault(byte, set()).add(target)
        for byte, targets in reached.items():
            following = nfa.closure(targets)
            if following not in numbers:
                numbers[following] = len(numbers)
                todo.append(following)
            row[byte] = numbers[following]
        rows.append(row)
    labels = np.array([0 if end in subset else -1 for subset in numbers], np.int32)
    classes = np.arange(256, dtype=np.uint8)
    return ByteDfa(classes, np.array(rows), labels, 0, np.ones(len(rows), np.bool_))


def machine(expression: object) -> Machine:
    """The machine of `expression`; byte `CALL` in it stands for the whole language again."""
    dfa = byte_dfa(expression)
    built = Machine()
    base = built.add_dfa(dfa)
    built.start = base
    callee = [built.edge(base, byte) for byte in range(256)]
    for state in range(dfa.num_states):
        target = int(dfa.delta[state, CALL])
        if target >= 0:
            row = np.array([built.edge(base + state, byte) for byte in range(256)], np.int32)
            symbol = built.return_symbol([base + target])
            for byte, edge in enumerate(callee):
                if edge != DEAD:
                    row[byte] = built.call(edge, symbol)
            row[CALL] = DEAD
            built.set_row(base + state, row)
    return built


def span(low: int, high: int) -> frozenset[int]:
    return frozenset(range(low, high + 1))


TAIL = span(0x80, 0xBF)
NON_ASCII = (
    "alt",
    [span(0xC2, 0xDF), TAIL],
    [span(0xE0, 0xE0), span(0xA0, 0xBF), TAIL],
    [span(0xE1, 0xEC) | span(0xEE, 0xEF), TAIL, TAIL],
    [span(0xED, 0xED), span(0x80, 0x9F), TAIL],
    [span(0xF0, 0xF0), span(0x90, 0xBF), TAIL, TAIL],
)
PLAIN = span(0x20, 0x7E) - {0x22, 0x5C}
STRING = ['"', ("star", ("alt", PLAIN, NON_ASCII)), '"']
DIGIT = span(0x30, 0x39)
NUMBER = [("alt", "", "-"), ("alt", "0", [span(0x31, 0x39), ("star", DIGIT)])]

LANGUAGES: dict[str, object] = {
    "person": ['{"name":', STRING, ',"age":', NUMBER, ',"active":', ("alt", "true", "false"), "}"],
    "spaced": ['{"name": ', STRING, ', "tags": [', ("alt", "", [STRING, ("star", [", ", STRING])]), "]}"],
    "indented": ['{\n    "a": ', NUMBER, ',\n    "b": ', ("alt", STRING, "null", "[]"), "\n}"],
    "enum": ("alt", '"red"', '"reddish green"', '"blue"', '"don\'t know"', '"don\'t"', "null"),
    "key": ['{"', ("star", span(0x61, 0x63)), '":', ("alt", "-", "--", "-1", "1", "[", "-[")],
    "prefix": ['":', ("alt", "-", "--", "-1", "", "a")],
    "loop": [("star", "ab"), "c"],
    "words": ["the", ("star", ("alt", span(0x61, 0x7A), " "))],
    "accented": ["élan ", ("alt", "étoile", "éclair", "è", "中文", "中国")],
    "blank": ["a\n\n  ", ("alt", "\nb", "b", " b", "\n\n", "")],
    "blanks": [("alt", "a", "1"), ("star", ("alt", "\n", " \n", "\n\n  ", "   ")), "b:  ", ("alt", "c", " c", "\n")],
    "tool": [("alt", "", "ok "), "<tool_call>", '{"a":', ("alt", "<think>", "<thin", "1"), "}</tool_call>"],
    "angle": ["a<", ("alt", "tool_call>", "tool", "b"), "</", ("alt", "tool_call>", "x>")],
    "whole": '{"kind":"event","when":"2024-01-31T10:00:00Z"}\n',
    "tree": [
        '{"name":',
        STRING,
        ',"children":[',
        ("alt", "", [span(CALL, CALL), ("star", [",", span(CALL, CALL)])]),
        "]}",
    ],
}


@cache
def language(name: str) -> Machine:
    return machine(LANGUAGES[name])


# ------------------------------------------------------------------------------------------------- tokenizers

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SPLITS = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "qwen": lambda: _split(QWEN),
    "cl100k": lambda: _split(CL100K),
    "unsplit": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    "sentencepiece": lambda: pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
}


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@cache
def vocabulary(split: str, size: int = 420) -> Vocabulary:
    """A BPE trained on texts of the languages above, about `size` tokens, one of them the end token.

    It has added tokens that are text, and all but one of the tokenizers work on bytes.
    """
    tokenizer = _characters(size) if split == "sentencepiece" else _bytes(split, size)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<tool_call>", "</tool_call>", "<think>")])
    return Vocabulary.from_tokenizer(tokenizer, end_ids=[tokenizer.token_to_id("<|end|>")])


def _bytes(split: str, size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = SPLITS[split]()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return tokenizer


def _characters(size: int) -> Tokenizer:
    """Sentencepiece's layout, as in Llama 2: pieces of characters, bytes as a fallback, no pre-tokenizer."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    pieces = ["<unk>", "<|end|>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # no single characters beyond ASCII: the rest is spelled by bytes
    trainer = trainers.BpeTrainer(vocab_size=size + 300, special_tokens=pieces, limit_alphabet=90, show_progress=False)
    tokenizer.train_from_iterator(_corpus(), trainer)
    built = Tokenizer(tokenizer.model)
    built.pre_tokenizer = SPLITS["sentencepiece"]()
    decoder = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    built.decoder = decoders.Sequence(decoder)
    built.add_special_tokens([AddedToken(text, normalized=False) for text in pieces[:2]])
    return built


@cache
def _corpus() -> tuple[str, ...]:
    rng = random.Random(7)
    texts = [random_text(language(name), rng, 80).decode() for name in LANGUAGES for _ in range(20)]
    texts += [
        "the quick brown fox don't say there isn't a thing",
        '{"name": "Maria", "age": 42, "tags": [":-)", "a--b"]}',
    ]
    return tuple(texts * 3)


# ------------------------------------------------------------------------------------------------- texts and loops


@lru_cache(maxsize=20_000)
def _live(built: Machine, config: Configuration) -> list[int]:
    return built.live(config)


def random_text(built: Machine, rng: random.Random, length: int) -> bytes:
    """A text of the language: bytes at random for about `length` bytes, then on the shortest way to an end."""
    config, text = built.initial(), bytearray()
    while True:
        live = _live(built, config)
        if built.accepts(config) and (not live or rng.random() < 0.2 or len(text) > length):
            return bytes(text)
        preferred = [byte for byte in live if byte in b'"],}]c0\n'] if len(text) > length else []
        if not preferred and rng.random() < 0.7:
            preferred = [byte for byte in live if byte in b'abcdehnot" ,:-123']
        byte = rng.choice(preferred or live)
        text.append(byte)
        following = built.step(config, byte)
        assert following is not None
        config = following


def admitted(mask: np.ndarray) -> list[int]:
    """The tokens of a mask."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


@dataclass
class Output:
    """What a loop emitted: tokens with their kind, and the plans at which it sampled."""

    tokens: list[int] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    healed: int = 0
    is_ended: bool = False

    def feed(self, plan: Plan) -> None:
        if plan.replace_last:
            self.tokens.pop()
            self.forced.pop()
            self.healed += 1
        self.tokens += plan.tokens
        self.forced += [True] * len(plan.tokens)
        self.plans.append(plan)


def planner_for(built: Machine, vocabulary: Vocabulary, **options: object) -> Planner:
    return Planner(vocabulary, kernel_for(built, vocabulary), **options)  # type: ignore[arg-type]


def generate(planner: Planner, choose: Callable[[Plan, list[int], Output], int], limit: int = 200) -> Output:
    """Decode with `choose` in place of the model; ends at an end token, or where nothing can follow."""
    output = Output()
    plan = planner.start()
    output.feed(plan)
    while len(output.plans) < limit:
        if plan.is_done:
            output.is_ended = True
            return output
        token = choose(plan, admitted(plan.mask), output)
        if token in planner.vocabulary.end_ids:
            output.is_ended = True
            return output
        output.tokens.append(token)
        output.forced.append(False)
        plan = planner.step(plan, token)
        output.feed(plan)
    return output


def at_random(rng: random.Random, vocabulary: Vocabulary) -> Callable[[Plan, list[int], Output], int]:
    """A chooser that picks at random, after a while prefers to close things, and ends when it may."""

    def choose(plan: Plan, tokens: list[int], output: Output) -> int:
        ends = [token for token in tokens if token in vocabulary.end_ids]
        if ends and (rng.random() < 0.3 or len(output.plans) > 20):
            return ends[0]
        if len(output.plans) > 12:
            for closing in [*rng.sample([b'"', b"]}"], 2), b",\n"]:
                closed = [token for token in tokens if _closes(vocabulary.token_bytes(token) or b"", closing)]
                if closed and rng.random() < 0.7:
                    return rng.choice(closed)
        return rng.choice(tokens)

    return choose


def _closes(data: bytes, closing: bytes) -> bool:
    return data[-1:] in closing and data != b"" and b"{" not in data and b"," not in data[:-1]
