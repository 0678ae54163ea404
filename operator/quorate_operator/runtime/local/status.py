"""The status of a played cluster, running or not, rendered from its view.

`ClusterStatus.as_json` is a documented interface.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import computed_field

from quorate_operator.models.status import StatusModel
from quorate_operator.planning.cluster import (
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    Publication,
    Role,
)
from quorate_operator.planning.steps import Plan, WaitFor
from quorate_operator.runtime.local import disks
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.client_files import client_config, controllers_client_config
from quorate_operator.runtime.local.forwarders import own_publications
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.view.cluster import ClusterView, NodeView, view_of
from quorate_operator.view.texts import Label


class Report(StatusModel):
    """What a supervisor reports to commands, as JSON over the control socket."""

    def as_json(self) -> dict[str, Any]:
        """Return plain data with camelCase names."""
        return self.model_dump(by_alias=True, mode="json")

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return what `as_json` was made from."""
        return cls.model_validate(content, strict=False)


class NodeStatus(Report):
    """One node. `state` is a NodeState; `pid` and `rss_bytes` are None while it has no process."""

    node_id: int
    role: str
    pid: int | None
    state: str
    directory_id: str | None
    address: str
    dir: str
    rss_bytes: int | None
    problem: str | None = None
    """Why its process died, or does not start: the last error in its log."""

    @property
    def label(self) -> str:
        """The node's name for people and directories: `controller-3000`."""
        return f"{self.role}-{self.node_id}"


class QuorumStatus(Report):
    """The quorum as its leader describes it, with the node ids of its voters."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    kraft_version: int
    voters: tuple[int, ...]


class ClusterStatus(Report):
    """The cluster, as `quorate play status -o json` prints it. `ready` means that every node is in service.

    `quorum` is None while no leader answers, `plan` is as `plan_as_json` returns it, `addresses` are those that lead
    to nodes, `trouble` is why the last step failed.
    """

    name: str
    cluster_id: str
    ready: bool
    bootstrap_servers: str | None
    """None without brokers."""
    bootstrap_controllers: str
    quorum: QuorumStatus | None
    nodes: tuple[NodeStatus, ...] = ()
    plan: Mapping[str, Any] = {"steps": [], "refusals": []}
    addresses: tuple[Mapping[str, Any], ...] = ()
    trouble: str | None = None
    client_config: str | None = None
    """The file for --command-config with --bootstrap-server; None where none is needed."""
    controllers_client_config: str | None = None
    """The same with --bootstrap-controller."""
    java: str | None = None
    """What runs the nodes of stock Kafka; None without them, and while the cluster does not run."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def settled(self) -> bool:
        """Whether the cluster is as its manifest desires it."""
        return self.ready and not self.plan["steps"]


def label_in(layout: Layout) -> Label:
    """Return the names of the nodes that a layout has or had."""

    def label(node_id: int) -> str:
        return layout.identity.label(node_id) if node_id in layout.identity.nodes else f"node {node_id}"

    return label


def played_view(
    layout: Layout, observed: ObservedCluster, plan: Plan | None, trouble: str | None = None
) -> ClusterView:
    """Return the view of a played cluster, which also names nodes that the layout no longer has."""
    return view_of(
        layout.desired.name, layout.desired, observed, plan, problem=trouble, label=label_in(layout)
    )


def running_status(
    infrastructure: LocalInfrastructure,
    observed: ObservedCluster,
    plan: Plan,
    *,
    is_stopping: bool,
    trouble: str | None = None,
) -> ClusterStatus:
    """Return the status of a cluster that a supervisor runs; `trouble` is why its last step failed."""
    layout = infrastructure.layout
    view = played_view(layout, observed, plan, trouble)
    return status_of(
        layout,
        view,
        {node.seen.node_id: infrastructure.process_of(node.seen.node_id) for node in view.nodes},
        ready=view.is_ready and not is_stopping,
        addresses=observed.publications,
    )


