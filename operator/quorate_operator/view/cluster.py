"""The view of a cluster, computed once from what was desired, observed and planned. Pure.

    view_of(name, desired, observed, plan) -> ClusterView
        handlers/statuses.py       the status of the resources, which `kubectl quorate status` and kubectl show
        handlers/metrics.py        quorate_resource_state, from the conditions of that status
        web/                       the status page
        runtime/local/status.py    `quorate play status`

A surface renders a view and decides nothing about the cluster. `planning.registrations` decides which registrations
are ghosts, which replicas are caught up and how many voters can be lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from quorate_protocol.features import KRAFT_VERSION

from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    Lifecycle,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    Publication,
    Reached,
)
from quorate_operator.planning.rollout import changes
from quorate_operator.planning.steps import Plan, Refusal, Step, WaitFor, utc_text
from quorate_operator.planning.volumes import leaving_volumes
from quorate_operator.view.clients import ClientsView, clients_views
from quorate_operator.view.quorum import QuorumView, RegistrationView, quorum_view, registration_views
from quorate_operator.view.texts import Label, action_words, step_text


class Health(StrEnum):
    """How a cluster is, in one word."""

    READY = "ready"
    PAUSED = "paused"
    HIBERNATED = "hibernated"
    WORKING = "working"
    ATTENTION = "needs attention"
    NO_QUORUM = "no quorum"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node that is desired or found, with what Kafka reports about it."""

    seen: ObservedNode
    label: str
    pool: str
    is_desired: bool
    registration: ObservedRegistration | None = None
    load: BrokerLoad | None = None
    differs: tuple[str, ...] = ()
    """How its process differs from what is desired: `config changed`; a restart is due for it."""
    postponed_until_ms: int | None = None
    """When the maintenance window opens for which its restart waits; None if it waits for none."""
    leaving_volumes: tuple[int, ...] = ()
    """The ids of its volumes that are removed once they are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step of the plan. `text` is all of it in words, `what` an action without its reason."""

    step: Step
    text: str
    what: str
    is_due: bool
    waits_for: str | None = None
    """The reason of the wait that stands before it, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressView:
    """An address that clients use or are about to use; `publication` is None where the runtime publishes nothing."""

    address: Address
    node_id: int
    listener: str
    is_desired: bool
    publication: Publication | None
    reached: Reached | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The desired nodes of a KafkaController or KafkaBroker, or those left of a pool that is drained, and the part of
    the plan that is about them.

    `version` is the release that all of them run, None while they differ.
    """

    name: str
    nodes: tuple[NodeView, ...]
    steps: tuple[StepView, ...]
    version: str | None
    running: int = 0
    """The number of nodes that run, those that are to leave included."""
    refusals: tuple[Refusal, ...] = ()
    """The refusals about the pool or the whole cluster."""
    is_drained: bool = False
    """Whether it is deleted, and goes when its brokers hold no replica any more."""
    clients: ClientsView | None = None
    """The clients that are connected to its brokers; None where these expose no metrics, or none were read yet."""

    @property
    def ready(self) -> int:
        """The number of ready nodes."""
        return sum(node.seen.state is NodeState.READY for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster at one time. `problem` is why the last pass or step failed, or why a manifest is refused.

    While nothing was observed, `is_observed` is off and all that follows from observing is empty. `registrations` and
    `offline_partitions` are None while no leader answers.
    """

    name: str
    health: Health
    next: str
    """What happens now, in some words."""
    lifecycle: Lifecycle | None
    problem: str | None
    cluster_id: str | None = None
    """The id on the disks or, before the cluster is formed, the one that the manifest asks for."""
    formed_as: str | None = None
    is_formed: bool = False
    is_observed: bool = False
    is_planned: bool = False
    is_ready: bool = False
    """Whether a leader answers and every desired node is ready."""
    quorum: QuorumView | None = None
    nodes: tuple[NodeView, ...] = ()
    """The desired nodes in the order of the manifests, then those that are to leave, by id."""
    registrations: tuple[RegistrationView, ...] | None = None
    levels: Mapping[str, int] = field(default_factory=dict)
    """The finalized level of each feature; empty while no leader answers."""
    asked_metadata_version: str | None = None
    offline_partitions: int | None = None
    steps: tuple[StepView, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    addresses: tuple[AddressView, ...] = ()
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The desired releases of each pool."""
    drained_pools: frozenset[str] = frozenset()
    """Pools that are deleted, and go when their brokers hold no replica any more."""
    clients: Mapping[str, ClientsView] = field(default_factory=dict)
    """The connected clients of pools whose brokers expose metrics."""
    has_shared_pods: bool = False
    """Whether controllers run in the pods of brokers."""

    @property
    def described(self) -> ObservedQuorum | None:
        """The quorum as its leader describes it; None while no leader answers."""
        return self.quorum.described if self.quorum is not None else None

    def pool(self, name: str, *, is_controllers: bool = False) -> PoolView:
        """The desired nodes of a pool by id, with its own steps; controllers have all steps of the cluster."""
        members = [node for node in self.nodes if node.pool == name]
        is_drained = name in self.drained_pools and not is_controllers
        nodes = sorted(
            (member for member in members if member.is_desired or is_drained),
            key=lambda node: node.seen.node_id,
        )
        own = {member.seen.node_id for member in members}
        wanted = self.versions.get(name, frozenset())
        running = {node.seen.revision.get("version") for node in nodes if node.seen.state.runs}
        return PoolView(
            name=name,
            nodes=tuple(nodes),
            steps=_with_waits(step for step in self.steps if is_controllers or _node_ids(step.step) & own),
            version=next(iter(wanted)) if len(wanted) == 1 and running == wanted else None,
            running=sum(member.seen.state.runs for member in members),
            refusals=tuple(refusal for refusal in self.refusals if refusal.pool in (None, name)),
            is_drained=is_drained,
            clients=self.clients.get(name),
        )


def view_of(
    name: str,
    desired: DesiredCluster | None,
    observed: ObservedCluster | None,
    plan: Plan | None,
    *,
    problem: str | None = None,
    label: Label | None = None,
) -> ClusterView:
    """Return the view of a cluster; None is for what is not known yet.

    `label` names nodes; without it, those that are neither desired nor observed have no name but their id.
    """
    label = label or _label_of(desired, observed)
    steps = _steps(plan, label) if plan is not None else ()
    kafka = observed.kafka if observed is not None else None
    formation = observed.formation if observed is not None else None
    nodes = _nodes(desired, observed, plan, label) if observed is not None else ()
    known = [
        kafka.cluster_id if kafka is not None else None,
        formation.cluster_id if formation is not None else None,
        desired.cluster_id if desired is not None else None,
    ]
    return ClusterView(
        name=name,
        health=_health(desired, observed, plan, problem),
        next=_next(steps, plan),
        lifecycle=desired.lifecycle if desired is not None else None,
        problem=problem,
        cluster_id=next((cluster_id for cluster_id in known if cluster_id), None),
        formed_as=formation.cluster_id if formation is not None else None,
        is_formed=formation is not None and formation.is_formed,
        is_observed=observed is not None,
        is_planned=plan is not None,
        is_ready=desired is not None and observed is not None and is_serving(desired, observed),
        quorum=quorum_view(observed) if observed is not None else None,
        nodes=nodes,
        registrations=registration_views(observed) if observed is not None else None,
        levels={**kafka.features, KRAFT_VERSION: kafka.quorum.kraft_version} if kafka is not None else {},
        asked_metadata_version=desired.metadata_version if desired is not None else None,
        offline_partitions=kafka.offline_partitions if kafka is not None else None,
        steps=steps,
        refusals=plan.refusals if plan is not None else (),
        addresses=_addresses(desired, observed) if observed is not None else (),
        versions=_versions(desired) if desired is not None else {},
        drained_pools=desired.drained_pools if desired is not None else frozenset(),
        clients=clients_views(desired, observed) if desired is not None and observed is not None else {},
        has_shared_pods=desired is not None and desired.has_shared_pods,
    )


def is_serving(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether a leader answers and every desired node is ready."""
    return observed.quorum is not None and all(
        node.node_id in observed.nodes and observed.nodes[node.node_id].state is NodeState.READY
        for node in desired.nodes
    )


def _health(
    desired: DesiredCluster | None, observed: ObservedCluster | None, plan: Plan | None, problem: str | None
) -> Health:
    """Return the worst health that applies."""
    if desired is None or observed is None or plan is None:
        return Health.UNKNOWN
    if desired.lifecycle is Lifecycle.HIBERNATED:
        is_down = not any(node.state.runs for node in observed.nodes.values())
        return Health.HIBERNATED if is_down else Health.WORKING
    if observed.quorum is None and observed.formation is not None and observed.formation.is_formed:
        return Health.NO_QUORUM
    if problem is not None:
        return Health.ATTENTION
    if desired.lifecycle is Lifecycle.PAUSED:  # a plan that is paused refuses everything else, and says so
        return Health.PAUSED
    if plan.refusals or any(wait.is_stalled for wait in plan.waits):
        return Health.ATTENTION
    return Health.WORKING if plan.steps else Health.READY


def _next(steps: tuple[StepView, ...], plan: Plan | None) -> str:
    if plan is None:
        return "nothing is known yet"
    due = [step for step in steps if step.is_due]
    if due:
        more = f", and {len(due) - 1} more" if len(due) > 1 else ""
        return f"{due[0].what}{more}: {due[0].step.reason}"
    if steps:
        return f"waits for {steps[0].step.reason}"
    if plan.postponed:
        until_ms = min(restart.until_ms for restart in plan.postponed)
        return (
            f"nothing to do before {utc_text(until_ms)}, when {len(plan.postponed)} node(s) may be restarted"
        )
    return "nothing to do"


def _label_of(desired: DesiredCluster | None, observed: ObservedCluster | None) -> Label:
    """Return names such as `controller-3000`."""
    labels: dict[int, str] = {}
    if observed is not None:
        labels |= {node.node_id: node.label for node in observed.nodes.values()}
    if desired is not None:
        labels |= {node.node_id: node.label for node in desired.nodes}
    return lambda node_id: labels.get(node_id, f"node {node_id}")


def _steps(plan: Plan, label: Label) -> tuple[StepView, ...]:
    due = len(plan.due)
    return _with_waits(
        StepView(
            step=step,
            text=step_text(step, label),
            what="" if isinstance(step, WaitFor) else action_words(step, label),
            is_due=place < due,
        )
        for place, step in enumerate(plan.steps)
    )


def _with_waits(steps: Iterable[StepView]) -> tuple[StepView, ...]:
    """Add to each step the last wait before it among these steps."""
    views: list[StepView] = []
    waits_for: str | None = None
    for step in steps:
        views.append(replace(step, waits_for=waits_for))
        if isinstance(step.step, WaitFor):
            waits_for = step.step.reason
    return tuple(views)


def _node_ids(step: Step) -> set[int]:
    if isinstance(step, WaitFor):
        return set(step.node_ids)
    return set() if step.node_id is None else {step.node_id}


def _nodes(
    desired: DesiredCluster | None, observed: ObservedCluster, plan: Plan | None, label: Label
) -> tuple[NodeView, ...]:
    postponed = {
        restart.node_id: restart.until_ms for restart in (plan.postponed if plan is not None else ())
    }
    wanted = {node.node_id: node for node in desired.nodes} if desired is not None else {}
    kafka = observed.kafka
    order = [
        *(node_id for node_id in wanted if node_id in observed.nodes),
        *sorted(observed.nodes.keys() - wanted.keys()),
    ]
    return tuple(
        NodeView(
            seen=observed.nodes[node_id],
            label=label(node_id),
            pool=wanted[node_id].pool if node_id in wanted else observed.nodes[node_id].pool,
            is_desired=node_id in wanted,
            registration=kafka.registrations.get(node_id) if kafka is not None else None,
            load=kafka.loads.get(node_id) if kafka is not None else None,
            differs=_differs(wanted.get(node_id), observed.nodes[node_id]),
            postponed_until_ms=postponed.get(node_id),
            leaving_volumes=_leaving_volumes(wanted.get(node_id), observed.nodes[node_id]),
        )
        for node_id in order
    )


def _differs(desired: DesiredNode | None, seen: ObservedNode) -> tuple[str, ...]:
    return changes(desired, seen) if desired is not None and seen.state.runs else ()


def _leaving_volumes(desired: DesiredNode | None, seen: ObservedNode) -> tuple[int, ...]:
    return () if desired is None else tuple(leaving_volumes(desired, seen))


def _addresses(desired: DesiredCluster | None, observed: ObservedCluster) -> tuple[AddressView, ...]:
    published = {publication.address: publication for publication in observed.publications}
    wanted = {
        address: (node.node_id, listener)
        for node in (desired.nodes if desired is not None else ())
        for listener, address in node.advertised.items()
    }

    def holder(address: Address) -> tuple[int, str]:
        publication = published.get(address)
        return wanted[address] if publication is None else (publication.node_id, publication.listener)

    return tuple(
        AddressView(
            address=address,
            node_id=node_id,
            listener=listener,
            is_desired=address in wanted,
            publication=published.get(address),
            reached=observed.probes.get(address),
        )
        for address in sorted({*published, *wanted})
        for node_id, listener in (holder(address),)
    )


def _versions(desired: DesiredCluster) -> dict[str, frozenset[str]]:
    pools = {node.pool for node in desired.nodes}
    return {
        pool: frozenset(node.kafka_version for node in desired.nodes if node.pool == pool) for pool in pools
    }
