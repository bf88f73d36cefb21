"""`stcon pull`: fetch the default model."""

from __future__ import annotations

import click
