"""Clusters as the status page is given them: one in the middle of everything, and one that is well."""

import time
from dataclasses import replace

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
    Publication,
    Reached,
    Role,
)
from quorate_operator.planning.steps import Plan, PublishAddress, Refusal, StartNode, StopNode, WaitFor
from quorate_operator.web.snapshots import ClusterEvent, ClusterKey, ClusterSnapshot, SnapshotRegistry
from quorate_protocol.features import default_levels

NOW_MS = int(time.time() * 1000)
CLUSTER_ID = "Yw2lTyfCRRmAsBnMBLYZuQ"
DIRECTORY_IDS = {
    3000: "6JZ0kVb1RZG9r5rR0mBv8A",
    3001: "w3bUw0b5T7O2pVq9eX1lKg",
    3002: "Q1n8ZfYJQ4mGm7n2sD5xYw",
    3003: "p9tWm2cHSh6k1LxVtE0aRg",
}
LEVELS = {"metadata.version": 30, **default_levels(30)}
FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    **{name: (0, level) for name, level in default_levels(30).items()},
}
GHOST_FEATURES = {**FEATURES, "metadata.version": (7, 27)}
CONTROLLERS, BROKERS = (3000, 3001, 3002), (0, 1, 2)


def put(registry: SnapshotRegistry, snapshot: ClusterSnapshot) -> None:
    """Have a registry know a snapshot and what happened in it."""
    registry.put(snapshot)
    for event in snapshot.events:
        registry.add_event(snapshot.key, event)


def new_host(node_id: int) -> Address:
    """Where a broker is to be reached."""
    return Address(f"b{node_id}.kafka.example.com", 9094)


def old_host(node_id: int) -> Address:
    """Where a broker was reached before."""
    return Address(f"broker-{node_id}.old.example.com", 9094)


def node(node_id: int, role: Role, place: int) -> DesiredNode:
    """A desired node."""
    is_controller = role is Role.CONTROLLER
    listener = Listener(
        name="CONTROLLER" if is_controller else "EXTERNAL", port=9093 if is_controller else 9094
    )
    return DesiredNode(
        node_id=node_id,
        role=role,
        pool="quorum" if is_controller else "brokers",
        place=place,
        implementation=Implementation.PYTHON if is_controller else Implementation.JAVA,
        kafka_version="4.3.1",
        listeners=(listener,),
        config={},
        advertised={} if is_controller else {"EXTERNAL": new_host(node_id)},
        revision={"version": "4.3.1"},
    )


def desired() -> DesiredCluster:
    """Three controllers and three brokers."""
    return DesiredCluster(
        name="quorum",
        cluster_id=CLUSTER_ID,
        metadata_version="4.3",
        dynamic_quorum=True,
        nodes=(
            *(node(node_id, Role.CONTROLLER, place) for place, node_id in enumerate(CONTROLLERS)),
            *(node(node_id, Role.BROKER, place) for place, node_id in enumerate(BROKERS)),
        ),
    )


def replica(node_id: int, end: int, *, caught_up: bool = True) -> ObservedVoter:
    """A replica of the metadata log."""
    return ObservedVoter(
        node_id=node_id,
        directory_id=DIRECTORY_IDS.get(node_id),
        log_end_offset=end,
        last_fetch_ms=NOW_MS - 200,
        last_caught_up_ms=NOW_MS - 200,
        follows=True,
        caught_up=caught_up,
    )


def registration(node_id: int, role: Role, *, fenced: bool = False) -> ObservedRegistration:
    """A registration in the metadata log."""
    is_controller = role is Role.CONTROLLER
    endpoint = Address(f"quorum-{node_id}.quorum.kafka.svc", 9093) if is_controller else old_host(node_id)
    return ObservedRegistration(
        node_id=node_id,
        role=role,
        endpoints={"CONTROLLER" if is_controller else "EXTERNAL": endpoint},
        features=FEATURES,
        fenced=fenced,
        rack=None if is_controller else f"zone-{'abc'[node_id]}",
    )


def well() -> ClusterSnapshot:
    """A cluster without a problem."""
    quorum = ObservedQuorum(
        leader_id=3001,
        leader_epoch=4,
        high_watermark=81_294,
        kraft_version=1,
        voters={node_id: replica(node_id, 81_294) for node_id in CONTROLLERS},
    )
    kafka = KafkaFacts(
        quorum=quorum,
        cluster_id=CLUSTER_ID,
        registrations={
            **{node_id: registration(node_id, Role.CONTROLLER) for node_id in CONTROLLERS},
            **{node_id: registration(node_id, Role.BROKER) for node_id in BROKERS},
        },
        features=LEVELS,
        loads={
            node_id: BrokerLoad(
                replicas=412 + node_id, leaders=137, used_bytes=38_654_705_664, free_bytes=68_719_476_736
            )
            for node_id in BROKERS
        },
        answering=frozenset(BROKERS),
    )
    nodes = {
        node.node_id: ObservedNode(
            node_id=node.node_id,
            role=node.role,
            state=NodeState.READY,
            pool=node.pool,
            directory_id=DIRECTORY_IDS.get(node.node_id),
            has_volume=True,
            started_at_ms=NOW_MS - 86_400_000,
            revision=node.revision,
            configured=node.advertised,
        )
        for node in desired().nodes
    }
    observed = ObservedCluster(
        nodes=nodes,
        quorum=quorum,
        kafka=kafka,
        formation=Formation(cluster_id=CLUSTER_ID, initial_voters=DIRECTORY_IDS, is_formed=True),
    )
    key = ClusterKey("kafka", "quorum")
    return ClusterSnapshot(key=key, at_ms=NOW_MS, desired=desired(), observed=observed, plan=Plan(steps=()))


