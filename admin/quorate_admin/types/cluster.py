"""A cluster and its nodes (DescribeCluster)."""

from dataclasses import dataclass

from quorate_admin.types.operations import AclOperation


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
    it, or -1. `authorized_operations` is what the client's principal may do with the cluster, None unless
    asked for.
    """

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
