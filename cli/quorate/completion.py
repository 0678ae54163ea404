"""`quorate completion`: the completion script of a shell.

At each press of the tab key the script calls `quorate` with the words so far in the environment. A command is
imported only to complete its own options.
"""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from quorate.command_line import examples, plain_app

EXAMPLES = examples(
    'eval "$(quorate completion bash)"',
    'eval "$(quorate completion zsh)"',
    "quorate completion fish > ~/.config/fish/completions/quorate.fish",
)

app = plain_app(add_completion=False)


class Shell(StrEnum):
    """A supported shell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(epilog=EXAMPLES)
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script with which a shell completes quorate's commands and options.

    For bash, add the first example to ~/.bashrc; for zsh, the second one to ~/.zshrc, after compinit.
    """
    from typer import completion as typers

    script = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name="quorate", complete_var="_QUORATE_COMPLETE", shell=str(shell)
    )
    sys.stdout.write(f"{script}\n")
