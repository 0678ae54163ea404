"""The simulator's own copy of what is committed: batches in their order, and what follows from them.

A batch enters the copy when a node first takes it for committed, after `Invariants` has found it on the disks of a
majority. From then on the copy decides, not the code under test: who the voters are, where checkpoints may end, and
what they contain.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.simulator.disk_logs import Voters, voters_of
from kit.simulator.fold import CommittedFold
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import KRaftVersionRecord, VotersRecord, decode_control
from quorate_protocol.records.framing import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """Where a committed batch ends."""

    epoch: int
    timestamp_ms: int
    is_in_transaction: bool
    """Whether a metadata transaction is open there, so that no checkpoint may end there."""


class CommittedRecords:
    """All committed batches. `initial_voters` are those of the formatted disks, `kraft_version` theirs."""

    def __init__(self, initial_voters: Voters, *, kraft_version: int) -> None:
        self.fold = CommittedFold()
        self.batches: dict[int, bytes] = {}
        """By base offset."""
        self.ends: dict[int, BatchEnd] = {0: BatchEnd(0, 0, is_in_transaction=False)}
        """By end offset."""
        self.end_offset = 0
        self.on_control: Callable[[object], None] = lambda _record: None
        self.on_metadata: Callable[[list[object]], None] = lambda _records: None
        self.on_effect: Callable[[list[tuple[int, object]]], None] = lambda _records: None
        """Takes the records that take effect, with their offsets: see `CommittedFold.batch`."""
        self._voters: list[tuple[int, Voters, VotersRecord | None]] = [(-1, initial_voters, None)]
        self._kraft_versions = [(-1, kraft_version)]

    def add(self, data: bytes) -> None:
        """The next committed batch."""
        (batch,) = decode_batches(data)
        assert batch.base_offset == self.end_offset, f"{batch.base_offset} follows {self.end_offset}"
        self.batches[batch.base_offset] = data
        self.end_offset = batch.last_offset + 1
        if batch.is_control:
            for offset, record in enumerate(map(decode_control, batch.records), start=batch.base_offset):
                self._control(offset, record)
        else:
            metadata: list[object] = [decode_record(record.value or b"") for record in batch.records]
            self.on_metadata(metadata)
            self.on_effect(self.fold.batch(batch.base_offset, metadata))
        self.ends[self.end_offset] = BatchEnd(
            batch.partition_leader_epoch,
            batch.max_timestamp_ms,
            is_in_transaction=self.fold.is_in_transaction,
        )

    def _control(self, offset: int, record: object) -> None:
        if isinstance(record, VotersRecord):
            self._voters.append((offset, voters_of(record), record))
        elif isinstance(record, KRaftVersionRecord):
            self._kraft_versions.append((offset, record.k_raft_version))
        self.on_control(record)

    @property
    def voters(self) -> Voters:
        """The voters of the last committed VotersRecord."""
        return self._voters[-1][1]

    def voters_at(self, end_offset: int) -> Voters:
        """The voters of the last committed VotersRecord below an offset."""
        return self._voters[bisect_right(self._voters, end_offset - 1, key=_offset_of) - 1][1]

    def voters_record_at(self, end_offset: int) -> VotersRecord | None:
        """The last VotersRecord below an offset; None if the log has none there."""
        return self._voters[bisect_right(self._voters, end_offset - 1, key=_offset_of) - 1][2]

    def kraft_version_at(self, end_offset: int) -> int:
        """The kraft.version of the records below an offset."""
        return self._kraft_versions[bisect_right(self._kraft_versions, end_offset - 1, key=_offset_of) - 1][1]


def _offset_of(entry: tuple[int, *tuple[object, ...]]) -> int:
    return entry[0]
