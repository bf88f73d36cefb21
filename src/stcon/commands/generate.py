"""`stcon generate`: answer a prompt in the format of a schema, a regular expression or a grammar."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from stcon.commands.inputs import (
    INPUT,
    compile_constraint,
    constraint_options,
    environment,
    json_option,
    read_text,
    runner_option,
    write_json,
)
from stcon.errors import RequestError

if TYPE_CHECKING:
    from stcon.engine.control import Mode
    from stcon.engine.loop import Generation
    from stcon.engine.parallel import Report
    from stcon.models.base import Model


@click.command()
@constraint_options
@click.option("--prompt", metavar="TEXT", help="The prompt, or - to read it from standard input.")
@click.option("--prompt-file", type=INPUT, metavar="FILE", help="File that holds the prompt.")
@click.option("--raw", is_flag=True, help="Give the prompt to the model as it is, without its chat template.")
@click.option(
    "--model", "model_name", metavar="M", help="Directory, .gguf file or hub name.  [default: see stcon pull]"
)
@click.option("--device", default="auto", show_default=True, help="auto (a GPU if there is one), cpu, cuda, cuda:1 …")
@runner_option
@click.option(
    "--weights",
    type=click.Choice(["auto", "int4"]),
    default="auto",
    show_default=True,
    help="int4: matrices in four bits: less memory, quicker on a CPU, other tokens now and then.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), default=512, show_default=True, metavar="N")
@click.option(
    "--mode",
    type=click.Choice(["mask", "any", "canonical"]),
    help="How forced text is written: sampled, in any split, in the tokenizer's split.  [default: canonical]",
)
@click.option("--no-budget", is_flag=True, help="Let --max-tokens cut the answer anywhere.")
@click.option("--parallel", is_flag=True, help="Draft the fields side by side: the same answer in fewer passes.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="0 is off.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--min-p", type=float, default=0.0, show_default=True)
@click.option("--seed", type=int, metavar="N", help="Makes sampling repeatable.")
@click.option("--show-tokens", is_flag=True, help="Show on stderr which tokens were sampled and which were forced.")
@json_option
def generate(
    *,
    schema_file: str | None,
    regex: str | None,
    grammar_file: str | None,
    syntax: str | None,
    whitespace: str,
    key_order: str,
    open_objects: bool,
    prompt: str | None,
    prompt_file: str | None,
    raw: bool,
    model_name: str | None,
    device: str,
    weights: str,
    runner: str,
    max_tokens: int,
    mode: Mode | None,
    no_budget: bool,
    parallel: bool,
    show_tokens: bool,
    json_file: str | None,
    **sampling: Any,
) -> int:
    """Answer a prompt in the format of a schema, a regular expression or a grammar.

    The answer alone goes to standard output, complete within --max-tokens: near the limit only what can still be
    completed is written. Exit code 0: complete; 1: decoding failed, or cut (--no-budget); 2: bad input, or a limit that
    no answer fits.

    \b
    stcon generate --schema person.json --prompt "Ann is 34. Give name and age as JSON."
    stcon generate --regex "(yes|no)" --prompt-file question.txt
    """
    text = _prompt(prompt, prompt_file, schema_file)
    grammar = compile_constraint(
        schema_file,
        regex,
        grammar_file,
        syntax=syntax,
        whitespace=whitespace,
        key_order=key_order,
        open_objects=open_objects,
    )
    if grammar is None and mode is not None:
        raise click.UsageError("--mode needs --schema, --regex or --grammar")
    if grammar is None and parallel:
        raise click.UsageError("--parallel needs --schema, --regex or --grammar")
    model = load(model_name, device, weights, runner)
    live = sys.stdout.isatty()  # a pipe gets the answer whole, or nothing if decoding fails
    write = (lambda piece: click.echo(piece, nl=False)) if live else None
    result = model.generate(
        text,
        grammar,
        max_tokens,
        mode=mode,
        raw=raw,
        budget=not no_budget,
        stream=write,
        parallel=parallel,
        **sampling,
    )
    click.echo("" if live else result.text)
    if show_tokens:
        show(result)
    write_json(json_file, {"model": model.name, **environment(), **as_json(result)})
    if result.complete if grammar is not None else result.finish_reason == "stop":
        return 0
    click.echo(
        f"stcon: the output is not complete: cut after {len(result.tokens)} tokens; raise --max-tokens", err=True
    )
    return 1


def load(name: str | None, device: str = "auto", weights: str = "auto", runner: str = "auto") -> Model:
    """The model; on a terminal, with a note and the loader's progress on stderr."""
    import stcon

    if sys.stderr.isatty():
        click.echo(f"loading {name or 'the default model'} …", err=True)
    else:
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars of the libraries; read when tqdm is imported
    return stcon.load_model(name or "default", device=device, weights=weights, runner=runner)


def show(result: Generation) -> None:
    """Write the tokens to stderr, forced ones on blue, and the counts."""
    from stcon.commands.tokens import render

    render([(token.data, token.kind) for token in result.tokens])
    click.echo(
        f"{result.sampled} sampled in {result.passes} passes, {result.forced} forced "
        f"({result.forced_share:.0%} of {len(result.tokens)} tokens); "
        f"prompt {result.prefill_s:.2f} s, output {result.decode_s:.2f} s",
        err=True,
    )
    if result.parallel is not None:
        _show_rounds(result.parallel)


def _show_rounds(report: Report) -> None:
    """Write to stderr how the parallel decoding went."""
    click.echo(
        f"{report.fields} fields, {report.passes} passes for {report.sequential_passes} in turn, "
        f"{report.row_passes} rows in all",
        err=True,
    )
    number = 0
    for round in report.rounds:
        number += not round.is_look
        name = "look ahead" if round.is_look else f"round {number}"
        failed = f"; repaired: fields {', '.join(str(index + 1) for index in round.failed)}" if round.failed else ""
        click.echo(
            f"{name}, after {round.at} tokens: {round.accepted} of {round.drafted} drafted tokens accepted{failed}",
            err=True,
        )


def as_json(result: Generation) -> dict[str, Any]:
    """A generation as data."""
    return {
        "text": result.text,
        "value": result.value,
        "finish_reason": result.finish_reason,
        "passes": result.passes,
        "sampled": result.sampled,
        "forced": result.forced,
        "parallel": None if result.parallel is None else asdict(result.parallel),
        "prefill_s": result.prefill_s,
        "decode_s": result.decode_s,
        "tokens": [{"id": token.id, "kind": token.kind, "text": token.text} for token in result.tokens],
    }


def _prompt(prompt: str | None, prompt_file: str | None, schema_file: str | None) -> str:
    """The prompt from whichever option gives it."""
    if (prompt is None) == (prompt_file is None):
        raise click.UsageError("give the prompt with --prompt TEXT, --prompt - or --prompt-file FILE")
    source = prompt_file if prompt_file is not None else "-" if prompt == "-" else None
    if source == "-" and schema_file == "-":
        raise click.UsageError("standard input can hold the prompt or the schema, not both")
    text = prompt if source is None else read_text(source)
    if not text or not text.strip():
        raise RequestError("the prompt is empty; give some text")
    return text
