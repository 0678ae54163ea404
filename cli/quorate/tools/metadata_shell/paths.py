"""Paths and globs: from text to nodes. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    patterns = [_Pattern(component) for component in components_of(glob, working_directory)]
    return _matching(root, (), patterns)


def child_of(directory: Directory, name: str) -> Node:
    """The child of a name that the directory lists."""
    node = directory.child(name)
    assert node is not None, f"{name} is listed, but does not exist"
    return node


def _matching(node: Node, components: tuple[str, ...], patterns: "list[_Pattern]") -> Iterator[Found]:
    place = len(components)
    if place == len(patterns):
        yield Found(components, node)
        return
    if not isinstance(node, Directory):
        return
    pattern = patterns[place]
    if pattern.expression is None:
        child = node.child(pattern.text)
        if child is not None:
            yield from _matching(child, (*components, pattern.text), patterns)
        return
    for name in node.sorted_names():
        if pattern.expression.fullmatch(name):
            yield from _matching(child_of(node, name), (*components, name), patterns)


class _Pattern:
    def __init__(self, text: str) -> None:
        self.text = text
        expression = glob_expression(text)
        self.expression = None if expression is None else re.compile(expression)


def glob_expression(glob: str) -> str | None:
    """The regular expression of a glob; None for a name, and for a glob that is malformed (GlobComponent).

    A backslash escapes the next character, but only in a component that is a glob: a name is looked up as it is
    written.
    """
    parts: list[str] = []
    is_glob = in_group = False
    characters = iter(glob)
    for character in characters:
        if character == "\\":
            parts.append(re.escape(next(characters, character)))
        elif character in "?*":
            parts.append("." if character == "?" else ".*")
            is_glob = True
        elif character == "{":
            if in_group:
                return None
            parts.append("(?:(?:")
            is_glob = in_group = True
        elif character == "," and in_group:
            parts.append(")|(?:")
        elif character == "}" and in_group:
            parts.append("))")
            in_group = False
        else:
            parts.append(re.escape(character))
    return "".join(parts) if is_glob and not in_group else None
