"""A cluster and its nodes (DescribeCluster)."""

from dataclasses import dataclass


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
    it, or -1. `authorized_operations` has the codes of Kafka's AclOperation, None if they were not asked
    for.
    """

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]
    authorized_operations: frozenset[int] | None = None
