"""A chat body's messages as chat templates of text models take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stcon.server.refusals import BadRequest

_TEXT_PARTS = ("text", "input_text", "output_text")


def plain_messages(messages: list[Any]) -> list[Any]:
    """Messages whose contents are texts: parts become one text, and a developer speaks as the system.

    Args:
        messages: of a body. What is no message at all is left to whoever renders them.

    Raises:
        BadRequest: a part that is not text; names the place.
    """
    return [_plain(message, f"messages/{index}") for index, message in enumerate(messages)]


def _plain(message: Any, place: str) -> Any:
    if not isinstance(message, Mapping):
        return message
    found = dict(message)
    if found.get("role") == "developer":
        found["role"] = "system"
    if isinstance(found.get("content"), list):
        parts = enumerate(found["content"])
        found["content"] = "".join(_text(part, f"{place}/content/{number}") for number, part in parts)
    return found


def _text(part: Any, place: str) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS else None
    if not isinstance(text, str):
        raise BadRequest("messages: a part of a content that is not text cannot be read by this model", place)
    return text
