"""`stcon batch`: a file of requests in OpenAI's batch format, answered many at a time; can be killed and resumed."""

from __future__ import annotations

from pathlib import Path

import click

from stcon.commands.inputs import runner_option
from stcon.commands.progress import Progress
from stcon.errors import RequestError


@click.command()
@click.argument("input_file", metavar="INPUT.jsonl", type=click.Path(dir_okay=False))
@click.option("-o", "--output", "output_file", required=True, metavar="OUT.jsonl", type=click.Path(dir_okay=False))
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@runner_option
@click.option("--slots", type=click.IntRange(1, 4096), default=8, show_default=True, metavar="N", help="Rows at once.")
@click.option(
    "--feeding",
    type=click.Choice(["auto", "ragged", "drip"]),
    default="auto",
    show_default=True,
    help="Forced text: whole spans a step, one token a step, or by measured cost.",
)
@click.option(
    "--chunk", type=click.IntRange(min=1), default=256, show_default=True, metavar="N", help="Prompt tokens a step."
)
def batch(
    *, input_file: str, output_file: str, model_name: str | None, runner: str, slots: int, feeding: str, chunk: int
) -> int:
    """Answer every request of INPUT.jsonl (OpenAI's batch format: custom_id, url, body).

    Results are appended to OUT.jsonl as they come. Run it again after a kill: requests that have a result are not run
    again, and none is lost. A request that cannot be served gets a line with status 400. Exit code 1 if there are any.

    \b
    stcon batch requests.jsonl -o answers.jsonl
    """
    from stcon.server.batch_files import Results, check, read_lines

    names = check(input_file)
    if Path(output_file).exists() and Path(output_file).samefile(input_file):
        raise RequestError(f"{output_file}: the requests themselves; give another file for the results")
    with Results(output_file) as results:
        strange = sorted(results.done - set(names))
        if strange:
            raise RequestError(f"{output_file} has results of other requests ({strange[0]!r}); give another file")
        if len(results.done) == len(names):
            click.echo(f"{len(names)} of {len(names)} requests have a result already", err=True)
            return 0
        from stcon.commands.generate import load
        from stcon.engine.batch import Batch
        from stcon.engine.batch.choose import rows_for
        from stcon.server.batch_run import run, status

        rows = rows_for(load(model_name, runner=runner), slots)
        engine = Batch(rows, feeding=feeding, chunk=chunk, max_waiting=4 * slots)  # type: ignore[arg-type]
        click.echo(str(engine.memory), err=True)
        with Progress(every_s=10) as progress:
            counts = run(read_lines(input_file), results, engine, total=len(names), progress=progress)
    stats = engine.stats
    click.echo(status(engine, counts, stats.model_s + stats.host_s), err=True)
    if counts.refused:
        click.echo(f"stcon: {counts.refused} of {counts.done} requests were refused; see their lines", err=True)
    return 1 if counts.refused else 0