def idle_observation(layout: Layout) -> ObservedCluster:
    """Return what is known of a cluster that does not run."""
    wanted = {node.node_id for node in layout.desired.nodes}
    published = {publication.address: publication for publication in layout.identity.publications}
    own = [
        publication
        for publication in own_publications(layout.desired, layout.own_address, int(time.time() * 1000))
        if publication.address not in published
    ]
    nodes = {}
    for node_id, kept in layout.identity.nodes.items():
        label = layout.identity.label(node_id)
        has_volume = disks.has_volume(layout, label)
        if node_id in wanted or (has_volume and not kept.is_forgotten):
            directory_id = layout.directory_id_of(label)
            nodes[node_id] = ObservedNode(
                node_id=node_id,
                role=kept.role,
                state=NodeState.ABSENT if directory_id is None else NodeState.STOPPED,
                pool=kept.pool,
                directory_id=directory_id,
                has_volume=has_volume,
                configured=kept.advertised_last,
            )
    return ObservedCluster(
        nodes=nodes,
        quorum=None,
        formation=layout.identity.formation,
        publications=(*published.values(), *own),
    )


def idle_status(layout: Layout) -> ClusterStatus:
    """Return the status of a cluster that does not run."""
    view = played_view(layout, idle_observation(layout), None)
    return status_of(layout, view, {}, ready=False, addresses=layout.identity.publications)


def plan_as_json(view: ClusterView) -> dict[str, Any]:
    """Return the plan for programs: steps in order, and what is refused. Documented in docs/play.md."""
    return {
        "steps": [
            {
                "step": type(step.step).__name__,
                "nodeId": None if isinstance(step.step, WaitFor) else step.step.node_id,
                "text": step.text,
                "reason": step.step.reason,
                "due": step.is_due,
                "untilMs": step.step.until_ms if isinstance(step.step, WaitFor) else None,
            }
            for step in view.steps
        ],
        "refusals": [{"code": refusal.code, "message": refusal.message} for refusal in view.refusals],
    }


def status_of(
    layout: Layout,
    view: ClusterView,
    processes: Mapping[int, ChildProcess | None],
    *,
    ready: bool,
    addresses: Iterable[Publication],
) -> ClusterStatus:
    return ClusterStatus(
        name=view.name,
        cluster_id=layout.identity.cluster_id,
        ready=ready,
        bootstrap_servers=layout.bootstrap(Role.BROKER) or None,
        bootstrap_controllers=layout.bootstrap(Role.CONTROLLER),
        quorum=_quorum_status(view.described) if view.described else None,
        nodes=tuple(_node_status(layout, node, processes.get(node.seen.node_id)) for node in view.nodes),
        plan=plan_as_json(view),
        addresses=tuple(_address_as_json(address) for address in addresses),
        trouble=view.problem,
        client_config=_text(client_config(layout)),
        controllers_client_config=_text(controllers_client_config(layout)),
        java=", ".join(sorted({kafka.java_found for kafka in layout.kafka.values()})) or None,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _quorum_status(quorum: ObservedQuorum) -> QuorumStatus:
    return QuorumStatus(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        kraft_version=quorum.kraft_version,
        voters=tuple(sorted(quorum.voters)),
    )


def _node_status(layout: Layout, node: NodeView, process: ChildProcess | None) -> NodeStatus:
    seen = node.seen
    kept = layout.identity.nodes[seen.node_id]
    first = kept.first_listener
    desired = {node.node_id: node.advertised for node in layout.desired.nodes}.get(seen.node_id, {})
    # A node that runs has the addresses that it was started with, until it is restarted.
    configured = seen.configured if seen.state.runs else {}
    address = configured.get(first) or desired.get(first) or kept.own_address(first)
    return NodeStatus(
        node_id=seen.node_id,
        role=kept.role,
        pid=process.pid if process else None,
        state=seen.state,
        directory_id=seen.directory_id,
        address=str(address),
        dir=str(layout.directory.node(node.label)),
        rss_bytes=process.rss_bytes if process else None,
        problem=_problem(seen),
    )


def _problem(seen: ObservedNode) -> str | None:
    if seen.state is NodeState.READY:
        return None
    return seen.problem or (seen.exit_reason if seen.state is NodeState.CRASHED else None)


def _address_as_json(publication: Publication) -> dict[str, Any]:
    return {
        "address": str(publication.address),
        "nodeId": publication.node_id,
        "listener": publication.listener,
        "sinceMs": publication.since_ms,
        "retiredAtMs": publication.retired_at_ms,
        "connections": publication.connections,
    }
