"""The metadata image: the cluster as its metadata log describes it, live and changing record by record.

``end_offset`` is where the image stands; ``stable.end_offset`` is the last place that can't be lost:
committed, and not inside a metadata transaction. Between them lies what the journal can still take back.
"""

from collections import deque
from collections.abc import Iterable

from quorate_protocol.image.errors import CannotReplay, ReplayError
from quorate_protocol.image.index import PartitionIndex
from quorate_protocol.image.journal import Journal, MetadataDelta, Transaction
from quorate_protocol.image.replay import WRITES_OF, ReplayedState, key_of
from quorate_protocol.image.state import ImageState, Provenance
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)


class MetadataImage(ReplayedState):
    """State of a cluster, changed only by replaying records.

    Protocol of use: ``replay_batch`` each batch in offset order (``advance`` past control batches), and
    ``commit`` the high watermark. A controller that loses leadership calls ``revert_to`` with the offset from
    which on its log was, or may be, truncated.
    """

    __slots__ = (
        "_batch_ends",
        "_journal",
        "_replayed_end_offset",
        "committed_end_offset",
        "index",
        "stable",
    )

    def __init__(self) -> None:
        self.index = PartitionIndex()
        """Partitions by broker and in unusual states; counts for metrics."""
        super().__init__(self.index.on_change)
        self._journal = Journal()
        self._batch_ends: deque[Provenance] = deque()
        self._replayed_end_offset = 0
        self.committed_end_offset = 0
        """The high watermark as far as it was told."""
        self.stable = Provenance()
        """The end of the last batch that is committed and does not belong to an open transaction."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record to be replayed: ``provenance`` is the last batch that is complete."""
        return self._replayed_end_offset

    @property
    def transaction(self) -> Transaction | None:
        """The metadata transaction that the next record will belong to: a new leader has to abort it."""
        return self._journal.open_transaction

    def replay_batch(
        self, records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        """Replays the records of one batch, which have consecutive offsets from ``base_offset`` on.

        Raises:
            ReplayError: one of them doesn't fit; the image is as it was before the batch.
        """
        self.replay_all(records, base_offset=base_offset)
        self.advance(end_offset=self.end_offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def replay_all(self, records: Iterable[MetadataRecord], *, base_offset: int) -> None:
        """Replays records with consecutive offsets, all or none. ``advance`` has to follow as after ``replay``.

        Raises:
            ReplayError: one of them doesn't fit; the image is as it was before the first.
        """
        before = self._replayed_end_offset
        try:
            for offset, record in enumerate(records, base_offset):
                self.replay(record, offset)
        except Exception:
            self._journal.undo_from(base_offset)
            self._replayed_end_offset = before
            raise

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Replays one record. ``advance`` has to follow once its batch is complete.

        Raises:
            ReplayError: it doesn't fit; it has changed nothing.
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
        """Says that a batch, of records or of control records, ends before ``end_offset``."""
        assert end_offset > self.provenance.end_offset, f"{end_offset} is in {self.provenance}"
        assert end_offset >= self.end_offset, f"{end_offset} is below {self.end_offset}"
        self._replayed_end_offset = end_offset
        self.provenance = Provenance(end_offset=end_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self._batch_ends.append(self.provenance)

    def commit(self, end_offset: int) -> None:
        """The records below ``end_offset`` are committed: they will never be reverted.

        Those in an open transaction can still be undone by its AbortTransactionRecord.
        """
        assert end_offset <= self.end_offset, f"{end_offset} is above {self.end_offset}"
        assert end_offset >= self.committed_end_offset, f"{end_offset} is below {self.committed_end_offset}"
        self.committed_end_offset = end_offset
        # A snapshot has to end where a batch ends, and no transaction may be open there: not even one that
        # has ended since, if the next one began in the middle of a batch.
        settled = 0
        for place, batch_end in enumerate(self._batch_ends, start=1):
            if batch_end.end_offset > end_offset:
                break
            if not self._journal.transaction_open_at(batch_end.end_offset):
                settled, self.stable = place, batch_end
        for _ in range(settled):
            self._batch_ends.popleft()
        self._journal.forget_below(self.stable.end_offset)

    def revert_to(self, end_offset: int) -> None:
        """Takes back the uncommitted records from ``end_offset`` on, by whole batches."""
        assert end_offset >= self.committed_end_offset, f"{end_offset} is below {self.committed_end_offset}"
        while self._batch_ends and self._batch_ends[-1].end_offset > end_offset:
            self._batch_ends.pop()
        self.provenance = self._batch_ends[-1] if self._batch_ends else self.stable
        self._replayed_end_offset = self.provenance.end_offset
        self._journal.undo_from(self.end_offset)

    def delta(self, start_offset: int, end_offset: int | None = None) -> MetadataDelta:
        """What the records from ``start_offset`` to below ``end_offset``, by default all, have changed.

        ``start_offset`` is not below that of ``stable``: ask before committing.
        """
        assert start_offset >= self.stable.end_offset, f"{start_offset} is below {self.stable.end_offset}"
        return self._journal.delta(start_offset, self.end_offset if end_offset is None else end_offset)

    def committed_copy(self) -> ImageState:
        """The state at ``stable``, for a snapshot; it stays as it is while this image goes on.

        Takes time by the number of topics and of unstable changes, not by that of partitions.
        """
        copied = self.copy()
        self.delta(self.stable.end_offset).revert(copied)
        copied.provenance = self.stable
        return copied

    def restore(self, records: Iterable[MetadataRecord], provenance: Provenance) -> None:
        """Replaces everything by the records of a snapshot. References into the image become outdated.

        Raises:
            ReplayError: a record doesn't fit; its ``offset`` is its place there. Nothing has changed.
        """
        fresh = MetadataImage()
        for place, record in enumerate(records):
            if isinstance(record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                raise ReplayError(record=record, key="", reason="it can't be in a snapshot", offset=place)
            fresh.replay(record, place)
            fresh._journal.forget_below(place + 1)
        fresh.provenance = fresh.stable = provenance
        fresh.committed_end_offset = fresh._replayed_end_offset = provenance.end_offset
        for name in (*ImageState.__slots__, *ReplayedState.__slots__, *MetadataImage.__slots__):
            setattr(self, name, getattr(fresh, name))
