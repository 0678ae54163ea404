"""The view of a quorum and of the registrations in its metadata log. Pure."""

from dataclasses import dataclass

from quorate_admin.diagnosis import ClusterFacts, majority

from quorate_operator.planning.cluster import (
    Address,
    NodeState,
    ObservedCluster,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.registrations import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A controller as a replica of the metadata log. `lag` is in records behind the leader.

    `state` is None for a node that does not run here, `lag` while no leader answers.
    """

    node_id: int
    directory_id: str | None
    state: NodeState | None
    endpoint: Address | None = None
    is_leader: bool = False
    is_voter: bool = False
    caught_up: bool = False
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumView:
    """The controllers: voters by node id, then observers. `majority` is how many voters a decision needs.

    `described` is None while no leader answers; then all known controllers count as voters that are not caught up.
    """

    described: ObservedQuorum | None
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
    majority: int
    caught_up: int
    spare: int
    """How many more voters can be lost; negative while a majority is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A feature that a ghost blocks: its highest level, and the highest that any node registered."""

    feature: str
    highest: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationView:
    """A registration in the metadata log; only a ghost has `blocks`."""

    registration: ObservedRegistration
    is_ghost: bool = False
    blocks: tuple[Block, ...] = ()


def quorum_view(observed: ObservedCluster) -> QuorumView:
    """Return the quorum as its leader describes it or, without a leader, the known controllers."""
    quorum = observed.quorum
    if quorum is None:
        known = tuple(
            ReplicaView(node_id=node.node_id, directory_id=node.directory_id, state=node.state, is_voter=True)
            for _, node in sorted(observed.nodes.items())
            if node.role is Role.CONTROLLER
        )
        needed = majority(len(known))
        return QuorumView(
            described=None, voters=known, observers=(), majority=needed, caught_up=0, spare=-needed
        )
    voters = tuple(
        _replica(observed, quorum, voter, is_voter=True) for _, voter in sorted(quorum.voters.items())
    )
    observers = tuple(
        _replica(observed, quorum, observer, is_voter=False)
        for observer in sorted(
            quorum.observers, key=lambda observer: (observer.node_id, observer.directory_id or "")
        )
        if _role_of(observed, observer.node_id) is Role.CONTROLLER
    )
    caught_up = sum(voter.caught_up for voter in voters)
    return QuorumView(
        described=quorum,
        voters=voters,
        observers=observers,
        majority=majority(len(voters)),
        caught_up=caught_up,
        spare=caught_up - majority(len(voters)),
    )


def _replica(
    observed: ObservedCluster, quorum: ObservedQuorum, replica: ObservedVoter, *, is_voter: bool
) -> ReplicaView:
    node = observed.nodes.get(replica.node_id)
    leader = quorum.voters.get(quorum.leader_id)
    end = leader.log_end_offset if leader is not None else quorum.high_watermark
    return ReplicaView(
        node_id=replica.node_id,
        directory_id=replica.directory_id,
        state=node.state if node is not None else None,
        endpoint=next(iter(replica.endpoints.values()), None),
        is_leader=is_voter and replica.node_id == quorum.leader_id,
        is_voter=is_voter,
        caught_up=replica.caught_up,
        lag=max(0, end - replica.log_end_offset),
    )


def _role_of(observed: ObservedCluster, node_id: int) -> Role:
    """Return the role of a replica of the log: observers are brokers, or controllers that are no voters."""
    if (node := observed.nodes.get(node_id)) is not None:
        return node.role
    registration = observed.kafka.registrations.get(node_id) if observed.kafka is not None else None
    return registration.role if registration is not None else Role.CONTROLLER


def registration_views(observed: ObservedCluster) -> tuple[RegistrationView, ...] | None:
    """Return the registrations by node id; None while no leader answers."""
    if observed.kafka is None:
        return None
    facts = judge(observed)
    ghosts = frozenset(facts.ghosts)
    blocks = _blocks(facts) if ghosts else {}
    return tuple(
        RegistrationView(
            registration=registration,
            is_ghost=node_id in ghosts,
            blocks=tuple(blocks.get(node_id, ())) if node_id in ghosts else (),
        )
        for node_id, registration in sorted(observed.kafka.registrations.items())
    )


def _blocks(facts: ClusterFacts) -> dict[int, list[Block]]:
    found: dict[int, list[Block]] = {}
    for outlook in facts.outlooks():
        for blocker in outlook.blockers:
            if blocker.is_registered:
                block = Block(feature=outlook.feature, highest=blocker.highest, target=outlook.target)
                found.setdefault(blocker.node_id, []).append(block)
    return found
