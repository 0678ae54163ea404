"""Raft responses, from and to the wire.

An error of the response as a whole (`top_level_error_code`) leaves no room for a partition; the response then
has no topics, as Kafka sends it. The bytes of records pass through untouched.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import quorate_protocol.kafka.generated.add_raft_voter_response as add_voter
import quorate_protocol.kafka.generated.begin_quorum_epoch_response as begin
import quorate_protocol.kafka.generated.end_quorum_epoch_response as end
import quorate_protocol.kafka.generated.fetch_response as fetch
import quorate_protocol.kafka.generated.fetch_snapshot_response as snapshot
import quorate_protocol.kafka.generated.remove_raft_voter_response as remove_voter
import quorate_protocol.kafka.generated.update_raft_voter_response as update_voter
import quorate_protocol.kafka.generated.vote_response as vote
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import KRAFT_VERSION
from quorate_protocol.kafka.generated import describe_quorum_response as response
from quorate_protocol.kafka.generated.api_versions_response import ApiVersionsResponse
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft import messages
from quorate_controller.raft.model import NO_NODE_ID, OffsetAndEpoch, VersionRange
from quorate_controller.server.raft_wire.requests import (
    RefusedMessage,
    check_partition,
    metadata_partition,
    sole,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from quorate_protocol.kafka.apis import Payload
    from quorate_protocol.kafka.generated import describe_quorum_request as request

    from quorate_controller.raft.events import QuorumDescription, ReplicaDescription

_NOT_THROTTLED: Final = timedelta()


_NODE_ENDPOINTS_SINCE: Final[Mapping[type, int]] = {messages.FetchResponse: 16}
"""First versions with endpoints, 1 for those not listed. Older peers look the leader up in their own
configuration.
"""

VOTER_KEYS_SINCE: Final = 2
"""First version with directory ids and with the endpoints of voters (KIP-853)."""


def response_to_wire(
    response: messages.RaftResponse, data: bytes = b"", *, version: int | None = None
) -> Payload:
    """The canonical wire response; `data` is what storage read for its `read`.

    Fields that `version` lacks are left at their defaults.
    """
    if version is not None and isinstance(response, messages.PartitionResponse):
        has_endpoints = version >= _NODE_ENDPOINTS_SINCE.get(type(response), 1)
        response = response if has_endpoints else replace(response, leader_endpoint=None)
    match response:
        case messages.FetchResponse():
            return _fetch_to_wire(response, data)
        case messages.FetchSnapshotResponse():
            return _snapshot_to_wire(response, data)
        case messages.AddRaftVoterResponse():
            return add_voter.AddRaftVoterResponse(
                throttle_time=_NOT_THROTTLED,
                error_code=response.error_code,
                error_message=response.error_message,
            )
        case messages.RemoveRaftVoterResponse():
            return remove_voter.RemoveRaftVoterResponse(
                throttle_time=_NOT_THROTTLED,
                error_code=response.error_code,
                error_message=response.error_message,
            )
        case messages.UpdateRaftVoterResponse():
            return _update_voter_to_wire(response)
    for election in _ELECTIONS:
        if isinstance(response, election.message):
            return _election_to_wire(election, response)
    raise AssertionError(f"{type(response).__qualname__} is only ever received")


def response_from_wire(response: Payload) -> messages.RaftResponse:
    """Return raft's response.

    Raises:
        RefusedMessage: the response is not about the metadata partition.
    """
    match response:
        case fetch.FetchResponse():
            return _fetch_from_wire(response)
        case snapshot.FetchSnapshotResponse():
            return _snapshot_from_wire(response)
        case add_voter.AddRaftVoterResponse():
            return messages.AddRaftVoterResponse(
                error_code=response.error_code, error_message=response.error_message
            )
        case remove_voter.RemoveRaftVoterResponse():
            return messages.RemoveRaftVoterResponse(
                error_code=response.error_code, error_message=response.error_message
            )
        case update_voter.UpdateRaftVoterResponse():
            return _update_voter_from_wire(response)
        case ApiVersionsResponse():
            return _probe_from_wire(response)
    for election in _ELECTIONS:
        if isinstance(response, election.wire):
            message: messages.RaftResponse = _election_from_wire(election, response)
            return message
    raise AssertionError(f"{type(response).__qualname__} is not a raft response")


_WireNodeEndpoint = (
    vote.NodeEndpoint | begin.NodeEndpoint | end.NodeEndpoint | fetch.NodeEndpoint | snapshot.NodeEndpoint
)


def _leader_endpoint(
    node_endpoints: Iterable[_WireNodeEndpoint], leader_id: int
) -> messages.LeaderEndpoint | None:
    """The leader's endpoint; some versions list other nodes as well."""
    return next(
        (
            messages.LeaderEndpoint(node_id=node.node_id, host=node.host, port=node.port)
            for node in node_endpoints
            if node.node_id == leader_id
        ),
        None,
    )


