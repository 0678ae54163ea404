"""Forms a cluster once, and gives nodes their storage.

UNSETTLED  nothing exists: the identity is decided and stored first
FORMING    the first voters get their disks, all of them before one starts; so a controller that has run and has no
           disk is never formatted as a first voter again
FORMED     a leader was seen: an empty disk joins as a new voter, see `membership`
"""

from enum import Enum, auto

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    Formation,
    Implementation,
    NodeState,
    ObservedCluster,
    Role,
)
from quorate_operator.planning.safety import QuorumView, view_quorum
from quorate_operator.planning.steps import (
    CreateNode,
    FormCluster,
    Part,
    Refusal,
    WaitFor,
    labels,
    listed,
    wait_for,
)


class Phase(Enum):
    UNSETTLED = auto()
    FORMING = auto()
    FORMED = auto()


def phase_of(observed: ObservedCluster) -> Phase:
    """Return the phase. Without a stored identity, a cluster whose nodes have disks was formed."""
    if observed.kafka is not None:
        return Phase.FORMED
    if observed.formation is not None:
        return Phase.FORMED if observed.formation.is_formed else Phase.FORMING
    return Phase.FORMED if _has_disks(observed) else Phase.UNSETTLED


def plan_formation(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the steps up to formatted storage for every desired node."""
    phase = phase_of(observed)
    if phase is Phase.UNSETTLED or (phase is Phase.FORMING and _is_outdated(desired, observed)):
        return _settle(desired)
    if phase is Phase.FORMING:
        assert observed.formation is not None
        return _create_founders(desired, observed, observed.formation)
    return _create_joining(desired, observed)


def founders_to_start(desired: DesiredCluster, observed: ObservedCluster) -> tuple[int, ...]:
    """Return the first voters once each has its disk; none before."""
    assert observed.formation is not None
    founders = [node.node_id for node in desired.nodes if node.node_id in observed.formation.initial_voters]
    formatted = [node_id for node_id in founders if observed.nodes[node_id].state is not NodeState.ABSENT]
    if formatted == founders or _has_run(observed):
        return tuple(formatted)
    return ()


def brokers_to_start(desired: DesiredCluster, observed: ObservedCluster) -> tuple[int, ...]:
    """Return the brokers that may start while the cluster forms.

    None beside stock controllers: a broker that truncates the first leader's voters finds no controller (ADR 29).
    """
    assert observed.formation is not None
    controllers = desired.of_role(Role.CONTROLLER)
    has_stock = any(node.implementation is Implementation.JAVA for node in controllers)
    if observed.formation.is_rebuilt:
        # The survivor's pod has its broker in it; the other brokers wait until it leads.
        founders = observed.formation.initial_voters
        return tuple(node.node_id for node in desired.of_role(Role.BROKER) if node.pod_mate in founders)
    if has_stock and desired.dynamic_quorum:
        return ()
    return tuple(node.node_id for node in desired.of_role(Role.BROKER))


def _settle(desired: DesiredCluster) -> Part:
    controllers = tuple(node.node_id for node in desired.of_role(Role.CONTROLLER))
    return Part(
        due=(
            FormCluster(
                node_ids=controllers,
                cluster_id=desired.cluster_id,
                reason=f"the cluster is new: {listed(controllers)} become its first voters",
            ),
        ),
        rest=(
            wait_for("the identity of the cluster to be stored"),
            *(
                _create(node, "it has no formatted directory", is_initial=node.role is Role.CONTROLLER)
                for node in desired.nodes
            ),
        ),
    )


def _is_outdated(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether the manifest names other first voters than the stored ones, before any disk exists."""
    assert observed.formation is not None
    if observed.formation.is_rebuilt or _has_disks(observed):
        return False
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    return observed.formation.initial_voters.keys() != asked


def _create_founders(desired: DesiredCluster, observed: ObservedCluster, formation: Formation) -> Part:
    missing = [node for node in desired.nodes if observed.nodes[node.node_id].state is NodeState.ABSENT]
    founders = [node for node in missing if node.node_id in formation.initial_voters]
    asked = {node.node_id for node in desired.of_role(Role.CONTROLLER)}
    left_out = sorted(formation.initial_voters.keys() - asked)
    refusals: list[Refusal] = []
    rest: list[WaitFor] = []
    if left_out:
        refusals.append(
            Refusal(
                "FormationUnderWay",
                f"the cluster is being formed with controllers {listed(sorted(formation.initial_voters))}: "
                f"keep {listed(left_out)} until it has a leader, and remove them then",
            )
        )
    if founders and (_has_run(observed) or formation.is_rebuilt):
        refusals += _lost_founders(formation, founders)
        rest.append(wait_for("a leader of the controller quorum"))
        founders = []
    elif founders:
        rest.append(wait_for("every first voter to have its disk"))
    brokers = () if formation.is_rebuilt else tuple(node for node in missing if node.role is Role.BROKER)
    return Part(
        due=(
            *(_create(node, "it is one of the first voters", is_initial=True) for node in founders),
            *(_create(node, "it has no formatted directory", is_initial=False) for node in brokers),
        ),
        rest=tuple(rest),
        refusals=tuple(refusals),
    )


def _lost_founders(formation: Formation, founders: list[DesiredNode]) -> list[Refusal]:
    names = labels(Role.CONTROLLER, (node.node_id for node in founders))
    voters = len(formation.initial_voters)
    if voters - len(founders) >= majority(voters):
        return []  # the others elect a leader, and the lost one joins with a new disk
    return [
        Refusal(
            "QuorumLost",
            f"the disk of {names} is gone, and no leader was seen since the quorum was "
            f"{'rebuilt' if formation.is_rebuilt else 'started'}: "
            "it can't be formed a second time. Bring the disk back, or delete the cluster and create it again",
        )
    ]


def _create_joining(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    view = view_quorum(observed)
    due: list[CreateNode] = []
    for node in desired.nodes:
        if observed.nodes[node.node_id].state is not NodeState.ABSENT:
            continue
        if observed.nodes[node.node_id].unreachable_host:
            continue
        if node.role is Role.BROKER:
            due.append(_create(node, "it has no formatted directory", is_initial=False))
        elif view is not None and (reason := _why_create(node, view)) is not None:
            due.append(_create(node, reason, is_initial=False))
    return Part(due=tuple(due))


def _why_create(node: DesiredNode, view: QuorumView) -> str | None:
    """Return why a controller without a disk gets one now; None if it has to wait."""
    if view.is_dynamic:
        # Rule 5: as long as the lost disk is a voter, the node id has no other one.
        return None if node.node_id in view.voters else "it joins the quorum with a new disk"
    # A static quorum knows no disks. Its voter may start with a new disk when the others have all that is committed.
    if node.node_id in view.voters and len(view.alive) >= majority(view.size):
        return "its disk is gone, and the other voters have all that is committed"
    return None


def _create(node: DesiredNode, reason: str, *, is_initial: bool) -> CreateNode:
    return CreateNode(node_id=node.node_id, reason=reason, is_initial=is_initial)


def _has_disks(observed: ObservedCluster) -> bool:
    return any(node.state is not NodeState.ABSENT for node in observed.nodes.values())


def _has_run(observed: ObservedCluster) -> bool:
    """Whether a controller was ever started, as far as that is known."""
    return any(
        node.state.runs or node.state is NodeState.CRASHED or node.started_at_ms is not None
        for node in observed.nodes.values()
        if node.role is Role.CONTROLLER
    )
