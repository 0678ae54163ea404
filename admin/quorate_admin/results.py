"""Answers about several things at once, of which some may fail: a value or an error by key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from quorate_admin.errors import ServerError

__all__ = ("Results",)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Results(Generic[K, V]):
    """What became of each thing that was asked for: each key is in `values` or in `errors`, not in both."""

    values: Mapping[K, V] = field(default_factory=dict)
    errors: Mapping[K, ServerError] = field(default_factory=dict)

    def __getitem__(self, key: K) -> V:
        """The value of one key. Raises its ServerError; KeyError when it was not asked for."""
        error = self.errors.get(key)
        if error is not None:
            raise error
        return self.values[key]

    def raise_any(self) -> None:
        """Raise the first error, if there is one."""
        for error in self.errors.values():
            raise error
