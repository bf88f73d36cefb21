"""The lean runner, checked and measured: decode and prompt times on CUDA, tokens a second and start-up on the CPU.

    python benchmarks/models.py --device cuda --json docs/measurements/models-h200.json
    python benchmarks/models.py --device cpu --json docs/measurements/models-2-cores.json
    python benchmarks/models.py --device cpu --only fidelity   # no times, more positions
    python benchmarks/models.py --device cpu --only compile    # what torch.compile would gain

First the checks, against transformers in float32 on small random models; a run with a red check reports no time. Then
the measurements, and the table last. On CUDA the weights are random, of three models' shapes: times do not depend on
their values. A decode step is `Network.forward` with S tokens a row, logits included, in a CUDA graph replayed over a
cache filled with numbers; bytes at the memory's speed are its floor.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import models_check as check


def main() -> int:
    """Check, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument(
        "--only", choices=("all", "fidelity", "compile"), default="all", help="compile: torch.compile beside what runs"
    )
    options = parser.parse_args()
    measured = importlib.import_module(f"models_{options.device}")  # the other one's libraries may be missing
    ready = measured.prepare()
    checks = check.run(options.device)
    for name, error, limit in checks:
        print(f"{'ok ' if error <= limit else 'RED'} {name}: {error:.2e} (limit {limit:.0e})", flush=True)
    report: dict[str, Any] = {"checks": [{"name": n, "error": e, "limit": m} for n, e, m in checks]}
    green = all(error <= limit for _, error, limit in checks)
    if green:
        ready()
        report |= measured.measure(options.quick, options.only)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print("\n".join(report.get("table", ["a check is red: nothing was measured"])))
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main())
