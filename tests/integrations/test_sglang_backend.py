"""The SGLang backend against a stand-in of SGLang's base classes and steps (`sglang_stand_in`), never SGLang itself."""

import json
import sys
import types

import pytest

from stcon.errors import ModelUnavailable

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import sglang_stand_in as stand_in  # noqa: E402
import tiny_networks as tiny  # noqa: E402

from stcon.integrations import sglang  # noqa: E402

TAG = {"begin": "<a>", "schema": tiny.PERSON, "end": "</a>"}
KEYS = [
    ("json", json.dumps(tiny.PERSON)),
    ("json", json.dumps(tiny.TREE)),
    ("regex", "(yes|no) because [a-z]{3,9}[.!]"),
    ("ebnf", 'root ::= "a" root "b" | "ab"'),
    ("structural_tag", json.dumps({"structures": [TAG], "triggers": ["<a"]})),
]


@pytest.fixture
def backend(monkeypatch):
    """The backend as SGLang makes it: registered, and created by its name."""
    package = {name: types.ModuleType(name) for name in ("sglang", "sglang.srt", "sglang.srt.constrained")}
    package["sglang.srt.constrained"].base_grammar_backend = stand_in
    package["sglang.srt.server_args"] = types.ModuleType("sglang.srt.server_args")
    choices = []
    package["sglang.srt.server_args"].add_grammar_backend_choices = choices.extend
    for name, module in package.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "sglang.srt.constrained.base_grammar_backend", stand_in)
    sglang.register()
    assert choices == ["stcon"]
    return stand_in.REGISTRY["stcon"](stand_in.ServerArgs(), tiny.tokenizer(), len(tiny.tokenizer()), {2}, None)


def test_batch_of_all_kinds(backend):
    """Requests of every kind, and one without a grammar, decode side by side to texts of their grammars."""
    objects = [*(backend.get(*key) for key in KEYS), None]  # the last kind may write anything between tags
    assert all(isinstance(found, stand_in.BaseGrammarObject) for found in objects[:-1])
    generator, outputs = torch.Generator().manual_seed(1), [[] for _ in objects]
    for _ in range(120):
        logits = torch.rand(len(objects), len(tiny.tokenizer()) + 5, generator=generator)
        logits[:, list(tiny.vocabulary().end_ids)] += 0.2
        for output, token in zip(outputs, stand_in.step(objects, logits), strict=True):
            output.append(token)
    finished = 0
    for found, output in zip(objects[:-1], outputs, strict=False):
        text = tiny.vocabulary().decode(output[: len(found.matcher._tokens)])
        assert found.matcher.text == text
        if found.is_terminated():
            finished += 1
            assert found.grammar.accepts(text)
    assert finished >= 3


def test_rollback_and_copies(backend):
    """Drafts are taken back exactly; a copy begins anew."""
    found = backend.get(*KEYS[0])
    words = tiny.vocabulary().encode('{"name":"anna","age":3')
    masks = []
    for token in words:
        mask = found.allocate_vocab_mask(320, 2, "cpu")
        found.fill_vocab_mask(mask, 1)
        assert (mask[0] == -1).all()
        masks.append(mask[1].clone())
        found.accept_token(token)
    for kept in range(len(words) - 1, -1, -1):
        found.rollback(1)
        mask = found.allocate_vocab_mask(320, 1, "cpu")
        found.fill_vocab_mask(mask, 0)
        assert torch.equal(mask[0], masks[kept])
    found.accept_token(words[0])
    assert found.copy().matcher.text == b""
    with pytest.raises(ValueError, match="not admissible"):
        found.accept_token(tiny.vocabulary().encode("z")[0])


def test_jump_forward(backend):
    """Forced text is handed over as text, and the output's new tokens are taken instead of the old ones."""
    found = backend.get(*KEYS[0])
    data = found.try_jump_forward(tiny.tokenizer())
    text, state = found.jump_forward_str_state(data)
    assert (text, state) == ('{"name":"', -1)
    ids = tiny.vocabulary().encode(text)
    found.jump_and_retokenize([], ids, state)
    assert found.matcher.text == text.encode()
    singles = [tiny.vocabulary().encode(character)[0] for character in text]
    found.jump_and_retokenize(ids, singles, state)
    assert found.matcher.text == text.encode()
    assert found.try_jump_forward(tiny.tokenizer()) is None


def test_refusals_are_objects(backend):
    """What does not compile becomes SGLang's object for that, with the reason."""
    for key in (
        ("json", "{"),
        ("json", '{"type":"strin"}'),
        ("regex", "("),
        ("ebnf", "root ::= other"),
        ("structural_tag", "{}"),
    ):
        found = backend.get(*key)
        assert isinstance(found, stand_in.InvalidGrammarObject)
        assert found.error_message
    assert backend.get("json", "$$ANY$$").grammar.accepts("[1]")


def test_without_sglang(monkeypatch):
    """Where SGLang is not installed, or too old, registering says so."""
    monkeypatch.setitem(sys.modules, "sglang", None)
    with pytest.raises(ModelUnavailable, match="not installed"):
        sglang.register()
