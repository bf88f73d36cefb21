"""An assistant's turn with tool calls, rendered again by the chat template: what was fed is found in the cache."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "constraint"))

tokenizers = pytest.importorskip("tokenizers")

import constraint_lab as lab  # noqa: E402
from batch_cases import RecurrentModel, batch, plan  # noqa: E402

from stcon.engine.batch import Request  # noqa: E402
from stcon.engine.sampling import Sampling  # noqa: E402
from stcon.grammar.tools import FORMATS, compile_reply, read_tools  # noqa: E402
from stcon.models.fake import FakeModel  # noqa: E402

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"place": {"enum": ["Maria", "don't know", "event"]}, "active": {"type": "boolean"}},
                "required": ["place", "active"],
            },
        },
    }
    for name in ("meeting", "event")
]
HERMES = FORMATS["hermes"]
TEMPLATE = """
{%- for message in messages -%}
user<think>{{ message.role }}: {{ message.content }}
{%- for call in message.tool_calls or [] -%}
""" + (
    "{{ '\\n' if not loop.first else '' }}" + HERMES.head("{{ call.function.name }}").replace("\n", "{{ '\\n' }}")
    + "{{ call.function.arguments }}" + HERMES.tail.replace("\n", "{{ '\\n' }}")
    + "{%- endfor -%}<think>{%- endfor -%}{%- if messages[-1].role != 'assistant' -%}user<think>assistant: {% endif -%}"
)  # fmt: skip


class Model(FakeModel):
    """Prompts by the vocabulary's own tokenizer."""

    def encode_prompt(self, text):
        return self.vocabulary.encode(text)


class Recurrent(RecurrentModel, Model):
    """The same with states that only go forward."""


def rendered(reply):
    """The reply as a message with tool calls."""
    calls = []
    for part in reply.split(HERMES.triggers[0])[1:]:
        call = json.loads(part.split("</tool_call>")[0])
        arguments = part[part.index('"arguments": ') + len('"arguments": ') : part.rindex("}\n")]
        calls.append({"type": "function", "function": {"name": call["name"], "arguments": arguments}})
    return {"role": "assistant", "content": "", "tool_calls": calls}


@pytest.mark.parametrize("kind", [Model, Recurrent])
@pytest.mark.parametrize("split", ["gpt2", "qwen"])
@pytest.mark.parametrize("seed", range(4))
def test_rendered_tool_calls_hit_the_cache(kind, split, seed):
    """Typed calls, drawn at random: the next prompt begins with the tokens that were fed, and these are not read."""
    vocabulary = lab.vocabulary(split)
    model = kind(vocabulary, seed, chat_template=TEMPLATE)
    grammar = compile_reply(read_tools(TOOLS), HERMES, required=True)
    messages = [{"role": "user", "content": "event at noon"}]
    engine = batch(model, memory=plan(cache=1 << 20))
    prompt = model.prompt_ids(messages)
    [[first]] = engine.generate([Request(prompt, grammar, max_tokens=150, sampling=Sampling(1.0, seed=seed))])
    if not first.complete:
        pytest.skip("cut by its limit")
    last_drawn = max(i for i, token in enumerate(first.tokens) if token.kind != "forced")
    fed = [*prompt, *(token.id for token in first.tokens)][: len(prompt) + last_drawn]
    following = [*messages, rendered(first.text), {"role": "tool", "content": "noon"}]
    turn = model.prompt_ids(following)
    assert first.text in model.render_chat(following)
    assert turn[: len(fed)] == fed
    handle = engine.submit(Request(turn, max_tokens=4))
    engine.run()
    assert list(handle)[-1].cached_tokens == len(fed)
