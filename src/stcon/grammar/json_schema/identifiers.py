"""What the library `referencing` lets pass: identifiers given twice, and array indices that are none.

Source: JSON Schema 2020-12 core, sections 8.2.1 and 9.1.2 (one identifier, one schema); RFC 6901, section 4 (indices
have no sign and no leading zero).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from stcon.errors import InvalidSchema

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def ambiguous_identifiers(resource: Any, base: str, id_keyword: str) -> frozenset[str]:
    """The URIs that two different schemas of a document have: nothing can be said of a reference to them.

    Real schemas repeat identifiers that nothing refers to, so a document is not refused for having them.

    Args:
        resource: the document, as a `referencing.Resource`.
        base: the URI by which it was supplied, or ``""``.
        id_keyword: ``$id`` or ``id``.

    Cost: O(size), and only where there are two identifiers or more.
    """
    if _mentions(resource.contents, id_keyword) < 2:
        return frozenset()
    owners: dict[str, Any] = {}
    return frozenset(
        uri for uri, contents in _identified(resource, base) if owners.setdefault(uri, contents) != contents
    )


def _mentions(document: Any, keyword: str) -> int:
    found, pending = 0, [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            found += keyword in item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return found


def _identified(resource: Any, base: str) -> Iterator[tuple[str, Any]]:
    """Every schema in `resource` with an identifier of its own, by its absolute URI."""
    pending = [(resource, base)]
    while pending:
        resource, base = pending.pop()
        if not isinstance(resource.contents, dict):
            continue
        try:
            identifier = resource.id()
            if isinstance(identifier, str):
                base = urljoin(base, identifier).rstrip("#")
                yield base, resource.contents
            pending += [(inner, base) for inner in resource.subresources()]
        except (AttributeError, TypeError, ValueError):  # not a schema; said where it is read
            continue


def check_pointer(contents: Any, fragment: str, reference: str, place: str, keyword: str) -> None:
    """Refuse a reference by a JSON pointer that counts items of an array in another way than RFC 6901 does.

    Args:
        contents: the document that `fragment` points into.
        fragment: the fragment of `reference`, without ``#``.
        place: where the reference stands.
    """
    for step in unquote(fragment).split("/")[1:] if fragment.startswith("/") else ():
        if isinstance(contents, list):
            if not _INDEX.fullmatch(step):
                message = f"{keyword} {reference!r} does not resolve: {step!r} is no index of an array"
                raise InvalidSchema(message, pointer=place, keyword=keyword)
            contents = contents[int(step)] if int(step) < len(contents) else None
        elif isinstance(contents, dict):
            contents = contents.get(step.replace("~1", "/").replace("~0", "~"))
