"""Evens out the numbers of replicas, then bytes, by moves and exchanges until none is an improvement. Pure.

The sum of the squares of the brokers' replica counts never grows, and as long as it stays the same, the sum of the
squares of their bytes never grows. So the algorithm terminates, and it does not change its own result.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from quorate_operator.rebalancing.assignment import Assignment

BYTES_TOLERANCE = 0.1
"""How far from the mean a broker's bytes may be, as a share of the mean (Cruise Control's default is the same)."""
EXCHANGES_MAX = 10_000
NEIGHBOURS_TRIED = 8
"""How many replicas of the nearest sizes are tried for an exchange, on each side."""


def even_out(
    assignment: Assignment, sources: Sequence[int], targets: Sequence[int], *, bytes_too: bool
) -> None:
    """Moves replicas from `sources` to `targets` until numbers are even; with `bytes_too`, bytes as well."""
    numbers = _EvenNumbers(assignment, sources, targets)
    numbers.run()
    while bytes_too and _even_bytes(assignment, targets) and numbers.run():
        pass


class _EvenNumbers:
    """Moves from the broker with the most replicas to the one with the fewest that may take one of them."""

    def __init__(self, assignment: Assignment, sources: Sequence[int], targets: Sequence[int]) -> None:
        self._of = assignment
        self._sources = sources
        self._targets = targets
        self._blocked: set[tuple[int, int]] = set()

    def run(self) -> bool:
        """Moves until no move is left. Returns whether anything was moved."""
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
        counts = self._of.counts
        targets = sorted(self._targets, key=lambda one: (counts[one], one))
        for source in sorted(self._sources, key=lambda one: (-counts[one], one)):
            for target in targets:
                if counts[source] - counts[target] < 2:
                    break
                if (source, target) in self._blocked:
                    continue
                index = self._choice(source, target)
                if index is not None:
                    self._of.move(index, source, target)
                    return True
                self._blocked.add((source, target))
        return False

    def _choice(self, source: int, target: int) -> int | None:
        """Returns a partition of the topic that is most uneven between both; its size is the best for even bytes."""
        of = self._of
        wanted_bytes = max(0, of.bytes[source] - of.bytes[target]) / 2
        there, here = of.topics[source], of.topics[target]
        for topic in sorted(of.movable_on[source], key=lambda one: (here[one] - there[one], one)):
            possible = [one for one in of.movable_on[source][topic] if of.may_move(one, source, target)]
            if possible:
                return min(possible, key=lambda one: (abs(of.size(one) - wanted_bytes), one))
        return None


def _even_bytes(of: Assignment, brokers: Sequence[int]) -> bool:
    """Exchanges replicas of brokers, or moves one where their numbers differ by one. Returns whether any moved."""
    mean = sum(of.bytes[broker] for broker in brokers) / max(1, len(brokers))
    tolerance = mean * BYTES_TOLERANCE
    exchanges = 0
    while exchanges < EXCHANGES_MAX and _exchange_any(of, brokers, mean, tolerance):
        exchanges += 1
    return exchanges > 0


def _exchange_any(of: Assignment, brokers: Sequence[int], mean: float, tolerance: float) -> bool:
    by_bytes = sorted(brokers, key=lambda one: (of.bytes[one], one))
    for source in reversed(by_bytes):
        for target in by_bytes:
            is_uneven = of.bytes[source] > mean + tolerance or of.bytes[target] < mean - tolerance
            if of.bytes[source] <= of.bytes[target] or not is_uneven:
                break
            if _exchange(of, source, target, max(1.0, tolerance / 2)):
                return True
    return False


def _exchange(of: Assignment, source: int, target: int, gain_min: float) -> bool:
    """Reduces the difference in bytes of two brokers by at least twice `gain_min`, if a move or an exchange can."""
    difference = of.bytes[source] - of.bytes[target]
    best: tuple[float, int, int, int | None] | None = None
    there, here = _by_size(of, source), _by_size(of, target)
    if of.counts[source] == of.counts[target] + 1:
        for size, index in _near(there, difference / 2):
            if gain_min <= size <= difference - gain_min and of.may_move(index, source, target):
                best = _better(best, (abs(difference / 2 - size), size, index, None))
    for size, index in there:
        if not of.may_move(index, source, target):
            continue
        for other_size, other in _near(here, size - difference / 2):
            gain = size - other_size
            if gain_min <= gain <= difference - gain_min and of.may_move(other, target, source):
                best = _better(best, (abs(difference / 2 - gain), size + other_size, index, other))
    if best is None:
        return False
    _, _, index, back = best
    of.move(index, source, target)
    if back is not None:
        of.move(back, target, source)
    return True


def _better(
    best: tuple[float, int, int, int | None] | None, other: tuple[float, int, int, int | None]
) -> tuple[float, int, int, int | None]:
    return other if best is None or other[:3] < best[:3] else best


def _by_size(of: Assignment, broker: int) -> list[tuple[int, int]]:
    """The movable partitions of a broker with their sizes, the smallest first."""
    return sorted((of.size(one), one) for some in of.movable_on[broker].values() for one in some)


def _near(sized: Sequence[tuple[int, int]], wanted: float) -> Iterator[tuple[int, int]]:
    """Yields the partitions of the sizes nearest to `wanted`."""
    place = bisect_left(sized, (wanted, -1))
    yield from sized[max(0, place - NEIGHBOURS_TRIED) : place + NEIGHBOURS_TRIED]
