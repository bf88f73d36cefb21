"""What the engine's tests share: small machines, two small tokenizers."""

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from stcon.grammar.grammar import Grammar
from stcon.grammar.machine import Machine
from stcon.vocab.vocabulary import Vocabulary

WORD = b"abcdefghijklmnopqrstuvwxyz "
DIGITS = b"0123456789"


def chain(*parts):
    """A machine for the parts one after another: bytes are literal, a set of bytes is one or more of them."""
    machine = Machine()
    edges = [{}]
    for part in parts:
        if isinstance(part, bytes):
            for byte in part:
                edges[-1][byte] = len(edges)
                edges.append({})
        else:
            for byte in part:
                edges[-1][byte] = len(edges)
            edges.append(dict.fromkeys(part, len(edges)))
    return finish(machine, edges, {len(edges) - 1})


def words(*texts):
    """A machine for a finite set of texts, by their trie."""
    edges, ends = [{}], set()
    for text in texts:
        state = 0
        for byte in text.encode():
            state = edges[state].setdefault(byte, len(edges))
            if state == len(edges):
                edges.append({})
        ends.add(state)
    return finish(Machine(), edges, ends)


def finish(machine, edges, ends):
    """States and rows from edge dictionaries; state 0 is the start."""
    for state, row in enumerate(edges):
        machine.new_state(label=0 if state in ends else -1, final=state in ends and not row)
        machine.set_edges(state, row)
    return machine


def nested():
    """A machine with calls: A is a digit or ``[A,A,…]``, at most 64 deep."""
    machine = Machine()
    start, done, after = machine.new_state(), machine.new_state(label=0, final=True), machine.new_state()
    item = machine.action(start, [machine.return_symbol([after])])
    machine.set_edges(start, {**dict.fromkeys(DIGITS, done), ord("["): item})
    machine.set_edges(after, {ord(","): item, ord("]"): done})
    return machine


PERSON = (b'{"name":"', set(WORD), b'","age":', set(DIGITS[1:]), b',"active":true}')

MACHINES = {
    "person": lambda: chain(*PERSON),
    "colours": lambda: words('"red"', '"green"', '"grey"', '"blue"', '"black and white"'),
    "only": lambda: words('{"kind":"constant"}'),
    "prefixes": lambda: words("1", "12", "123", "4", "45678"),
    "accents": lambda: words('"café"', '"cafè"', '"über"', '"über alles"', '"日本"', '"日曜"'),
    "spaces": lambda: chain(b"answer:   ", set(b"xyz"), b"  done. ", set(b"01"), b"\n"),
    "nested": nested,
}


@cache
def small_vocabulary():
    """A byte-level BPE of about 400 tokens, trained on JSON text, with one end token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    text = [
        '{"name":"anna bell","age":34,"active":true}',
        '{"name":"bob the man","age":7,"active":true}',
        '{"kind":"constant"} "red" "green" "grey" "blue" "black and white"',
        "answer:   xyz  done. 01 café cafè über über alles 日本 日曜 [1,[2,3],[[4]]]",
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text * 4, trainer)
    return Vocabulary.from_tokenizer(tokenizer)


@cache
def greedy_vocabulary():
    """Every byte and a few longer tokens, longest match, two end tokens; blocks end where no token crosses."""
    longer = [b'{"', b'":', b'":"', b'","', b"name", b"age", b"true", b'e"', b"gr", b"12", b"45", b"01", b"],", b"[["]
    pieces = [None, *(bytes([byte]) for byte in range(256)), *longer, None]
    return Vocabulary.from_bytes(pieces, end_ids=(0, len(pieces) - 1))


VOCABULARIES = {"bpe": small_vocabulary, "greedy": greedy_vocabulary}


@cache
def grammar(name):
    """The grammar `name` of `MACHINES`."""
    return Grammar(MACHINES[name](), kind="grammar" if name == "spaces" else "json", source=name)
