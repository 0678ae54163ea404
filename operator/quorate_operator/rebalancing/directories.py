"""Evens out the log directories of each broker by moves between them (KIP-113). Pure.

What is evened out is how full directories are, because volumes may differ in size. Each move reduces the difference
between two directories of a broker, and a replica moves once: a plan ends, and what it leads to gives no larger one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate_operator.planning.cluster import ObservedDirectory, PartitionId
from quorate_operator.rebalancing.cluster import Goals, Mode
from quorate_operator.rebalancing.evenness import BYTES_TOLERANCE

GAIN_MIN = 0.1
"""A move brings at least this share of what an ideal one would bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryMove:
    """A replica that moves to another log directory of its broker."""

    broker_id: int
    partition: PartitionId
    target: str
    size_bytes: int


def plan_directories(
    goals: Goals, directories: Mapping[int, Mapping[str, ObservedDirectory]]
) -> tuple[DirectoryMove, ...]:
    """Plans moves by broker; none for goals that are about some brokers alone."""
    if goals.mode is not Mode.FULL:
        return ()
    return tuple(
        move
        for broker_id, own in sorted(directories.items())
        for move in _Broker(goals, broker_id, own).moves()
    )


def incoming_replicas(directories: Mapping[int, Mapping[str, ObservedDirectory]]) -> int:
    """Returns how many replicas are being moved between directories."""
    return sum(len(one.incoming) for own in directories.values() for one in own.values())


class _Broker:
    def __init__(self, goals: Goals, broker_id: int, directories: Mapping[str, ObservedDirectory]) -> None:
        usable = {path: one for path, one in directories.items() if one.takes_replicas}
        self._broker_id = broker_id
        self._used = {path: one.used_bytes for path, one in usable.items()}
        is_known = all(one.room_bytes is not None for one in usable.values())
        self._rooms = {path: one.room_bytes for path, one in usable.items()} if is_known else {}
        # Without free space, directories count as equally large.
        self._capacities = {path: max(1, self._used[path] + (self._rooms.get(path) or 0)) for path in usable}
        if not is_known:
            self._capacities = dict.fromkeys(usable, 1)
        moving = {partition for directory in directories.values() for partition in directory.incoming}
        self._movable = {
            path: {
                partition: size_bytes
                for partition, size_bytes in one.replicas.items()
                if goals.covers(partition.topic) and partition not in moving
            }
            for path, one in usable.items()
        }

    def moves(self) -> list[DirectoryMove]:
        found: list[DirectoryMove] = []
        while (move := self._next()) is not None:
            found.append(move)
        return found

    def _next(self) -> DirectoryMove | None:
        """Makes the best move between the two most different directories that can exchange anything."""
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
        if room is not None:
            self._rooms[target] = room - size_bytes
            self._rooms[source] = (self._rooms[source] or 0) + size_bytes
        return DirectoryMove(
            broker_id=self._broker_id, partition=partition, target=target, size_bytes=size_bytes
        )
