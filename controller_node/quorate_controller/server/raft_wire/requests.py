"""Raft requests, from and to the wire."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import quorate_protocol.kafka.generated.add_raft_voter_request as add_voter
import quorate_protocol.kafka.generated.begin_quorum_epoch_request as begin
import quorate_protocol.kafka.generated.end_quorum_epoch_request as end
import quorate_protocol.kafka.generated.fetch_request as fetch
import quorate_protocol.kafka.generated.fetch_snapshot_request as snapshot
import quorate_protocol.kafka.generated.fetch_snapshot_response as snapshot_response
import quorate_protocol.kafka.generated.remove_raft_voter_request as remove_voter
import quorate_protocol.kafka.generated.update_raft_voter_request as update_voter
import quorate_protocol.kafka.generated.vote_request as vote
from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.wire.versions import api_versions_request

from quorate_controller.raft import messages
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, OffsetAndEpoch, ReplicaKey, VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from quorate_protocol.kafka.apis import Payload

_Wire = TypeVar("_Wire")

HIGH_WATERMARK_UNSUPPORTED: Final = 0x7FFF_FFFF_FFFF_FFFF
"""FetchRequest.HighWatermark of a replica that does not send it (KIP-1166)."""

T = TypeVar("T")


class RefusedMessage(ProtocolError):  # noqa: N818 - named as its siblings in quorate_protocol.errors
    """A message that raft never sees.

    `response` is the canonical response to a request, unless it is the usual one, an error for the response as a
    whole.
    """

    def __init__(self, error_code: ErrorCode, message: str, response: Payload | None = None) -> None:
        super().__init__(error_code, message)
        self.response = response


def metadata_partition(
    topics: Sequence[Any], *, name: str = "topic_name", index: str = "partition_index"
) -> Any:
    """The only partition of a message; Fetch, which is frequent, does the same without looking names up.

    `name` and `index` are the fields that identify topic and partition.

    Raises:
        RefusedMessage: there is not exactly one, or it is not the metadata partition.
    """
    topic = sole(topics)
    partition = sole(topic.partitions)
    check_partition(getattr(topic, name), getattr(partition, index))
    return partition


def sole(items: Sequence[T]) -> T:
    """The only topic, or the only partition, of a message; RefusedMessage unless there is exactly one."""
    if len(items) != 1:
        raise RefusedMessage(
            ErrorCode.invalid_request, f"{len(items)} topics or partitions; there is one, {METADATA_TOPIC}-0"
        )
    return items[0]


def check_partition(topic: str | UUID | None, index: int) -> None:
    """Refuse a topic, by name or by id, or a partition index that is not the metadata partition's."""
    if topic not in {METADATA_TOPIC, METADATA_TOPIC_ID} or index != METADATA_PARTITION:
        raise RefusedMessage(ErrorCode.invalid_request, f"{topic}-{index} is not {METADATA_TOPIC}-0")


def request_from_wire(request: Payload) -> messages.RaftRequest:
    """Return raft's request.

    Raises:
        RefusedMessage: the request is not about the metadata partition.
    """
    match request:
        case fetch.FetchRequest():
            return _fetch_from_wire(request)
        case vote.VoteRequest():
            return _vote_from_wire(request)
        case begin.BeginQuorumEpochRequest():
            return _begin_from_wire(request)
        case end.EndQuorumEpochRequest():
            return _end_from_wire(request)
        case snapshot.FetchSnapshotRequest():
            return _snapshot_from_wire(request)
        case add_voter.AddRaftVoterRequest():
            return messages.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout_ms=_milliseconds(request.timeout),
                voter=ReplicaKey(node_id=request.voter_id, directory_id=request.voter_directory_id),
                endpoints=_endpoints(request.listeners),
                ack_when_committed=request.ack_when_committed,
            )
        case remove_voter.RemoveRaftVoterRequest():
            return messages.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter=ReplicaKey(node_id=request.voter_id, directory_id=request.voter_directory_id),
            )
        case update_voter.UpdateRaftVoterRequest():
            feature = request.k_raft_version_feature
            return messages.UpdateRaftVoterRequest(
                cluster_id=request.cluster_id,
                current_leader_epoch=request.current_leader_epoch,
                voter=ReplicaKey(node_id=request.voter_id, directory_id=request.voter_directory_id),
                endpoints=_endpoints(request.listeners),
                kraft_versions=VersionRange(
                    lowest=feature.min_supported_version, highest=feature.max_supported_version
                ),
            )
    raise AssertionError(f"{type(request).__qualname__} is not a raft request")


