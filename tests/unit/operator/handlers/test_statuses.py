"""What is worth a write of a status."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.status_patches import is_mere_progress, merged_status
from quorate_operator.handlers.statuses import (
    broker_status,
    controller_status,
    failed_status,
    has_leader,
    refused_status,
    unknown_fields_note,
)
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    Formation,
    KafkaFacts,
    Lifecycle,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVolume,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import (
    ROLLOUT_BLOCKED,
    STARTS_LONG,
    GrowVolume,
    Plan,
    Postponed,
    Refusal,
    WaitFor,
    wait_for,
)
from quorate_operator.view.cluster import Health, view_of

QUORUM = "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}"
WORK = wait_for("controllers to catch up", 3000)
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def _status(reason: str = "AllReady", *, holds: str = "True", watermark: int = 10) -> dict[str, Any]:
    condition = {
        "type": "Ready",
        "status": holds,
        "reason": reason,
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    quorum = {"leaderId": 3000, "epoch": 1, "highWatermark": watermark, "kraftVersion": 1}
    return {"observedGeneration": 1, "conditions": [condition], "quorum": quorum, "clusterId": None}


def test_a_growing_log_alone_is_no_write() -> None:
    first = merged_status({}, _status(), NOW)
    assert first is not None
    assert merged_status(first, _status(watermark=99), LATER) is None


@pytest.mark.parametrize(
    ("change", "is_mere"),
    [
        ({"plan": [{"step": "WaitFor", "nodeId": 0, "reason": "broker-0 to be drained: 8 left"}]}, True),
        ({"brokers": [{"nodeId": 0, "state": "ready", "replicas": 8}]}, True),
        ({"voters": [{"nodeId": 3000, "lag": 4}]}, True),
        ({"conditions": [{"type": "Progressing", "status": "True", "message": "8 left"}]}, True),
        ({"plan": []}, False),
        ({"plan": [{"step": "StopNode", "nodeId": 0, "reason": "it leaves"}]}, False),
        ({"brokers": [{"nodeId": 0, "state": "stopped", "replicas": 9}]}, False),
        ({"conditions": [{"type": "Progressing", "status": "False", "message": "9 left"}]}, False),
        ({"readyReplicas": 2}, False),
    ],
)
def test_counts_of_a_step_under_way_are_mere_progress(change: dict[str, Any], is_mere: bool) -> None:
    """A drain of hours does not write each second, and a change is written at once."""
    before = {
        "readyReplicas": 3,
        "plan": [{"step": "WaitFor", "nodeId": 0, "reason": "broker-0 to be drained: 9 left"}],
        "brokers": [{"nodeId": 0, "state": "ready", "replicas": 9}],
        "voters": [{"nodeId": 3000}],
        "conditions": [{"type": "Progressing", "status": "True", "message": "9 left"}],
    }
    assert is_mere_progress(before, change) is is_mere


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    first = merged_status({}, _status(), NOW)
    assert first is not None
    second = merged_status(first, _status("Other"), LATER)
    assert second is not None
    assert second["conditions"][0]["lastTransitionTime"] == NOW
    third = merged_status(second, _status("NodesNotReady", holds="False"), LATER)
    assert third is not None
    assert third["conditions"][0]["lastTransitionTime"] == LATER


def test_a_refused_manifest_leaves_what_is_known() -> None:
    before = {"clusterId": "a" * 22, "formation": {"isFormed": True}, "quorum": {"leaderId": 1}}
    patch = merged_status(before, refused_status("spec.x: wrong", 2), NOW)
    assert patch is not None
    assert patch.keys() == {"observedGeneration", "conditions"}
    assert {condition["reason"] for condition in patch["conditions"]} == {"InvalidManifest"}


def test_clients_are_told_what_is_registered() -> None:
    manifests = load_manifests(
        "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}\n---\n"
        "{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {name: pool}, spec: {controllers: quorum, "
        "replicas: 1, listeners: [{name: OUT, advertisedHost: new.example.com}]}}",
        "test",
    )
    registration = ObservedRegistration(
        node_id=0,
        role=Role.BROKER,
        endpoints={"OUT": Address("old.example.com", 9094)},
        features={},
        fenced=True,
        rack="east",
    )
    quorum = ObservedQuorum(leader_id=3000, leader_epoch=1, high_watermark=9, kraft_version=1)
    node = ObservedNode(node_id=0, role=Role.BROKER, state=NodeState.UNREADY, pool="pool")
    observed = ObservedCluster(
        nodes={0: node},
        quorum=quorum,
        kafka=KafkaFacts(quorum=quorum, cluster_id="a" * 22, registrations={0: registration}),
    )
    view = view_of("quorum", desired_cluster(manifests), observed, Plan(steps=()))
    status = broker_status(view, pool="pool", generation=1)
    (broker,) = status["brokers"]
    assert broker["advertised"] == {"OUT": "old.example.com:9094"}
    assert (broker["fenced"], broker["rack"]) == (True, "east")


@pytest.mark.parametrize(
    ("is_formed", "has_response", "lifecycle", "expected"),
    [
        (True, True, Lifecycle.RUNNING, True),
        (True, False, Lifecycle.RUNNING, False),
        (True, False, Lifecycle.PAUSED, False),
        (True, False, Lifecycle.HIBERNATED, None),
        (False, False, Lifecycle.RUNNING, None),
    ],
)
def test_a_missing_leader_is_told_where_one_has_to_be(
    is_formed: bool, has_response: bool, lifecycle: Lifecycle, expected: bool | None
) -> None:
    """The alert for a quorum without a leader fires for Java controllers, too, and with all of them down, and
    for no cluster that need not have one.
    """
    manifests = load_manifests(QUORUM, "test")
    quorum = ObservedQuorum(leader_id=3000, leader_epoch=1, high_watermark=9, kraft_version=1)
    observed = ObservedCluster(
        nodes={},
        quorum=quorum if has_response else None,
        kafka=KafkaFacts(quorum=quorum, cluster_id="a" * 22) if has_response else None,
        formation=Formation(cluster_id="a" * 22, initial_voters={}, is_formed=is_formed),
    )
    desired = replace(desired_cluster(manifests), lifecycle=lifecycle)
    found = has_leader(view_of("quorum", desired, observed, Plan(steps=())))
    assert found is expected
    metrics = OperatorMetrics()
    metrics.set_leader("kafka", "quorum", has_leader=True)
    metrics.set_leader("kafka", "quorum", has_leader=found)
    line = 'quorate_quorum_has_leader{name="quorum",resource_namespace="kafka"} %.1f'
    shown = generate_latest(metrics.registry).decode()
    assert ("quorate_quorum_has_leader{" in shown) is (expected is not None)
    assert expected is None or line % expected in shown
    metrics.set_leader("kafka", "quorum", has_leader=None)
    assert "quorate_quorum_has_leader{" not in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (
            {3000: NodeState.STARTING, 3001: NodeState.STOPPED, 3002: NodeState.CRASHED},
            "; not running: 3001, 3002",
        ),
        ({3000: NodeState.UNREADY, 3001: NodeState.STARTING, 3002: NodeState.ABSENT}, "; not running: 3002"),
        ({3000: NodeState.UNREADY, 3001: NodeState.UNREADY, 3002: NodeState.UNREADY}, ""),
    ],
)
def test_without_a_leader_the_missing_controllers_are_named(
    states: dict[int, NodeState], message: str
) -> None:
    """After a power cut, the condition says which controllers to look at."""
    nodes = {
        node_id: ObservedNode(
            node_id=node_id, role=Role.CONTROLLER, state=state, pool="quorum", exited_at_ms=0
        )
        for node_id, state in states.items()
    }
    formation = Formation(cluster_id="a" * 22, initial_voters={}, is_formed=True)
    observed = ObservedCluster(nodes=nodes, quorum=None, formation=formation)
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    status = controller_status(view_of("quorum", desired, observed, Plan(steps=())), generation=1)
    (condition,) = (condition for condition in status["conditions"] if condition["type"] == "QuorumHealthy")
    assert (condition["status"], condition["reason"]) == ("False", "NoLeader")
    assert condition["message"] == f"no leader answers{message}"


def _voter(node_id: int, end_offset: int, *, caught_up: bool) -> ObservedVoter:
    return ObservedVoter(
        node_id=node_id,
        directory_id=None,
        log_end_offset=end_offset,
        last_fetch_ms=None,
        last_caught_up_ms=None,
        caught_up=caught_up,
    )


def test_a_voter_that_is_behind_has_its_lag() -> None:
    """`quorate status` shows how far a voter is behind, and an idle cluster still costs no write."""
    voters = [
        _voter(3000, 100, caught_up=True),
        _voter(3001, 98, caught_up=True),
        _voter(3002, 40, caught_up=False),
    ]
    quorum = ObservedQuorum(
        leader_id=3000,
        leader_epoch=1,
        high_watermark=100,
        kraft_version=1,
        voters={voter.node_id: voter for voter in voters},
    )
    observed = ObservedCluster(nodes={}, quorum=quorum, kafka=KafkaFacts(quorum=quorum, cluster_id="a" * 22))
    view = view_of("quorum", desired_cluster(load_manifests(QUORUM, "test")), observed, Plan(steps=()))
    status = controller_status(view, generation=1, history=None)
    assert [(voter["nodeId"], voter.get("lag")) for voter in status["voters"]] == [
        (3000, None),
        (3001, None),
        (3002, 60),
    ]


@pytest.mark.parametrize(
    ("given", "lifecycle", "reconciling", "stalled"),
    [
        (Plan(steps=()), Lifecycle.RUNNING, ("False", "AsDesired"), ("False", "NothingRefused")),
        (Plan(steps=(WORK,)), Lifecycle.RUNNING, ("True", "Working"), ("False", "NothingRefused")),
        (Plan(steps=(WORK,)), Lifecycle.PAUSED, ("False", "Paused"), ("False", "NothingRefused")),
        (
            Plan(steps=(), refusals=(Refusal("UnsafeDowngrade", "not with 4.3.1"),)),
            Lifecycle.RUNNING,
            ("False", "AsDesired"),
            ("True", "UnsafeDowngrade"),
        ),
        (
            Plan(steps=(WORK,), refusals=(Refusal("UnsafeDowngrade", "not with 4.3.1"),)),
            Lifecycle.RUNNING,
            ("True", "Working"),
            ("True", "UnsafeDowngrade"),
        ),
    ],
)
def test_a_change_under_way_differs_from_a_stalled_one(
    given: Plan, lifecycle: Lifecycle, reconciling: tuple[str, str], stalled: tuple[str, str]
) -> None:
    """Flux and others that follow kstatus wait for changes under way, and report stalled resources."""
    desired = replace(desired_cluster(load_manifests(QUORUM, "test")), lifecycle=lifecycle)
    observed = ObservedCluster(nodes={}, quorum=None)
    status = controller_status(view_of("quorum", desired, observed, given), generation=1, history=None)
    assert _conditions(status, "Reconciling", "Stalled") == [reconciling, stalled]


@pytest.mark.parametrize(
    ("code", "stalled", "degraded"),
    [
        ("", ("False", "NothingRefused"), ("False", "Healthy")),
        (STARTS_LONG, ("False", "NothingRefused"), ("True", "StartTakesLong")),
        (ROLLOUT_BLOCKED, ("True", "RolloutBlocked"), ("False", "Healthy")),
    ],
)
def test_a_wait_that_is_not_usual_is_in_a_condition(
    code: str, stalled: tuple[str, str], degraded: tuple[str, str]
) -> None:
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    wait = WaitFor(reason="broker-0 to be in service", code=code, is_stalled=code == ROLLOUT_BLOCKED)
    given = Plan(steps=(WaitFor(reason="a leader"), wait))
    view = view_of("quorum", desired, ObservedCluster(nodes={}, quorum=None), given)
    assert _conditions(controller_status(view, generation=1), "Stalled", "Degraded") == [stalled, degraded]


def test_why_a_node_crashed_is_in_a_condition() -> None:
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    nodes = {
        node.node_id: ObservedNode(
            node_id=node.node_id,
            role=node.role,
            state=NodeState.CRASHED,
            pool=node.pool,
            exit_reason=reason,
        )
        for node, reason in zip(
            desired.nodes, ("exit status 1: error: log.dirs: in use", None, None), strict=True
        )
    }
    view = view_of("quorum", desired, ObservedCluster(nodes=nodes, quorum=None), Plan(steps=()))
    (degraded,) = (
        condition
        for condition in controller_status(view, generation=1)["conditions"]
        if condition["type"] == "Degraded"
    )
    assert degraded["message"] == (
        "crashed or no longer ready: 3000 (exit status 1: error: log.dirs: in use), 3001, 3002"
    )


def test_a_pause_is_no_fault() -> None:
    desired = replace(desired_cluster(load_manifests(QUORUM, "test")), lifecycle=Lifecycle.PAUSED)
    observed = ObservedCluster(nodes={}, quorum=None)
    paused = plan(desired, observed, now_ms=0)
    assert [refusal.code for refusal in paused.refusals] == ["Paused"]
    status = controller_status(view_of("quorum", desired, observed, paused), generation=1)
    assert _conditions(status, "Progressing", "Stalled", "Degraded") == [
        ("False", "Paused"),
        ("False", "NothingRefused"),
        ("False", "Healthy"),
    ]


@pytest.mark.parametrize(
    ("revisions", "state", "ready", "replicas"),
    [
        (("a", "a", "a"), NodeState.READY, ("True", "AllReady"), 3),
        (("a", "b", "a"), NodeState.READY, ("False", "RolloutDue"), 3),
        (("a", "b", "a"), NodeState.STARTING, ("False", "NodesNotReady"), 3),
        (("a", "b", "a"), NodeState.STOPPED, ("False", "NodesNotReady"), 0),
    ],
)
def test_ready_means_that_nodes_run_with_what_is_desired(
    revisions: tuple[str, ...], state: NodeState, ready: tuple[str, str], replicas: int
) -> None:
    """`kubectl wait --for=condition=Ready` waits for a roll, and `replicas` counts what is there."""
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    wanted = tuple(replace(node, revision={"config": "a"}) for node in desired.nodes)
    nodes = {
        node.node_id: ObservedNode(
            node_id=node.node_id, role=node.role, state=state, pool=node.pool, revision={"config": has}
        )
        for node, has in zip(wanted, revisions, strict=True)
    }
    view = view_of(
        "quorum",
        replace(desired, nodes=wanted),
        ObservedCluster(nodes=nodes, quorum=None),
        Plan(steps=()),
    )
    status = controller_status(view, generation=1)
    assert _conditions(status, "Ready") == [ready]
    assert status["replicas"] == replicas


def test_a_restart_that_waits_for_a_window_leaves_a_pool_ready() -> None:
    """Waiting for a window that opens at night raises no alert, and no step counts as under way."""
    node = ObservedNode(
        node_id=3000, role=Role.CONTROLLER, state=NodeState.READY, pool="quorum", revision={"image": "a"}
    )
    desired = desired_cluster(
        load_manifests(QUORUM.replace("quorum}", "quorum}, spec: {replicas: 1}"), "test")
    )
    nodes = (replace(desired.nodes[0], revision={"image": "b"}),)
    observed = ObservedCluster(nodes={3000: node}, quorum=None)
    waiting = Postponed(node_id=3000, reason="image: a -> b", until_ms=1_795_903_200_000)
    for postponed, ready, reason in (
        ((waiting,), ("True", "RestartsPostponed"), "RestartsPostponed"),
        ((), ("False", "RolloutDue"), "AsDesired"),
    ):
        view = view_of("quorum", replace(desired, nodes=nodes), observed, Plan(steps=(), postponed=postponed))
        status = controller_status(view, generation=1)
        assert _conditions(status, "Ready", "Reconciling") == [ready, ("False", reason)]
        reported = "to be restarted from 2026-11-28 22:00 UTC on: 3000 (image: a -> b)"
        telling = [
            condition["type"] for condition in status["conditions"] if reported in condition["message"]
        ]
        assert telling == (["Ready", "Progressing", "Reconciling"] if postponed else [])
        assert ("before 2026-11-28 22:00 UTC" in view.next) is bool(postponed)


def test_what_cannot_go_on_and_what_is_tried_again_differ() -> None:
    """An invalid manifest is stalled, a failed step is tried again."""
    refused, failed = refused_status("spec.x: wrong", 2), failed_status("no answer", 2)
    assert _conditions(refused, "Reconciling", "Stalled") == [
        ("False", "InvalidManifest"),
        ("True", "InvalidManifest"),
    ]
    assert _conditions(failed, "Reconciling", "Degraded") == [("True", "StepFailed")] * 2


@pytest.mark.parametrize(
    ("volume", "condition"),
    [
        (ObservedVolume(requested_bytes=2, capacity_bytes=2), ("False", "AsRequested")),
        (ObservedVolume(requested_bytes=2, capacity_bytes=1), ("True", "Requested")),
        (
            ObservedVolume(requested_bytes=2, capacity_bytes=1, progress="FileSystemResizePending: kubelet"),
            ("True", "FileSystemResizePending"),
        ),
    ],
)
def test_a_resize_has_a_condition(volume: ObservedVolume, condition: tuple[str, str]) -> None:
    """`kubectl describe` shows a volume that is growing, with Kubernetes' own reason."""
    node = ObservedNode(
        node_id=3000, role=Role.CONTROLLER, state=NodeState.READY, pool="quorum", volumes={0: volume}
    )
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    view = view_of("quorum", desired, ObservedCluster(nodes={3000: node}, quorum=None), Plan(steps=()))
    assert _conditions(controller_status(view, generation=1), "VolumesResizing") == [condition]


