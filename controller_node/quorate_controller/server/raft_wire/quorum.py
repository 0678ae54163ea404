"""DescribeQuorum: raft's description of itself on the wire (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import describe_quorum_response as response
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC

from quorate_controller.server.raft_wire.sole_partition import RefusedMessage, metadata_partition

if TYPE_CHECKING:
    from quorate_protocol.kafka.generated import describe_quorum_request as request

    from quorate_controller.raft.messages import QuorumDescription, ReplicaDescription


VOTER_KEYS_SINCE: Final = 2
"""First version with directory ids and with the endpoints of voters (KIP-853)."""


def describe_quorum_to_wire(
    asked: request.DescribeQuorumRequest, description: QuorumDescription, *, version: int = VOTER_KEYS_SINCE
) -> response.DescribeQuorumResponse:
    """The canonical answer. Its errors stand on the partition: that this node does not lead, or that there is
    no such partition. It says nothing that a response of `version` has no place for.
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
