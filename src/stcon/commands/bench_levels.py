"""`stcon bench levels`: how much of the vocabulary a grammar keeps alive."""

from __future__ import annotations

import click

from stcon.commands.inputs import json_option
from stcon.commands.tables import finish, print_table

SHOWN = 20


@click.command()
@click.option("--tokenizer", type=click.Choice(["qwen3.5", "smollm2", "bytes"]), default="smollm2", show_default=True)
@json_option
def levels(*, tokenizer: str, json_file: str | None) -> int:
    """Trie nodes by depth, those that some place of the person schema keeps alive, and those of one place."""
    import stcon
    from stcon.bench.levels import as_json, measure
    from stcon.bench.masks_engines import load_vocabulary
    from stcon.bench.workloads import load

    machine = stcon.compile(load("person").schema).machine
    found = measure(machine, load_vocabulary(tokenizer))
    print_table(
        ("depth", "nodes", "alive from\nsome place", "from one,\naverage"),
        [
            (str(level.depth), f"{level.nodes:,}", f"{level.alive:,}", f"{level.mean_alive:,.0f}")
            for level in found[:SHOWN]
        ],
        left=0,
    )
    red = [f"depth {level.depth}: more alive than there are" for level in found if level.alive > level.nodes]
    return finish(as_json(found, machine, {"tokenizer": tokenizer}), red, json_file, {"tokenizer": tokenizer})
