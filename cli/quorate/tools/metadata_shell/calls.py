"""A line of the shell: the command that it calls, its completions, and its result as JSON. Pure.

Error messages are those of argparse4j, which Kafka's shell uses. Results as JSON:

cat    {"/image/features/metadataVersion": "4.3-IV0", ...}     content by path
find   ["/image/cluster", "/image/cluster/brokers", ...]       absolute paths
ls     [{"path": "/image/cluster", "children": ["brokers", "controllers"]}, ...]
       children are null for a file
tree   {"/image/cluster": {"brokers": {"1": {"id": 1, ...}}}, ...}     content, nested, by path
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quorate_protocol.plain_data import dataclass

from quorate.tools.metadata_shell.nodes import Directory, Node, number_of
from quorate.tools.metadata_shell.paths import Found, child_of, components_of
from quorate.tools.metadata_shell.shell_builtins import (
    COMMANDS,
    Command,
    ShellState,
    Takes,
    effective_paths,
    walk,
)


class CommandLineError(Exception):
    """A line that calls no command; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command with its arguments."""

    command: Command
    arguments: Sequence[str]


def words_of(line: str) -> list[str]:
    """Split a line into words, as a shell does. Raises CommandLineError for an open quote."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise CommandLineError(f"{str(error)[:1].lower()}{str(error)[1:]}") from None


def parse_call(words: Sequence[str], *, is_interactive: bool) -> Call | None:
    """The command that the words call; None if there are no words. Raises CommandLineError."""
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
    if command.takes_number and arguments and number_of(arguments[0]) is None:
        raise CommandLineError(
            f"argument {command.argument}: could not convert '{arguments[0]}' to Integer "
            f'(For input string: "{arguments[0]}")'
        )
    return Call(command, arguments)


def _command(name: str, *, is_interactive: bool) -> Command:
    known = [command for command in COMMANDS.values() if is_interactive or not command.is_interactive]
    for command in known:
        if command.name == name:
            return command
    meant = [command.name for command in known if command.name.startswith(name)]
    if len(meant) == 1:
        raise CommandLineError(f"invalid choice: '{name}': did you mean '{meant[0]}'?")
    names = ", ".join(f"'{command.name}'" for command in known)
    raise CommandLineError(f"invalid choice: '{name}' (choose from {names})")


def completions(state: ShellState, words: Sequence[str]) -> list[str]:
    """The completions of the last word; a complete word ends with a blank, a directory with `/`."""
    if len(words) <= 1:
        return _commands(words[0] if words else "")
    command = COMMANDS.get(words[0])
    if command is None or command.completes is None:
        return []
    if command.completes == "command":
        return _commands(words[1]) if len(words) == 2 else []
    if command.name == "cd" and len(words) > 2:
        return []
    return complete_path(state, words[-1])


def _commands(prefix: str) -> list[str]:
    return [f"{name} " for name in COMMANDS if name.startswith(prefix)]


def complete_path(state: ShellState, prefix: str) -> list[str]:
    """The paths that begin with `prefix`, completed by one component at most."""
    head, slash, last = prefix.rpartition("/")
    above = (head or "/") if slash else ""
    node: Node | None = state.root
    for component in components_of(above, state.working_directory):
        node = node.child(component) if isinstance(node, Directory) else None
    if not isinstance(node, Directory):
        return []
    names = [name for name in node.sorted_names() if name.startswith(last)]
    return [f"{head}{slash}{name}{'/' if isinstance(node.child(name), Directory) else ' '}" for name in names]


class NotThereError(Exception):
    """A path does not exist, or the command does not apply to it."""


def content_of(call: Call, state: ShellState) -> Any:
    """The result of a command, as content for JSON. Raises NotThereError."""
    found = list(_found(state, call.command.name, effective_paths(call.arguments)))
    return _CONTENTS[call.command.name](found)


def _found(state: ShellState, command: str, globs: Sequence[str]) -> Iterator[Found]:
    for glob in globs:
        match = None
        for match in state.find(glob):
            yield match
        if match is None:
            raise NotThereError(f"{command}: {glob}: no such file or directory")


def _cat(found: list[Found]) -> Any:
    content = {}
    for file in found:
        if isinstance(file.node, Directory):
            raise NotThereError(f"cat: {file.path}: is a directory")
        content[file.path] = file.node.data()
    return content


def _find(found: list[Found]) -> Any:
    return [path for match in found for path in walk(match.path, match.node)]


def _ls(found: list[Found]) -> Any:
    return [
        {
            "path": match.path,
            "children": match.node.sorted_names() if isinstance(match.node, Directory) else None,
        }
        for match in found
    ]


def _tree(found: list[Found]) -> Any:
    return {match.path: _nested(match.node) for match in found}


def _nested(node: Node) -> Any:
    if not isinstance(node, Directory):
        return node.data()
    return {name: _nested(child_of(node, name)) for name in node.sorted_names()}


_CONTENTS: dict[str, Callable[[list[Found]], Any]] = {"cat": _cat, "find": _find, "ls": _ls, "tree": _tree}
