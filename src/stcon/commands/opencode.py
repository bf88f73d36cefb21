"""`stcon opencode`: the configuration that points the OpenCode agent at a running server."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from stcon.errors import InvalidOption, RequestError

PROVIDER = "stcon"
MODEL = "default"  # the server's one model, whatever it is
KEY_VARIABLE = "STCON_API_KEY"
DEFAULT_CONTEXT = 8192  # of servers that do not say
MAX_OUTPUT = 4096
_TIMEOUT_S = 10.0


@click.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, metavar="URL", help="Of the running server.")
@click.option(
    "-o", "--output", default="opencode.json", show_default=True, metavar="FILE", help="- is standard output."
)
@click.option("--merge", is_flag=True, help="Add to FILE if it exists; what else it has stays as it is.")
def opencode(*, url: str, output: str, merge: bool) -> int:
    """Write the configuration that points the OpenCode agent (npm: opencode-ai) at a running server.

    A file that exists is not touched without --merge, which adds this provider and, where none is chosen, the model.
    With STCON_API_KEY set the file names that variable; the key itself is not written.
    """
    base = _base_url(url)
    key = os.environ.get(KEY_VARIABLE)
    card = _model_card(base, key)
    ours = configuration(base, card, with_key=bool(key))
    if output == "-":
        click.echo(json.dumps(ours, indent=2))
        return 0
    path = Path(output).expanduser()
    done = write(path, ours, merge=merge)
    click.echo(f"{path}: {done}; try: opencode run --model {PROVIDER}/{MODEL} 'Say hello.'", err=True)
    return 0


def configuration(base: str, card: Mapping[str, Any], *, with_key: bool) -> dict[str, Any]:
    """OpenCode's configuration.

    Args:
        base: the server's address, without ``/v1``.
        card: its entry of ``/v1/models``.
        with_key: whether clients need a key, which OpenCode then reads from the environment.

    Source: OpenCode's documentation, "Providers", custom provider.
    """
    context = card.get("max_model_len") or DEFAULT_CONTEXT
    model = {
        "name": str(card.get("id", MODEL)),
        "tool_call": True,
        "limit": {"context": context, "output": min(MAX_OUTPUT, context // 4)},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stcon",
        "options": {"baseURL": f"{base}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}" if with_key else "none"},
        "models": {MODEL: model},
    }
    chosen = f"{PROVIDER}/{MODEL}"
    return {
        "$schema": "https://opencode.ai/config.json",
        "model": chosen,
        "small_model": chosen,  # titles and the like; else they would go to another provider
        "provider": {PROVIDER: provider},
    }


def write(path: Path, ours: Mapping[str, Any], *, merge: bool) -> str:
    """Write a new file, or add to one that exists.

    Returns:
        What was done, in a word or two.

    Raises:
        RequestError: the file exists and is not to be added to, or is not JSON.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_text(ours))
        return "written"
    except FileExistsError:
        pass
    given = path.read_text(encoding="utf-8", errors="strict") if path.is_file() else ""
    if given == _text(ours):
        return "unchanged"
    if not merge:
        raise RequestError(f"{path} exists; --merge adds to it, -o FILE writes elsewhere, -o - to standard output")
    merged = _text(merged_into(_read(path, given), ours))
    if merged == given:
        return "unchanged"
    _replace(path.resolve(), merged)
    return "provider added"


def merged_into(given: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with our provider; a model that it has chosen stays chosen."""
    providers = given.get("provider", {})
    if not isinstance(providers, dict):
        raise RequestError("the file's 'provider' is not an object; mend it, or write elsewhere with -o")
    return {**ours, **given, "provider": {**providers, **ours["provider"]}}


# ------------------------------------------------------------------------------------------------------------ inside


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise InvalidOption(f"--url: expected http://HOST:PORT, got {url!r}")
    if parts.username is not None:
        raise InvalidOption(f"--url: no names or passwords in it; set {KEY_VARIABLE}")
    return url.rstrip("/").removesuffix("/v1")


def _model_card(base: str, key: str | None) -> dict[str, Any]:
    """The server's entry of ``/v1/models``."""
    request = urllib.request.Request(f"{base}/v1/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            card = json.load(answer)["data"][0]
    except urllib.error.HTTPError as error:
        advice = f"set {KEY_VARIABLE} to its key" if error.code == 401 else "is it stcon serve?"
        raise RequestError(f"{base} answered {error.code}; {advice}") from None
    except (OSError, ValueError, LookupError, TypeError):
        raise RequestError(f"no stcon server at {base}; start one with stcon serve, or give its --url") from None
    if not isinstance(card, dict):
        raise RequestError(f"no stcon server at {base}; start one with stcon serve, or give its --url")
    return card


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _read(path: Path, text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise RequestError(
            f"{path} is not a plain JSON object (comments?); add what stcon opencode -o - prints by hand"
        )
    return given


def _replace(path: Path, text: str) -> None:
    """Write `text` to a file that exists, whole or not at all; its permissions stay."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
