"""`stcon bench coding`: programs that pass their tests."""

from __future__ import annotations

import click

from stcon.commands.inputs import json_option
from stcon.commands.progress import Progress
from stcon.commands.tables import finish, print_table


@click.command()
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option(
    "--problems", "count", type=click.IntRange(1), default=40, show_default=True, metavar="N", help="How many."
)
@click.option("--slots", type=click.IntRange(2), default=8, show_default=True, metavar="N", help="Rows of the batch.")
@click.option("--max-tokens", type=click.IntRange(min=16), default=512, show_default=True, metavar="N")
@click.option("--quick", is_flag=True, help="Two problems of 64 tokens.")
@json_option
def coding(
    *, model_name: str | None, count: int, slots: int, max_tokens: int, quick: bool, json_file: str | None
) -> int:
    """HumanEval's problems, answered greedily by one stream and by a batch; the programs run in a sandbox.

    What a model passes is a figure, not a check: the exit code is 0 whatever it is.
    """
    from stcon.bench.coding import as_json, measure, problems
    from stcon.commands.generate import load

    tasks = problems(2 if quick else count)
    limit = 64 if quick else max_tokens
    model = load(model_name)
    with Progress() as progress:
        rows, attempts = measure(model, tasks, slots=slots, max_tokens=limit, progress=progress)
    print_table(
        ("engine", "pass@1", "tokens", "tok/s", "wall s", "cut", "as one\nstream"),
        [
            (
                row.engine,
                f"{row.passed}/{row.problems}",
                str(row.tokens),
                f"{row.tokens / row.seconds:.1f}",
                f"{row.seconds:.1f}",
                str(row.cut),
                f"{row.same}/{row.problems}",
            )
            for row in rows
        ],
    )
    about = {"model": model.name, "max_tokens": limit, "slots": slots}
    return finish(as_json(rows, attempts, about), [], json_file, about)
