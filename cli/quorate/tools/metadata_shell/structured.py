"""The commands' results for programs. Pure.

cat    {"/image/features/metadataVersion": "4.3-IV0", ...}     content by path
find   ["/image/cluster", "/image/cluster/brokers", ...]       absolute paths
ls     [{"path": "/image/cluster", "children": ["brokers", "controllers"]}, ...]
       children are null for a file
tree   {"/image/cluster": {"brokers": {"1": {"id": 1, ...}}}, ...}     content, nested, by path
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quorate.tools.metadata_shell.parsing import Call
from quorate.tools.metadata_shell.paths import Found, child_of
from quorate.tools.metadata_shell.shell_builtins import ShellState, effective_paths
from quorate.tools.metadata_shell.tree import Directory, Node


class NotThereError(Exception):
    """A path that does not exist, or is not what the command is for."""


def content_of(call: Call, state: ShellState) -> Any:
    """What the command found, as JSON. Raises NotThereError."""
    found = list(_found(state, call.command.name, effective_paths(call.arguments)))
    return _CONTENTS[call.command.name](found)


def _found(state: ShellState, command: str, globs: Sequence[str]) -> Iterator[Found]:
    for glob in globs:
        one = None
        for one in state.find(glob):
            yield one
        if one is None:
            raise NotThereError(f"{command}: {glob}: no such file or directory")


def _cat(found: list[Found]) -> Any:
    content = {}
    for one in found:
        if isinstance(one.node, Directory):
            raise NotThereError(f"cat: {one.path}: is a directory")
        content[one.path] = one.node.data()
    return content


def _find(found: list[Found]) -> Any:
    return [path for one in found for path in _walk(one.path, one.node)]


def _walk(path: str, node: Node) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name in node.sorted_names():
            yield from _walk(f"{path.rstrip('/')}/{name}", child_of(node, name))


def _ls(found: list[Found]) -> Any:
    return [
        {
            "path": one.path,
            "children": one.node.sorted_names() if isinstance(one.node, Directory) else None,
        }
        for one in found
    ]


def _tree(found: list[Found]) -> Any:
    return {one.path: _nested(one.node) for one in found}


def _nested(node: Node) -> Any:
    if not isinstance(node, Directory):
        return node.data()
    return {name: _nested(child_of(node, name)) for name in node.sorted_names()}


_CONTENTS: dict[str, Callable[[list[Found]], Any]] = {"cat": _cat, "find": _find, "ls": _ls, "tree": _tree}
