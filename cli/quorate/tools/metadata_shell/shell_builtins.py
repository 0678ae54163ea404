"""The commands of the shell. Each returns the lines that Kafka's shell prints. Pure."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, field
from enum import Enum, auto
from functools import partial

from quorate_protocol.plain_data import dataclass

from quorate.tools.metadata_shell.nodes import Directory, Node
from quorate.tools.metadata_shell.paths import Found, child_of, find_nodes

_GAP = 2
_COLUMN_WIDTH_MIN = 4


@dataclass(slots=True)
class ShellState:
    """The state that commands read and change."""

    root: Node
    working_directory: str = "/"
    screen_width: int | None = None
    """The width in characters; None without a terminal, where each name has a line of its own."""
    history: Sequence[str] = field(default_factory=list)
    """The lines that were entered."""
    is_done: bool = False
    """Whether `exit` was entered."""

    def find(self, glob: str) -> Iterator[Found]:
        """The nodes that a glob matches."""
        return find_nodes(self.root, self.working_directory, glob)


class Takes(Enum):
    """How many arguments a command takes."""

    NONE = auto()
    AT_MOST_ONE = auto()
    ONE = auto()
    ANY = auto()
    SOME = auto()


Lines = Iterable[str]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its help and its function."""

    name: str
    description: str
    run: Callable[[ShellState, Sequence[str]], Lines]
    takes: Takes = Takes.NONE
    argument: str = ""
    argument_help: str = ""
    _: KW_ONLY
    is_interactive: bool = False
    """Whether the command exists at the prompt only."""
    takes_number: bool = False
    completes: str | None = None
    """How its arguments are completed: as a `path`, as a `command`, or not at all."""

    @property
    def usage(self) -> str:
        """Name and arguments, in the notation of argparse."""
        shapes = {
            Takes.NONE: "",
            Takes.AT_MOST_ONE: " [{0}]",
            Takes.ONE: " {0}",
            Takes.ANY: " [{0} [{0} ...]]",
            Takes.SOME: " {0} [{0} ...]",
        }
        return self.name + shapes[self.takes].format(self.argument)


def _cat(state: ShellState, targets: Sequence[str]) -> Lines:
    for target in targets:
        found = None
        for found in state.find(target):
            node = found.node
            yield f"cat: {target}: Is a directory" if isinstance(node, Directory) else node.text()
        if found is None:
            yield f"cat: {target}: No such file or directory."


def _cd(state: ShellState, targets: Sequence[str]) -> Lines:
    target = targets[0] if targets else "/"
    found = None
    for found in tuple(state.find(target)):
        if isinstance(found.node, Directory):
            state.working_directory = found.path
        else:
            yield f"cd: {target}: not a directory."
    if found is None:
        yield f"cd: {target}: no such directory."


def _exit(state: ShellState, _: Sequence[str]) -> Lines:
    state.is_done = True
    return ()


def _find(state: ShellState, paths: Sequence[str]) -> Lines:
    for path in effective_paths(paths):
        found = None
        for found in state.find(path):
            yield from walk(path, found.node)
        if found is None:
            yield f"find: {path}: no such file or directory."


def walk(path: str, node: Node) -> Iterator[str]:
    """The paths of a node and of all nodes below it."""
    yield path
    if isinstance(node, Directory):
        for name in node.sorted_names():
            yield from walk(f"{'' if path == '/' else path}/{name}", child_of(node, name))


def _ls(state: ShellState, targets: Sequence[str]) -> Lines:
    files: list[str] = []
    directories: list[Found] = []
    for target in effective_paths(targets):
        found = None
        for found in state.find(target):
            if isinstance(found.node, Directory):
                directories.append(found)
            else:
                files.append(found.name)
        if found is None:
            yield f"ls: {target}: no such file or directory."
    yield from columns(files, state.screen_width)
    has_titles = bool(files) or len(directories) > 1
    is_first = not files
    for directory in directories:
        assert isinstance(directory.node, Directory)
        names = directory.node.sorted_names()
        # Kafka prints no title for an empty directory, but counts it as printed.
        if has_titles and names:
            yield from (() if is_first else ("",))
            yield f"{directory.name}:"
        is_first = False
        yield from columns(names, state.screen_width)


def _pwd(state: ShellState, _: Sequence[str]) -> Lines:
    return (state.working_directory,)


def _tree(state: ShellState, targets: Sequence[str]) -> Lines:
    for target in targets:
        found = None
        for found in state.find(target):
            yield from _nested(found.node, "")
        if found is None:
            yield f"tree: {target}: No such file or directory."