@pytest.mark.parametrize(
    ("is_in_use", "condition"), [(True, ("True", "RemovedFromVolumes")), (False, ("False", "AsRequested"))]
)
def test_a_volume_that_is_to_be_removed_has_a_condition(
    *, is_in_use: bool, condition: tuple[str, str]
) -> None:
    manifests = load_manifests(
        f"{QUORUM}\n---\n{{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {{name: pool}}, "
        "spec: {controllers: quorum, replicas: 1, nodeIds: {first: 0}, storage: {volumes: [{id: 0}]}}}",
        "test",
    )
    volumes = {0: ObservedVolume(directory="/0"), 1: ObservedVolume(directory="/1", is_in_use=is_in_use)}
    node = ObservedNode(node_id=0, role=Role.BROKER, state=NodeState.READY, pool="pool", volumes=volumes)
    observed = ObservedCluster(nodes={0: node}, quorum=None)
    view = view_of("quorum", desired_cluster(manifests), observed, Plan(steps=()))
    status = broker_status(view, pool="pool", generation=1)
    assert _conditions(status, "VolumesEmptying") == [condition]
    (message,) = [
        condition["message"] for condition in status["conditions"] if condition["type"] == "VolumesEmptying"
    ]
    assert ("0 (volume 1)" in message) is is_in_use


