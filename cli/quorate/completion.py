"""`quorate completion`: the completion script of a shell.

At each press of the tab key the script calls `quorate` with the words so far in the environment. A command is
imported only to complete its own options.
"""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from quorate.command_line import plain_app

app = plain_app(add_completion=False)


class Shell(StrEnum):
    """A supported shell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script with which a shell completes quorate's commands and options.

    bash: eval "$(quorate completion bash)" in ~/.bashrc

    zsh: eval "$(quorate completion zsh)" in ~/.zshrc, after compinit

    fish: quorate completion fish > ~/.config/fish/completions/quorate.fish
    """
    from typer import completion as typers

    script = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name="quorate", complete_var="_QUORATE_COMPLETE", shell=str(shell)
    )
    sys.stdout.write(f"{script}\n")
