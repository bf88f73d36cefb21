"""`stcon bench calls`: typed tool calls over HTTP, and what a server writes in a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.commands.progress import Progress

if TYPE_CHECKING:
    from stcon.bench.calls import Result


@click.command()
@click.option("--model", "model_name", metavar="M", help="Directory, .gguf file or hub name; with --url, its id there.")
@click.option("--url", metavar="URL", help="A server that runs already, without /v1.  [default: one is started]")
@click.option("--api-key", metavar="K", envvar="STCON_API_KEY", help="For --url.")
@click.option("--slots", type=click.IntRange(1, 256), default=8, show_default=True, metavar="N", help="At once.")
@click.option("--requests", "count", type=click.IntRange(1), default=46, show_default=True, metavar="N")
@click.option("--free", is_flag=True, help="The same questions without tools and constraint: throughput alone.")
@json_option
def calls(
    *,
    model_name: str | None,
    url: str | None,
    api_key: str | None,
    slots: int,
    count: int,
    free: bool,
    json_file: str | None,
) -> int:
    """Requests for a typed tool call, several at once, over HTTP.

    Exit code 1 if a reply of a server that was started here is no call, lacks an argument or has one of another type.
    """
    from stcon.bench.calls import measure

    with Progress() as progress:
        if url is not None:
            name, result = model_name or "default", measure(
                url, model=model_name or "default", at_once=slots, count=count, free=free, key=api_key,
                progress=progress,
            )  # fmt: skip
        else:
            with _served(model_name, slots) as (found, name):
                result = measure(found, at_once=slots, count=count, free=free, progress=progress)
    about: dict[str, Any] = {"server": url or "stcon", "model": name, "at once": slots, "free": free, **environment()}
    faults = [reply for reply in result.replies if reply.fault]
    for key, value in {**about, **_figures(result, free=free)}.items():
        click.echo(f"{key}: {value}")
    write_json(json_file, {**about, **_figures(result, free=free), "replies": [asdict(one) for one in result.replies]})
    for reply in faults:
        click.echo(f"stcon: {reply.question!r}: {reply.fault}", err=True)
    return 1 if faults and url is None else 0


def _figures(result: Result, *, free: bool) -> dict[str, Any]:
    """What is printed of a result."""
    late = result.latencies
    typed = {
        "calls with every argument, typed": f"{sum(not one.fault for one in result.replies)} of {len(result.replies)}",
        "calls of the tool asked about": sum(one.called == (one.wanted,) for one in result.replies),
    }
    return {
        **({} if free else typed),
        "tokens": result.tokens,
        "seconds": round(result.seconds, 2),
        "tokens/s": round(result.tokens / result.seconds, 1),
        "requests/s": round(len(result.replies) / result.seconds, 2),
        "seconds a request, median": round(late[len(late) // 2], 2),
        "seconds a request, most": round(late[-1], 2),
    }


@contextmanager
def _served(model_name: str | None, slots: int) -> Iterator[tuple[str, str]]:
    """A server of our own on a free port, as `stcon serve` runs it: its address and the model's name."""
    import socket
    import threading
    import time

    import uvicorn

    from stcon.commands.generate import load
    from stcon.engine.batch import Batch
    from stcon.engine.batch.choose import rows_for
    from stcon.engine.batch.warm import warm_up
    from stcon.server.app import Server

    model = load(model_name)
    batch = Batch(rows_for(model, slots))
    warm_up(batch)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Server(batch.start(), name=model.name).app(), log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", model.name
    finally:
        server.should_exit = True
        thread.join(60)
