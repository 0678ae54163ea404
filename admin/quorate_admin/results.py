"""Results of operations on several objects: a value or an error for each key."""

from collections.abc import Container, Mapping
from dataclasses import field
from typing import Generic, TypeVar

from quorate_protocol.plain_data import dataclass

from quorate_admin.errors import ErrorCode, ServerError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Results(Generic[K, V]):
    """The result for each object: a key is either in `values` or in `errors`."""

    values: Mapping[K, V] = field(default_factory=dict)
    errors: Mapping[K, ServerError] = field(default_factory=dict)

    def __getitem__(self, key: K) -> V:
        """The value of a key. Raises its ServerError, or KeyError for a key that was not part of the operation."""
        error = self.errors.get(key)
        if error is not None:
            raise error
        return self.values[key]

    def error_of(self, key: K, ignored: Container[ErrorCode] = ()) -> ServerError | None:
        """Return the error of a key, None without one or with a code that is `ignored`."""
        error = self.errors.get(key)
        return None if error is None or error.error_code in ignored else error

    def raise_any(self, ignored: Container[ErrorCode] = ()) -> None:
        """Raise the first error whose code is not `ignored`, if there is one."""
        for error in self.errors.values():
            if error.error_code not in ignored:
                raise error
