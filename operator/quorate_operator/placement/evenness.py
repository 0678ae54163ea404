"""Evens out numbers of replicas, then bytes, then preferred leaders, until no change is an improvement. Pure.

The sum of the squares of the brokers' replica counts never grows, and as long as it stays the same, the sum of the
squares of their bytes never grows. So the algorithm terminates, and it does not change its own result.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from quorate_operator.placement.assignment import Assignment

BYTES_TOLERANCE = 0.1
"""How far from the mean a broker's bytes may be, as a share of the mean (Cruise Control's default is the same)."""
EXCHANGES_MAX = 10_000
NEIGHBOURS_TRIED = 8
"""How many replicas of the nearest sizes are tried for an exchange, on each side."""


def even_out(
    assignment: Assignment, sources: Sequence[int], targets: Sequence[int], *, bytes_too: bool
) -> None:
    """Move replicas from `sources` to `targets` until numbers are even; with `bytes_too`, bytes as well."""
    numbers = _EvenNumbers(assignment, sources, targets)
    numbers.run()
    while bytes_too and _even_bytes(assignment, targets) and numbers.run():
        pass


class _EvenNumbers:
    """Moves from the broker with the most replicas to the one with the fewest that may take one of them."""

    def __init__(self, assignment: Assignment, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._assignment = assignment
        self._sources = sources
        self._targets = targets
        self._blocked: set[tuple[int, int]] = set()

    def run(self) -> bool:
        """Move until no move is left. Returns whether anything was moved."""
        has_moved = False
        self._blocked.clear()
        while True:
            if self._step():
                has_moved = True
            elif self._blocked:
                # Later moves may have made these pairs possible.
                self._blocked.clear()
                if not self._step():
                    return has_moved
                has_moved = True
            else:
                return has_moved

    def _step(self) -> bool:
        counts = self._assignment.counts
        targets = sorted(self._targets, key=lambda broker: (counts[broker], broker))
        for source in sorted(self._sources, key=lambda broker: (-counts[broker], broker)):
            for target in targets:
                if counts[source] - counts[target] < 2:
                    break
                if (source, target) in self._blocked:
                    continue
                index = self._choice(source, target)
                if index is not None:
                    self._assignment.move(index, source, target)
                    return True
                self._blocked.add((source, target))
        return False

    def _choice(self, source: int, target: int) -> int | None:
        """Return a partition of the topic that is most uneven between both; its size is the best for even bytes."""
        assignment = self._assignment
        wanted_bytes = max(0, assignment.bytes[source] - assignment.bytes[target]) / 2
        there, here = assignment.topics[source], assignment.topics[target]
        for topic in sorted(
            assignment.movable_on[source], key=lambda topic: (here[topic] - there[topic], topic)
        ):
            possible = [
                index
                for index in assignment.movable_on[source][topic]
                if assignment.may_move(index, source, target)
            ]
            if possible:
                return min(possible, key=lambda index: (abs(assignment.size(index) - wanted_bytes), index))
        return None


def _even_bytes(assignment: Assignment, brokers: Sequence[int]) -> bool:
    """Exchange replicas of brokers, or move one where their numbers differ by one. Returns whether any moved."""
    mean = sum(assignment.bytes[broker] for broker in brokers) / max(1, len(brokers))
    tolerance = mean * BYTES_TOLERANCE
    exchanges = 0
    while exchanges < EXCHANGES_MAX and _exchange_any(assignment, brokers, mean, tolerance):
        exchanges += 1
    return exchanges > 0


def _exchange_any(assignment: Assignment, brokers: Sequence[int], mean: float, tolerance: float) -> bool:
    by_bytes = sorted(brokers, key=lambda broker: (assignment.bytes[broker], broker))
    for source in reversed(by_bytes):
        for target in by_bytes:
            is_uneven = (
                assignment.bytes[source] > mean + tolerance or assignment.bytes[target] < mean - tolerance
            )
            if assignment.bytes[source] <= assignment.bytes[target] or not is_uneven:
                break
            if _exchange(assignment, source, target, max(1.0, tolerance / 2)):
                return True
    return False


def _exchange(assignment: Assignment, source: int, target: int, gain_min: float) -> bool:
    """Reduce the difference in bytes of two brokers by at least twice `gain_min`, if a move or an exchange can."""
    difference = assignment.bytes[source] - assignment.bytes[target]
    best: tuple[float, int, int, int | None] | None = None
    there, here = _by_size(assignment, source), _by_size(assignment, target)
    if assignment.counts[source] == assignment.counts[target] + 1:
        for size, index in _near(there, difference / 2):
            if gain_min <= size <= difference - gain_min and assignment.may_move(index, source, target):
                best = _better(best, (abs(difference / 2 - size), size, index, None))
    for size, index in there:
        if not assignment.may_move(index, source, target):
            continue
        for other_size, other in _near(here, size - difference / 2):
            gain = size - other_size
            if gain_min <= gain <= difference - gain_min and assignment.may_move(other, target, source):
                best = _better(best, (abs(difference / 2 - gain), size + other_size, index, other))
    if best is None:
        return False
    _, _, index, back = best
    assignment.move(index, source, target)
    if back is not None:
        assignment.move(back, target, source)
    return True


def _better(
    best: tuple[float, int, int, int | None] | None, other: tuple[float, int, int, int | None]
) -> tuple[float, int, int, int | None]:
    return other if best is None or other[:3] < best[:3] else best


def _by_size(assignment: Assignment, broker: int) -> list[tuple[int, int]]:
    """The movable partitions of a broker with their sizes, the smallest first."""
    return sorted(
        (assignment.size(index), index)
        for indexes in assignment.movable_on[broker].values()
        for index in indexes
    )


def _near(sized: Sequence[tuple[int, int]], wanted: float) -> Iterator[tuple[int, int]]:
    """Yield the partitions of the sizes nearest to `wanted`."""
    place = bisect_left(sized, (wanted, -1))
    yield from sized[max(0, place - NEIGHBOURS_TRIED) : place + NEIGHBOURS_TRIED]


def even_leaders(assignment: Assignment, brokers: Iterable[int], indexes: Iterable[int]) -> None:
    """Even out preferred leaders of the partitions `indexes` by the order of their replicas, which moves no data.

    A chain of changes takes one leader from its first broker and gives one to its last; the number of each broker in
    between stays the same. The shortest chain is used, so that few partitions change.
    """
    leaders = _Leaders(assignment, brokers, indexes)
    while (chain := leaders.chain()) is not None:
        leaders.shift(chain)


class _Leaders:
    def __init__(self, assignment: Assignment, brokers: Iterable[int], indexes: Iterable[int]) -> None:
        self._assignment = assignment
        self._brokers = sorted(brokers)
        self._counts = Counter(replicas[0] for replicas in assignment.replicas)
        self._shiftable: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Partitions by their preferred leader and by another of their replicas."""
        for index in indexes:
            self._put(index)

    def _put(self, index: int) -> None:
        leader, *others = self._assignment.replicas[index]
        for other in others:
            self._shiftable[leader][other].add(index)

    def _discard(self, index: int) -> None:
        leader, *others = self._assignment.replicas[index]
        for other in others:
            self._shiftable[leader][other].discard(index)

    def chain(self) -> tuple[int, ...] | None:
        """Return brokers from one with more leaders to one with at least two fewer; None if there is no chain."""
        for source in sorted(self._brokers, key=lambda broker: (-self._counts[broker], broker)):
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
                other
                for other, indexes in self._shiftable[broker].items()
                if indexes and other in allowed and other not in came_from
            ]
            for other in sorted(following, key=lambda other: (self._counts[other], other)):
                came_from[other] = broker
                waiting.append(other)
        return None

    def shift(self, chain: tuple[int, ...]) -> None:
        """Pass one leader from each broker of the chain to the next."""
        for giver, taker in pairwise(chain):
            # A partition whose order changes anyway adds no further change.
            index = min(
                self._shiftable[giver][taker], key=lambda index: (index not in self._assignment.order, index)
            )
            self._discard(index)
            self._assignment.prefer(index, taker)
            self._put(index)
        self._counts[chain[0]] -= 1
        self._counts[chain[-1]] += 1
