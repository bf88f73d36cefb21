"""What vLLM loads in each of its processes (entry point ``vllm.general_plugins``); `options` calls it too.

It changes nothing for engines that do not ask for stcon's scheduler, and nothing at all in a vLLM that it is not made
for: there the engine that asks for it says so when it starts (`stcon.integrations.vllm.scheduler`).
"""

from __future__ import annotations

from stcon.integrations.vllm.versions import version_problem


def register() -> None:
    """Install the hooks. May be called any number of times."""
    if version_problem() is not None:
        return
    from stcon.integrations.vllm import cpu_build, frontend

    cpu_build.install()
    frontend.install()
