"""The nodes of a tree, and the differences between two trees.

A node is created when it is accessed, and only holds a reference to the image.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """The child of that name, or None."""

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
