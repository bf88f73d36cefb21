"""Fixtures for every test."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# in CI the same examples every time: a change is judged by what it changes, and new examples are met by people
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands write must not depend on whether compiled code is kept on disk yet."""
    monkeypatch.setattr("stcon.cli._say_compiling", lambda: None)
