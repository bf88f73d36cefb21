"""The Structure section of docs/theory.md names functions and tests that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_structure_section_names_what_exists() -> None:
    """Every `module.name` and every test file in its tables is there."""
    section = (ROOT / "docs" / "theory.md").read_text().partition("\n## Structure")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ")]
    assert len(rows) > 15
    for row in rows:
        for module, name in re.findall(r"`((?:stcon\.grammar\.)?[a-z_]+)\.(\w+)`", row):
            home = module if module.startswith("stcon") else f"stcon.theory.{module}"
            if module != "check_structure":
                assert hasattr(importlib.import_module(home), name), row
        for name in re.findall(r"`(?:tests/grammar/)?(test_\w+)`", row):
            assert list((ROOT / "tests").rglob(f"{name}.py")), row