@pytest.mark.parametrize(
    ("plan", "condition"),
    [
        (
            Plan(steps=(GrowVolume(node_id=3000, volume_id=0, reason="storage.size changed"),)),
            ("True", "Requested"),
        ),
        (
            Plan(steps=(), refusals=(Refusal("VolumeCannotGrow", "no", pool="quorum"),)),
            ("True", "VolumeCannotGrow"),
        ),
        (
            Plan(steps=(), refusals=(Refusal("VolumeCannotGrow", "no", pool="pool"),)),
            ("False", "AsRequested"),
        ),
    ],
)
def test_a_resize_is_told_before_it_is_requested(plan: Plan, condition: tuple[str, str]) -> None:
    """`kubectl wait` for the end of a resize does not return at once."""
    volume = ObservedVolume(requested_bytes=1, capacity_bytes=1)
    node = ObservedNode(
        node_id=3000, role=Role.CONTROLLER, state=NodeState.READY, pool="quorum", volumes={0: volume}
    )
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    view = view_of("quorum", desired, ObservedCluster(nodes={3000: node}, quorum=None), plan)
    assert _conditions(controller_status(view, generation=1), "VolumesResizing") == [condition]


def test_what_is_refused_for_a_pool_leaves_the_others_alone() -> None:
    manifests = load_manifests(
        f"{QUORUM}\n---\n{{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {{name: pool}}, "
        "spec: {controllers: quorum, replicas: 0}}",
        "test",
    )
    own, shared = Refusal("VolumeCannotGrow", "no", pool="pool"), Refusal("UnsafeDowngrade", "not with 4.3.1")
    for refusals, of_quorum, of_pool in (
        ((own,), ("False", "NothingRefused"), ("True", own.code)),
        ((own, shared), ("True", shared.code), ("True", own.code)),
    ):
        view = view_of(
            "quorum",
            desired_cluster(manifests),
            ObservedCluster(nodes={}, quorum=None),
            Plan(steps=(), refusals=refusals),
        )
        assert _conditions(controller_status(view, generation=1), "Stalled") == [of_quorum]
        assert _conditions(broker_status(view, pool="pool", generation=1), "Stalled") == [of_pool]


