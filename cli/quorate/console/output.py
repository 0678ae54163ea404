"""What a command prints: results on stdout, as text or JSON; errors and warnings on stderr."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from quorate_admin.errors import AdminError

from quorate.command_line import print_failure


class CommandError(Exception):
    """A command failed: exit code 1. The message names the object, its value and what is allowed."""


class UsageError(typer.BadParameter):
    """The command line is wrong: exit code 2."""

    def format_message(self) -> str:
        """The message alone, without the words "Invalid value"."""
        return self.message


@contextmanager
def report_failures(*expected: type[Exception]) -> Iterator[None]:
    """Turn expected errors into a message on stderr and exit code 1, without a traceback.

    AdminError, CommandError, OSError and the given types are expected.

    Raises:
        typer.Exit: code 1, after one of these errors; 130 after Ctrl-C, and 128 and the number of another signal
            that was raised as a KeyboardInterrupt of it, as shells report them.
    """
    caught: tuple[type[Exception], ...] = (AdminError, CommandError, *expected)
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has closed it: Typer exits quietly
    except OSError as error:
        print_failure(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(1) from error
    except caught as error:
        print_failure(str(error))
        raise typer.Exit(1) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)) from None


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Import packages of an extra of Quorate within this context.

    Raises:
        CommandError: one is not installed; the message has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith(("quorate", "pyspark_quorate")):
            raise  # a fault of ours
        raise CommandError(f"{package} is missing: pip install 'quorate[{extra}]'") from error


def write(text: str) -> None:
    """Write text to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_version(wanted: bool) -> None:
    """Print the version and exit, if an option asks for it."""
    if wanted:
        from importlib.metadata import version

        write(f"{version('quorate')}\n")
        raise typer.Exit


def print_json(content: object) -> None:
    """Write JSON to stdout."""
    import json  # most runs print text

    write(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n")


def table_text(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Kafka's tools print it: each value padded to its column's width and followed by a tab."""
    lines = [tuple(headers), *(tuple(str(value) for value in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "".join(
        "".join(f"{value:<{width}}\t" for value, width in zip(line, widths, strict=True)) + "\n"
        for line in lines
    )


def aligned_text(rows: Sequence[Sequence[str]]) -> str:
    """The rows as text in aligned columns. The first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)
