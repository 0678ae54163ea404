"""Finds the differences between two trees. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node


@dataclass(frozen=True, slots=True)
class Difference:
    """A file that only one tree has, or that has different content in both."""

    path: str
    before: Any
    """Its content as JSON; None if the first tree lacks it."""
    after: Any
    """Its content as JSON; None if the second tree lacks it."""

    @property
    def fields(self) -> Mapping[str, tuple[Any, Any]]:
        """Field -> both values, of fields that differ. Empty unless the file is a JSON object in both trees."""
        if not (isinstance(self.before, dict) and isinstance(self.after, dict)):
            return {}
        names = dict.fromkeys((*self.before, *self.after))
        pairs = {name: (self.before.get(name), self.after.get(name)) for name in names}
        return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def differences(before: Node | None, after: Node | None, path: str) -> Iterator[Difference]:
    """The files below a path that differ, in the order of their paths. Either tree may lack the path."""
    if isinstance(before, Directory) or isinstance(after, Directory):
        # A path that is a file in one tree and a directory in the other is two differences.
        if isinstance(before, Leaf) or isinstance(after, Leaf):
            yield from differences(before, None, path)
            yield from differences(None, after, path)
            return
        for name in _names(before, after):
            yield from differences(_child(before, name), _child(after, name), f"{path}/{name}")
        return
    old, new = _content(before), _content(after)
    if old != new:
        yield Difference(path, old, new)


def _names(*nodes: Node | None) -> list[str]:
    names = {name: None for node in nodes if isinstance(node, Directory) for name in node.names()}
    return Directory(lambda: names, lambda _: None).sorted_names()


def _child(node: Node | None, name: str) -> Node | None:
    return node.child(name) if isinstance(node, Directory) else None


def _content(node: Node | None) -> Any:
    return node.data() if isinstance(node, Leaf) else None
