"""An assignment of replicas that is changed move by move, and what each broker then has. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from quorate_operator.rebalancing.cluster import BrokerState, Load, PartitionState


class Assignment:
    """Replicas by partition. Partitions are identified by their index in `partitions`; only `movable` may move."""

    def __init__(
        self, brokers: Iterable[BrokerState], partitions: Sequence[PartitionState], movable: Iterable[int]
    ) -> None:
        self.partitions = partitions
        self.movable = tuple(movable)
        self.replicas = [list(partition.replicas) for partition in partitions]
        self.order: dict[int, int] = {}
        """By index of each changed partition, when it was changed first: 0, 1, ..."""
        self._racks = {one.broker_id: one.rack for one in brokers}
        self._room = {one.broker_id: one.room_bytes for one in brokers}
        self.counts: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.topics: dict[int, Counter[str]] = defaultdict(Counter)
        """Number of replicas by broker and topic."""
        self.movable_on: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Movable partitions by broker and topic."""
        for partition in partitions:
            for broker in partition.replicas:
                self._count(broker, partition, 1)
        for index in self.movable:
            for broker in self.replicas[index]:
                self.movable_on[broker][self._topic(index)].add(index)

    def crowd(self, replicas: Iterable[int]) -> int:
        """Returns how much replicas share racks: the sum of the squares of their numbers by rack. Less is better."""
        racks = Counter(self._racks.get(broker) or broker for broker in replicas)
        return sum(number * number for number in racks.values())

    def crowd_after(self, index: int, source: int, target: int) -> int:
        """Returns the `crowd` of a partition after one of its replicas has moved."""
        return self.crowd(target if broker == source else broker for broker in self.replicas[index])

    def has_room(self, index: int, target: int) -> bool:
        """Whether a broker without a replica of the partition could hold one."""
        if target in self.replicas[index]:
            return False
        room = self._room.get(target)
        had_it = target in self.partitions[index].replicas
        return room is None or had_it or room >= self.partitions[index].size_bytes

    def may_move(self, index: int, source: int, target: int) -> bool:
        """Whether the move is possible and leaves no more replicas in one rack."""
        return self.has_room(index, target) and (
            self.crowd_after(index, source, target) <= self.crowd(self.replicas[index])
        )

    def move(self, index: int, source: int, target: int) -> None:
        """Replaces a replica; the new one takes its position in the list."""
        one, replicas = self.partitions[index], self.replicas[index]
        replicas[replicas.index(source)] = target
        self.order.setdefault(index, len(self.order))
        for broker, number in ((source, -1), (target, 1)):
            self._count(broker, one, number)
            room = self._room.get(broker)
            # A replica that leaves stays on the disk until it has been copied, so it frees no room. Only a replica
            # that the broker did not have at the beginning changes its room.
            if room is not None and broker not in one.replicas:
                self._room[broker] = room - number * one.size_bytes
        self.movable_on[source][self._topic(index)].discard(index)
        self.movable_on[target][self._topic(index)].add(index)

    def prefer(self, index: int, leader: int) -> None:
        """Makes one of its replicas the preferred leader of a partition."""
        replicas = self.replicas[index]
        place = replicas.index(leader)
        replicas[0], replicas[place] = replicas[place], replicas[0]
        self.order.setdefault(index, len(self.order))

    def size(self, index: int) -> int:
        return self.partitions[index].size_bytes

    def _topic(self, index: int) -> str:
        return self.partitions[index].partition.topic

    def _count(self, broker: int, one: PartitionState, number: int) -> None:
        self.counts[broker] += number
        self.bytes[broker] += number * one.size_bytes
        self.topics[broker][one.partition.topic] += number


def loads(partitions: Iterable[tuple[Sequence[int], int]], brokers: Iterable[int]) -> dict[int, Load]:
    """Returns the loads of brokers from pairs of replicas and size in bytes, also of brokers without replicas."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for placed, size_bytes in partitions:
        leaders[placed[0]] += 1
        for broker in placed:
            replicas[broker] += 1
            sizes[broker] += size_bytes
    return {
        broker: Load(replicas[broker], leaders[broker], sizes[broker])
        for broker in sorted({*brokers, *replicas})
    }
