"""Help and usage errors of all commands: plain text, which no terminal is too narrow for and which `grep` finds.

Typer would draw boxes with rich, in which names of options are cut and messages are broken into lines.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final, Never

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

_ESCAPED: Final = "quorate.escaped"
"""The name of the error handler `_escaped`."""
_EXAMPLE_WIDTH: Final = 74
_HELP_CHARACTERS_MAX: Final = 1_000
"""The help of a command in a list of commands is wrapped, not cut."""
# Typer exports neither of the two.
_UsageError: Final[Any] = typer.BadParameter.__mro__[1]
_CommandLineError: Final[type[Exception]] = typer.BadParameter.__mro__[2]


class _Plain:
    """Options by panel, in the order of their definition; `error: …` and exit code 2 for a wrong command line."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Write the sections of the options and, for a group, that of the commands."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                # The --help of Typer 0.15 is click's, and has none.
                panel = getattr(parameter, "rich_help_panel", None)
                panels.setdefault(panel or kind, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)

    def main(self: Any, *arguments: Any, standalone_mode: bool = True, **settings: Any) -> Any:
        """Run the command line; as Typer does, but for the messages."""
        run: Callable[..., Any] = super().main  # type: ignore[misc]  # of TyperCommand or TyperGroup
        if not standalone_mode:
            return run(*arguments, standalone_mode=False, **settings)
        try:
            code = run(*arguments, standalone_mode=False, **settings)
        except _CommandLineError as error:
            _refuse(error)
        except typer.Abort:
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


class Command(_Plain, TyperCommand):
    """A command."""


class Group(_Plain, TyperGroup):
    """A command with subcommands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each subcommand with its whole short help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_HELP_CHARACTERS_MAX))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def plain_app(cls: type[TyperGroup] = Group, **settings: Any) -> typer.Typer:
    """A Typer app with plain help, -h and --help."""
    return typer.Typer(
        cls=cls,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def examples(*commands: str) -> str:
    """Return the end of a help: commands, each on as many lines of a shell as it needs."""
    wrapped = (
        " \\\n".join(
            textwrap.wrap(
                command, _EXAMPLE_WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
        )
        for command in commands
    )
    return "\n".join(("\b", "Examples:", *wrapped))  # \b: lines are not joined


def _refuse(error: Any) -> Never:
    """Print what is wrong with the command line, on one line, and where the help is."""
    if isinstance(error, _UsageError) and type(error).show is not _UsageError.show:  # its message is the help
        error.show()
    else:
        print_failure(error.format_message())
        context = getattr(error, "ctx", None)
        if context is not None:
            typer.echo(f"Try '{context.command_path} {context.help_option_names[0]}' for help.", err=True)
    sys.exit(error.exit_code)


def print_failure(text: str) -> None:
    """Write `error: text` to stderr."""
    _print_labelled("error: ", typer.colors.RED, text)


def warn(text: str) -> None:
    """Write `warning: text` to stderr."""
    _print_labelled("warning: ", typer.colors.YELLOW, text)


def _print_labelled(label: str, colour: str, text: str) -> None:
    if "NO_COLOR" not in os.environ:
        label = typer.style(label, fg=colour, bold=True)
    typer.echo(f"{label}{text}", err=True)  # removes the colours where stderr is no terminal


def prepare_text() -> None:
    """Check that all arguments of this process are UTF-8 text, so that they can be sent.

    What the locale can't encode is escaped in the output of this process.

    Raises:
        SystemExit: an argument is not UTF-8; code 2, after a message.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error(_ESCAPED, _escaped)
        sys.stdout.reconfigure(errors=_ESCAPED)
    for number, argument in enumerate(sys.argv[1:], start=1):
        if not argument.isascii():
            try:
                argument.encode()
            except UnicodeEncodeError:
                sys.stderr.write(f"error: argument {number}, {argument!a}, is not UTF-8 text\n")
                raise SystemExit(2) from None


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return what stdout has for characters that its encoding lacks, and where to continue.

    JSON has only `\\uXXXX`, for each unit of UTF-16; Python's backslashreplace also writes `\\xXX` and `\\UXXXXXXXX`.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "".join(f"\\u{unit}" for unit in units.split()), error.end
