"""The `stcon` command: one subcommand a file in `stcon.commands`, errors and exit codes here.

Exit codes: 0 done; 1 the output is incomplete, decoding failed or a check is red; 2 bad input; 130 interrupted.
Standard output carries the result alone (JSON, or the table asked for); progress, notes and errors go to standard
error. An error is one line that says what is wrong and what to do, never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from stcon import __version__, _notices
from stcon.commands.agents import agents
from stcon.commands.batch import batch
from stcon.commands.bench import bench
from stcon.commands.check import check
from stcon.commands.completion import completion
from stcon.commands.explain import explain
from stcon.commands.generate import generate
from stcon.commands.opencode import opencode
from stcon.commands.pull import pull
from stcon.commands.serve import serve
from stcon.commands.theory import theory
from stcon.errors import RequestError, StconError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


class Commands(click.Group):
    """The command group that turns every expected error into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        parent = super().main
        extra["windows_expand_args"] = windows_expand_args

        def run() -> Any:
            return parent(args, prog_name, complete_var, standalone_mode=False, **extra)

        return run() if not standalone_mode else sys.exit(_guarded(run))


def _guarded(run: Any) -> int:
    """Run a command; its exit code, after saying in one line on stderr what went wrong."""
    try:
        result = run()
    except click.Abort:
        return _say("interrupted", INTERRUPTED)
    except click.UsageError as error:
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        return _say(error.format_message() + hint, BAD_INPUT)
    except click.ClickException as error:
        return _say(error.format_message(), BAD_INPUT)
    except RequestError as error:
        return _say(str(error), BAD_INPUT)
    except StconError as error:
        return _say(str(error), FAILED)
    except BrokenPipeError:  # the reader of our output has gone, as in `stcon ... | head`
        sys.stderr.close()
        return FAILED
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _say(f"{place}{error.strerror or error}", BAD_INPUT)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    click.echo(f"stcon: {' '.join(message.split())}", err=True)
    return code


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stcon", message="%(prog)s %(version)s")
def cli() -> None:
    """Make a language model's output follow a JSON Schema or a regular expression, exactly."""
    _notices.compiling.append(_say_compiling)


def _say_compiling() -> None:
    click.echo("stcon: compiling the mask kernels, once for this installation (up to a minute) ...", err=True)


for command in (generate, batch, serve, agents, opencode, check, explain, pull, bench, theory, completion):
    cli.add_command(command)


def main() -> None:
    """Entry point of the `stcon` script."""
    cli.main(prog_name="stcon")
