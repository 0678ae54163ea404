"""Finds all attributes of the objects that a node is made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE: Final = "quorate_controller."


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of one object. `owner` is the class, without the name of the package."""

    owner: str
    name: str
    value: Any

    @property
    def key(self) -> tuple[str, str]:
        return self.owner, self.name


def owner_of(cls: type) -> str:
    """The name of a class in the table."""
    return f"{cls.__module__.removeprefix(PACKAGE)}.{cls.__qualname__}"


def attributes(root: object, is_entered: Callable[[Attribute], bool]) -> Iterator[Attribute]:
    """Yield the attributes of `root`, and of the objects of this project in the attributes that are entered.

    Objects are found in containers, bound methods and closures, too. Frozen ones are values, and not entered.
    """
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        waiting.extend(_contents(value))
        if not _is_component(value):
            continue
        for name, content in sorted(_values(value).items()):
            attribute = Attribute(owner_of(type(value)), name, content)
            yield attribute
            if is_entered(attribute):
                waiting.append(content)


def _contents(value: object) -> Iterator[object]:
    match value:
        case MethodType():
            yield value.__self__
        case FunctionType():
            for cell in value.__closure__ or ():
                yield cell.cell_contents
        case functools.partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case dict():
            yield from value.values()
        case list() | tuple() | set() | frozenset():
            yield from value


def _is_component(value: object) -> bool:
    cls = type(value)
    is_frozen = cls.__setattr__ is not object.__setattr__
    return cls.__module__.startswith(PACKAGE) and cls is not type and not is_frozen


def _values(value: object) -> dict[str, Any]:
    names = {name for cls in type(value).__mro__ for name in _slots(cls)}
    return {name: getattr(value, name) for name in names if hasattr(value, name)} | vars_of(value)


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def vars_of(value: object) -> dict[str, Any]:
    """The attributes that are in no slot."""
    return dict(getattr(value, "__dict__", {}))
