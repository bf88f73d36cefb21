"""Fixtures for every test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands write must not depend on whether compiled code is kept on disk yet."""
    monkeypatch.setattr("stcon.cli._say_compiling", lambda: None)
