"""The nodes of a tree. A node is created when it is accessed, and only holds a reference to the image."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from quorate_protocol.plain_data import dataclass

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_DIGITS_MAX = 100


@dataclass(frozen=True, slots=True)
class Leaf:
    """A file."""

    text: Callable[[], str]
    """The text that `cat` prints, as Kafka does."""
    data: Callable[[], Any]
    """The same as JSON."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory."""

    names: Callable[[], Iterable[str]]
    """The names of its children, in any order."""
    child: Callable[[str], "Node | None"]
    """The child of that name; None if there is none."""

    def sorted_names(self) -> list[str]:
        """The names as Kafka sorts them: by UTF-16 code units."""
        return sorted(self.names(), key=_code_units)


Node = Leaf | Directory


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def value(content: str | int | float) -> Leaf:
    """A file with one value."""
    return Leaf(lambda: str(content), lambda: content)


def fixed(children: Mapping[str, Callable[[], Node]]) -> Directory:
    """A directory whose children are always the same."""

    def child(name: str) -> Node | None:
        made = children.get(name)
        return made() if made else None

    return Directory(lambda: children, child)


def record(text: Callable[[_Value], str], data: Callable[[_Value], Any], content: _Value) -> Leaf:
    """A file with one record of the image."""
    return Leaf(lambda: text(content), lambda: data(content))


def by_key(
    children: Mapping[_Key, _Value],
    node: Callable[[_Value], Node],
    key_of: Callable[[str], Any] = str,
    name_of: Callable[[_Key], str] = str,
) -> Directory:
    """A directory with a child for each entry of a mapping.

    `key_of` may raise ValueError for a name without a key.
    """

    def child(name: str) -> Node | None:
        try:
            key = key_of(name)
        except ValueError:
            return None
        return node(children[key]) if key is not None and key in children else None

    return Directory(lambda: map(name_of, children), child)


def without(directory: Directory, *paths: tuple[str, ...]) -> Directory:
    """The directory without the nodes at these paths below it."""
    hidden = {path[0] for path in paths if len(path) == 1}

    def child(name: str) -> Node | None:
        made = None if name in hidden else directory.child(name)
        below = [path[1:] for path in paths if len(path) > 1 and path[0] == name]
        return without(made, *below) if below and isinstance(made, Directory) else made

    return Directory(lambda: (name for name in directory.names() if name not in hidden), child)


def number_of(name: str) -> int | None:
    """Parse a number as Java's Integer.parseInt does: ASCII digits with an optional sign."""
    digits = name[1:] if name[:1] in {"+", "-"} else name
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        return None
    return int(name) if -(2**31) <= int(name) < 2**31 else None
