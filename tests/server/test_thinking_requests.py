"""Thinking through the server: what requests say of it, where prompts leave off, and what clients read."""

import json

import jsonschema
import pytest

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from test_batch_files import SCHEMA, make_model, strict  # noqa: E402
from test_server import CHAT, body, chunks, running  # noqa: E402
from test_tool_calls import SCHEMAS, TOOLS  # noqa: E402

from stcon.server.refusals import BadRequest  # noqa: E402
from stcon.server.thinking import read_wish, thinking_prompt  # noqa: E402

NEVER = "{% for m in messages %}{{ m.content }}{% endfor %}[assistant]"
ALWAYS = NEVER + "{{ '<think>\n' }}"
# as Qwen3 has it: the model opens its thinking itself, and what was thought before is left out
SWITCH = NEVER + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
# as Granite has it: off unless asked for
ASKED = NEVER + "{% if thinking %}<think>\n{% else %}<think></think>{% endif %}"

PROMPTS = [
    (NEVER, {}, "[assistant]", False),
    (NEVER, {"stcon": {"thinking": True}}, "[assistant]<think>\n", True),
    (NEVER, {"reasoning_effort": "low"}, "[assistant]<think>\n", True),
    (NEVER, {"reasoning_effort": "none"}, "[assistant]", False),
    (ALWAYS, {}, "[assistant]<think>\n", True),
    (ALWAYS, {"stcon": {"thinking": False}}, "[assistant]<think>\n\n</think>\n\n", False),
    (SWITCH, {}, "[assistant]<think>\n", True),
    (SWITCH, {"chat_template_kwargs": {"enable_thinking": True}}, "[assistant]<think>\n", True),
    (SWITCH, {"chat_template_kwargs": {"enable_thinking": False}}, "[assistant]<think>\n\n</think>\n\n", False),
    (SWITCH, {"thinking_token_budget": 5}, "[assistant]<think>\n", True),
    (ASKED, {}, "[assistant]<think></think>", False),
    (ASKED, {"chat_template_kwargs": {"thinking": True}}, "[assistant]<think>\n", True),
]


@pytest.mark.parametrize(("template", "said", "prompt", "thinks"), PROMPTS)
def test_prompts_end_where_the_output_begins(template, said, prompt, thinks):
    """What is said goes before what the template does; the opening mark is there once, or closed."""
    model = make_model()
    model._chat_template = template
    wish = read_wish(said, 100)
    found, thinking = thinking_prompt(
        model, model.render_chat([{"role": "user", "content": ""}], None, wish.options), wish
    )
    assert (found, thinking is not None) == (prompt, thinks)


def test_caps_come_in_every_spelling():
    """A cap of tokens, or a share of max_tokens; of several the smallest."""
    for said, cap in [
        ({}, None),
        ({"stcon": {"thinking": {"max_tokens": 7}}}, 7),
        ({"stcon": {"thinking": {}}}, None),
        ({"thinking_token_budget": 9}, 9),
        ({"reasoning_effort": "low"}, 20),
        ({"reasoning_effort": "high", "thinking_token_budget": 30}, 30),
        ({"chat_template_kwargs": {"enable_thinking": True}}, None),
    ]:
        assert read_wish(said, 100).max_tokens == cap


BAD = [
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"reasoning_effort": 3}, "reasoning_effort"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"stcon": {"thinking": {"max_tokens": True}}}, "stcon.thinking.max_tokens"),
    ({"stcon": {"thinking": "yes"}}, "stcon.thinking"),
    ({"stcon": {"thinking": {"most": 3}}}, "stcon.thinking"),
    ({"chat_template_kwargs": []}, None),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"enable_thinking": 1}}, "chat_template_kwargs.enable_thinking"),
    ({"include_reasoning": "no"}, "include_reasoning"),
    ({"stcon": {"thinking": True}, "reasoning_effort": "none"}, "stcon.thinking"),
]


@pytest.mark.parametrize(("said", "param"), BAD)
def test_what_is_not_understood_is_refused(said, param):
    """The parameter at fault is named; two that contradict each other are refused."""
    if param is None:
        assert read_wish(said, 100).on is None
        return
    with pytest.raises(BadRequest) as caught:
        read_wish(said, 100)
    assert caught.value.param == param


@pytest.fixture(scope="module")
def url():
    with running() as server:
        yield server.url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as found:
        yield found


