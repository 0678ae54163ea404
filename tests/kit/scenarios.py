"""Small clusters for tests of planning: a healthy one of any size, and one change after another to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quorate_operator.models.listeners import Listener
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    DesiredCluster,
    DesiredNode,
    Formation,
    Implementation,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, Plan

NOW_MS = 10_000_000
LONG_AGO_MS = NOW_MS - 3_600_000
CLUSTER_ID = "mRn6LvYdTWmUOSNFgPmBhw"
FEATURES = {"metadata.version": (7, 33), "kraft.version": (0, 1)}
REVISION = {"version": "4.3.1", "config": "a"}


def controller(node_id: int, **changes: Any) -> DesiredNode:
    """A controller that the manifests ask for."""
    return _desired(node_id, Role.CONTROLLER, "quorum", **changes)


def broker(node_id: int, **changes: Any) -> DesiredNode:
    """A broker that the manifests ask for."""
    return _desired(node_id, Role.BROKER, "brokers", **changes)


def _desired(node_id: int, role: Role, pool: str, **changes: Any) -> DesiredNode:
    listener = "CONTROLLER" if role is Role.CONTROLLER else "PLAINTEXT"
    given: dict[str, Any] = {
        "node_id": node_id,
        "role": role,
        "pool": pool,
        "place": node_id % 1000,
        "implementation": Implementation.PYTHON if role is Role.CONTROLLER else Implementation.JAVA,
        "kafka_version": "4.3.1",
        "listeners": (Listener(name=listener),),
        "config": {},
        "advertised": {listener: Address(f"{role}-{node_id}", 9092)},
        "revision": REVISION,
    }
    return DesiredNode(**(given | changes))


@dataclass(frozen=True)
class Situation:
    """A desired and an observed cluster. Each method gives another one with one thing changed."""

    desired: DesiredCluster
    observed: ObservedCluster

    def plan(self, now_ms: int = NOW_MS) -> Plan:
        """The plan for it."""
        return plan(self.desired, self.observed, now_ms)

    def due(self, now_ms: int = NOW_MS) -> tuple[Action, ...]:
        """Return the actions that are due."""
        return self.plan(now_ms).due

    def waits(self, now_ms: int = NOW_MS) -> str:
        """Return the reasons to wait, one per line."""
        return "\n".join(wait.reason for wait in self.plan(now_ms).waits)

    def refusals(self) -> dict[str, str]:
        """Messages by code."""
        return {refusal.code: refusal.message for refusal in self.plan().refusals}

    # -- what is desired

    def asking(self, **changes: Any) -> "Situation":
        """Fields of the desired cluster."""
        return replace(self, desired=replace(self.desired, **changes))

    def asking_controllers(self, *node_ids: int) -> "Situation":
        """Other controllers; new ones are not there yet."""
        brokers = self.desired.of_role(Role.BROKER)
        asked = self.asking(nodes=(*(controller(node_id) for node_id in node_ids), *brokers))
        for node_id in node_ids:
            if node_id not in asked.observed.nodes:
                asked = asked.node(node_id, role=Role.CONTROLLER, state=NodeState.ABSENT, pool="quorum")
        return asked

    def asking_node(self, node_id: int, **changes: Any) -> "Situation":
        """Fields of one desired node."""
        nodes = (replace(node, **changes) if node.node_id == node_id else node for node in self.desired.nodes)
        return self.asking(nodes=tuple(nodes))

    def asking_config(self, revision: str = "b", role: Role | None = None) -> "Situation":
        """Another configuration of every node, or of those of one role."""
        nodes = (
            replace(node, revision={**node.revision, "config": revision})
            if role in (None, node.role)
            else node
            for node in self.desired.nodes
        )
        return self.asking(nodes=tuple(nodes))

    # -- what is observed

    def seeing(self, **changes: Any) -> "Situation":
        """Fields of the observed cluster."""
        return replace(self, observed=replace(self.observed, **changes))

    def node(self, node_id: int, **changes: Any) -> "Situation":
        """Fields of an observed node, which may be a new one."""
        before = self.observed.nodes.get(node_id)
        after = replace(before, **changes) if before else ObservedNode(node_id=node_id, **changes)
        return self.seeing(nodes={**self.observed.nodes, node_id: after})

    def down(self, node_id: int, state: NodeState = NodeState.STOPPED, **changes: Any) -> "Situation":
        """A node without process; one that is ABSENT has no disk either."""
        gone: dict[str, Any] = {"state": state, "started_at_ms": None, "revision": {}, "configured": {}}
        if state is NodeState.ABSENT:
            gone |= {"directory_id": None, "has_volume": False}
        if state is NodeState.CRASHED:
            gone |= {"exited_at_ms": LONG_AGO_MS, "exit_reason": "killed by SIGKILL", "exits_in_a_row": 1}
        situation = self.node(node_id, **(gone | changes))
        if self.observed.kafka and node_id in self.observed.kafka.quorum.voters:
            situation = situation.voter(node_id, caught_up=False)
        return situation

    def leaderless(self) -> "Situation":
        """No node responds as leader; the running controllers are not ready."""
        situation = self.seeing(kafka=None, quorum=None)
        for node in self.observed.nodes.values():
            if node.state.runs and node.role is Role.CONTROLLER:
                situation = situation.node(node.node_id, state=NodeState.UNREADY)
        return situation

    def kafka(self, **changes: Any) -> "Situation":
        """Changed fields of what Kafka reports."""
        assert self.observed.kafka is not None
        return self._telling(replace(self.observed.kafka, **changes))

    def quorum(self, **changes: Any) -> "Situation":
        """Fields of the quorum."""
        assert self.observed.kafka is not None
        return self.kafka(quorum=replace(self.observed.kafka.quorum, **changes))

    def voter(self, node_id: int, **changes: Any) -> "Situation":
        """Fields of a voter, which may be a new one."""
        voters = self._voters()
        return self.quorum(
            voters={**voters, node_id: replace(voters.get(node_id, voter(node_id)), **changes)}
        )

    def no_voter(self, node_id: int) -> "Situation":
        """One voter less."""
        return self.quorum(voters={key: voter for key, voter in self._voters().items() if key != node_id})

    def observer(self, node_id: int, **changes: Any) -> "Situation":
        """A controller that runs as an observer."""
        seen = self.node(
            node_id,
            state=NodeState.READY,
            directory_id=f"disk-{node_id}",
            has_volume=True,
            started_at_ms=LONG_AGO_MS,
            revision=REVISION,
            configured=controller(node_id).advertised,
        )
        assert seen.observed.kafka is not None
        observers = (*seen.observed.kafka.quorum.observers, replace(voter(node_id), **changes))
        return seen.quorum(observers=observers).registered(node_id, Role.CONTROLLER)

    def registered(
        self,
        node_id: int,
        role: Role,
        features: Mapping[str, tuple[int, int]] = FEATURES,
        endpoints: Mapping[str, Address] | None = None,
    ) -> "Situation":
        """A registration more, or another one of the node."""
        assert self.observed.kafka is not None
        given = ObservedRegistration(node_id=node_id, role=role, endpoints=endpoints or {}, features=features)
        return self.kafka(registrations={**self.observed.kafka.registrations, node_id: given})

    def unregistered(self, node_id: int) -> "Situation":
        """A registration less."""
        assert self.observed.kafka is not None
        kept = {
            key: registration
            for key, registration in self.observed.kafka.registrations.items()
            if key != node_id
        }
        return self.kafka(registrations=kept)

    def finalized(self, **levels: int) -> "Situation":
        """Other levels; `metadata_version=30` for metadata.version."""
        assert self.observed.kafka is not None
        named = {name.replace("_", "."): level for name, level in levels.items()}
        return self.kafka(features={**self.observed.kafka.features, **named})

    def load(self, node_id: int, **changes: Any) -> "Situation":
        """Set the load of a broker; fields that are not given have their defaults."""
        assert self.observed.kafka is not None
        return self.kafka(loads={**self.observed.kafka.loads, node_id: BrokerLoad(**changes)})

    def _voters(self) -> Mapping[int, ObservedVoter]:
        assert self.observed.kafka is not None
        return self.observed.kafka.quorum.voters

    def _telling(self, kafka: KafkaFacts) -> "Situation":
        return self.seeing(kafka=kafka, quorum=kafka.quorum)


def voter(node_id: int) -> ObservedVoter:
    """A voter that has caught up."""
    return ObservedVoter(
        node_id=node_id,
        directory_id=f"disk-{node_id}",
        log_end_offset=100,
        last_fetch_ms=NOW_MS,
        last_caught_up_ms=NOW_MS,
        follows=True,
        caught_up=True,
        endpoints=controller(node_id).advertised,
    )


def healthy(controllers: int = 3, brokers: int = 0) -> Situation:
    """A cluster that is as desired: 3000, 3001, ... with 3000 as the leader, and brokers 0, 1, ..."""
    wanted = (
        *(controller(node_id) for node_id in range(3000, 3000 + controllers)),
        *(broker(node_id) for node_id in range(brokers)),
    )
    kafka = KafkaFacts(
        quorum=ObservedQuorum(
            leader_id=3000,
            leader_epoch=4,
            high_watermark=100,
            kraft_version=1,
            voters={node_id: voter(node_id) for node_id in range(3000, 3000 + controllers)},
        ),
        cluster_id=CLUSTER_ID,
        registrations={
            node.node_id: ObservedRegistration(
                node_id=node.node_id, role=node.role, endpoints=node.advertised, features=FEATURES
            )
            for node in wanted
        },
        features={"metadata.version": 30, "kraft.version": 1},
        loads={node_id: BrokerLoad() for node_id in range(brokers)},
        answering=frozenset(range(brokers)),
    )
    observed = ObservedCluster(
        nodes={node.node_id: _running(node) for node in wanted},
        quorum=kafka.quorum,
        kafka=kafka,
        formation=Formation(
            cluster_id=CLUSTER_ID,
            initial_voters={3000 + place: f"disk-{3000 + place}" for place in range(controllers)},
            is_formed=True,
        ),
    )
    desired = DesiredCluster(
        name="quorum", cluster_id=None, metadata_version=None, dynamic_quorum=True, nodes=wanted
    )
    return Situation(desired, observed)


def _running(node: DesiredNode) -> ObservedNode:
    return ObservedNode(
        node_id=node.node_id,
        role=node.role,
        state=NodeState.READY,
        pool=node.pool,
        directory_id=f"disk-{node.node_id}",
        has_volume=True,
        started_at_ms=LONG_AGO_MS,
        revision=node.revision,
        configured=node.advertised,
    )


def untouched(controllers: int = 3, brokers: int = 0) -> Situation:
    """A cluster of which nothing is there."""
    situation = healthy(controllers, brokers).seeing(kafka=None, quorum=None, formation=None)
    for node_id in situation.observed.nodes:
        situation = situation.down(node_id, NodeState.ABSENT)
    return situation


def briefly(steps: Iterable[Action]) -> list[str]:
    """`RemoveVoter 3002` for each action."""
    return [
        f"{type(step).__name__} {step.node_id if step.node_id is not None else ''}".strip() for step in steps
    ]
