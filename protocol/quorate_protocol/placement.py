"""Placement of the replicas of new partitions: striped over racks and brokers (Kafka's StripedReplicaPlacer).

Goals, the most important first: no two replicas of a partition on one broker (required), an unfenced leader
(required), replicas spread over racks, replicas spread over brokers, unfenced brokers before fenced ones.

Racks take turns: each partition starts one rack after the previous one, the first at a random rack, and takes
one broker per rack around the ring. Inside a rack brokers take turns in the same way. When as many
partitions have been placed as there are unfenced brokers, racks and brokers are shuffled, so that the same sets
of replicas do not repeat.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from random import Random

__all__ = ("PlacementError", "UsableBroker", "place_replicas")


class PlacementError(ValueError):
    """There are too few usable brokers; the message is Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableBroker:
    """A broker that may get replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Rotation:
    """Brokers that take turns. Each round (partition) in which one is taken starts one broker further."""

    __slots__ = ("_brokers", "_round", "_start", "_taken")

    def __init__(self, brokers: list[int], rng: "Random") -> None:
        self._brokers = sorted(brokers)
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._taken = 0
        self._round = 0

    def take(self, round_number: int) -> int | None:
        """Return the next broker in this round; None when all have been taken."""
        count = len(self._brokers)
        if round_number != self._round and count:
            self._round = round_number
            self._taken = 0
            self._start = (self._start + 1) % count
        if self._taken == count:
            return None
        broker_id = self._brokers[(self._start + self._taken) % count]
        self._taken += 1
        return broker_id

    def shuffle(self, rng: "Random") -> None:
        rng.shuffle(self._brokers)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], rng: "Random") -> None:
        self.unfenced = _Rotation([broker.broker_id for broker in brokers if not broker.fenced], rng)
        self.fenced = _Rotation([broker.broker_id for broker in brokers if broker.fenced], rng)

    def take(self, round_number: int) -> int | None:
        broker_id = self.unfenced.take(round_number)
        return self.fenced.take(round_number) if broker_id is None else broker_id

    def shuffle(self, rng: "Random") -> None:
        self.unfenced.shuffle(rng)
        self.fenced.shuffle(rng)


class _RackRing:
    """All racks; places one partition after the other."""

    def __init__(self, brokers: list[UsableBroker], rng: "Random") -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._rng = rng
        self._racks = [_Rack(by_rack[name], rng) for name in names]
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._start = rng.randrange(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of one partition. The caller ensures enough brokers, one of them unfenced."""
        racks, round_number = self._racks, self._round
        if round_number and self._unfenced_count > 1 and round_number % self._unfenced_count == 0:
            self._rng.shuffle(racks)
            for rack in racks:
                rack.shuffle(self._rng)
        leader_rack = self._start
        while (leader := racks[leader_rack].unfenced.take(round_number)) is None:
            leader_rack = (leader_rack + 1) % len(racks)
        replicas = [leader]
        current = self._start
        leader_rack_waits = (
            True  # it gave its first replica already, so it sits out the first turn of the ring
        )
        while len(replicas) < replication_factor:
            if leader_rack_waits and current == leader_rack:
                leader_rack_waits = False
            elif (broker_id := racks[current].take(round_number)) is not None:
                replicas.append(broker_id)
            current = (current + 1) % len(racks)
        self._round += 1
        self._start = (self._start + 1) % len(racks)
        return tuple(replicas)


def place_replicas(
    brokers: Iterable[UsableBroker], num_partitions: int, replication_factor: int, rng: "Random"
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, preferred leader first.

    Raises:
        PlacementError: there are too few brokers, or all are fenced.
    """
    candidates = list(brokers)
    if replication_factor <= 0:
        raise PlacementError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if all(broker.fenced for broker in candidates):
        raise PlacementError("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(candidates):
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
    ring = _RackRing(candidates, rng)
    return [ring.place(replication_factor) for _ in range(num_partitions)]
