"""The GPU kernels on the card at hand: checks first, then times, then the table; the report as JSON.

    python benchmarks/gpu.py --json docs/measurements/gpu-<card>.json

Needs the extras ``cuda`` and ``bench`` (for the vocabulary of 248,077 tokens) and a torch with CUDA. The walk is here
(`gpu_walk`); decoding end to end is in ``benchmarks/gpu_extract.py``. About two minutes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import gpu_walk
import torch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--quick", action="store_true", help="fewer places")
    options = parser.parse_args()
    report = {"machine": machine(), "command": " ".join(sys.argv), **gpu_walk.measure(options.quick)}
    lines = gpu_walk.table(report)
    if options.json:
        options.json.write_text(json.dumps({**report, "table": lines}, indent=1) + "\n")
    print("\n".join(lines))
    return 0 if "kinds" in report else 1


def machine() -> dict[str, str]:
    """What it ran on."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cuda_core": version("cuda-core"),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
