"""Chat templates render as transformers renders them, in a sandbox, with clear errors."""

from contextlib import suppress

import pytest

from stcon.errors import InvalidOption, ModelUnavailable
from stcon.models.chat import render_chat
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BLOCKS = """
{%- if tools %}
    {{- bos_token }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=2) }}
        {%- if loop.first %}{% continue %}{% endif %}
    {%- endfor %}
{%- endif %}
{% for m in messages %}
    {% if m.role == 'system' %}
[{{ m.content | trim }}]
    {% elif m.role == 'user' %}
<{{ m['content'] }}> {{ strftime_now('%Y')|length }}
    {% endif %}
{% endfor %}
"""
TOOLS = [{"type": "function", "function": {"name": "größe", "description": "a <b> & 'c'"}}]
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " be brief "}, {"role": "user", "content": "1 < 2 & é\n"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
]


@pytest.mark.parametrize("template", [SMOLLM, BLOCKS])
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_render_chat_equals_transformers(template, messages, tools):
    """The text is the one that transformers makes of the same template, to the byte."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    rendered, _ = utils.render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=template,
        add_generation_prompt=True,
        bos_token="<s>",
    )
    assert render_chat(template, messages, tools=tools, special={"bos_token": "<s>"}) == rendered[0]


def test_render_chat_template_refuses():
    """What a template says about messages it cannot take reaches the caller in one line."""
    with pytest.raises(InvalidOption, match="refuses these messages: roles must alternate, always"):
        render_chat("{{ raise_exception('roles must alternate,\n always') }}", CONVERSATIONS[0])


@pytest.mark.parametrize("messages", [[], ["Hi"], [{"content": "Hi"}]])
def test_render_chat_bad_messages(messages):
    """No messages, or ones without a role, are refused."""
    with pytest.raises(InvalidOption, match="messages"):
        render_chat(SMOLLM, messages)


def test_render_chat_missing_content():
    """A message without what the template reads is the request's fault."""
    with pytest.raises(InvalidOption, match="refuses"):
        render_chat(SMOLLM, [{"role": "user"}])


def test_render_chat_broken_template():
    """A template that does not parse is the model's fault."""
    with pytest.raises(ModelUnavailable, match="does not parse"):
        render_chat("{% for %}", CONVERSATIONS[0])


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{{ cycler.__init__ }}"]
)
def test_render_chat_is_sandboxed(template):
    """A template from a downloaded file reaches neither Python's internals nor the caller's objects."""
    messages = [{"role": "user", "content": "Hi"}]
    with suppress(InvalidOption):
        assert "class" not in render_chat(template, messages)
    assert len(messages) == 1


def test_prompt_ids():
    """A text becomes a user message where there is a template, unless raw; messages need a template."""
    vocabulary = Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(256))], end_ids=(0,))
    chat = FakeModel(vocabulary, chat_template=SMOLLM)
    asked = chat.prompt_ids("Hi")
    assert asked == chat.prompt_ids([{"role": "user", "content": "Hi"}])
    assert vocabulary.decode(asked).decode().endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert vocabulary.decode(chat.prompt_ids("Hi", raw=True)) == b"Hi"
    plain = FakeModel(vocabulary)
    assert vocabulary.decode(plain.prompt_ids("Hi")) == b"Hi"
    with pytest.raises(InvalidOption, match="no chat template"):
        plain.prompt_ids([{"role": "user", "content": "Hi"}])
