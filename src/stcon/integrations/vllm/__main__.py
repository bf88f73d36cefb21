"""``python -m stcon.integrations.vllm [--forced]``: prints the flags for ``vllm serve``, one line for a shell.

::

    vllm serve MODEL $(python -m stcon.integrations.vllm --forced)
"""

from __future__ import annotations

import argparse
import json

from stcon.errors import RequestError
from stcon.integrations.vllm import DEFAULT_DRAFTS, engine_options


def flags(**chosen: object) -> list[str]:
    """The options as flags. No flag has a space in it, so that a shell's ``$(…)`` can pass them on."""
    found = []
    for name, value in engine_options(**chosen).items():  # type: ignore[arg-type]
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        found += [f"--{name.replace('_', '-')}", text]
    return found


def main() -> None:
    """Read the choices, print the flags."""
    parser = argparse.ArgumentParser(prog="python -m stcon.integrations.vllm", description="Flags for `vllm serve`.")
    parser.add_argument("--forced", action="store_true", help="draft forced text")
    parser.add_argument("--drafts", type=int, default=DEFAULT_DRAFTS, help="most tokens drafted a step")
    parser.add_argument("--mode", choices=("mask", "any", "canonical"))
    parser.add_argument("--no-budget", action="store_true", help="outputs may be cut at max_tokens")
    parser.add_argument("--whitespace", choices=("compact", "json", "pretty", "flexible"))
    given = vars(parser.parse_args())
    settings = {name: given[name] for name in ("mode", "whitespace") if given[name] is not None}
    if given["no_budget"]:
        settings["budget"] = False
    try:
        print(" ".join(flags(forced=given["forced"], drafts=given["drafts"], **settings)))
    except RequestError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