def request_to_wire(request: messages.RaftRequest) -> Payload:
    """The canonical wire request."""
    match request:
        case messages.FetchRequest():
            return _fetch_to_wire(request)
        case messages.VoteRequest():
            return _vote_to_wire(request)
        case messages.BeginQuorumEpochRequest():
            return _begin_to_wire(request)
        case messages.EndQuorumEpochRequest():
            return _end_to_wire(request)
        case messages.FetchSnapshotRequest():
            return _snapshot_to_wire(request)
        case messages.AddRaftVoterRequest():
            return add_voter.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout=timedelta(milliseconds=request.timeout_ms),
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
                listeners=_listeners(add_voter.Listener, request.endpoints),
                ack_when_committed=request.ack_when_committed,
            )
        case messages.RemoveRaftVoterRequest():
            return remove_voter.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
            )
        case messages.UpdateRaftVoterRequest():
            return _update_voter_to_wire(request)
        case messages.ApiVersionsProbe():
            probe: Payload = api_versions_request()
            return probe


def _milliseconds(duration: timedelta) -> int:
    return duration // MILLISECOND


def _receiver(node_id: int, directory_id: UUID | None) -> ReplicaKey | None:
    return None if node_id == NO_NODE_ID else ReplicaKey(node_id=node_id, directory_id=directory_id)


_WireEndpoint = add_voter.Listener | update_voter.Listener | begin.LeaderEndpoint | end.LeaderEndpoint


