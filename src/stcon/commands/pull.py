"""`stcon pull`: fetch the default model into the cache."""

from __future__ import annotations

import click


@click.command()
def pull() -> None:
    """Fetch the default model (SmolLM2-135M-Instruct) into the cache; quick if it is there.

    Its path goes to standard output.
    """
    from stcon.models.pull import default_model_path

    click.echo(str(default_model_path()))