def _node_endpoints(schema: Any, leader: messages.LeaderEndpoint | None) -> tuple[Any, ...]:
    if leader is None:
        return ()
    return (schema.NodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port),)


def _fetch_to_wire(response: messages.FetchResponse, data: bytes) -> fetch.FetchResponse:
    if response.top_level_error_code is not ErrorCode.none:
        return fetch.FetchResponse(
            throttle_time=_NOT_THROTTLED, error_code=response.top_level_error_code, responses=()
        )
    diverging, snapshot_id = response.diverging_epoch, response.snapshot_id
    partition = fetch.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=response.error_code,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging_epoch=fetch.EpochEndOffset()
        if diverging is None
        else fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.leader_epoch
        ),
        snapshot_id=fetch.SnapshotId()
        if snapshot_id is None
        else fetch.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        aborted_transactions=(),
        records=data,
    )
    return fetch.FetchResponse(
        throttle_time=_NOT_THROTTLED,
        error_code=ErrorCode.none,
        responses=(fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=_node_endpoints(fetch, response.leader_endpoint),
    )


def _fetch_from_wire(response: fetch.FetchResponse) -> messages.FetchResponse:
    if response.error_code is not ErrorCode.none:
        return messages.FetchResponse(top_level_error_code=response.error_code)
    topic = sole(response.responses)
    partition = sole(topic.partitions)
    check_partition(topic.topic_id, partition.partition_index)
    leader, diverging, snapshot_id = (
        partition.current_leader,
        partition.diverging_epoch,
        partition.snapshot_id,
    )
    return messages.FetchResponse(
        error_code=partition.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        leader_endpoint=_leader_endpoint(response.node_endpoints, leader.leader_id),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging_epoch=None
        if diverging.epoch < 0
        else OffsetAndEpoch(epoch=diverging.epoch, offset=diverging.end_offset),
        # Kafka looks at either field; raft refuses one without the other.
        snapshot_id=None
        if snapshot_id.epoch < 0 and snapshot_id.end_offset < 0
        else OffsetAndEpoch(epoch=snapshot_id.epoch, offset=snapshot_id.end_offset),
        records=partition.records or b"",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Election:
    """A response about an election. The three are alike: `fields` has the names that both sides share."""

    message: Any
    wire: Any
    schema: Any
    fields: tuple[str, ...] = ("error_code", "leader_id", "leader_epoch")


_ELECTIONS: Final = (
    _Election(
        message=messages.VoteResponse,
        wire=vote.VoteResponse,
        schema=vote,
        fields=("error_code", "leader_id", "leader_epoch", "vote_granted"),
    ),
    _Election(message=messages.BeginQuorumEpochResponse, wire=begin.BeginQuorumEpochResponse, schema=begin),
    _Election(message=messages.EndQuorumEpochResponse, wire=end.EndQuorumEpochResponse, schema=end),
)


def _election_to_wire(election: _Election, response: Any) -> Payload:
    schema: Any = election.schema
    if response.top_level_error_code is not ErrorCode.none:
        refused: Payload = election.wire(error_code=response.top_level_error_code, topics=())
        return refused
    values = {name: getattr(response, name) for name in election.fields}
    partition = schema.PartitionData(partition_index=METADATA_PARTITION, **values)
    served: Payload = election.wire(
        error_code=ErrorCode.none,
        topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_node_endpoints(schema, response.leader_endpoint),
    )
    return served


def _election_from_wire(election: _Election, response: Any) -> Any:
    if response.error_code is not ErrorCode.none:
        return election.message(top_level_error_code=response.error_code)
    partition = metadata_partition(response.topics)
    return election.message(
        leader_endpoint=_leader_endpoint(response.node_endpoints, partition.leader_id),
        **{name: getattr(partition, name) for name in election.fields},
    )


def _snapshot_to_wire(
    response: messages.FetchSnapshotResponse, data: bytes
) -> snapshot.FetchSnapshotResponse:
    if response.top_level_error_code is not ErrorCode.none:
        return snapshot.FetchSnapshotResponse(
            throttle_time=_NOT_THROTTLED, error_code=response.top_level_error_code, topics=()
        )
    snapshot_id = response.snapshot_id
    partition = snapshot.PartitionSnapshot(
        index=METADATA_PARTITION,
        error_code=response.error_code,
        snapshot_id=snapshot.SnapshotId(end_offset=0, epoch=0)
        if snapshot_id is None
        else snapshot.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=snapshot.LeaderIdAndEpoch(
            leader_id=response.leader_id, leader_epoch=response.leader_epoch
        ),
        size=response.size_bytes,
        position=response.position,
        unaligned_records=data,
    )
    return snapshot.FetchSnapshotResponse(
        throttle_time=_NOT_THROTTLED,
        error_code=ErrorCode.none,
        topics=(snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=_node_endpoints(snapshot, response.leader_endpoint),
    )


def _snapshot_from_wire(response: snapshot.FetchSnapshotResponse) -> messages.FetchSnapshotResponse:
    if response.error_code is not ErrorCode.none:
        return messages.FetchSnapshotResponse(top_level_error_code=response.error_code)
    partition = metadata_partition(response.topics, name="name", index="index")
    leader, snapshot_id = partition.current_leader, partition.snapshot_id
    return messages.FetchSnapshotResponse(
        error_code=partition.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        leader_endpoint=_leader_endpoint(response.node_endpoints, leader.leader_id),
        # Kafka leaves 0-0 in a response without one; that snapshot is never served.
        snapshot_id=None
        if snapshot_id.epoch == 0 and snapshot_id.end_offset == 0
        else OffsetAndEpoch(epoch=snapshot_id.epoch, offset=snapshot_id.end_offset),
        size_bytes=partition.size,
        position=partition.position,
        records=partition.unaligned_records,
    )


def _update_voter_to_wire(response: messages.UpdateRaftVoterResponse) -> update_voter.UpdateRaftVoterResponse:
    leader = response.leader_endpoint
    return update_voter.UpdateRaftVoterResponse(
        throttle_time=_NOT_THROTTLED,
        error_code=response.error_code,
        current_leader=update_voter.CurrentLeader(
            leader_id=response.leader_id,
            leader_epoch=response.leader_epoch,
            host="" if leader is None else leader.host,
            port=0 if leader is None else leader.port,
        ),
    )


def _update_voter_from_wire(
    response: update_voter.UpdateRaftVoterResponse,
) -> messages.UpdateRaftVoterResponse:
    leader = response.current_leader
    has_endpoint = leader.leader_id != NO_NODE_ID and leader.host != ""
    return messages.UpdateRaftVoterResponse(
        error_code=response.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        leader_endpoint=messages.LeaderEndpoint(node_id=leader.leader_id, host=leader.host, port=leader.port)
        if has_endpoint
        else None,
    )


def _probe_from_wire(response: ApiVersionsResponse) -> messages.ApiVersionsProbeResponse:
    ranges = {
        feature.name: VersionRange(lowest=feature.min_version, highest=feature.max_version)
        for feature in response.supported_features
    }
    return messages.ApiVersionsProbeResponse(
        error_code=response.error_code, kraft_versions=ranges.get(KRAFT_VERSION)
    )


def describe_quorum_to_wire(
    asked: request.DescribeQuorumRequest, description: QuorumDescription, *, version: int = VOTER_KEYS_SINCE
) -> response.DescribeQuorumResponse:
    """The canonical response. Its errors stand on the partition: that this node does not lead, or that there is
    no such partition. It leaves out what a response of `version` has no field for.
    """
    try:
        metadata_partition(asked.topics)
    except RefusedMessage as refusal:
        return _unknown_partitions(asked, refusal.message)
    partition = response.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=description.error_code,
        error_message=None,
        leader_id=description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        current_voters=tuple(_replica(voter, version) for voter in description.voters),
        observers=tuple(_replica(observer, version) for observer in description.observers),
    )
    return response.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(response.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=tuple(_node(voter) for voter in description.voters) if version >= VOTER_KEYS_SINCE else (),
    )


def _replica(replica: ReplicaDescription, version: int) -> response.ReplicaState:
    return response.ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id if version >= VOTER_KEYS_SINCE else None,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_timestamp_ms,
        last_caught_up_timestamp=replica.last_caught_up_timestamp_ms,
    )


def _node(voter: ReplicaDescription) -> response.Node:
    return response.Node(
        node_id=voter.key.node_id,
        listeners=tuple(
            response.Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in voter.endpoints
        ),
    )


def _unknown_partitions(
    asked: request.DescribeQuorumRequest, message: str
) -> response.DescribeQuorumResponse:
    return response.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            response.TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    response.PartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.unknown_topic_or_partition,
                        error_message=message,
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=(),
                        observers=(),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in asked.topics
        ),
        nodes=(),
    )
