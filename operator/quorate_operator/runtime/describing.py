"""What there is to tell of a played cluster, running or not."""

import time
from typing import Any

from quorate_operator.planning.cluster import (
    NodeState,
    ObservedCluster,
    ObservedNode,
    Publication,
    Role,
)
from quorate_operator.planning.steps import Plan
from quorate_operator.runtime.local import disks
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.forwarding import own_publications
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.status import ClusterStatus, NodeStatus
from quorate_operator.view.wording import Label, plan_as_json


def label_in(layout: Layout) -> Label:
    """How the nodes of a layout are called, also those that it has no more."""

    def label(node_id: int) -> str:
        return layout.identity.label(node_id) if node_id in layout.identity.nodes else f"node {node_id}"

    return label


def running_status(
    infrastructure: LocalInfrastructure,
    observed: ObservedCluster,
    plan: Plan,
    *,
    ready: bool,
    trouble: str | None = None,
) -> ClusterStatus:
    """The state of a cluster as it was observed, with what only its processes tell."""
    layout = infrastructure.layout
    return ClusterStatus(
        name=layout.desired.name,
        cluster_id=layout.identity.cluster_id,
        ready=ready,
        bootstrap_servers=layout.bootstrap(Role.BROKER),
        bootstrap_controllers=layout.bootstrap(Role.CONTROLLER),
        quorum=observed.quorum,
        nodes=tuple(
            _node_status(layout, observed.nodes[node_id], infrastructure.process_of(node_id))
            for node_id in _in_order(layout, observed)
        ),
        plan=plan_as_json(plan, label_in(layout)),
        addresses=tuple(_address_as_json(one) for one in observed.publications),
        trouble=trouble,
    )


def idle_observation(layout: Layout) -> ObservedCluster:
    """The cluster of a layout while nobody runs it."""
    wanted = {node.node_id for node in layout.desired.nodes}
    published = {one.address: one for one in layout.identity.publications}
    own = [
        one
        for one in own_publications(layout.desired, layout.own_address, int(time.time() * 1000))
        if one.address not in published
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
    """The state of a cluster that nobody runs."""
    observed = idle_observation(layout)
    return ClusterStatus(
        name=layout.desired.name,
        cluster_id=layout.identity.cluster_id,
        ready=False,
        bootstrap_servers=layout.bootstrap(Role.BROKER),
        bootstrap_controllers=layout.bootstrap(Role.CONTROLLER),
        quorum=None,
        nodes=tuple(
            _node_status(layout, observed.nodes[node_id], None) for node_id in _in_order(layout, observed)
        ),
        addresses=tuple(_address_as_json(one) for one in layout.identity.publications),
    )


def _in_order(layout: Layout, observed: ObservedCluster) -> list[int]:
    """The desired nodes in the order of the manifest, then those that are to leave."""
    wanted = [node.node_id for node in layout.desired.nodes]
    return [*wanted, *sorted(observed.nodes.keys() - set(wanted))]


def _node_status(layout: Layout, observed: ObservedNode, process: ChildProcess | None) -> NodeStatus:
    kept = layout.identity.nodes[observed.node_id]
    own = kept.own_addresses
    first = next(iter(own))
    desired = {node.node_id: node.advertised for node in layout.desired.nodes}.get(observed.node_id, {})
    # A node that runs is known by what it was started with, until it is restarted.
    configured = observed.configured if observed.state.runs else {}
    address = configured.get(first) or desired.get(first) or own[first]
    label = layout.identity.label(observed.node_id)
    return NodeStatus(
        node_id=observed.node_id,
        role=kept.role,
        pid=process.pid if process else None,
        state=observed.state,
        directory_id=observed.directory_id,
        address=str(address),
        dir=str(layout.directory.node(label)),
        rss_bytes=process.rss_bytes if process else None,
    )


def _address_as_json(one: Publication) -> dict[str, Any]:
    return {
        "address": str(one.address),
        "nodeId": one.node_id,
        "listener": one.listener,
        "sinceMs": one.since_ms,
        "retiredAtMs": one.retired_at_ms,
        "connections": one.connections,
    }
