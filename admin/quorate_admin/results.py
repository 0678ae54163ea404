"""What the AdminClient answers: frozen data in Kafka's words, free of the wire's versions."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from quorate_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """A voter or observer of the metadata log, as the leader sees it.

    `log_end_offset` is -1 and the times, in Unix milliseconds of the leader's clock, are None while unknown.
    """

    node_id: int
    directory_id: uuid.UUID | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The controller quorum (DescribeQuorum). `high_watermark` is -1 until the leader knows it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """A broker, or a controller where controllers were asked; a controller is never fenced."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster (DescribeCluster), its brokers or controllers as `nodes`.

    `controller_id` is the active controller if a controller was asked, else any broker that forwards to
    it, or -1.
    """

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """Feature levels (ApiVersions). `supported` has the lowest and highest that the node knows."""

    finalized: Mapping[str, int]
    finalized_epoch: int
    supported: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """What became of a topic that was to be created; with an error code, nothing did."""

    name: str
    topic_id: uuid.UUID | None
    partitions: int
    replication_factor: int
    error_code: ErrorCode
    error_message: str | None
