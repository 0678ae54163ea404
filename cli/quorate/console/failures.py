"""Failures that a user can do something about: one message on stderr and an exit code, never a traceback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from quorate_admin.errors import AdminError


class CommandError(Exception):
    """A tool can't do what it was asked to: exit code 1. The message names what, the value, what is allowed."""


class UsageError(typer.BadParameter):
    """The command line is wrong: exit code 2."""

    def format_message(self) -> str:
        """The message alone, without the words "Invalid value"."""
        return self.message


@contextmanager
def failures_told(*expected: type[Exception]) -> Iterator[None]:
    """Exit code 1 and a message for what can go wrong without a fault of ours, and for `expected`."""
    caught: tuple[type[Exception], ...] = (AdminError, CommandError, *expected)
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has enough: Typer ends quietly
    except OSError as error:
        tell_failure(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(1) from error
    except caught as error:
        tell_failure(str(error))
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        raise typer.Exit(1) from None


def tell_failure(text: str) -> None:
    """Write `error: text` to stderr."""
    _tell("error: ", typer.colors.RED, text)


def warn(text: str) -> None:
    """Write `warning: text` to stderr."""
    _tell("warning: ", typer.colors.YELLOW, text)


def _tell(label: str, colour: str, text: str) -> None:
    if "NO_COLOR" not in os.environ:
        label = typer.style(label, fg=colour, bold=True)
    typer.echo(f"{label}{text}", err=True)  # takes the colours away where stderr is no terminal
