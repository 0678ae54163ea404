"""A cluster: nodes, groups, feature levels, the controller quorum, and registrations of controllers."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from quorate_protocol.kafka.enums import AclOperation, UpgradeType


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """A broker or, with bootstrap controllers, a controller. A controller is never fenced."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster (DescribeCluster), its brokers or controllers as `nodes`.

    `controller_id` is the active controller if a controller answered, else a broker that forwards to it,
    or -1. `authorized_operations` are those of the client's principal; None unless requested.
    """

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class RaftVoterEndpoint:
    """A listener of a voter: its name, for instance CONTROLLER, host and port."""

    name: str
    host: str
    port: int


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
    """The controller quorum (DescribeQuorum). `high_watermark` is -1 until the leader knows it.

    `nodes` has the endpoints of the voters by node id; it is empty below version 2 of the API.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    nodes: Mapping[int, tuple[RaftVoterEndpoint, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerListener:
    """A listener of a controller. `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 and 3 with SASL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """The registration of a controller with the active one (ControllerRegistration, KIP-919).

    `features` has the lowest and highest supported level by feature name.
    """

    controller_id: int
    incarnation_id: uuid.UUID
    listeners: tuple[ControllerListener, ...]
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """Feature levels (ApiVersions). `supported` has the lowest and highest level that the node supports.

    `finalized` has no features at level 0; `finalized_epoch` is the offset in the metadata log at which the
    levels were read, -1 if unknown.
    """

    finalized: Mapping[str, int]
    finalized_epoch: int
    supported: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeApiVersions:
    """The supported versions of one node (ApiVersions) by API key, and its feature levels."""

    api_versions: Mapping[int, tuple[int, int]]
    supported_features: Mapping[str, tuple[int, int]]
    finalized_features: Mapping[str, int]
    finalized_features_epoch: int

    @property
    def features(self) -> FeatureDescription:
        """The feature levels alone."""
        return FeatureDescription(
            finalized=self.finalized_features,
            finalized_epoch=self.finalized_features_epoch,
            supported=self.supported_features,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a listing. Fields that an older server does not return are empty."""

    group_id: str
    group_type: str
    protocol_type: str
    group_state: str


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables it."""

    max_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE
