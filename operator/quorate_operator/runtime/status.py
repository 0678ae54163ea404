"""The state of a played cluster for people and programs. `as_json` is a documented interface."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from quorate_operator.planning.cluster import ObservedQuorum


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node. `state` is a NodeState; `pid` and `rss_bytes` are None while it has no process."""

    node_id: int
    role: str
    pid: int | None
    state: str
    directory_id: str | None
    address: str
    dir: str
    rss_bytes: int | None

    @property
    def label(self) -> str:
        """The node's name for people and directories: `controller-3000`."""
        return f"{self.role}-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster. `quorum` is None while no leader answers; `ready` means that every node is in service."""

    name: str
    cluster_id: str
    ready: bool
    bootstrap_servers: str
    bootstrap_controllers: str
    quorum: ObservedQuorum | None
    nodes: tuple[NodeStatus, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """What `quorate play status -o json` prints."""
        quorum = self.quorum
        return {
            "name": self.name,
            "clusterId": self.cluster_id,
            "ready": self.ready,
            "bootstrapServers": self.bootstrap_servers,
            "bootstrapControllers": self.bootstrap_controllers,
            "quorum": quorum
            and {
                "leaderId": quorum.leader_id,
                "leaderEpoch": quorum.leader_epoch,
                "highWatermark": quorum.high_watermark,
                "kraftVersion": quorum.kraft_version,
            },
            "nodes": [
                {
                    "nodeId": node.node_id,
                    "role": node.role,
                    "pid": node.pid,
                    "state": node.state,
                    "directoryId": node.directory_id,
                    "address": node.address,
                    "dir": node.dir,
                    "rssBytes": node.rss_bytes,
                }
                for node in self.nodes
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `as_json` gave, back."""
        quorum = content["quorum"]
        return cls(
            name=content["name"],
            cluster_id=content["clusterId"],
            ready=content["ready"],
            bootstrap_servers=content["bootstrapServers"],
            bootstrap_controllers=content["bootstrapControllers"],
            quorum=quorum
            and ObservedQuorum(
                leader_id=quorum["leaderId"],
                leader_epoch=quorum["leaderEpoch"],
                high_watermark=quorum["highWatermark"],
                kraft_version=quorum["kraftVersion"],
            ),
            nodes=tuple(
                NodeStatus(
                    node_id=node["nodeId"],
                    role=node["role"],
                    pid=node["pid"],
                    state=node["state"],
                    directory_id=node["directoryId"],
                    address=node["address"],
                    dir=node["dir"],
                    rss_bytes=node["rssBytes"],
                )
                for node in content["nodes"]
            ),
        )
