"""Registrations of controllers that are gone: ghosts (KIP-1312).

`judge` decides which registrations are ghosts, by the same definition as the doctor; `may_be_removed` is the
planner's guard. From metadata.version 33 on, a ghost is unregistered. Below, it stays unless its range blocks a
desired upgrade or its addresses are needed: then it is registered again with the cluster's range and no endpoints
(ADR 9). A broker that runs without its registration needs a restart.
"""

from quorate_admin.diagnosis import ClusterFacts, JudgedReplica, NodeKind, RegisteredNode, supports
from quorate_protocol.features import (
    CONTROLLER_UNREGISTRATION_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
    metadata_version_name,
)

from quorate_operator.planning.addresses import has_publications
from quorate_operator.planning.cluster import (
    DesiredCluster,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.steps import Part, RefreshRegistration, UnregisterController

REGISTRATION_MS_MAX = 120_000
"""How long a broker may start without being registered: twice the default of its own limit, or of a longer one."""
_REGISTRATION_TIMEOUT_MS = "initial.broker.registration.timeout.ms"
"""Kafka's config of this limit."""


def judge(observed: ObservedCluster) -> ClusterFacts:
    """Return what holds for the cluster. Observers lack brokers, so that only controllers can be judged."""
    if observed.kafka is None:
        return ClusterFacts()
    quorum = observed.kafka.quorum
    return ClusterFacts(
        leader_id=quorum.leader_id,
        is_leader_new=quorum.is_leader_new,
        voters=tuple(_replica(voter) for _, voter in sorted(quorum.voters.items())),
        observers=tuple(_replica(observer) for observer in quorum.observers),
        registrations=tuple(
            _registered(registration) for _, registration in sorted(observed.kafka.registrations.items())
        ),
        finalized={**observed.kafka.features, KRAFT_VERSION: quorum.kraft_version},
    )


def plan_registrations(desired: DesiredCluster, observed: ObservedCluster, target: int | None) -> Part:
    """Unregister ghosts, or keep them from blocking `target`, the desired metadata.version."""
    if observed.kafka is None:
        return Part()
    due: list[UnregisterController | RefreshRegistration] = []
    judged = set(judge(observed).ghosts)
    for ghost in removable(desired, observed):
        if ghost.node_id not in judged:
            continue  # it fetched a moment ago, runs elsewhere, or has not fetched from a new leader yet
        if can_unregister(observed.kafka):
            reason = "it is gone: it is no voter and does not follow the metadata log"
            due.append(UnregisterController(node_id=ghost.node_id, reason=reason))
        elif (obstacle := _obstacle(ghost, desired, observed, target)) is not None:
            reason = f"it is gone, and its registration {obstacle}"
            due.append(RefreshRegistration(node_id=ghost.node_id, reason=reason))
    return Part(due=tuple(due))


def _obstacle(
    ghost: ObservedRegistration, desired: DesiredCluster, observed: ObservedCluster, target: int | None
) -> str | None:
    """Return what a ghost blocks that can't be unregistered yet."""
    if target is not None and not supports(ghost.features, METADATA_VERSION, target):
        lowest, highest = ghost.features.get(METADATA_VERSION, (0, 0))
        return f"(metadata.version {lowest} to {highest}) blocks {metadata_version_name(target)}"
    is_wanted = any(
        address in node.advertised.values() for node in desired.nodes for address in ghost.endpoints.values()
    )
    if is_wanted or (ghost.endpoints and has_publications(observed, ghost.node_id)):
        return "has addresses that no other node can get meanwhile"
    return None


def removable(desired: DesiredCluster, observed: ObservedCluster) -> tuple[ObservedRegistration, ...]:
    """Return the registered controllers whose registration may be removed or replaced once they are ghosts."""
    if observed.kafka is None:
        return ()
    return tuple(
        registration
        for node_id, registration in sorted(observed.kafka.registrations.items())
        if registration.role is Role.CONTROLLER and may_be_removed(desired, observed, node_id)
    )


def may_be_removed(desired: DesiredCluster, observed: ObservedCluster, node_id: int) -> bool:
    """Whether the node is not desired, is no voter and can't run here.

    A node on a machine that does not answer may run.
    """
    assert observed.kafka is not None
    seen = observed.nodes.get(node_id)
    may_run = seen is not None and (seen.state.runs or seen.unreachable_host)
    is_desired = any(node.node_id == node_id for node in desired.nodes)
    return not is_desired and not may_run and node_id not in observed.kafka.quorum.voters


def lacks_registration(
    desired: DesiredCluster, observed: ObservedCluster, seen: ObservedNode, now_ms: int
) -> bool:
    """Whether a broker runs on without its registration: someone removed it.

    A broker registers once, when it starts, and then sends heartbeats that are refused. It ends if it can't register
    within `initial.broker.registration.timeout.ms`, so one that starts for longer has been registered.
    """
    if observed.kafka is None or seen.role is not Role.BROKER:
        return False
    registration = observed.kafka.registrations.get(seen.node_id)
    if registration is not None and registration.role is Role.BROKER:
        return False
    limit_ms = _registration_ms_max(desired, seen.node_id)
    starts_long = seen.is_starting and now_ms - (seen.started_at_ms or now_ms) >= limit_ms
    return seen.state is NodeState.UNREADY or starts_long


def _registration_ms_max(desired: DesiredCluster, broker_id: int) -> int:
    """Return how long this broker may start without being registered. It may run with a former config."""
    limits = (
        node.config.get(_REGISTRATION_TIMEOUT_MS, "") for node in desired.nodes if node.node_id == broker_id
    )
    return max([REGISTRATION_MS_MAX, *(2 * int(limit) for limit in limits if limit.isdecimal())])


def awaits_unregistration(observed: ObservedCluster, node_id: int) -> bool:
    """Whether the controller is registered and can be unregistered."""
    return (
        observed.kafka is not None
        and can_unregister(observed.kafka)
        and node_id in observed.kafka.registrations
    )


def can_unregister(kafka: KafkaFacts) -> bool:
    """Whether the cluster supports UnregisterController."""
    return kafka.features.get(METADATA_VERSION, 0) >= CONTROLLER_UNREGISTRATION_SINCE


def _replica(voter: ObservedVoter) -> JudgedReplica:
    return JudgedReplica(node_id=voter.node_id, follows=voter.follows, caught_up=voter.caught_up)


def _registered(registration: ObservedRegistration) -> RegisteredNode:
    return RegisteredNode(
        kind=NodeKind(registration.role.value),
        node_id=registration.node_id,
        endpoints=tuple((address.host, address.port) for address in registration.endpoints.values()),
        features=registration.features,
        fenced=registration.fenced,
    )