def test_a_pool_that_is_drained_shows_what_its_brokers_hold() -> None:
    """The status shows what the deletion waits for."""
    manifests = load_manifests(
        f"{QUORUM}\n---\n{{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {{name: pool}}, "
        "spec: {controllers: quorum, replicas: 2, nodeIds: {first: 0}}}",
        "test",
    )
    desired = desired_cluster(replace(manifests, drained_pools=frozenset({"pool"})))
    node = ObservedNode(node_id=1, role=Role.BROKER, state=NodeState.READY, pool="pool")
    kafka = KafkaFacts(
        quorum=ObservedQuorum(leader_id=3000, leader_epoch=1, high_watermark=1, kraft_version=1),
        cluster_id="",
        loads={1: BrokerLoad(replicas=12)},
    )
    observed = ObservedCluster(nodes={1: node}, quorum=None, kafka=kafka)
    refusal = Refusal("TooFewBrokers", "broker-1 holds 12 replica(s)", pool="pool")
    for refusals, ready, stalled in (
        ((), ("False", "Draining"), ("False", "NothingRefused")),
        ((refusal,), ("False", "TooFewBrokers"), ("True", "TooFewBrokers")),
    ):
        view = view_of("quorum", desired, observed, Plan(steps=(), refusals=refusals))
        status = broker_status(view, pool="pool", generation=1)
        assert [(broker["nodeId"], broker["replicas"]) for broker in status["brokers"]] == [(1, 12)]
        assert _conditions(status, "Ready", "Stalled") == [ready, stalled]