def asked(seed=1, **more):
    """A request that thinks."""
    own = {"stcon": {"thinking": {"max_tokens": 9}}}
    return {**body(seed, response_format=strict(), max_tokens=80), **own, **more}


def test_reasoning_is_beside_the_answer(url):
    """`reasoning_content` has the thinking, `content` the valid answer; whole and streamed, for each of n outputs."""
    whole = httpx.post(url + CHAT, json=asked(n=2), timeout=60).json()
    streamed = chunks(httpx.post(url + CHAT, json=asked(n=2, stream=True), timeout=60).text)
    for choice in whole["choices"]:
        message = choice["message"]
        jsonschema.validate(json.loads(message["content"]), SCHEMA)
        assert message["reasoning_content"]
        assert "</think>" not in message["reasoning_content"]
        deltas = [c["choices"][0]["delta"] for c in streamed if c["choices"][0]["index"] == choice["index"]]
        for name in ("content", "reasoning_content"):
            assert "".join(delta.get(name, "") for delta in deltas) == message[name]
    details = whole["usage"]["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < whole["usage"]["completion_tokens"]
    assert 0 < whole["usage"]["stcon"]["need"] <= 80
    hidden = httpx.post(url + CHAT, json=asked(n=2, include_reasoning=False), timeout=60).json()
    assert "reasoning_content" not in hidden["choices"][0]["message"]
    assert hidden["choices"][0]["message"]["content"] == whole["choices"][0]["message"]["content"]


def test_the_answer_fits_what_the_thinking_leaves(url):
    """With any limit the answer is whole; a limit too small for it is refused and says which would do."""
    refused = httpx.post(url + CHAT, json=asked(max_tokens=2), timeout=60)
    assert refused.status_code == 400
    least = httpx.post(url + CHAT, json=asked(), timeout=60).json()["usage"]["stcon"]["need"]
    assert f"{least} tokens" in refused.json()["error"]["message"]
    for limit in range(least, least + 12):
        free = {"thinking": True}
        answer = httpx.post(url + CHAT, json=asked(max_tokens=limit, stcon=free), timeout=60).json()
        jsonschema.validate(json.loads(answer["choices"][0]["message"]["content"]), SCHEMA)
        assert answer["usage"]["completion_tokens"] <= limit


def test_scores_are_of_the_answer(url):
    """Log-probabilities come for drawn tokens of the answer, none for those of the thinking; streams have them too."""
    whole = httpx.post(url + CHAT, json=asked(logprobs=True), timeout=60).json()["choices"][0]
    streamed = chunks(httpx.post(url + CHAT, json=asked(logprobs=True, stream=True), timeout=60).text)
    found = [entry for c in streamed for entry in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert found == whole["logprobs"]["content"]
    assert all(entry["token"] in whole["message"]["content"] for entry in found if entry["token"].isalnum())


def test_tools_are_called_after_thinking(client):
    """Thinking, then calls alone, typed."""
    for seed in range(3):
        answer = client.chat.completions.create(
            **{"model": "default", "messages": [{"role": "user", "content": "?"}], "tools": TOOLS},
            tool_choice="required", max_tokens=160, seed=seed, reasoning_effort="minimal",
        )  # fmt: skip
        message = answer.choices[0].message
        assert message.reasoning_content
        for call in message.tool_calls:
            jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


def test_responses_have_a_reasoning_item(client):
    """/v1/responses: `reasoning.effort`; a reasoning item, then the message; a stream adds up to the same."""
    asked = {
        "model": "default", "input": "Who?", "max_output_tokens": 100, "reasoning": {"effort": "minimal"},
        "text": {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA}}, "extra_body": {"seed": 4},
    }  # fmt: skip
    whole = client.responses.create(**asked)
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert whole.output[0].content[0].text
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    jsonschema.validate(json.loads(whole.output_text), SCHEMA)
    texts = {"response.reasoning_text.delta": "", "response.output_text.delta": ""}
    for event in client.responses.create(**asked, stream=True):
        if event.type in texts:
            texts[event.type] += event.delta
    assert list(texts.values()) == [whole.output[0].content[0].text, whole.output_text]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**asked, "reasoning": {"effort": "huge"}})
    assert caught.value.param == "reasoning.effort"


def test_text_completions_do_not_think(url):
    """/v1/completions has no chat, hence no thinking."""
    answer = httpx.post(url + "/v1/completions", json={"prompt": "x", "stcon": {"thinking": True}}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stcon.thinking")
