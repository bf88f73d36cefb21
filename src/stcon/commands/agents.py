"""`stcon agents`: small tasks done by many agents at once, in sandboxed folders."""

from __future__ import annotations

import click

from stcon.commands.inputs import environment, json_option, write_json
from stcon.errors import RequestError


@click.group()
def agents() -> None:
    """Agents: models that do small tasks with typed tools, many at once."""


@agents.command("list")
def list_suites() -> None:
    """List the suites that come with stcon, with their tasks."""
    from stcon.agents.tasks import load_suite, suite_names

    for name in suite_names():
        click.echo(f"{name}: {', '.join(task.name for task in load_suite(name))}")


@agents.command()
@click.argument("suite", metavar="SUITE")
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("-n", "number", type=click.IntRange(1, 256), metavar="N", help="Agents.  [default: one a task]")
@click.option("--slots", type=click.IntRange(1, 4096), default=8, show_default=True, metavar="N", help="Rows at once.")
@click.option("--max-tokens", type=click.IntRange(min=16), default=512, show_default=True, help="Of a reply.")
@click.option("--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--free", is_flag=True, help="Replies may be text or calls; else each is one call.")
@click.option("--no-python", is_flag=True, help="Do without run_python.")
@json_option
def run(
    *,
    suite: str,
    model_name: str | None,
    number: int | None,
    slots: int,
    max_tokens: int,
    temperature: float,
    seed: int,
    free: bool,
    no_python: bool,
    json_file: str | None,
) -> int:
    """Run the agents of SUITE (a name, see stcon agents list, or a file of JSON lines) at once on one model.

    Each works in a temporary folder with write_file, read_file and run_python; programs are confined (no network, no
    other files, no other processes) or not run at all. The table goes to standard output. Exit code 0 whatever the
    agents achieve; 2 where nothing can be run.
    """
    from stcon.agents.tasks import load_suite

    tasks = load_suite(suite)
    try:
        from stcon.agents.agent import Outcome, Settings
        from stcon.agents.run import report, table, timed_run
    except ImportError as error:
        raise RequestError("agents need the server's packages; run: pip install 'stcon[server]'") from error
    from stcon.commands.generate import load
    from stcon.engine.batch import Batch
    from stcon.engine.batch.choose import rows_for
    from stcon.engine.batch.warm import warm_up

    def told(outcome: Outcome) -> None:
        verdict = "passed" if outcome.passed else "not passed"
        error = f": {outcome.error}" if outcome.error else ""
        click.echo(f"{outcome.task}: {verdict}, {outcome.ended}, {outcome.turns} turns{error}", err=True)

    settings = Settings(max_tokens, temperature, seed, free, not no_python)
    batch = Batch(rows_for(load(model_name), slots))
    warm_up(batch)
    with batch:
        outcomes, seconds = timed_run(tasks, batch, settings, num_agents=number, told=told)
    found = report(outcomes, seconds)
    click.echo(table(found))
    write_json(json_file, {"suite": suite, "environment": environment(), **found})
    return 0