@pytest.mark.parametrize("is_stalled", [False, True])
def test_a_pool_whose_addresses_are_waited_for_is_not_ready(*, is_stalled: bool) -> None:
    """After a while it is Stalled, too. The quorum is not concerned."""
    manifests = load_manifests(
        f"{QUORUM}\n---\n{{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {{name: pool}}, "
        "spec: {controllers: quorum, replicas: 1, nodeIds: {first: 0}}}",
        "test",
    )
    nodes = {
        node_id: ObservedNode(node_id=node_id, role=role, state=NodeState.READY, pool=pool)
        for node_id, role, pool in (
            (0, Role.BROKER, "pool"),
            *((node_id, Role.CONTROLLER, "quorum") for node_id in (3000, 3001, 3002)),
        )
    }
    wait = WaitFor(
        reason="b0:9094 to reach broker-0", node_ids=(0,), code="AddressNotVerified", is_stalled=is_stalled
    )
    observed = ObservedCluster(nodes=nodes, quorum=None)
    view = view_of("quorum", desired_cluster(manifests), observed, Plan(steps=(wait,)))
    status = broker_status(view, pool="pool", generation=1)
    stalled = ("True", "AddressNotVerified") if is_stalled else ("False", "NothingRefused")
    assert _conditions(status, "Ready", "Stalled") == [("False", "AddressNotVerified"), stalled]
    assert view.health is (Health.ATTENTION if is_stalled else Health.WORKING)
    assert _conditions(controller_status(view, generation=1), "Ready", "Stalled") == [
        ("True", "AllReady"),
        ("False", "NothingRefused"),
    ]


def _conditions(status: dict[str, Any], *kinds: str) -> list[tuple[str, str]]:
    known = {
        condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]
    }
    return [known[kind] for kind in kinds]


def test_fields_that_a_release_does_not_know_are_counted_where_they_are_many() -> None:
    note = unknown_fields_note([f"spec.field{number}" for number in range(12)])
    assert note.endswith("them: spec.field0, spec.field1, spec.field2, spec.field3, spec.field4 and 7 more")
