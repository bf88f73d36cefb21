"""`stcon serve`: the model behind OpenAI's HTTP interface."""

from __future__ import annotations

import click

from stcon.commands.inputs import runner_option
from stcon.errors import RequestError

LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")  # without a key, these names alone may call a server on them


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@runner_option
@click.option(
    "--weights",
    type=click.Choice(["auto", "int4"]),
    default="auto",
    show_default=True,
    help="int4: matrices in four bits: less memory, quicker on a CPU, other tokens now and then.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, metavar="P")
@click.option("--slots", type=click.IntRange(1, 4096), default=8, show_default=True, metavar="N", help="Rows at once.")
@click.option("--api-key", envvar="STCON_API_KEY", metavar="K", help="What clients must send.  [env: STCON_API_KEY]")
@click.option("--parallel", is_flag=True, help="Draft the fields of constrained answers side by side, certified.")
def serve(
    *,
    model_name: str | None,
    weights: str,
    runner: str,
    host: str,
    port: int,
    slots: int,
    api_key: str | None,
    parallel: bool,
) -> int:
    """Serve OpenAI's interface: chat, text completions, responses, models; and a page to try it, at /.

    Constraints: response_format, tools, structured_outputs, guided_*, grammar, json_schema. See docs/server.md.
    """
    try:
        import uvicorn

        from stcon.server.app import Server
    except ImportError as error:
        raise RequestError("serving needs starlette and uvicorn; run: pip install 'stcon[server]'") from error
    from stcon.commands.generate import load
    from stcon.engine.batch import Batch
    from stcon.engine.batch.choose import rows_for
    from stcon.engine.batch.warm import warm_up

    model = load(model_name, weights=weights, runner=runner)
    batch = Batch(rows_for(model, slots), max_waiting=64 * slots)
    click.echo(str(batch.memory), err=True)
    warm_up(batch)
    app = Server(batch.start(), name=model.name, api_key=api_key, parallel=parallel).app(
        LOOPBACK if api_key is None and host in LOOPBACK else None
    )
    if port:
        click.echo(f"the playground: http://{host}:{port}/   clients: http://{host}:{port}/v1", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=60)
    return 0
