"""Statuses of clusters and pools: their conditions, and what they report."""

from dataclasses import replace

import pytest
from kit.conditions import conditions_of
from prometheus_client import generate_latest
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.statuses import (
    broker_status,
    controller_status,
    failed_status,
    has_leader,
    refused_status,
    unknown_fields_note,
    with_unknown_fields,
)
from quorate_operator.models.manifests import load_manifests
from quorate_operator.models.status import MESSAGE_LENGTH_MAX
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
    ObservedVoter,
    Role,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import (
    ROLLOUT_BLOCKED,
    STARTS_LONG,
    Plan,
    Postponed,
    Refusal,
    WaitFor,
    wait_for,
)
from quorate_operator.view.cluster import Health, view_of

QUORUM = "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}"
WORK = wait_for("controllers to catch up", 3000)


def test_a_message_that_also_names_unknown_fields_is_not_too_long() -> None:
    status = refused_status("x" * (MESSAGE_LENGTH_MAX + 1), 1)
    ready, *others = with_unknown_fields(status, ["spec.new"])["conditions"]
    assert (ready["type"], len(ready["message"])) == ("Ready", MESSAGE_LENGTH_MAX)
    assert others == status["conditions"][1:]
    ready, *_ = with_unknown_fields(refused_status("x", 1), ["spec.new"])["conditions"]
    assert ready["message"] == (
        "x; not used, because this release of the operator does not know them: spec.new"
    )


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
    """`kubectl quorate status` shows how far a voter is behind, and an idle cluster still costs no write."""
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
    assert conditions_of(status, "Reconciling", "Stalled") == [reconciling, stalled]


@pytest.mark.parametrize(
    ("code", "stalled", "ready"),
    [
        ("", ("False", "NothingRefused"), ("False", "NodesNotReady")),
        (STARTS_LONG, ("False", "NothingRefused"), ("False", "StartTakesLong")),
        (ROLLOUT_BLOCKED, ("True", "RolloutBlocked"), ("False", "NodesNotReady")),
    ],
)
def test_a_wait_that_is_not_usual_is_in_a_condition(
    code: str, stalled: tuple[str, str], ready: tuple[str, str]
) -> None:
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    nodes = {
        node.node_id: ObservedNode(
            node_id=node.node_id, role=node.role, state=NodeState.STARTING, pool=node.pool
        )
        for node in desired.nodes
    }
    wait = WaitFor(reason="broker-0 to be in service", code=code, is_stalled=code == ROLLOUT_BLOCKED)
    given = Plan(steps=(WaitFor(reason="a leader"), wait))
    view = view_of("quorum", desired, ObservedCluster(nodes=nodes, quorum=None), given)
    assert conditions_of(controller_status(view, generation=1), "Ready", "Stalled") == [ready, stalled]


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
    (ready,) = (
        condition
        for condition in controller_status(view, generation=1)["conditions"]
        if condition["type"] == "Ready"
    )
    assert (ready["status"], ready["reason"]) == ("False", "NodesFailed")
    assert ready["message"] == (
        "crashed or no longer ready: 3000 (exit status 1: error: log.dirs: in use), 3001, 3002"
    )


def test_a_pause_is_no_fault() -> None:
    desired = replace(desired_cluster(load_manifests(QUORUM, "test")), lifecycle=Lifecycle.PAUSED)
    observed = ObservedCluster(nodes={}, quorum=None)
    paused = plan(desired, observed, now_ms=0)
    assert [refusal.code for refusal in paused.refusals] == ["Paused"]
    status = controller_status(view_of("quorum", desired, observed, paused), generation=1)
    assert conditions_of(status, "Reconciling", "Stalled") == [
        ("False", "Paused"),
        ("False", "NothingRefused"),
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
    assert conditions_of(status, "Ready") == [ready]
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
        assert conditions_of(status, "Ready", "Reconciling") == [ready, ("False", reason)]
        reported = "to be restarted from 2026-11-28 22:00 UTC on: 3000 (image: a -> b)"
        telling = [
            condition["type"] for condition in status["conditions"] if reported in condition["message"]
        ]
        assert telling == (["Ready", "Reconciling"] if postponed else [])
        assert ("before 2026-11-28 22:00 UTC" in view.next) is bool(postponed)


def test_what_cannot_go_on_and_what_is_tried_again_differ() -> None:
    """An invalid manifest is stalled, a failed step is tried again."""
    refused, failed = refused_status("spec.x: wrong", 2), failed_status("no answer", 2)
    assert conditions_of(refused, "Reconciling", "Stalled") == [
        ("False", "InvalidManifest"),
        ("True", "InvalidManifest"),
    ]
    assert conditions_of(failed, "Reconciling") == [("True", "StepFailed")]


def test_no_two_conditions_say_the_same() -> None:
    """Those of kstatus, and what they can't say."""
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    view = view_of("quorum", desired, ObservedCluster(nodes={}, quorum=None), Plan(steps=()))
    reported = [condition["type"] for condition in controller_status(view, generation=1)["conditions"]]
    assert reported == [
        "Ready",
        "Reconciling",
        "Stalled",
        "VolumesResizing",
        "QuorumHealthy",
        "UpgradeBlocked",
    ]


def test_a_problem_of_a_node_is_the_reason_of_ready() -> None:
    """Also of one that serves, as when a container beside it has ended."""
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    for state, status in ((NodeState.STARTING, "False"), (NodeState.READY, "True")):
        nodes = {
            node.node_id: ObservedNode(
                node_id=node.node_id, role=node.role, state=state, pool=node.pool, problem="ImagePullBackOff"
            )
            for node in desired.nodes
        }
        view = view_of("quorum", desired, ObservedCluster(nodes=nodes, quorum=None), Plan(steps=()))
        reported = controller_status(view, generation=1)
        assert conditions_of(reported, "Ready") == [(status, "NodeProblem")]
        assert "3000: ImagePullBackOff" in reported["conditions"][0]["message"]


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
        assert conditions_of(controller_status(view, generation=1), "Stalled") == [of_quorum]
        assert conditions_of(broker_status(view, pool="pool", generation=1), "Stalled") == [of_pool]


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
        assert conditions_of(status, "Ready", "Stalled") == [ready, stalled]


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
    assert conditions_of(status, "Ready", "Stalled") == [("False", "AddressNotVerified"), stalled]
    assert view.health is (Health.ATTENTION if is_stalled else Health.WORKING)
    assert conditions_of(controller_status(view, generation=1), "Ready", "Stalled") == [
        ("True", "AllReady"),
        ("False", "NothingRefused"),
    ]


def test_fields_that_a_release_does_not_know_are_counted_where_they_are_many() -> None:
    note = unknown_fields_note([f"spec.field{number}" for number in range(12)])
    assert note.endswith("them: spec.field0, spec.field1, spec.field2, spec.field3, spec.field4 and 7 more")
