"""Sharing equal tuples between partitions: in a cluster of a million, most replica lists occur many times."""

from typing import Final
from uuid import UUID

from quorate_protocol.image.partitions import directories_of_replicas

TUPLES_MAX: Final = 1 << 16
"""Tuples remembered; sharing the few repetitions among more would cost more memory than it saves."""


class BrokerIdsPool:
    """Gives back an equal tuple of broker ids that it has seen before. Forgets everything when it is full."""

    __slots__ = ("_ids", "_tuples")

    def __init__(self) -> None:
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._ids: dict[int, int] = {}

    def __call__(self, broker_ids: tuple[int, ...]) -> tuple[int, ...]:
        known = self._tuples.get(broker_ids)
        if known is not None:
            return known
        if len(self._tuples) >= TUPLES_MAX:
            self._tuples.clear()
            self._ids.clear()
        # Python shares only ints up to 256: let different tuples share larger ids too.
        shared = tuple(self._ids.setdefault(one, one) for one in broker_ids)
        self._tuples[shared] = shared
        return shared


class DirectoriesPool:
    """The same for :func:`directories_of_replicas`: from what a record says to a tuple that is shared."""

    __slots__ = ("_directories", "_tuples")

    def __init__(self) -> None:
        self._tuples: dict[tuple[UUID | None, ...], tuple[UUID, ...]] = {}
        self._directories: dict[UUID, UUID] = {}

    def __call__(self, given: tuple[UUID | None, ...], num_replicas: int) -> tuple[UUID, ...]:
        known = self._tuples.get(given)
        if known is not None and len(known) == num_replicas:
            return known
        directories = directories_of_replicas(given, num_replicas)
        if len(self._tuples) >= TUPLES_MAX:
            self._tuples.clear()
            self._directories.clear()
        shared = tuple(self._directories.setdefault(one, one) for one in directories)
        # Prefer the shared tuple as key too: ``given`` would keep the UUIDs of the record alive.
        self._tuples[shared if given == shared else given] = shared
        return shared
