"""`stcon theory`: the deciders of few-path reachability on a graph in a file."""

from __future__ import annotations

import json

import click

from stcon.errors import RequestError

METHODS = ("counts", "logdcfl", "reachul", "oracle-free", "c=l", "nl")
REGIMES = ("terminal-width", "blocks")
NO = 1


@click.group()
def theory() -> None:
    """Few-path graphs: decide, with a certificate, what the paper proves decidable in little space."""


@theory.command()
@click.argument("graph", type=click.Path(exists=True, dir_okay=False))
@click.option("--s", "source", required=True, metavar="S", help="The vertex to start from.")
@click.option("--t", "target", required=True, metavar="T", help="The vertex to reach.")
@click.option("--k", "cap", required=True, type=click.IntRange(min=0), help="Walks allowed between any two vertices.")
@click.option(
    "--method",
    type=click.Choice([*METHODS, *REGIMES, "all"]),
    default="counts",
    show_default=True,
    help="Which construction; all: every one but terminal-width and blocks.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    help="Refuse past so many of the method's steps.",
)
@click.option("--certificate/--no-certificate", default=True, show_default=True, help="Print the certificate too.")
def decide(*, graph: str, source: str, target: str, cap: int, method: str, max_steps: int, certificate: bool) -> int:
    """Do at most K walks join any two vertices of GRAPH, and does one lead from S to T?

    GRAPH is an .edgelist, .json or .graphml file. Prints JSON: the answer, why (a certificate, already checked), and
    the work done. Exits with 0 for yes, 1 for no, 2 for bad input.
    """
    from stcon.theory.budgets import StronglyFew
    from stcon.theory.check import check_verdict
    from stcon.theory.deciders import decide as run
    from stcon.theory.graph import GraphError
    from stcon.theory.readers import find_vertex, read_graph
    from stcon.theory.report import verdict_data

    try:
        digraph = read_graph(graph)
        instance = StronglyFew(digraph, find_vertex(digraph, source), find_vertex(digraph, target), cap)
        verdicts = [run(instance, name, max_steps=max_steps) for name in (METHODS if method == "all" else (method,))]
    except GraphError as error:
        raise RequestError(str(error)) from error
    asked = instance.requirements
    for verdict in verdicts:
        assert check_verdict(asked, verdict), f"{verdict.method} gave a certificate that proves nothing"
    data = [verdict_data(asked, verdict, certificate=certificate) for verdict in verdicts]
    click.echo(json.dumps(data if method == "all" else data[0], indent=2))
    return 0 if verdicts[0].answer else NO
