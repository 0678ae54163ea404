"""The options that commands of `quorate play` share; they may precede the command, too."""

from pathlib import Path
from typing import Annotated

import typer

from quorate.console import Output, option

QUICKSTART = Path(__file__).with_name("quickstart.yaml")
FILE_HELP = "Manifests: a KafkaController, KafkaBrokers, Secrets; repeatable."
FileOption = Annotated[list[Path] | None, option("FILE", FILE_HELP, names=("--file", "-f"))]
LongFileOption = Annotated[list[Path] | None, option("FILE", FILE_HELP, names=("--file",))]
"""For a command whose -f is --follow."""
DirOption = Annotated[
    Path | None,
    option("DIR", "The directory of the cluster (default: ./.quorate/NAME).", names=("--dir",)),
]
OutputOption = Annotated[Output, option(None, "Output format.", names=("--output", "-o"))]


def given(
    context: typer.Context, file: list[Path] | None, directory: Path | None
) -> tuple[list[Path] | None, Path | None]:
    """Return --file and --dir of a command, or those before it."""
    before: tuple[list[Path] | None, Path | None] = context.obj or (None, None)
    return file or before[0], directory or before[1]
