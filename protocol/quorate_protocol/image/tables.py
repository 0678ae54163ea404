"""Tables: the containers of an image. Every change writes one row, and gives back what was there.

Readers use them as mappings. Only :class:`~quorate_protocol.image.image.MetadataImage` writes, since each
write has to be journaled.
"""

from typing import Any, Final, Generic, Protocol, TypeVar

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class TableOf(Protocol[K_contra, V]):
    """Rows by key. Rows are frozen values; None stands for "no row"."""

    @property
    def name(self) -> str:
        """Unique within an image."""

    def get(self, key: K_contra, /) -> V | None:
        """The row, or None."""

    def write(self, key: K_contra, value: V | None, /) -> V | None:
        """Puts the row ``value``, or removes it for None; gives back the row that was there, or None."""


AnyTable = TableOf[Any, Any]


class Table(dict[K, V], Generic[K, V]):
    """A table whose rows stand alone."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name: Final = name

    def write(self, key: K, value: V | None, /) -> V | None:
        old = self.get(key)
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value
        return old
