"""What clients send as messages, as chat templates of text models take it."""

import pytest

from stcon.server.messages import plain_messages
from stcon.server.refusals import BadRequest


def test_parts_become_one_text_and_developers_the_system():
    """Contents in parts, and OpenAI's newer role; texts, null and calls stay as they are."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    given = [{"role": "developer", "content": "x"}, {"role": "user", "content": parts}, call, 3]
    assert plain_messages(given) == [{"role": "system", "content": "x"}, {"role": "user", "content": "ab"}, call, 3]


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text"}, "x", None])
def test_what_is_no_text_is_refused(part):
    """An image, a part without text: named by its place."""
    given = [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]
    with pytest.raises(BadRequest) as caught:
        plain_messages(given)
    assert caught.value.param == "messages/0/content/1"
