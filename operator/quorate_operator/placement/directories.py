"""The goals that move replicas between log directories of a broker (KIP-113): even them out, or empty some. Pure.

A replica goes into the directory that the request names, so the room of that directory counts. Fullness is evened
out, not bytes, because disks may differ in size. Each move reduces the difference between two directories, and a
replica moves once: a plan ends, and what it leads to gives no larger one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from quorate_operator.placement.cluster import InFlight, ObservedDirectory, PartitionId, rooms_by_directory
from quorate_operator.placement.evenness import BYTES_TOLERANCE
from quorate_operator.placement.goals import Goals, Mode

GAIN_MIN = 0.1
"""A move brings at least this share of what an ideal one would bring."""

Directories = Mapping[str, ObservedDirectory]
"""The log directories of a broker by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryMove:
    """A replica that moves to another log directory of its broker."""

    broker_id: int
    partition: PartitionId
    target: str
    size_bytes: int


def even_directories(goals: Goals, directories: Mapping[int, Directories]) -> tuple[DirectoryMove, ...]:
    """Plan moves by broker; none for goals that are about some brokers alone."""
    if goals.mode is not Mode.FULL:
        return ()
    return tuple(
        move
        for broker_id, own in sorted(directories.items())
        for move in _Evening(goals, broker_id, own).moves()
    )


def incoming_replicas(directories: Mapping[int, Directories]) -> int:
    """Return how many replicas are being moved between directories."""
    return sum(len(directory.incoming) for own in directories.values() for directory in own.values())


def empty_directories(
    directories: Directories, removed: Collection[str]
) -> tuple[dict[PartitionId, str], PartitionId | None]:
    """Plan moves out of the removed directories that are cordoned, each to the directory with the most room.

    Returns the path that each replica moves to now, within the limit in flight, and the first one without room.
    """
    # Brokers report their disks since Kafka 3.3, and cordon directories since 4.3.
    rooms = rooms_by_directory({path: own for path, own in directories.items() if path not in removed}) or {}
    moving = {partition for directory in directories.values() for partition in directory.incoming}
    replicas = [
        (partition, size_bytes, directory.is_cordoned and directory.error is None and path in removed)
        for path, directory in sorted(directories.items())
        for partition, size_bytes in sorted(directory.replicas.items())
    ]
    in_flight = InFlight(len(moving), sum(size_bytes for key, size_bytes, _ in replicas if key in moving))
    targets: dict[PartitionId, str] = {}
    without_room: PartitionId | None = None
    for partition, size_bytes, is_leaving in replicas:
        if not is_leaving or partition in moving:
            continue
        if not in_flight.admits(size_bytes):
            break
        path = max(rooms, key=lambda path: (rooms[path], path), default=None)
        if path is None or rooms[path] < size_bytes:
            without_room = without_room or partition
            continue
        targets[partition] = path
        rooms[path] -= size_bytes
        in_flight.add(size_bytes)
    return targets, without_room


class _Evening:
    def __init__(self, goals: Goals, broker_id: int, directories: Directories) -> None:
        usable = {path: directory for path, directory in directories.items() if directory.takes_replicas}
        self._broker_id = broker_id
        self._used = {path: directory.used_bytes for path, directory in usable.items()}
        rooms = rooms_by_directory(directories)
        self._rooms = rooms or {}
        # Without free space, directories count as equally large.
        self._capacities = (
            dict.fromkeys(usable, 1)
            if rooms is None
            else {path: max(1, self._used[path] + rooms[path]) for path in usable}
        )
        moving = {partition for directory in directories.values() for partition in directory.incoming}
        self._movable = {
            path: {
                partition: size_bytes
                for partition, size_bytes in directory.replicas.items()
                if goals.covers(partition.topic) and partition not in moving
            }
            for path, directory in usable.items()
        }

    def moves(self) -> list[DirectoryMove]:
        found: list[DirectoryMove] = []
        while (move := self._next()) is not None:
            found.append(move)
        return found

    def _next(self) -> DirectoryMove | None:
        """Make the best move between the two most different directories that can exchange anything."""
        order: Sequence[str] = sorted(self._used, key=lambda path: (self._share(path), path))
        mean = sum(self._used.values()) / max(1, sum(self._capacities.values()))
        for source in reversed(order):
            for target in order:
                if self._share(source) - self._share(target) <= mean * BYTES_TOLERANCE:
                    break
                move = self._move(source, target)
                if move is not None:
                    return move
        return None

    def _share(self, path: str) -> float:
        return self._used[path] / self._capacities[path]

    def _move(self, source: str, target: str) -> DirectoryMove | None:
        there, here = self._capacities[source], self._capacities[target]
        ideal = (self._used[source] * here - self._used[target] * there) / (there + here)
        room = self._rooms.get(target)
        possible = [
            (abs(size_bytes - ideal), partition, size_bytes)
            for partition, size_bytes in self._movable[source].items()
            if min(size_bytes, 2 * ideal - size_bytes) >= ideal * GAIN_MIN
            and (room is None or size_bytes <= room)
        ]
        if not possible:
            return None
        _, partition, size_bytes = min(possible)
        del self._movable[source][partition]
        self._used[source] -= size_bytes
        self._used[target] += size_bytes
        if self._rooms:  # the source keeps the replica until it has been copied
            self._rooms[target] -= size_bytes
        return DirectoryMove(
            broker_id=self._broker_id, partition=partition, target=target, size_bytes=size_bytes
        )
