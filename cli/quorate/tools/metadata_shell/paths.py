"""Paths and globs: from text to nodes. Pure.

A glob has one component of a path, as Kafka's GlobComponent reads it. A match takes time proportional to the length
of the glob times the length of the name. A regular expression would try every way to divide the name among the
stars, which takes exponential time.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto

from quorate_protocol.plain_data import dataclass

from quorate.tools.metadata_shell.nodes import Directory, Node


class _Any(Enum):
    ONE = auto()  # ?
    MANY = auto()  # *


_Step = str | _Any
"""What one character of a name may be; MANY stays where it is."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A group `{a,b}`: its alternatives, each a sequence of steps."""

    ways: tuple[tuple[_Step, ...], ...]


class Glob:
    """A pattern of names, with `*`, `?` and `{a,b}`."""

    def __init__(self, parts: "list[_Step | _Group]") -> None:
        self._parts = parts

    def matches(self, name: str) -> bool:
        """Whether the glob matches the whole name."""
        reached = {0}  # the lengths of the prefixes of the name that the parts so far match
        for part in self._parts:
            ways = part.ways if isinstance(part, _Group) else ((part,),)
            reached = {end for way in ways for end in _ends(way, name, reached)}
        return len(name) in reached


def _ends(steps: tuple[_Step, ...], name: str, starts: set[int]) -> set[int]:
    """The positions in a name where a match of the steps can end, if it starts at one of `starts`."""
    reached = starts
    for step in steps:
        if not reached:
            break
        if step is _Any.MANY:
            reached = set(range(min(reached), len(name) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(name) and step in (_Any.ONE, name[at])}
    return reached


def parse_glob(text: str) -> Glob | None:
    """Parse a component of a path. Returns None if it is a plain name, or a malformed glob.

    A backslash escapes the next character, but only in a glob; a plain name is looked up literally.
    """
    parts: list[_Step | _Group] = []
    ways: list[list[_Step]] | None = None  # the alternatives of the open group
    is_glob = False
    for character, is_escaped in _characters(text):
        step: _Step = character
        if not is_escaped and character in "?*":
            step, is_glob = _Any.ONE if character == "?" else _Any.MANY, True
        elif not is_escaped and character == "{":
            if ways is not None:
                return None
            ways, is_glob = [[]], True
            continue
        elif ways is not None and not is_escaped and character == ",":
            ways.append([])
            continue
        elif ways is not None and not is_escaped and character == "}":
            parts.append(_Group(tuple(map(tuple, ways))))
            ways = None
            continue
        (parts if ways is None else ways[-1]).append(step)
    return Glob(parts) if is_glob and ways is None else None


def _characters(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each character, and whether a backslash escapes it."""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            yield next(characters, character), True
        else:
            yield character, False


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
