"""Globs of one component of a path, as Kafka's GlobComponent reads them. Pure.

The time of a match grows with the length of the glob times that of the name. A regular expression would try every
way to divide a name among the stars of a glob.
"""

from collections.abc import Iterator
from enum import Enum, auto

from quorate_protocol.plain_data import dataclass


class _Any(Enum):
    ONE = auto()  # ?
    MANY = auto()  # *


_Step = str | _Any
"""What one character of a name may be; MANY stays where it is."""


@dataclass(frozen=True, slots=True)
class _Group:
    """`{a,b}`: the ways to go on, each a sequence of steps."""

    ways: tuple[tuple[_Step, ...], ...]


class Glob:
    """The names that `*`, `?` and `{a,b}` stand for."""

    def __init__(self, parts: "list[_Step | _Group]") -> None:
        self._parts = parts

    def matches(self, name: str) -> bool:
        """Whether it stands for this name."""
        reached = {0}  # the lengths of the beginnings of the name that the parts so far match
        for part in self._parts:
            ways = part.ways if isinstance(part, _Group) else ((part,),)
            reached = {end for way in ways for end in _ends(way, name, reached)}
        return len(name) in reached


def _ends(steps: tuple[_Step, ...], name: str, starts: set[int]) -> set[int]:
    """The places of a name that the steps lead to from any of these."""
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
    """The glob that a component is; None for a name, and for a glob that is malformed.

    A backslash escapes the next character, but only in a component that is a glob: a name is looked up as it is
    written.
    """
    parts: list[_Step | _Group] = []
    ways: list[list[_Step]] | None = None  # of the group that is open
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
    """The characters, and whether a backslash was before them."""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            yield next(characters, character), True
        else:
            yield character, False
