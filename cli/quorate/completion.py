"""`quorate completion`: the script that makes a shell complete commands and options.

The script asks `quorate` itself at each press of the tab key, with the words so far in the environment; parts
are loaded only when their options are wanted.
"""

import sys
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Shell(StrEnum):
    """A shell whose completion is known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell that will read the script.")]) -> None:
    """Print a script that makes a shell complete quorate's commands and options.

    bash: eval "$(quorate completion bash)" in ~/.bashrc

    zsh: eval "$(quorate completion zsh)" in ~/.zshrc, behind compinit

    fish: quorate completion fish > ~/.config/fish/completions/quorate.fish
    """
    from typer import completion as typers

    script = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name="quorate", complete_var="_QUORATE_COMPLETE", shell=str(shell)
    )
    sys.stdout.write(f"{script}\n")