def _nested(node: Node, indentation: str) -> Lines:
    if not isinstance(node, Directory):
        yield indentation + node.text()
        return
    for name in node.sorted_names():
        yield f"{indentation}{name}:"
        yield from _nested(child_of(node, name), indentation + "  ")


def _history(state: ShellState, numbers: Sequence[str]) -> Lines:
    shown = max(0, int(numbers[0])) if numbers else len(state.history)
    first = max(0, len(state.history) - shown)
    for place, line in enumerate(state.history[first:], start=first):
        yield f"{place:5}  {line}"


def _help(_: ShellState, __: Sequence[str]) -> Lines:
    names = "{" + ",".join(COMMANDS) + "}"
    yield "Welcome to the metadata shell, whose commands are those of Apache Kafka's."
    yield ""
    yield f"usage:  {names} ..."
    yield ""
    yield "positional arguments:"
    yield f"  {names}"
    for command in COMMANDS.values():
        first, *others = textwrap.wrap(command.description, 52)
        yield f"    {command.name:<20} {first}"
        for other in others:
            yield f"{'':25}{other}"


def _man(_: ShellState, names: Sequence[str]) -> Lines:
    command = COMMANDS.get(names[0])
    if command is None:
        yield f"man: unknown command {names[0]}. Type help to get a list of commands."
        return
    yield f"{command.name}: {command.description}"
    yield ""
    yield f"usage: {command.usage}"
    if command.argument:
        yield ""
        yield "positional arguments:"
        yield f"  {command.argument:<22} {command.argument_help}"


def effective_paths(paths: Sequence[str]) -> Sequence[str]:
    """The given paths, by default the working directory."""
    return [path for path in paths if path] or ["."]


def columns(names: Sequence[str], screen_width: int | None) -> Iterator[str]:
    """Lines with the names in as many columns as fit, ordered downwards. Without a screen, one name per line."""
    if not names:
        return
    widths = _widths(names, screen_width or 0)
    height = -(-len(names) // len(widths))
    for line in range(height):
        cells = names[line::height]
        padded = (cell.ljust(width) for cell, width in zip(cells, widths[:-1], strict=False))
        yield "".join(padded) + (cells[-1] if len(cells) == len(widths) else "")


def _widths(names: Sequence[str], screen_width: int) -> list[int]:
    """The width of each column, for the most columns that fit."""
    lengths = [len(name) for name in names]
    for count in range(min(screen_width // _COLUMN_WIDTH_MIN, len(names)), 1, -1):
        height = -(-len(names) // count)
        tops = range(0, len(names), height)
        if len(tops) == count:  # otherwise the last columns would be empty
            widths = [max(lengths[top : top + height]) + _GAP for top in tops]
            if sum(widths) <= screen_width:
                return widths
    return [0]


_on_paths = partial(Command, completes="path")

COMMANDS = {
    command.name: command
    for command in (
        _on_paths(
            "cat",
            "Show the contents of metadata files.",
            _cat,
            Takes.SOME,
            "targets",
            "The metadata files to display.",
        ),
        _on_paths(
            "cd",
            "Set the current working directory.",
            _cd,
            Takes.AT_MOST_ONE,
            "target",
            "The directory to change to.",
            is_interactive=True,
        ),
        Command("exit", "Exit the metadata shell.", _exit, is_interactive=True),
        _on_paths(
            "find",
            "Search for nodes in the directory hierarchy.",
            _find,
            Takes.ANY,
            "paths",
            "The paths to start at.",
        ),
        Command("help", "Display this help message.", _help, is_interactive=True),
        Command(
            "history",
            "Print command history.",
            _history,
            Takes.AT_MOST_ONE,
            "numEntriesToShow",
            "The number of entries to show.",
            takes_number=True,
            is_interactive=True,
        ),
        _on_paths(
            "ls", "List metadata nodes.", _ls, Takes.ANY, "targets", "The metadata node paths to list."
        ),
        Command(
            "man",
            "Show the help text for a specific command.",
            _man,
            Takes.ONE,
            "cmd",
            "The command to get help text for.",
            completes="command",
            is_interactive=True,
        ),
        Command("pwd", "Print the current working directory.", _pwd, is_interactive=True),
        _on_paths(
            "tree",
            "Show the contents of metadata nodes in a tree structure.",
            _tree,
            Takes.SOME,
            "targets",
            "The metadata nodes to display.",
        ),
    )
}
"""Every command by its name, sorted."""
