"""The words of a line, and the command that they mean. Pure; messages as argparse4j writes them for Kafka."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from quorate.tools.metadata_shell.shell_builtins import COMMANDS, Command, Takes


class CommandLineError(Exception):
    """A line that is no command; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its arguments."""

    command: Command
    arguments: Sequence[str]


def words_of(line: str) -> list[str]:
    """The words of a line, quotes and backslashes taken away. Raises CommandLineError."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise CommandLineError(f"{str(error)[:1].lower()}{str(error)[1:]}") from None


def parse_call(words: Sequence[str], *, is_interactive: bool) -> Call | None:
    """The command that the words mean; None without any. Raises CommandLineError."""
    given = list(words)
    while given and not given[-1]:
        del given[-1]
    if not given:
        return None
    name, *arguments = given
    command = _command(name, is_interactive=is_interactive)
    for argument in arguments:
        if len(argument) > 1 and argument.startswith("-"):
            raise CommandLineError(f"unrecognized arguments: '{argument}'")
    most = {Takes.NONE: 0, Takes.AT_MOST_ONE: 1, Takes.ONE: 1}.get(command.takes, len(arguments))
    if not arguments and command.takes in (Takes.ONE, Takes.SOME):
        raise CommandLineError("too few arguments")
    if len(arguments) > most:
        raise CommandLineError(f"unrecognized arguments: '{' '.join(arguments[most:])}'")
    if command.takes_number and arguments and not _is_number(arguments[0]):
        raise CommandLineError(
            f"argument {command.argument}: could not convert '{arguments[0]}' to Integer "
            f'(For input string: "{arguments[0]}")'
        )
    return Call(command, arguments)


def _command(name: str, *, is_interactive: bool) -> Command:
    known = [one for one in COMMANDS.values() if is_interactive or not one.is_interactive]
    for command in known:
        if command.name == name:
            return command
    meant = [one.name for one in known if one.name.startswith(name)]
    if len(meant) == 1:
        raise CommandLineError(f"invalid choice: '{name}': did you mean '{meant[0]}'?")
    names = ", ".join(f"'{one.name}'" for one in known)
    raise CommandLineError(f"invalid choice: '{name}' (choose from {names})")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
