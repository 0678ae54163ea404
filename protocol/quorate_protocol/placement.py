"""Placement of the replicas of new partitions: striped over racks and brokers (Kafka's StripedReplicaPlacer).

Goals, the most important first: no two replicas of a partition on one broker (required), an unfenced leader
(required), replicas spread over racks, replicas spread over brokers, unfenced brokers before fenced ones.

Racks take turns: each partition starts one rack after the previous one, the first at a random rack, and takes
one broker per rack around the ring. Inside a rack brokers take turns in the same way. When as many
partitions have been placed as there are unfenced brokers, racks and brokers are shuffled, so that the same sets
of replicas do not repeat.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING

from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from random import Random

__all__ = ("PlacementError", "Placer", "UsableBroker", "place_replicas")


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

    __slots__ = ("_brokers", "_rng", "_round", "_start", "_taken")

    def __init__(self, brokers: list[int], rng: "Random") -> None:
        """`brokers` are in order, and shared between topics."""
        self._brokers = brokers
        self._rng = rng
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._taken = 0
        self._round = 0

    def next_broker(self, round_number: int) -> int | None:
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

    def shuffle(self) -> None:
        self._brokers = self._brokers.copy()
        self._rng.shuffle(self._brokers)


@dataclass(frozen=True, slots=True)
class _BrokersOfRack:
    """The ids of a rack's brokers, in order."""

    unfenced: list[int]
    fenced: list[int]


class _Rack:
    """A rack while the partitions of one topic are placed."""

    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: _BrokersOfRack, rng: "Random") -> None:
        self.unfenced = _Rotation(brokers.unfenced, rng)
        self.fenced = _Rotation(brokers.fenced, rng)

    def next_broker(self, round_number: int) -> int | None:
        broker_id = self.unfenced.next_broker(round_number)
        return self.fenced.next_broker(round_number) if broker_id is None else broker_id

    def shuffle(self) -> None:
        self.unfenced.shuffle()
        self.fenced.shuffle()


class _RackRing:
    """All racks while the partitions of one topic are placed, one after the other.

    It makes a `_Rack` only of those that it uses: there may be as many racks as brokers, and a request may have
    thousands of topics with one partition each.
    """

    def __init__(self, racks: list[_BrokersOfRack], leading: list[int], unfenced: int, rng: "Random") -> None:
        self._brokers = racks
        self._leading = leading
        self._unfenced_count = unfenced
        self._rng = rng
        self._order: Sequence[int] = range(len(racks))
        self._racks: dict[int, _Rack] = {}
        self._start = rng.randrange(len(racks))
        self._round = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of one partition. The caller ensures enough brokers, one of them unfenced."""
        count, round_number, start = len(self._brokers), self._round, self._start
        if round_number and self._unfenced_count > 1 and round_number % self._unfenced_count == 0:
            self._shuffle()
        leading = self._leading[start]
        replicas: list[int] = []
        replicas.append(_given(self._rack(leading).unfenced.next_broker(round_number)))
        # The rack of the leader gave its first replica already, so it sits out the first turn of the ring.
        for place in islice(chain(range(start, count), range(start)), replication_factor):
            if len(replicas) < replication_factor and place != leading:
                replicas.append(_given(self._rack(place).next_broker(round_number)))
        if len(replicas) < replication_factor:
            racks = [self._rack(place) for place in chain(range(start, count), range(start))]
            while len(replicas) < replication_factor:
                racks = self._take_one_each(racks, replicas, replication_factor)
        self._round += 1
        self._start = (start + 1) % count
        return tuple(replicas)

    def _take_one_each(self, racks: list[_Rack], replicas: list[int], replication_factor: int) -> list[_Rack]:
        """Go once around the ring. Returns the racks that may have more."""
        giving = []
        for rack in racks:
            if len(replicas) == replication_factor:
                break
            broker_id = rack.next_broker(self._round)
            if broker_id is not None:
                replicas.append(broker_id)
                giving.append(rack)
        return giving

    def _rack(self, place: int) -> _Rack:
        number = self._order[place]
        rack = self._racks.get(number)
        if rack is None:
            rack = self._racks[number] = _Rack(self._brokers[number], self._rng)
        return rack

    def _shuffle(self) -> None:
        order = list(self._order)
        self._rng.shuffle(order)
        self._order = order
        self._leading = _leading_places([self._brokers[number] for number in order])
        for place in range(len(order)):
            self._rack(place).shuffle()


def _given(broker_id: int | None) -> int:
    assert broker_id is not None, "a rack has a broker in each round"
    return broker_id


def _leading_places(racks: list[_BrokersOfRack]) -> list[int]:
    """Return for each place in the ring the first one from there on whose rack can lead; one of them can."""
    places = list(range(len(racks)))
    leading = next(place for place in places if racks[place].unfenced)
    for place in reversed(places):
        if racks[place].unfenced:
            leading = place
        places[place] = leading
    return places


class Placer:
    """Places the partitions of topics on the same brokers, which it sorts into racks once."""

    def __init__(self, brokers: Iterable[UsableBroker], rng: "Random") -> None:
        by_rack: dict[str | None, _BrokersOfRack] = {}
        self._unfenced_count = self._count = 0
        for broker in sorted(brokers, key=lambda broker: broker.broker_id):
            rack = by_rack.get(broker.rack)
            if rack is None:
                rack = by_rack[broker.rack] = _BrokersOfRack([], [])
            (rack.fenced if broker.fenced else rack.unfenced).append(broker.broker_id)
            self._count += 1
            self._unfenced_count += not broker.fenced
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [by_rack[name] for name in names]
        self._leading = _leading_places(self._racks) if self._unfenced_count else []
        self._rng = rng

    @property
    def count(self) -> int:
        """The number of brokers, which is the greatest replication factor."""
        return self._count

    def place(self, num_partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Return the replicas of each partition of one topic, preferred leader first.

        Raises:
            PlacementError: there are too few brokers, or all are fenced.
        """
        return list(islice(self.placed(replication_factor), num_partitions))

    def placed(self, replication_factor: int) -> Iterator[tuple[int, ...]]:
        """Yield the replicas of one partition of a topic after the other, without an end.

        Raises:
            PlacementError: as above, at once.
        """
        if replication_factor <= 0:
            raise PlacementError(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if not self._unfenced_count:
            raise PlacementError(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if replication_factor > self._count:
            raise PlacementError(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._count} broker(s) are registered or some brokers have all their log directories "
                "cordoned."
            )
        ring = _RackRing(self._racks, self._leading, self._unfenced_count, self._rng)
        return map(ring.place, repeat(replication_factor))


def place_replicas(
    brokers: Iterable[UsableBroker], num_partitions: int, replication_factor: int, rng: "Random"
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition of a single topic; see `Placer`."""
    return Placer(brokers, rng).place(num_partitions, replication_factor)
