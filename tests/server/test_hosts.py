"""A server without a key on the loopback interface is for this machine's own names."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (the extra server)")

from starlette.testclient import TestClient
from test_server import Running

from stcon.commands.serve import LOOPBACK


@pytest.fixture(scope="module")
def running():
    """One with a model without weights."""
    found = Running()
    yield found
    found.stop()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
    ],
)
def test_other_names_are_refused(running, name, status):
    """The name of the request decides, whatever address it came to."""
    client = TestClient(running.server.app(LOOPBACK))
    assert client.get("/v1/models", headers={"Host": name}).status_code == status


def test_without_a_list_every_name_goes(running):
    """As behind a key, or on an interface that is meant for others."""
    client = TestClient(running.server.app())
    assert client.get("/v1/models", headers={"Host": "models.example"}).status_code == 200
