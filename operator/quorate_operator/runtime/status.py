"""The state of a played cluster for people and programs. `as_json` is a documented interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from quorate_operator.planning.cluster import ObservedQuorum, ObservedVoter


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


NO_PLAN: Mapping[str, Any] = {"steps": [], "refusals": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster. `quorum` is None while no leader answers; `ready` means that every node is in service.

    `plan` is as in `wording.plan_as_json`; `addresses` are those that lead to nodes, `trouble` what kept the last
    step from being done.
    """

    name: str
    cluster_id: str
    ready: bool
    bootstrap_servers: str
    bootstrap_controllers: str
    quorum: ObservedQuorum | None
    nodes: tuple[NodeStatus, ...] = field(default=())
    plan: Mapping[str, Any] = field(default_factory=lambda: NO_PLAN)
    addresses: Sequence[Mapping[str, Any]] = ()
    trouble: str | None = None

    @property
    def settled(self) -> bool:
        """Whether all that the manifest asks for is done."""
        return self.ready and not self.plan["steps"]

    def as_json(self) -> dict[str, Any]:
        """What `quorate play status -o json` prints."""
        quorum = self.quorum
        return {
            "name": self.name,
            "clusterId": self.cluster_id,
            "ready": self.ready,
            "settled": self.settled,
            "bootstrapServers": self.bootstrap_servers,
            "bootstrapControllers": self.bootstrap_controllers,
            "quorum": quorum
            and {
                "leaderId": quorum.leader_id,
                "leaderEpoch": quorum.leader_epoch,
                "highWatermark": quorum.high_watermark,
                "kraftVersion": quorum.kraft_version,
                "voters": sorted(quorum.voters),
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
            "plan": dict(self.plan),
            "addresses": [dict(one) for one in self.addresses],
            "trouble": self.trouble,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `as_json` gave, back; of the voters, their ids."""
        quorum = content["quorum"]
        return cls(
            name=content["name"],
            cluster_id=content["clusterId"],
            ready=content["ready"],
            bootstrap_servers=content["bootstrapServers"],
            bootstrap_controllers=content["bootstrapControllers"],
            quorum=quorum and _quorum_from(quorum),
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
            plan=content["plan"],
            addresses=tuple(content["addresses"]),
            trouble=content["trouble"],
        )


def _quorum_from(content: Mapping[str, Any]) -> ObservedQuorum:
    return ObservedQuorum(
        leader_id=content["leaderId"],
        leader_epoch=content["leaderEpoch"],
        high_watermark=content["highWatermark"],
        kraft_version=content["kraftVersion"],
        voters={
            node_id: ObservedVoter(
                node_id=node_id,
                directory_id=None,
                log_end_offset=-1,
                last_fetch_ms=None,
                last_caught_up_ms=None,
            )
            for node_id in content["voters"]
        },
    )
