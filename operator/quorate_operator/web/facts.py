"""What a person wants to know of a snapshot, derived from what planning knows. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import (
    Lifecycle,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.judgement import judge
from quorate_operator.runtime.wording import Label
from quorate_operator.web.port import ClusterSnapshot
from quorate_operator.web.words import action_words


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
class Replica:
    """A controller in the picture. `lag` is in records behind the leader, None where no leader tells."""

    node_id: int
    directory_id: str | None
    state: NodeState | None
    is_leader: bool = False
    is_voter: bool = False
    caught_up: bool = False
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    """The controllers: voters by node id, then observers. `majority` is how many voters a decision needs."""

    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...]
    majority: int
    caught_up: int

    @property
    def spare(self) -> int:
        """How many voters could be lost now; negative when a majority is missing."""
        return self.caught_up - self.majority


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """The registration of a controller that is gone.

    `blocks` has each feature that it blocks, with its highest level and the highest level that any node registered.
    """

    registration: ObservedRegistration
    blocks: tuple[tuple[str, int, int], ...]


def health_of(snapshot: ClusterSnapshot) -> Health:
    """The cluster in one word; the worst that is true."""
    desired, observed, plan = snapshot.desired, snapshot.observed, snapshot.plan
    if desired is None or observed is None or plan is None:
        return Health.UNKNOWN
    if desired.lifecycle is Lifecycle.HIBERNATED:
        is_down = not any(node.state.runs for node in observed.nodes.values())
        return Health.HIBERNATED if is_down else Health.WORKING
    is_formed = observed.formation is not None and observed.formation.is_formed
    if observed.quorum is None and is_formed:
        return Health.NO_QUORUM
    if snapshot.problem is not None:
        return Health.ATTENTION
    if desired.lifecycle is Lifecycle.PAUSED:  # a plan that is paused refuses everything else, and says so
        return Health.PAUSED
    if plan.refusals:
        return Health.ATTENTION
    return Health.WORKING if plan.steps else Health.READY


def quorum_facts(observed: ObservedCluster) -> QuorumFacts:
    """Voters, observers and how far they are. Without a leader: the controllers that are known, nobody caught up."""
    quorum = observed.quorum
    if quorum is None:
        known = tuple(
            Replica(node_id=node.node_id, directory_id=node.directory_id, state=node.state, is_voter=True)
            for node in _controllers(observed)
        )
        return QuorumFacts(voters=known, observers=(), majority=majority(len(known)), caught_up=0)
    voters = tuple(_replica(observed, quorum, one, is_voter=True) for _, one in sorted(quorum.voters.items()))
    observers = tuple(
        _replica(observed, quorum, one, is_voter=False)
        for one in sorted(quorum.observers, key=lambda one: (one.node_id, one.directory_id or ""))
        if _role_of(observed, one.node_id) is Role.CONTROLLER
    )
    return QuorumFacts(
        voters=voters,
        observers=observers,
        majority=majority(len(voters)),
        caught_up=sum(one.caught_up for one in voters),
    )


def ghosts(observed: ObservedCluster) -> tuple[Ghost, ...]:
    """Returns the registered controllers that are gone, by the judgement that the doctor has, too."""
    if observed.kafka is None:
        return ()
    judged = judge(observed)
    outlooks = judged.outlooks()
    return tuple(
        Ghost(
            registration=observed.kafka.registrations[node_id],
            blocks=tuple(
                (outlook.feature, blocker.highest, outlook.target)
                for outlook in outlooks
                for blocker in outlook.blockers
                if blocker.node_id == node_id and blocker.is_registered
            ),
        )
        for node_id in judged.ghosts
    )


def next_words(snapshot: ClusterSnapshot) -> str:
    """What happens now, in some words: for the list of clusters and for screen readers."""
    plan = snapshot.plan
    if plan is None:
        return "nothing is known yet"
    if plan.due:
        more = f", and {len(plan.due) - 1} more" if len(plan.due) > 1 else ""
        return f"{action_words(plan.due[0], label_of(snapshot))}{more}: {plan.due[0].reason}"
    if plan.waits:
        return f"waits for {plan.waits[0].reason}"
    return "nothing to do"


def label_of(snapshot: ClusterSnapshot) -> Label:
    """Names nodes as people know them: `controller-3000`."""
    labels: dict[int, str] = {}
    if snapshot.observed is not None:
        labels |= {one.node_id: f"{one.role}-{one.node_id}" for one in snapshot.observed.nodes.values()}
    if snapshot.desired is not None:
        labels |= {one.node_id: one.label for one in snapshot.desired.nodes}
    return lambda node_id: labels.get(node_id, f"node {node_id}")


def _controllers(observed: ObservedCluster) -> list[ObservedNode]:
    found = (node for node in observed.nodes.values() if node.role is Role.CONTROLLER)
    return sorted(found, key=lambda node: node.node_id)


def _role_of(observed: ObservedCluster, node_id: int) -> Role:
    """What a replica of the log is: brokers observe it as well as controllers that are no voters."""
    if (node := observed.nodes.get(node_id)) is not None:
        return node.role
    registration = observed.kafka.registrations.get(node_id) if observed.kafka is not None else None
    return registration.role if registration is not None else Role.CONTROLLER


def _replica(
    observed: ObservedCluster, quorum: ObservedQuorum, one: ObservedVoter, *, is_voter: bool
) -> Replica:
    node = observed.nodes.get(one.node_id)
    leader = quorum.voters.get(quorum.leader_id)
    end = leader.log_end_offset if leader is not None else quorum.high_watermark
    is_leader = is_voter and one.node_id == quorum.leader_id
    return Replica(
        node_id=one.node_id,
        directory_id=one.directory_id,
        state=node.state if node is not None else None,
        is_leader=is_leader,
        is_voter=is_voter,
        caught_up=one.caught_up or is_leader,
        lag=max(0, end - one.log_end_offset),
    )
