"""A node's state at one instant, for metrics and readiness."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from quorate_protocol.features import KRAFT_VERSION
from quorate_protocol.image.views import counts
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.events import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quorate_protocol.image import BrokerRegistration

    from quorate_controller.node.measurements import LatencyHistogram
    from quorate_controller.node.turn import ControllerNode
    from quorate_controller.raft.node import RaftNode

FENCED, CONTROLLED_SHUTDOWN, ACTIVE = 10, 20, 30
"""Kafka's BrokerRegistrationState."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The state of the node at one instant, for readiness and metrics. Made in some microseconds.

    Offsets are of the metadata log. `current_state` is Kafka's word: leader, candidate, follower,
    observer, resigned, unattached or prospective, the last two with -voted once this node has voted. Ids and
    the high watermark are -1 when unknown; offset, time and size of the latest snapshot are 0 when there is
    none.
    """

    node_id: int
    cluster_id: str
    current_state: str
    is_voter: bool
    is_active: bool
    leader_id: int
    leader_epoch: int
    voted_id: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    latest_snapshot_end_offset: int
    latest_snapshot_timestamp_ms: int
    latest_snapshot_size_bytes: int
    last_applied_offset: int
    last_applied_timestamp_ms: int
    is_caught_up: bool
    """Whether all records up to the last known high watermark are applied; False without a leader."""
    voter_ids: Sequence[int]
    observer_count: int
    active_broker_count: int
    fenced_broker_count: int
    controlled_shutdown_broker_count: int
    topic_count: int
    partition_count: int
    offline_partition_count: int
    preferred_replica_imbalance_count: int
    new_active_controller_count: int
    election_count: int
    metadata_version: int = 0
    kraft_version: int = 0
    unreadable_snapshot_count: int = 0
    """Older checkpoints on the disk of this node that retention found damaged."""
    is_registered: bool = False
    """Whether the metadata has the registration of this process (KIP-919)."""
    overdue_response_count: int = 0
    """Responses that left before a broker that they waited for was known to have their records."""
    controller_count: int = 0
    """Registered controllers, ghosts among them."""
    broker_states: Mapping[int, int] = field(default_factory=dict)
    """Kafka's BrokerRegistrationState by broker id: 10 fenced, 20 controlled shutdown, 30 active."""
    last_snapshot_offsets: Mapping[int, int] = field(default_factory=dict)
    """On the active controller, end offsets of the last snapshots by controller id, -1 without one (KIP-631)."""
    commit_latency: LatencyHistogram | None = None
    """From appending on the active controller to the commit."""
    event_queue_time: LatencyHistogram | None = None
    """From an event's arrival to the turn that takes it."""


def node_status(
    node: ControllerNode, *, node_id: int, cluster_id: str, event_queue_time: LatencyHistogram
) -> NodeStatus:
    """Return the state now. The image keeps the counts up to date."""
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
        new_active_controller_count=node.election_counts.leaders,
        election_count=node.election_counts.elections,
        metadata_version=metadata.image.metadata_version,
        kraft_version=raft.kraft_version,
        unreadable_snapshot_count=len(node.storage.snapshots.unreadable_ids),
        is_registered=node.is_registered,
        overdue_response_count=node.broker_waits.overdue_count,
        controller_count=image_counts.controllers,
        broker_states={broker_id: _broker_state(broker) for broker_id, broker in brokers.items()},
        last_snapshot_offsets=node.last_snapshot_offsets,
        commit_latency=node.commit_latency,
        event_queue_time=event_queue_time,
    )


def finalized_features(node: ControllerNode) -> tuple[Mapping[str, int], int]:
    """Return the committed levels above 0, kraft.version among them, and the offset of the last committed record."""
    metadata = node.metadata
    levels = {name: level for name, level in metadata.finalized_levels.items() if level > 0}
    last_offset = metadata.applied_offset - 1
    kraft_version = node.raft.kraft_version_at(last_offset)
    if kraft_version > 0:
        levels[KRAFT_VERSION] = kraft_version
    return levels, last_offset


def _state_name(raft: RaftNode) -> str:
    """Return the value of Kafka's metric current-state."""
    if raft.role in {Role.UNATTACHED, Role.PROSPECTIVE} and raft.voted_id >= 0:
        return f"{raft.role.value}-voted"
    return "observer" if raft.role is Role.FOLLOWER and not raft.is_voter else raft.role.value


def _broker_state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE
