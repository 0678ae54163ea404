"""Evens out the numbers of preferred leaders by reordering replicas, which moves no data. Pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from itertools import pairwise

from quorate_operator.rebalancing.assignment import Assignment


def even_leaders(assignment: Assignment, brokers: Iterable[int], indexes: Iterable[int]) -> None:
    """Changes preferred leaders of the partitions `indexes` until no change makes their numbers more even.

    A chain of changes takes one leader from its first broker and gives one to its last; the number of each broker in
    between stays the same. The shortest chain is used, so that few partitions change.
    """
    leaders = _Leaders(assignment, brokers, indexes)
    while (chain := leaders.chain()) is not None:
        leaders.shift(chain)


class _Leaders:
    def __init__(self, assignment: Assignment, brokers: Iterable[int], indexes: Iterable[int]) -> None:
        self._of = assignment
        self._brokers = sorted(brokers)
        self._counts = Counter(replicas[0] for replicas in assignment.replicas)
        self._shiftable: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Partitions by their preferred leader and by another of their replicas."""
        for index in indexes:
            self._put(index)

    def _put(self, index: int) -> None:
        leader, *others = self._of.replicas[index]
        for other in others:
            self._shiftable[leader][other].add(index)

    def _take(self, index: int) -> None:
        leader, *others = self._of.replicas[index]
        for other in others:
            self._shiftable[leader][other].discard(index)

    def chain(self) -> tuple[int, ...] | None:
        """Returns brokers from one with more leaders to one with at least two fewer; None if there is no chain."""
        for source in sorted(self._brokers, key=lambda one: (-self._counts[one], one)):
            found = self._chain_from(source)
            if found is not None:
                return found
        return None

    def _chain_from(self, source: int) -> tuple[int, ...] | None:
        allowed = set(self._brokers)
        came_from = {source: source}
        waiting = deque([source])
        while waiting:
            broker = waiting.popleft()
            if self._counts[broker] <= self._counts[source] - 2:
                chain = [broker]
                while chain[-1] != source:
                    chain.append(came_from[chain[-1]])
                return tuple(reversed(chain))
            following = [
                one
                for one, some in self._shiftable[broker].items()
                if some and one in allowed and one not in came_from
            ]
            for one in sorted(following, key=lambda one: (self._counts[one], one)):
                came_from[one] = broker
                waiting.append(one)
        return None

    def shift(self, chain: tuple[int, ...]) -> None:
        """Passes one leader from each broker of the chain to the next."""
        for giver, taker in pairwise(chain):
            # A partition whose order changes anyway adds no further change.
            index = min(self._shiftable[giver][taker], key=lambda one: (one not in self._of.order, one))
            self._take(index)
            self._of.prefer(index, taker)
            self._put(index)
        self._counts[chain[0]] -= 1
        self._counts[chain[-1]] += 1
