"""`stcon completion`: what a shell needs to complete stcon's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_STCON_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes stcon in SHELL.

    \b
    bash:  stcon completion bash >> ~/.bashrc
    zsh:   stcon completion zsh >> ~/.zshrc
    fish:  stcon completion fish > ~/.config/fish/completions/stcon.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    # its source does not depend on what is completed; asking bash for its version is left to the user's shell
    source = kind(context.find_root().command, {}, "stcon", _VARIABLE)
    click.echo(source.source_template % source.source_vars())
    return 0
