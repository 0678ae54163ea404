"""The controller quorum: its state, and its voters (KIP-595, KIP-836, KIP-853)."""

import uuid
from collections.abc import Sequence
from typing import Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError
from quorate_admin.operations.base import Operations, To
from quorate_admin.types.cluster import QuorumDescription, RaftVoterEndpoint, ReplicaDescription

METADATA_TOPIC = "__cluster_metadata"


class QuorumOperations(Operations):
    """DescribeQuorum, AddRaftVoter and RemoveRaftVoter."""

    async def describe_metadata_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """The controller quorum, as its leader sees it (DescribeQuorum). Raises AdminError."""
        from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData

        topic = TopicData(topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
        response = await self._ask(
            DescribeQuorumRequest(topics=(topic,)),
            To.LEADER_OF_QUORUM,
            failures=lambda response: [
                response.error_code,
                *(partition.error_code for partition in _partitions(response)),
            ],
            timeout_ms=timeout_ms,
        )
        for partition in _partitions(response):
            if partition.error_code is not ErrorCode.none:
                raise ServerError(partition.error_code, partition.error_message)
            return _quorum(partition, response.nodes)
        raise ServerError(
            ErrorCode.unknown_server_error, f"the answer has no partition 0 of {METADATA_TOPIC}"
        )

    async def add_raft_voter(
        self,
        node_id: int,
        directory_id: uuid.UUID,
        endpoints: Sequence[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        ack_when_committed: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        """Make a controller that follows the log a voter (AddRaftVoter, KIP-853). Raises AdminError.

        With `cluster_id` the leader refuses when it is of another cluster. `ack_when_committed=False`
        (KIP-1186) is answered when the leader has written the new set, not when it is committed.
        """
        from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest, Listener

        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout=self._server_timeout(timeout_ms),
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=tuple(Listener(name=one.name, host=one.host, port=one.port) for one in endpoints),
            ack_when_committed=ack_when_committed,
        )
        await self._ask(request, To.LEADER_OF_QUORUM, timeout_ms=timeout_ms)

    async def remove_raft_voter(
        self,
        node_id: int,
        directory_id: uuid.UUID,
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Take a voter out of the quorum (RemoveRaftVoter, KIP-853). Raises AdminError."""
        from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest

        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
        )
        await self._ask(request, To.LEADER_OF_QUORUM, timeout_ms=timeout_ms)


def _partitions(response: Any) -> list[Any]:
    return [
        partition
        for topic in response.topics
        for partition in topic.partitions
        if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0
    ]


def _quorum(partition: Any, nodes: Sequence[Any]) -> QuorumDescription:
    return QuorumDescription(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(_replica(replica) for replica in partition.current_voters),
        observers=tuple(_replica(replica) for replica in partition.observers),
        nodes={
            node.node_id: tuple(
                RaftVoterEndpoint(name=one.name, host=one.host, port=one.port) for one in node.listeners
            )
            for node in nodes
        },
    )


def _replica(replica: Any) -> ReplicaDescription:
    return ReplicaDescription(
        node_id=replica.replica_id,
        directory_id=replica.replica_directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_ms=_known_ms(replica.last_fetch_timestamp),
        last_caught_up_ms=_known_ms(replica.last_caught_up_timestamp),
    )


def _known_ms(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp
