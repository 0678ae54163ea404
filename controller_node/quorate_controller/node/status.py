"""A node's state at one instant, for metrics and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate_protocol.image.views import counts

from quorate_controller.raft.messages import Role
from quorate_controller.server.port import NodeStatus

if TYPE_CHECKING:
    from quorate_protocol.image import BrokerRegistration

    from quorate_controller.node.controller_node import ControllerNode
    from quorate_controller.raft.node import RaftNode
    from quorate_controller.server.counters import LatencyHistogram

FENCED, CONTROLLED_SHUTDOWN, ACTIVE = 10, 20, 30
"""Kafka's BrokerRegistrationState."""


def node_status(
    node: ControllerNode, *, node_id: int, cluster_id: str, event_queue_time: LatencyHistogram
) -> NodeStatus:
    """Costs some microseconds; the counts are kept up to date by the image."""
    raft, metadata = node.raft, node.metadata
    image_counts = counts(metadata.image)
    snapshot_id = node.snapshotter.latest_id
    brokers = metadata.image.cluster.brokers
    return NodeStatus(
        node_id=node_id,
        cluster_id=cluster_id,
        current_state=_state_name(raft),
        is_voter=raft.is_voter,
        is_active=node.is_active,
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        voted_id=raft.voted_id,
        high_watermark=raft.high_watermark,
        log_start_offset=raft.log_start_offset,
        log_end_offset=raft.log_end_offset,
        latest_snapshot_end_offset=snapshot_id.offset if snapshot_id else 0,
        latest_snapshot_timestamp_ms=node.snapshotter.latest_timestamp_ms,
        latest_snapshot_size_bytes=node.storage.snapshots.size(snapshot_id) if snapshot_id else 0,
        last_applied_offset=metadata.applied_offset - 1,
        last_applied_timestamp_ms=metadata.applied_timestamp_ms,
        is_caught_up=raft.leader_id >= 0 and 0 <= raft.high_watermark <= metadata.applied_offset,
        voter_ids=tuple(voter.node_id for voter in raft.voters.voters),
        observer_count=len(raft.describe_quorum(node.now_ms).observers),
        active_broker_count=image_counts.active_brokers,
        fenced_broker_count=image_counts.fenced_brokers,
        controlled_shutdown_broker_count=image_counts.brokers_in_controlled_shutdown,
        topic_count=image_counts.topics,
        partition_count=image_counts.partitions,
        offline_partition_count=image_counts.offline_partitions,
        preferred_replica_imbalance_count=image_counts.preferred_replica_imbalance,
        new_active_controller_count=node.new_active_count,
        election_count=node.election_count,
        metadata_version=metadata.image.metadata_version,
        kraft_version=raft.kraft_version,
        is_registered=node.is_registered,
        controller_count=image_counts.controllers,
        broker_states={broker_id: _broker_state(broker) for broker_id, broker in brokers.items()},
        commit_latency=node.commit_latency,
        event_queue_time=event_queue_time,
    )


def _state_name(raft: RaftNode) -> str:
    """As Kafka's metric current-state spells it."""
    if raft.role in {Role.UNATTACHED, Role.PROSPECTIVE} and raft.voted_id >= 0:
        return f"{raft.role.value}-voted"
    return "observer" if raft.role is Role.FOLLOWER and not raft.is_voter else raft.role.value


def _broker_state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE
