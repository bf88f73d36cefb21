"""Public corpora that lie beside a checkout; tests that need one are skipped where it is absent.

``STCON_SHARED_DATA`` names the folder; without it, ``../shared/data`` seen from the repository's root.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("STCON_SHARED_DATA") or ROOT.parent / "shared" / "data")
REMOTES = "http://localhost:1234/"


def path_of(name: str) -> Path:
    """The path of a corpus file; skips the test where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in {DATA} (set STCON_SHARED_DATA)")
    return path


def lines(path: Path) -> list[Any]:
    """The JSON values of a JSONL file, gzipped or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


@cache
def maskbench() -> list[Any]:
    """Real schemas with instances: id, schema, tests of description, valid, data."""
    return lines(path_of("maskbench_dev.jsonl.gz"))


@cache
def official_suite() -> list[Any]:
    """The official suite of draft 2020-12, a group a line; fields as in `maskbench`."""
    return lines(path_of("json_schema_test_suite_2020-12.jsonl.gz"))


@cache
def field_cases() -> list[Any]:
    """Kernels of public bug reports: id, schema, texts to accept and to reject."""
    return lines(path_of("field_cases.jsonl"))


@cache
def remotes() -> dict[str, Any]:
    """The documents that the official suite refers to, by URI."""
    documents = json.loads(path_of("json_schema_test_suite_remotes.json").read_text())
    return {REMOTES + name: document for name, document in documents.items()}


def suite_options(identifier: str) -> dict[str, Any]:
    """How a group of the official suite is compiled: its formats are annotations except in optional/format."""
    annotation = identifier.startswith("format") or "format-annotation" in identifier
    return {"documents": remotes(), "format": "annotation" if annotation else "assert"}
