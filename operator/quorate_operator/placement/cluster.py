"""What a placement is decided from: brokers with their room, partitions, log directories. Pure.

One rule about disks: whatever is placed, a tenth of each log directory's disk stays free (`FREE_SHARE_MIN`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FREE_SHARE_MIN = 0.1
"""The share of each log directory's disk that stays free."""
IN_FLIGHT_MAX = 50
"""How many partitions move at once: between brokers, or between the directories of one broker."""
IN_FLIGHT_BYTES_MAX = 16 * 1024**3
"""How much data moves at once. A partition that is larger moves alone."""


class PartitionId(NamedTuple):
    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPartition:
    """A partition; `replicas` include those that a reassignment adds and removes (KIP-455)."""

    partition: PartitionId
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int | None = None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    size_bytes: int | None = None
    """The size of its largest replica; None if no broker reported it."""

    @property
    def assigned(self) -> tuple[int, ...]:
        """The replicas after the present reassignment."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDirectory:
    """A log directory of a broker, as the broker describes it."""

    replicas: Mapping[PartitionId, int] = field(default_factory=dict)
    """The sizes of the replicas in it."""
    incoming: frozenset[PartitionId] = frozenset()
    """The replicas that are being moved into it from other directories of the broker."""
    room_bytes: int | None = None
    """How many bytes may be added, by `directory_room_bytes`."""
    is_cordoned: bool = False
    """Whether it gets no new replicas (KIP-1066)."""
    error: str | None = None

    @property
    def used_bytes(self) -> int:
        """The size of the replicas in it."""
        return sum(self.replicas.values())

    @property
    def takes_replicas(self) -> bool:
        """Whether replicas may be moved into it."""
        return self.error is None and not self.is_cordoned


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    broker_id: int
    rack: str | None = None
    is_in_service: bool = True
    is_decommissioned: bool = False
    room_bytes: int | None = None
    """How many bytes may be added, by `broker_room_bytes`."""
    replicas: int | None = None
    """The number of its replicas; None if all partitions are known, so that they can be counted."""

    @property
    def takes_replicas(self) -> bool:
        return self.is_in_service and not self.is_decommissioned


def directory_room_bytes(usable_bytes: int | None, total_bytes: int | None) -> int | None:
    """Return how many bytes may be added to a log directory, 0 if it is too full.

    None if the broker does not report its disks, as before Kafka 3.3.
    """
    if usable_bytes is None:
        return None
    return max(0, usable_bytes - int((total_bytes or 0) * FREE_SHARE_MIN))


def rooms_by_directory(directories: Mapping[str, ObservedDirectory]) -> dict[str, int] | None:
    """Return the room of each directory that takes replicas, without that of replicas on their way into it.

    None if the broker does not report its disks.
    """
    sizes = {
        partition: size_bytes
        for directory in directories.values()
        for partition, size_bytes in directory.replicas.items()
    }
    rooms = {}
    for path, directory in directories.items():
        if directory.takes_replicas:
            if directory.room_bytes is None:
                return None
            incoming_bytes = sum(sizes.get(partition, 0) for partition in directory.incoming)
            rooms[path] = max(0, directory.room_bytes - incoming_bytes)
    return rooms


def broker_room_bytes(directories: Mapping[str, ObservedDirectory]) -> int | None:
    """Return how many bytes of new replicas a broker may get, whichever directories it puts them into.

    Kafka chooses the directory with the fewest partitions, whatever its free space (LogManager.nextLogDirs), so the
    fullest one is the limit. None if it does not report its disks. -1 without a directory that takes replicas: not
    even an empty replica could be created.
    """
    rooms = rooms_by_directory(directories)
    return None if rooms is None else min(rooms.values(), default=-1)


@dataclass(slots=True)
class InFlight:
    """What moves at once."""

    partitions: int = 0
    size_bytes: int = 0

    def admits(self, size_bytes: int) -> bool:
        """Whether a partition of which `size_bytes` are copied may begin to move."""
        if self.partitions == 0:
            return True
        has_room = size_bytes == 0 or self.size_bytes + size_bytes <= IN_FLIGHT_BYTES_MAX
        return self.partitions < IN_FLIGHT_MAX and has_room

    def add(self, size_bytes: int) -> None:
        self.partitions += 1
        self.size_bytes += size_bytes
