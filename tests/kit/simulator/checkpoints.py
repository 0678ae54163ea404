"""Each checkpoint, once it has its name, is read back and held to the simulator's own copy of the committed records.

invariant              of each checkpoint
---------------------  -------------------------------------------------------------------------------------------
CheckpointIsCommitted  it ends at the end of a committed batch of its epoch, with no metadata transaction open
CheckpointIsWhole      it begins with a header and ends with a footer, offsets follow each other, one epoch
CheckpointHasQuorum    kraft.version and VotersRecord are the last ones below its end; the header has the time of
                       the last record
CheckpointIsSame       its records make the same rows as the committed records below its end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit.simulator.coverage import Happening
from kit.simulator.fold import Rows
from kit.simulator.invariants import InvariantViolation
from quorate_protocol.errors import ProtocolError
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.records.batch import RecordBatch, decode_batches
from quorate_protocol.records.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control,
)
from quorate_protocol.records.framing import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.committed import CommittedRecords
    from quorate_protocol.image import MetadataImage

KEYS_SHOWN = 3


class Checkpoints:
    """Reads each checkpoint once, though several nodes may have it."""

    def __init__(self, committed: CommittedRecords, count: Callable[..., None]) -> None:
        self._committed = committed
        self._count = count
        self._read: dict[str, bytes] = {}

    def check(self, node_id: int, name: str, data: bytes) -> None:
        """A checkpoint that a node has written or fetched. `name` is that of its file.

        Raises:
            InvariantViolation: it is not what Kafka's format and the committed records demand.
        """
        offset, epoch = map(int, name.removesuffix(".checkpoint").split("-"))
        if offset == 0 or self._read.get(name) == data:
            # The checkpoint of formatting, or a copy of one that was read before.
            return
        self._read[name] = data
        self._count(Happening.CHECKPOINT_READ)
        where = f"{name} of node {node_id}"
        end = self._committed.ends.get(offset)
        if end is None or end.is_in_transaction or end.epoch != epoch:
            raise InvariantViolation(
                "CheckpointIsCommitted", f"{where}: {end}, {self._committed.end_offset} is committed"
            )
        batches = _whole_batches(where, data, epoch)
        self._check_quorum(where, batches[0], offset, end.timestamp_ms)
        self._check_rows(where, batches[1:-1], offset)

    def check_image(self, image: MetadataImage) -> None:
        """The committed part of an image has the same rows as the committed records."""
        rows = Rows()
        for record in image_to_records(image.committed_copy()):
            rows.apply(record)
        expected = self._committed.fold.at(image.stable.end_offset)
        if rows.rows != expected:
            raise InvariantViolation("SameImages", _difference(rows.rows, expected))

    def _check_quorum(self, where: str, first: RecordBatch, offset: int, timestamp_ms: int) -> None:
        header, *others = map(decode_control, first.records)
        assert isinstance(header, SnapshotHeaderRecord)
        kraft_version = self._committed.kraft_version_at(offset)
        voters = self._committed.voters_record_at(offset)
        found = {type(record): record for record in others}
        found_version = found.pop(KRaftVersionRecord, None)
        found_voters = found.pop(VotersRecord, None)
        is_right = (
            not found
            and header.last_contained_log_timestamp == timestamp_ms
            and (found_version.k_raft_version if found_version else 0) == kraft_version
            and (None if found_voters is None else found_voters.voters)
            == (None if voters is None else voters.voters)
        )
        if not is_right:
            raise InvariantViolation(
                "CheckpointHasQuorum",
                f"{where}: {header} {found_version} {found_voters} {found}, committed are kraft.version "
                f"{kraft_version}, {voters}, and the time {timestamp_ms}",
            )

    def _check_rows(self, where: str, batches: list[RecordBatch], offset: int) -> None:
        rows, expected = Rows(), self._committed.fold.at(offset)
        try:
            for batch in batches:
                for record in batch.records:
                    rows.apply(decode_record(record.value or b""))
        except (KeyError, ProtocolError) as error:
            raise InvariantViolation(
                "CheckpointIsSame", f"{where}: {type(error).__name__} {error}"
            ) from error
        if rows.rows != expected:
            raise InvariantViolation("CheckpointIsSame", f"{where}: {_difference(rows.rows, expected)}")


def _whole_batches(where: str, data: bytes, epoch: int) -> list[RecordBatch]:
    """All batches of a checkpoint: control batches are the first and the last one alone."""
    try:
        batches = list(decode_batches(data))
        offset = 0
        for batch in batches:
            assert (batch.base_offset, batch.partition_leader_epoch) == (offset, epoch), (
                f"at {offset}: {batch}"
            )
            offset = batch.last_offset + 1
        assert [batch.is_control for batch in batches] == [True, *[False] * (len(batches) - 2), True]
        assert isinstance(decode_control(batches[0].records[0]), SnapshotHeaderRecord), batches[0]
        assert list(map(type, map(decode_control, batches[-1].records))) == [SnapshotFooterRecord], batches[
            -1
        ]
    except (AssertionError, ProtocolError) as error:
        raise InvariantViolation("CheckpointIsWhole", f"{where}: {type(error).__name__} {error}") from error
    return batches


def _difference(found: dict[Any, Any], expected: dict[Any, Any]) -> str:
    keys = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    return f"{len(keys)} rows differ, such as " + "; ".join(
        f"{key}: {found.get(key)} instead of {expected.get(key)}"
        for key in sorted(keys, key=str)[:KEYS_SHOWN]
    )
