"""The metadata image: the cluster as its metadata log describes it, live and changing record by record.

``end_offset`` is the end of the replayed records. ``stable.end_offset`` is the last batch end that can't be lost: it
is committed, and no metadata transaction is open there. The journal can undo everything between the two.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from quorate_protocol.image.errors import CannotReplay, ReplayError
from quorate_protocol.image.journal import Journal, Transaction
from quorate_protocol.image.replay import WRITES_OF, ReplayedState, key_of, with_entries
from quorate_protocol.image.state import ConfigResource, ImageState, Provenance
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
)

RECORDS_PER_STEP: Final = 128
"""Writes between two steps of restoring an image: some five milliseconds of work."""


class MetadataImage(ReplayedState):
    """State of a cluster, changed only by replaying records.

    Usage: call ``replay_batch`` for each batch in offset order (``advance`` for a control batch), and ``commit``
    when the high watermark advances. A controller that loses leadership calls ``revert_to`` with the offset from
    which its log was, or may be, truncated.
    """

    __slots__ = (
        "_batch_ends",
        "_committed_batch_end",
        "_journal",
        "_replayed_end_offset",
        "committed_end_offset",
        "stable",
    )

    def __init__(self) -> None:
        super().__init__()
        self._journal = Journal()
        self._batch_ends: deque[Provenance] = deque()
        """The ends of the batches that are not committed."""
        self._committed_batch_end = Provenance()
        self._replayed_end_offset = 0
        self.committed_end_offset = 0
        """The last high watermark that was committed."""
        self.stable = Provenance()
        """The end of the last batch that is committed and does not belong to an open transaction."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record to replay; ``provenance`` is the last complete batch."""
        return self._replayed_end_offset

    @property
    def transaction(self) -> Transaction | None:
        """The open metadata transaction, to which the next record will belong; a new leader has to abort it."""
        return self._journal.open_transaction

    def replay_batch(
        self, records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        """Replay the records of one batch, which have consecutive offsets from ``base_offset`` on.

        Raises:
            ReplayError: a record does not fit; the image is as it was before the batch.
        """
        self.replay_all(records, base_offset=base_offset)
        self.advance(end_offset=self.end_offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def replay_all(self, records: Iterable[MetadataRecord], *, base_offset: int) -> None:
        """Replay records with consecutive offsets, all or none. Call ``advance`` once their batch is complete.

        Raises:
            ReplayError: a record does not fit; the image is as it was before the first.
        """
        before = self._replayed_end_offset
        try:
            for _ in self._replay_in_runs(records, base_offset):
                pass
        except Exception:
            self._journal.undo_from(base_offset)
            self._replayed_end_offset = before
            raise

    def _replay_in_runs(self, records: Iterable[MetadataRecord], base_offset: int) -> Iterator[int]:
        """Replay records with consecutive offsets; yields the end offset of each step.

        Configs of one resource that follow each other are one write. A write replaces all configs of its resource,
        so that one by one they would take quadratic time and memory.
        """
        offset = base_offset
        for resource, run in groupby(records, _config_resource):
            if resource is None:
                for record in run:
                    self.replay(record, offset)
                    offset += 1
                    yield offset
            else:
                assert offset >= self.end_offset, f"{offset} is below {self.end_offset}"
                changes = [(record.name, record.value) for record in run if isinstance(record, ConfigRecord)]
                row = with_entries(self.configs.get(resource), changes)
                self._journal.write(offset, self.configs, resource, row)
                offset += len(changes)
                self._replayed_end_offset = offset
                yield offset

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Replay one record. Call ``advance`` once its batch is complete.

        Raises:
            ReplayError: the record does not fit; nothing has changed.
        """
        assert offset >= self.end_offset, f"{offset} is below {self.end_offset}"
        try:
            writes_of = WRITES_OF.get(type(record))
            if writes_of is None:
                self._replay_transaction_record(record, offset)
            else:
                write = self._journal.write
                for table, key, row in writes_of(self, record):
                    write(offset, table, key, row)
        except CannotReplay as error:
            raise ReplayError(record=record, key=key_of(record), reason=str(error), offset=offset) from None
        self._replayed_end_offset = offset + 1

    def _replay_transaction_record(self, record: MetadataRecord, offset: int) -> None:
        if isinstance(record, BeginTransactionRecord):
            self._journal.begin_transaction(offset, record.name)
        elif isinstance(record, EndTransactionRecord):
            self._journal.end_transaction(offset)
        elif isinstance(record, AbortTransactionRecord):
            self._journal.abort_transaction(offset)
        else:
            raise CannotReplay("unknown type of record")

    def advance(self, *, end_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Note the end of a batch of records or control records: its last offset is ``end_offset`` - 1."""
        assert end_offset > self.provenance.end_offset, f"{end_offset} is in {self.provenance}"
        assert end_offset >= self.end_offset, f"{end_offset} is below {self.end_offset}"
        self._replayed_end_offset = end_offset
        self.provenance = Provenance(end_offset=end_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self._batch_ends.append(self.provenance)

    def commit(self, end_offset: int) -> None:
        """Commit the records below ``end_offset``: they will not be reverted.

        An AbortTransactionRecord can still undo those of an open transaction.
        """
        assert end_offset <= self.end_offset, f"{end_offset} is above {self.end_offset}"
        assert end_offset >= self.committed_end_offset, f"{end_offset} is below {self.committed_end_offset}"
        self.committed_end_offset = end_offset
        # A snapshot has to end at a batch end where no transaction is open: not even one that has ended
        # since, if the next one began in the middle of a batch.
        while self._batch_ends and self._batch_ends[0].end_offset <= end_offset:
            self._committed_batch_end = self._batch_ends.popleft()
            if not self._journal.transaction_open_at(self._committed_batch_end.end_offset):
                self.stable = self._committed_batch_end
        self._journal.forget_below(self.stable.end_offset)

    def revert_to(self, end_offset: int) -> None:
        """Undo the uncommitted records from ``end_offset`` on, by whole batches."""
        assert end_offset >= self.committed_end_offset, f"{end_offset} is below {self.committed_end_offset}"
        while self._batch_ends and self._batch_ends[-1].end_offset > end_offset:
            self._batch_ends.pop()
        self.provenance = self._batch_ends[-1] if self._batch_ends else self._committed_batch_end
        self._replayed_end_offset = self.provenance.end_offset
        self._journal.undo_from(self.end_offset)

    def committed_copy(self) -> ImageState:
        """Return the state at ``stable``, for a snapshot; it does not change with this image.

        The time depends on the number of topics and of unstable changes, not on that of partitions.
        """
        copied = self.copy()
        self._journal.undo_in(copied, self.stable.end_offset)
        copied.provenance = self.stable
        return copied

    def restore(self, records: Iterable[MetadataRecord], provenance: Provenance) -> None:
        """Replace everything by the records of a snapshot. References into the image become outdated.

        Raises:
            ReplayError: a record does not fit; ``offset`` is its index in the snapshot. Nothing has changed.
        """
        for _ in self.restoring(records, provenance):
            pass

    def restoring(self, records: Iterable[MetadataRecord], provenance: Provenance) -> Iterator[int]:
        """Do what ``restore`` does in steps of RECORDS_PER_STEP writes, so that its caller can pause.

        Yields the number of records so far. Until the iterator has ended nothing has changed.
        """
        fresh = MetadataImage()
        for place, end_offset in enumerate(fresh._replay_in_runs(_without_transactions(records), 0), start=1):
            fresh._journal.forget_below(end_offset)
            if place % RECORDS_PER_STEP == 0:
                yield end_offset
        fresh.provenance = fresh.stable = fresh._committed_batch_end = provenance
        fresh.committed_end_offset = fresh._replayed_end_offset = provenance.end_offset
        for name in (*ImageState.__slots__, *ReplayedState.__slots__, *MetadataImage.__slots__):
            setattr(self, name, getattr(fresh, name))


def _config_resource(record: MetadataRecord) -> ConfigResource | None:
    return (record.resource_type, record.resource_name) if type(record) is ConfigRecord else None


def _without_transactions(records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    for place, record in enumerate(records):
        if isinstance(record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
            raise ReplayError(record=record, key="", reason="a snapshot can't contain it", offset=place)
        yield record
