"""Paths: from text to nodes. Pure."""

from collections.abc import Iterator, Sequence

from quorate_protocol.plain_data import dataclass

from quorate.tools.metadata_shell.globs import Glob, parse_glob
from quorate.tools.metadata_shell.tree import Directory, Node


@dataclass(frozen=True, slots=True)
class Found:
    """A node and its path."""

    components: tuple[str, ...]
    node: Node

    @property
    def name(self) -> str:
        """The last component, `/` for the root."""
        return self.components[-1] if self.components else "/"

    @property
    def path(self) -> str:
        """The absolute path."""
        return "/" + "/".join(self.components)


def components_of(path: str, working_directory: str) -> list[str]:
    """The components of the absolute path, without `.`, `..` and empty ones."""
    absolute = path if path.startswith("/") else f"{working_directory}/{path}"
    components: list[str] = []
    for component in absolute.split("/"):
        if component == "..":
            del components[-1:]
        elif component not in {"", "."}:
            components.append(component)
    return components


def find_nodes(root: Node, working_directory: str, glob: str) -> Iterator[Found]:
    """The nodes that a glob matches, sorted; a component without `*`, `?` and `{a,b}` is a name."""
    patterns = [parse_glob(component) or component for component in components_of(glob, working_directory)]
    return _matching(root, (), patterns)


def child_of(directory: Directory, name: str) -> Node:
    """The child of a name that the directory lists."""
    node = directory.child(name)
    assert node is not None, f"{name} is listed, but does not exist"
    return node


def _matching(node: Node, components: tuple[str, ...], patterns: Sequence[Glob | str]) -> Iterator[Found]:
    place = len(components)
    if place == len(patterns):
        yield Found(components, node)
        return
    if not isinstance(node, Directory):
        return
    pattern = patterns[place]
    if isinstance(pattern, str):
        child = node.child(pattern)
        if child is not None:
            yield from _matching(child, (*components, pattern), patterns)
        return
    for name in node.sorted_names():
        if pattern.matches(name):
            yield from _matching(child_of(node, name), (*components, name), patterns)
