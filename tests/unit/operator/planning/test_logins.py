"""Passwords that nodes log in with are changed in three rolls; what would shut nodes out of each other is refused."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Lifecycle, NodeState, ObservedNode, Role
from quorate_operator.planning.logins import with_logins
from quorate_operator.planning.rollout import changes
from quorate_operator.planning.steps import AddVoter, Plan, StartNode, StopNode

FORMER, NEXT, BOTH = {"node": "1"}, {"next": "2"}, {"node": "1", "next": "2"}
STEPS = Plan(
    steps=(
        StopNode(node_id=3000, grace_ms=1, reason="login changed"),
        StartNode(node_id=3001, reason="it does not run"),
        AddVoter(node_id=3002, directory_id="a" * 22, endpoints={}, reason="it is caught up"),
    )
)


def cluster(make: Make, username: str, passwords: Mapping[str, str]) -> Cluster:
    """A secured cluster whose nodes log in as a user, and whose Secret has these passwords."""
    certificate = Secret(values=dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "x"))
    return make(
        "listeners: [{name: CONTROLLER, protocol: SASL_SSL, tls: {secretName: cert}, "
        f"sasl: {{username: {username}, secretName: login}}}}]",
        secrets={"cert": certificate, "login": Secret(values=passwords)},
    )


def brokers(make: Make, username: str, passwords: Mapping[str, str], mechanism: str = "PLAIN") -> Cluster:
    """A cluster whose brokers log in at each other as a user, and whose Secret has these passwords."""
    certificate = Secret(values=dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "x"))
    return make(
        brokers="replicas: 3, listeners: [{name: CLIENTS, protocol: SASL_SSL, tls: {secretName: cert}, "
        f"sasl: {{mechanisms: [{mechanism}], username: {username}, secretName: login}}}}]",
        secrets={"cert": certificate, "login": Secret(values=passwords)},
    )


def revisions(*clusters: Cluster) -> dict[int, Mapping[str, str]]:
    """The revisions of running nodes; later clusters have the nodes of higher ids."""
    found: dict[int, Mapping[str, str]] = {}
    for node in clusters[0].desired.nodes:
        place = min(len(clusters) - 1, node.place)
        found[node.node_id] = clusters[place].node(node.node_id).revision
    return found


def refusals(before: Mapping[int, Mapping[str, str]], after: Cluster) -> list[str]:
    """The refusals of a change; what is refused stops and starts no node."""
    plan = with_logins(STEPS, after.desired, before)
    assert plan.steps == (STEPS.steps if not plan.refusals else STEPS.steps[2:])
    return [refusal.message for refusal in plan.refusals]


def test_three_rolls_change_a_password(make: Make) -> None:
    stages = [
        cluster(make, username, passwords)
        for username, passwords in (("node", FORMER), ("node", BOTH), ("next", BOTH), ("next", NEXT))
    ]
    for before, after in itertools.pairwise(stages):
        assert refusals(revisions(before), after) == []
        assert refusals(revisions(after, before), after) == []
        assert before.node(3000).revision["login"] != after.node(3000).revision["login"]


@pytest.mark.parametrize(
    ("username", "passwords", "message"),
    [
        (
            "node",
            {"node": "3"},
            "sasl.secretName: the password of 'node' can't be changed or removed while nodes log",
        ),
        (
            "next",
            NEXT,
            "sasl.secretName: the password of 'node' can't be changed or removed while nodes log in as it",
        ),
        (
            "next",
            BOTH,
            "sasl.username: 'next': controller 3000 does not let this user in yet: add it to the Secret",
        ),
    ],
)
def test_what_skips_a_step_is_refused(
    make: Make, username: str, passwords: Mapping[str, str], message: str
) -> None:
    running = revisions(cluster(make, "node", FORMER))
    after = cluster(make, username, passwords)
    (refusal,) = refusals(running, after)
    assert f"KafkaController quorum: spec.listeners[0].{message}" in refusal
    assert refusals({}, after) == []


def test_a_cluster_that_stops_is_not_held(make: Make) -> None:
    running = revisions(cluster(make, "node", FORMER))
    desired = cluster(make, "node", {"node": "3"}).desired
    for stopping in (replace(desired, running=False), replace(desired, lifecycle=Lifecycle.HIBERNATED)):
        assert with_logins(STEPS, stopping, running) == STEPS


def test_clusters_without_a_login_and_nodes_of_earlier_versions_are_not_held(make: Make) -> None:
    assert with_logins(STEPS, make().desired, revisions(make())) == STEPS
    assert refusals({3000: {"config": "1"}}, cluster(make, "node", FORMER)) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_three_rolls_change_the_password_of_brokers(make: Make, mechanism: str) -> None:
    stages = [
        brokers(make, username, passwords, mechanism)
        for username, passwords in (("node", FORMER), ("node", BOTH), ("next", BOTH), ("next", NEXT))
    ]
    for before, after in itertools.pairwise(stages):
        assert refusals(revisions(before), after) == []
        assert refusals(revisions(after, before), after) == []


@pytest.mark.parametrize(
    ("mechanism", "username", "passwords", "message"),
    [
        (
            "PLAIN",
            "node",
            {"node": "3"},
            "as 0 does: add another user to the Secret, set username to it when all brokers have restarted, and",
        ),
        (
            "SCRAM-SHA-512",
            "node",
            {"node": "3"},
            "as 0 does: create another user in Kafka for SCRAM-SHA-512, add it to the Secret, set username to it",
        ),
        (
            "PLAIN",
            "next",
            NEXT,
            "secretName: the password of 'node' can't be changed or removed while brokers log in as it",
        ),
        (
            "PLAIN",
            "next",
            BOTH,
            "username: 'next': broker 0 does not let this user in yet: add it to the Secret",
        ),
    ],
)
def test_what_would_part_brokers_from_each_other_is_refused(
    make: Make, mechanism: str, username: str, passwords: Mapping[str, str], message: str
) -> None:
    running = revisions(brokers(make, "node", FORMER, mechanism))
    (refusal,) = refusals(running, brokers(make, username, passwords, mechanism))
    assert refusal.startswith("KafkaBroker brokers: spec.listeners[0].sasl.")
    assert message in refusal


def test_a_secret_that_was_created_again_is_the_same(make: Make) -> None:
    """Its uid is another one, and its passwords are not."""
    before, after = (brokers(make, "node", FORMER) for _ in range(2))
    assert refusals(revisions(before), after) == []
    login = before.node(0).revision["broker-login"]
    assert "node" in login
    recreated = make(
        brokers="replicas: 3, listeners: [{name: CLIENTS, protocol: SASL_SSL, tls: {secretName: cert}, "
        "sasl: {mechanisms: [PLAIN], username: node, secretName: login}}]",
        secrets={**before.context.facts.secrets, "login": Secret(values=FORMER, salt="another uid")},
    )
    assert recreated.node(0).revision["broker-login"] == login
    assert refusals(revisions(before), recreated) == []


def test_a_login_that_an_earlier_release_did_not_record_restarts_nothing(make: Make) -> None:
    after = brokers(make, "node", FORMER)
    node = after.node(0)
    recorded = {part: value for part, value in node.revision.items() if part != "broker-login"}
    seen = ObservedNode(node_id=0, role=Role.BROKER, pool="brokers", state=NodeState.READY, revision=recorded)
    assert changes(node, seen) == ()
    assert refusals({0: recorded}, after) == []


def test_nodes_that_connect_by_another_listener_need_not_know_the_login(make: Make) -> None:
    before, after = cluster(make, "node", FORMER), cluster(make, "next", NEXT)
    desired = replace(
        after.desired,
        nodes=tuple(replace(node, controllers_listener="SECURED") for node in after.desired.nodes),
    )
    running = revisions(before)
    assert with_logins(STEPS, desired, running, dict.fromkeys(running, "CONTROLLER")).steps == STEPS.steps
    assert with_logins(STEPS, desired, running, dict.fromkeys(running, "SECURED")).refusals
    parted = (replace(desired.nodes[0], controllers_listener="CONTROLLER"), *desired.nodes[1:])
    assert not with_logins(STEPS, replace(desired, nodes=parted), running).refusals
