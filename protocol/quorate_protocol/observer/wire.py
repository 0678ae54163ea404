"""An observer's requests, and the metadata partition of their responses, as canonical message classes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from quorate_protocol.kafka.generated.fetch_snapshot_request import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.observer.events import Endpoint, Position
from quorate_protocol.plain_data import dataclass

_NO_REPLICA: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPartition:
    """The metadata partition in a response to a Fetch or FetchSnapshot."""

    error_code: ErrorCode
    leader_id: int
    """-1 if no leader is known."""
    leader_epoch: int
    """-1 if the response has no epoch."""
    leader_endpoint: Endpoint | None
    data: Any
    """PartitionData of a Fetch, PartitionSnapshot of a FetchSnapshot."""


def fetch_request(
    *,
    cluster_id: str | None,
    leader_epoch: int,
    end: Position,
    high_watermark: int,
    max_wait_ms: int,
    size_bytes_max: int,
) -> FetchRequest:
    """Return a Fetch of the metadata log from `end` on, without a replica id.

    `high_watermark` is the known one, -1 for none: a leader with Fetch v18 responds at once when it has a higher
    one (KIP-1166).
    """
    partition = FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=leader_epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=size_bytes_max,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        max_wait=timedelta(milliseconds=max_wait_ms),
        min_bytes=0,
        max_bytes=size_bytes_max,
        topics=(FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def fetch_snapshot_request(
    *, cluster_id: str | None, leader_epoch: int, snapshot_id: Position, position: int, size_bytes_max: int
) -> FetchSnapshotRequest:
    """Return a FetchSnapshot for the bytes from `position` on."""
    partition = PartitionSnapshot(
        partition=METADATA_PARTITION,
        current_leader_epoch=leader_epoch,
        snapshot_id=SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=_NO_REPLICA,
        max_bytes=size_bytes_max,
        topics=(TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
    )


def read_fetch(response: Any) -> MetadataPartition | None:
    """Return the metadata partition of a Fetch response; None if it is missing."""
    return _metadata_partition(
        response,
        (
            partition
            for topic in response.responses
            for partition in topic.partitions
            if topic.topic_id == METADATA_TOPIC_ID and partition.partition_index == METADATA_PARTITION
        ),
    )


def read_fetch_snapshot(response: Any) -> MetadataPartition | None:
    """Return the metadata partition of a FetchSnapshot response; None if it is missing."""
    return _metadata_partition(
        response,
        (
            partition
            for topic in response.topics
            for partition in topic.partitions
            if topic.name == METADATA_TOPIC and partition.index == METADATA_PARTITION
        ),
    )


def _metadata_partition(response: Any, found: Iterator[Any]) -> MetadataPartition | None:
    partition = next(found, None)
    if partition is None:
        return None
    leader_id = partition.current_leader.leader_id
    endpoints = (
        Endpoint(node_endpoint.host, node_endpoint.port)
        for node_endpoint in response.node_endpoints
        if node_endpoint.node_id == leader_id
    )
    return MetadataPartition(
        error_code=partition.error_code,
        leader_id=leader_id,
        leader_epoch=partition.current_leader.leader_epoch,
        leader_endpoint=next(endpoints, None),
        data=partition,
    )
