"""An assignment of replicas that is changed replica by replica, and what each broker then has. Pure."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence

from quorate_operator.placement.cluster import Broker, InFlight, ObservedPartition


class Assignment:
    """Replicas by partition. Partitions are identified by their index in `partitions`.

    Reassignments under way count as complete, except that they occupy both disks.
    """

    def __init__(
        self,
        brokers: Iterable[Broker],
        partitions: Sequence[ObservedPartition],
        movable: Iterable[int] = (),
    ) -> None:
        """`movable` are the partitions that `evenness` may move."""
        brokers = tuple(brokers)
        self.partitions = partitions
        self.index_of = {partition.partition: index for index, partition in enumerate(partitions)}
        self.movable = tuple(movable)
        self.replicas = [list(partition.assigned) for partition in partitions]
        self.order: dict[int, int] = {}
        """By index of each changed partition, when it was changed first: 0, 1, ..."""
        self.targets = sorted(broker.broker_id for broker in brokers if broker.takes_replicas)
        """The brokers that may get replicas."""
        self.in_flight = InFlight()
        self._racks = {broker.broker_id: broker.rack for broker in brokers}
        self._room = {broker.broker_id: broker.room_bytes for broker in brokers}
        self.counts: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.topics: dict[int, Counter[str]] = defaultdict(Counter)
        """Number of replicas by broker and topic."""
        self.movable_on: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Movable partitions by broker and topic."""
        for index, partition in enumerate(partitions):
            for broker_id in self.replicas[index]:
                self._count(index, broker_id, 1)
            if partition.adding:
                self.in_flight.add(self.size(index))
                for broker_id in partition.adding:
                    if broker_id not in partition.isr:
                        self._reserve(index, broker_id, 1)
        self.counts.update(
            {
                broker.broker_id: broker.replicas - self.counts[broker.broker_id]
                for broker in brokers
                if broker.replicas is not None
            }
        )
        for index in self.movable:
            for broker_id in self.replicas[index]:
                self.movable_on[broker_id][self._topic(index)].add(index)

    def crowd(self, broker_id: int, others: Iterable[int]) -> int:
        """Return how many of `others` share the broker's rack. A broker without one shares none."""
        rack = self._racks.get(broker_id)
        return sum(self._racks.get(other) == rack for other in others if other != broker_id) if rack else 0

    def has_room(self, index: int, target: int) -> bool:
        """Whether a broker without a replica of the partition could hold one."""
        if target in self.replicas[index]:
            return False
        room = self._room.get(target)
        return room is None or target in self.partitions[index].replicas or room >= self.size(index)

    def without_room(self, index: int) -> list[int]:
        """Return the brokers that could get a replica of the partition, except that a disk of theirs is too full."""
        return [
            target
            for target in self.targets
            if target not in self.replicas[index] and not self.has_room(index, target)
        ]

    def may_move(self, index: int, source: int, target: int) -> bool:
        """Whether the move is possible and leaves no more replicas in one rack."""
        return self.has_room(index, target) and self.crowd_change(index, source, target) <= 0

    def crowd_change(self, index: int, source: int, target: int) -> int:
        """Return how many more replicas share the rack of `target` than that of `source`, after the move."""
        others = [replica for replica in self.replicas[index] if replica != source]
        return self.crowd(target, others) - self.crowd(source, others)

    def choose(self, index: int, others: Sequence[int]) -> int | None:
        """Return the best broker for a replica beside `others`: racks apart, then few replicas; or None."""
        possible = [
            target for target in self.targets if target not in others and self.has_room(index, target)
        ]
        return min(
            possible,
            key=lambda target: (self.crowd(target, others), self.counts[target], target),
            default=None,
        )

    def evacuate(self, index: int, removed: Container[int]) -> bool:
        """Replace the replicas of a partition on `removed` brokers. Returns False, without a change, if it can't."""
        chosen = [replica for replica in self.replicas[index] if replica not in removed]
        moves = []
        for source in [replica for replica in self.replicas[index] if replica in removed]:
            target = self.choose(index, chosen)
            if target is None:
                return False
            moves.append((source, target))
            chosen.append(target)
        for source, target in moves:
            self.move(index, source, target)
        return True

    def move(self, index: int, source: int, target: int) -> None:
        """Replace a replica; the new one takes its position in the list."""
        replicas = self.replicas[index]
        replicas[replicas.index(source)] = target
        self._changed(index, source, -1)
        self._changed(index, target, 1)

    def add(self, index: int, broker_id: int) -> None:
        """Add a replica as the last one."""
        self.replicas[index].append(broker_id)
        self._changed(index, broker_id, 1)

    def remove(self, index: int, broker_id: int) -> None:
        self.replicas[index].remove(broker_id)
        self._changed(index, broker_id, -1)

    def prefer(self, index: int, leader: int) -> None:
        """Make one of its replicas the preferred leader of a partition."""
        replicas = self.replicas[index]
        place = replicas.index(leader)
        replicas[0], replicas[place] = replicas[place], replicas[0]
        self.order.setdefault(index, len(self.order))

    def size(self, index: int) -> int:
        return self.partitions[index].size_bytes or 0

    def _topic(self, index: int) -> str:
        return self.partitions[index].partition.topic

    def _changed(self, index: int, broker_id: int, number: int) -> None:
        self.order.setdefault(index, len(self.order))
        self._count(index, broker_id, number)
        # A replica that is removed stays on the disk until the others have been copied, so it frees no room. Only a
        # replica that the broker did not have at the beginning changes its room.
        if broker_id not in self.partitions[index].replicas:
            self._reserve(index, broker_id, number)
        movable = self.movable_on[broker_id][self._topic(index)]
        if number > 0:
            movable.add(index)
        else:
            movable.discard(index)

    def _reserve(self, index: int, broker_id: int, number: int) -> None:
        room = self._room.get(broker_id)
        if room is not None:
            self._room[broker_id] = room - number * self.size(index)

    def _count(self, index: int, broker_id: int, number: int) -> None:
        self.counts[broker_id] += number
        self.bytes[broker_id] += number * self.size(index)
        self.topics[broker_id][self._topic(index)] += number