def _endpoints(listeners: Iterable[_WireEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(listener=listener.name, host=listener.host, port=listener.port) for listener in listeners
    )


def _listeners(wire: Callable[..., _Wire], endpoints: Iterable[Endpoint]) -> tuple[_Wire, ...]:
    return tuple(
        wire(name=endpoint.listener, host=endpoint.host, port=endpoint.port) for endpoint in endpoints
    )


def _fetch_from_wire(request: fetch.FetchRequest) -> messages.FetchRequest:
    # Before version 13 topics have names and no id: as in Kafka, none of them is the metadata topic.
    topic = sole(request.topics)
    partition = sole(topic.partitions)
    check_partition(topic.topic_id, partition.partition)
    known = partition.high_watermark
    return messages.FetchRequest(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(
            node_id=request.replica_state.replica_id, directory_id=partition.replica_directory_id
        ),
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        max_wait_ms=_milliseconds(request.max_wait),
        max_bytes=request.max_bytes,
        high_watermark=None if known == HIGH_WATERMARK_UNSUPPORTED else known,
    )


def _fetch_to_wire(request: messages.FetchRequest) -> fetch.FetchRequest:
    known = request.high_watermark
    partition = fetch.FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        partition_max_bytes=0,
        replica_directory_id=request.replica.directory_id,
        high_watermark=HIGH_WATERMARK_UNSUPPORTED if known is None else known,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.node_id),
        max_wait=timedelta(milliseconds=request.max_wait_ms),
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=(fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def _vote_from_wire(request: vote.VoteRequest) -> messages.VoteRequest:
    partition = metadata_partition(request.topics)
    return messages.VoteRequest(
        cluster_id=request.cluster_id,
        voter=_receiver(request.voter_id, partition.voter_directory_id),
        replica=ReplicaKey(node_id=partition.replica_id, directory_id=partition.replica_directory_id),
        replica_epoch=partition.replica_epoch,
        last_offset=partition.last_offset,
        last_offset_epoch=partition.last_offset_epoch,
        pre_vote=partition.pre_vote,
    )


def _vote_to_wire(request: messages.VoteRequest) -> vote.VoteRequest:
    voter = request.voter
    partition = vote.PartitionData(
        partition_index=METADATA_PARTITION,
        replica_epoch=request.replica_epoch,
        replica_id=request.replica.node_id,
        replica_directory_id=request.replica.directory_id,
        voter_directory_id=None if voter is None else voter.directory_id,
        last_offset_epoch=request.last_offset_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=request.cluster_id,
        voter_id=NO_NODE_ID if voter is None else voter.node_id,
        topics=(vote.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
    )


def _begin_from_wire(request: begin.BeginQuorumEpochRequest) -> messages.BeginQuorumEpochRequest:
    partition = metadata_partition(request.topics)
    return messages.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter=_receiver(request.voter_id, partition.voter_directory_id),
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _begin_to_wire(request: messages.BeginQuorumEpochRequest) -> begin.BeginQuorumEpochRequest:
    voter = request.voter
    partition = begin.PartitionData(
        partition_index=METADATA_PARTITION,
        voter_directory_id=None if voter is None else voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=NO_NODE_ID if voter is None else voter.node_id,
        topics=(begin.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=_listeners(begin.LeaderEndpoint, request.leader_endpoints),
    )


def _end_from_wire(request: end.EndQuorumEpochRequest) -> messages.EndQuorumEpochRequest:
    partition = metadata_partition(request.topics)
    return messages.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        preferred_candidates=tuple(
            ReplicaKey(node_id=candidate.candidate_id, directory_id=candidate.candidate_directory_id)
            for candidate in partition.preferred_candidates
        ),
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _end_to_wire(request: messages.EndQuorumEpochRequest) -> end.EndQuorumEpochRequest:
    partition = end.PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        preferred_candidates=tuple(
            end.ReplicaInfo(candidate_id=candidate.node_id, candidate_directory_id=candidate.directory_id)
            for candidate in request.preferred_candidates
        ),
    )
    return end.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=(end.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=_listeners(end.LeaderEndpoint, request.leader_endpoints),
    )


def _snapshot_from_wire(request: snapshot.FetchSnapshotRequest) -> messages.FetchSnapshotRequest:
    topic = sole(request.topics)
    partition = sole(topic.partitions)
    try:
        check_partition(topic.name, partition.partition)
    except RefusedMessage as refusal:
        # Unlike for the other requests, Kafka puts this error on the partition that was asked for.
        raise RefusedMessage(
            ErrorCode.unknown_topic_or_partition, refusal.message, _unknown_partition(topic.name, partition)
        ) from None
    return messages.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(node_id=request.replica_id, directory_id=partition.replica_directory_id),
        current_leader_epoch=partition.current_leader_epoch,
        snapshot_id=OffsetAndEpoch(
            offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch
        ),
        position=partition.position,
        max_bytes=request.max_bytes,
    )


def _unknown_partition(name: str, partition: snapshot.PartitionSnapshot) -> Payload:
    unknown = snapshot_response.PartitionSnapshot(
        index=partition.partition,
        error_code=ErrorCode.unknown_topic_or_partition,
        snapshot_id=snapshot_response.SnapshotId(end_offset=0, epoch=0),
        current_leader=snapshot_response.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        size=0,
        position=0,
        unaligned_records=b"",
    )
    return snapshot_response.FetchSnapshotResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        topics=(snapshot_response.TopicSnapshot(name=name, partitions=(unknown,)),),
    )


def _snapshot_to_wire(request: messages.FetchSnapshotRequest) -> snapshot.FetchSnapshotRequest:
    partition = snapshot.PartitionSnapshot(
        partition=METADATA_PARTITION,
        current_leader_epoch=request.current_leader_epoch,
        snapshot_id=snapshot.SnapshotId(
            end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=(snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
    )


def _update_voter_to_wire(request: messages.UpdateRaftVoterRequest) -> update_voter.UpdateRaftVoterRequest:
    return update_voter.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.current_leader_epoch,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=_listeners(update_voter.Listener, request.endpoints),
        k_raft_version_feature=update_voter.KRaftVersionFeature(
            min_supported_version=request.kraft_versions.lowest,
            max_supported_version=request.kraft_versions.highest,
        ),
    )
