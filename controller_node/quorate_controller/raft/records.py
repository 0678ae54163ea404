"""The parts of record batches that raft reads and writes: headers, and control records."""

from collections.abc import Iterator, Sequence

from quorate_protocol.errors import ProtocolError, UnknownRecord
from quorate_protocol.records.batch import BatchHeader, decode_batches, scan_batches
from quorate_protocol.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    VotersRecord,
    decode_control,
)

from quorate_controller.raft.voters import VoterSet

QuorumChange = VoterSet | int
"""The content of a control record: the voters, or the level of kraft.version."""


def quorum_changes(batches: bytes, header: BatchHeader) -> Iterator[tuple[int, QuorumChange]]:
    """The voter sets and kraft.versions that a control batch sets, each with its offset.

    Control records of other types are skipped, as Kafka's readers skip them.

    Raises:
        ProtocolError: a control record cannot be read.
    """
    data = batches[header.position : header.position + header.size_bytes]
    for batch in decode_batches(data):
        for record in batch.records:
            try:
                message = decode_control(record)
            except UnknownRecord:
                continue
            if isinstance(message, VotersRecord):
                yield batch.base_offset + record.offset_delta, VoterSet.from_record(message)
            elif isinstance(message, KRaftVersionRecord):
                yield batch.base_offset + record.offset_delta, message.k_raft_version


def check_fetched(
    records: bytes, *, end_offset: int, last_epoch: int, leader_epoch: int
) -> tuple[bytes, str | None]:
    """The leading batches of a Fetch response that may follow our log, and the fault of the next batch, or None.

    A last batch that is cut short is no fault. Checked are checksums, contiguous offsets, epochs that do not
    fall and are not above the leader's, and that control batches can be read.
    """
    size_bytes = 0
    try:
        for header in scan_batches(records, check_crc=True, allow_partial_tail=True):
            epoch = header.partition_leader_epoch
            if header.base_offset != end_offset:
                return records[:size_bytes], f"base offset {header.base_offset} instead of {end_offset}"
            if not last_epoch <= epoch <= leader_epoch:
                return records[:size_bytes], f"epoch {epoch} outside of {last_epoch} to {leader_epoch}"
            if header.is_control:
                tuple(quorum_changes(records, header))
            end_offset = header.last_offset + 1
            last_epoch = epoch
            size_bytes = header.position + header.size_bytes
    except ProtocolError as error:
        return records[:size_bytes], error.message
    return records[:size_bytes], None


def leader_change(*, leader_id: int, voters: VoterSet, granting: Sequence[int]) -> LeaderChangeMessage:
    """The record that opens a leader's epoch. Without directory ids, as Kafka writes it (version 0)."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=tuple(_leader_change_voter(node_id) for node_id in voters.ids),
        granting_voters=tuple(_leader_change_voter(node_id) for node_id in granting),
    )


def _leader_change_voter(node_id: int) -> LeaderChangeVoter:
    return LeaderChangeVoter(voter_id=node_id, voter_directory_id=None)


def kraft_version_record(kraft_version: int) -> KRaftVersionRecord:
    return KRaftVersionRecord(version=0, k_raft_version=kraft_version)
