"""How long turns take: simulated time in proportion to their work, so that long ones cost leaders, too.

Work is counted, not measured, so that a seed repeats itself: rows of the image that are written or undone, rows of
tables that are passed over, partitions of topics that go as a whole, bytes that go to or come from the disk. The
prices are about those of one core of a small machine. A turn that writes 20,000 rows takes a third of a second; on a
slow machine, ten times as long.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from kit.simulator.disk import SimulatedDisk
from quorate_protocol.image.index import PartitionIndex
from quorate_protocol.image.journal import Journal
from quorate_protocol.image.state import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorate_protocol.image.topics import TopicImage

ROW_WRITTEN_NS: Final = 17_000
ROW_PASSED_NS: Final = 1_000
PARTITION_OF_TOPIC_NS: Final = 200
"""Of a topic that goes, or comes back, as a whole."""
BYTE_NS: Final = 10
NS_PER_MS: Final = 1_000_000


class Work:
    """The work of the turn that runs, on a machine that is `slowness` times as slow as the prices say."""

    def __init__(self) -> None:
        self._ns = 0
        self._slowness = 1
        self._is_running = False
        self._disk = SimulatedDisk()
        self._moved_bytes = 0

    def begin(self, disk: SimulatedDisk, slowness: int) -> None:
        """A turn begins."""
        self._ns, self._slowness = 0, slowness
        self._disk, self._moved_bytes = disk, disk.moved_bytes
        self._is_running = True

    def end(self) -> int:
        """The turn has ended. Returns its time in whole milliseconds."""
        elapsed_ms = self.elapsed_ms
        self._is_running = False
        return elapsed_ms

    def add(self, ns: int) -> None:
        """It has done work of that price."""
        self._ns += ns

    @property
    def elapsed_ms(self) -> int:
        """The whole milliseconds that the turn has taken so far; 0 between turns."""
        if not self._is_running:
            return 0
        ns = self._ns + (self._disk.moved_bytes - self._moved_bytes) * BYTE_NS
        return ns * self._slowness // NS_PER_MS


@contextmanager
def counting_work(work: Work) -> Iterator[None]:
    """Count all rows for as long as it lasts: only one world may run at a time."""
    write, undo = Journal.write, Journal.undo_from

    def counted_write(journal: Journal, *args: Any) -> None:
        work.add(ROW_WRITTEN_NS)
        write(journal, *args)

    def counted_undo(journal: Journal, offset: int) -> None:
        before = len(journal)
        undo(journal, offset)
        work.add((before - len(journal)) * ROW_WRITTEN_NS)

    def counted_topic(name: str) -> Any:
        change = getattr(PartitionIndex, name)

        def changed(index: PartitionIndex, topic: TopicImage) -> None:
            work.add(len(topic.partitions) * PARTITION_OF_TOPIC_NS)
            change(index, topic)

        return changed

    def counted_pass(name: str) -> Any:
        read = getattr(dict, name)

        def passed(table: Table[Any, Any]) -> Any:
            work.add(len(table) * ROW_PASSED_NS)
            return read(table)

        return passed

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Journal, "write", counted_write))
        stack.enter_context(mock.patch.object(Journal, "undo_from", counted_undo))
        for name in ("on_topic_removed", "on_topic_restored"):
            stack.enter_context(mock.patch.object(PartitionIndex, name, counted_topic(name)))
        for name in ("values", "items", "keys", "__iter__"):
            stack.enter_context(mock.patch.object(Table, name, counted_pass(name), create=True))
        yield