def busy() -> ClusterSnapshot:
    """New hosts are rolled out, a disk was lost, and a ghost blocks the upgrade."""
    calm = well()
    assert calm.observed is not None
    assert calm.observed.kafka is not None
    quorum = replace(
        calm.observed.kafka.quorum,
        voters={
            3000: replica(3000, 81_294),
            3001: replica(3001, 81_294),
            3002: replica(3002, 81_102, caught_up=False),
        },
        observers=(replica(3003, 80_811, caught_up=False),),
    )
    ghost = replace(registration(3099, Role.CONTROLLER), features=GHOST_FEATURES)
    kafka = replace(
        calm.observed.kafka,
        quorum=quorum,
        registrations={
            **calm.observed.kafka.registrations,
            3099: ghost,
            2: registration(2, Role.BROKER, fenced=True),
        },
        features={**calm.observed.kafka.features, "metadata.version": 27},
    )
    nodes = {
        **calm.observed.nodes,
        3002: replace(calm.observed.nodes[3002], state=NodeState.UNREADY),
        3003: ObservedNode(
            node_id=3003, role=Role.CONTROLLER, state=NodeState.STARTING, directory_id=DIRECTORY_IDS[3003]
        ),
        2: replace(
            calm.observed.nodes[2],
            state=NodeState.CRASHED,
            exit_reason="exit status 137, out of memory",
            exits_in_a_row=3,
        ),
    }
    events = (
        ClusterEvent(at_ms=NOW_MS - 240_000, text="Published b0.kafka.example.com:9094 for broker 0"),
        ClusterEvent(at_ms=NOW_MS - 120_000, text="Restarted broker 0: advertised EXTERNAL changed"),
        ClusterEvent(at_ms=NOW_MS - 30_000, text="Broker 2 died: out of memory", is_warning=True),
    )
    observed = replace(
        calm.observed, nodes=nodes, quorum=quorum, kafka=kafka, publications=_publications(), probes=_probes()
    )
    return replace(calm, observed=observed, plan=_changing(), events=events)


def _publications() -> tuple[Publication, ...]:
    """Brokers 0 and 1 get new hosts, and clients still use an old one."""
    return (
        Publication(
            address=new_host(0), node_id=0, listener="EXTERNAL", since_ms=NOW_MS - 240_000, connections=118
        ),
        Publication(
            address=old_host(0),
            node_id=0,
            listener="EXTERNAL",
            since_ms=NOW_MS - 86_400_000,
            retired_at_ms=NOW_MS - 95_000,
            connections=7,
        ),
        Publication(address=new_host(1), node_id=1, listener="EXTERNAL", since_ms=NOW_MS - 240_000),
        Publication(address=old_host(1), node_id=1, listener="EXTERNAL", since_ms=NOW_MS - 86_400_000),
    )


def _probes() -> dict[Address, Reached]:
    """What the hosts reach: the intended node, another node, a node that does not identify itself, nothing."""
    return {
        new_host(0): Reached(at_ms=NOW_MS, node_id=0, cluster_id=CLUSTER_ID),
        old_host(0): Reached(at_ms=NOW_MS, node_id=0, cluster_id=CLUSTER_ID),
        new_host(1): Reached(at_ms=NOW_MS, node_id=2, cluster_id=CLUSTER_ID),
        old_host(1): Reached(at_ms=NOW_MS, cluster_id=CLUSTER_ID),
        new_host(2): Reached(at_ms=NOW_MS, error="the name does not resolve"),
    }


def _changing() -> Plan:
    """The steps of the rollout, and a refusal."""
    return Plan(
        steps=(
            PublishAddress(
                address=old_host(2), node_id=2, listener="EXTERNAL", reason="clients may still hold it"
            ),
            StartNode(node_id=2, reason="it died (exit status 137, 3 times in a row)"),
            WaitFor(
                reason="b1.kafka.example.com:9094 to reach broker 1; it reaches node 2 now", node_ids=(1,)
            ),
            StopNode(
                node_id=1,
                grace_ms=60_000,
                reason="advertised EXTERNAL changes from broker-1.old.example.com to b1.kafka.example.com",
            ),
            WaitFor(
                reason="clients to leave broker-0.old.example.com:9094, 7 use it",
                node_ids=(0,),
                until_ms=NOW_MS + 505_000,
            ),
        ),
        refusals=(
            Refusal(
                "UpgradeBlocked",
                "metadata.version 4.3-IV0 (30) can't be finalized, it stays 27: controller-3099 supports 7-27. "
                "Upgrade them (spec.version), or set a level that all of them support",
            ),
        ),
    )
