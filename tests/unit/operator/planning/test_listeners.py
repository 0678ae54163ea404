"""Nodes move from one listener to another while they run, and can always connect to each other."""

from random import Random

import pytest
from kit.moved_listeners import BROKERS, CONTROLLERS, Listed, ListeningWorld, manifests_of
from quorate_operator.models.manifests import ManifestError
from quorate_operator.planning.listeners import LISTENER_MISSING, PROTOCOL_IN_USE
from quorate_operator.planning.steps import Plan

OLD, NEW = {"name": "CONTROLLER"}, {"name": "SECURED", "protocol": "SSL"}
PLAIN, TLS = {"name": "PLAINTEXT"}, {"name": "TLS", "protocol": "SSL"}
BEFORE = manifests_of([OLD], [PLAIN])
BOTH = manifests_of([NEW, OLD], [TLS, PLAIN])
APPENDED = manifests_of([OLD, NEW], [PLAIN, TLS])
AFTER = manifests_of([NEW], [TLS])
SEEDS = range(25)
ALL_BROKERS = [node_id for node_ids in BROKERS.values() for node_id in node_ids]


def refused(made: Plan) -> set[str]:
    return {refusal.code for refusal in made.refusals}


def names(world: ListeningWorld, node_id: int) -> tuple[str, ...]:
    return tuple(listener.name for listener in world.nodes[node_id].listeners.own)


def test_a_listener_that_is_put_first_is_served_by_all_nodes_before_one_connects_by_it() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = BOTH
    started: list[tuple[int, tuple[str, ...]]] = []
    for _ in range(200):
        before = {node_id: node.record for node_id, node in world.nodes.items()}
        world.round()
        started += [
            (node_id, names(world, node_id))
            for node_id, node in world.nodes.items()
            if node.record != before[node_id]
        ]
    assert not world.observe_and_plan()[2].steps
    # The last node of a role finds that all others serve it: one restart less.
    of_controllers = [served for node_id, served in started if node_id in CONTROLLERS]
    assert of_controllers == [("CONTROLLER", "SECURED")] * 2 + [("SECURED", "CONTROLLER")] * 3
    of_brokers = [served for node_id, served in started if node_id in ALL_BROKERS]
    count = len(ALL_BROKERS)
    assert of_brokers == [("PLAINTEXT", "TLS")] * (count - 1) + [("TLS", "PLAINTEXT")] * count
    assert {world.nodes[node_id].listeners.controllers for node_id in world.nodes} == {"SECURED"}


def test_an_appended_listener_is_served_and_not_used() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = APPENDED
    world.settle()
    assert {names(world, node_id) for node_id in CONTROLLERS} == {("CONTROLLER", "SECURED")}
    assert {names(world, node_id) for node_id in ALL_BROKERS} == {("PLAINTEXT", "TLS")}
    assert {node.listeners.controllers for node in world.nodes.values()} == {"CONTROLLER"}


def test_a_listener_that_is_removed_in_one_edit_stays_served_until_no_node_uses_it() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = AFTER
    waits = "\n".join(wait.reason for wait in world.observe_and_plan()[2].waits)
    assert "no node to connect to controllers by CONTROLLER" in waits
    assert "no node to connect to brokers by PLAINTEXT" in waits
    world.settle()
    assert {names(world, node_id) for node_id in CONTROLLERS} == {("SECURED",)}
    assert {names(world, node_id) for node_id in ALL_BROKERS} == {("TLS",)}


def test_a_voter_that_is_down_keeps_all_others_at_the_former_listener() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = BOTH
    while "SECURED" not in names(world, 3001):
        world.round()
    world.settle_processes()
    down = next(node_id for node_id in CONTROLLERS if "SECURED" not in world.voters[node_id])
    world.nodes[down].runs = False
    desired, _, made = world.observe_and_plan()
    assert {node.listeners[0].name for node in desired.nodes if node.node_id in CONTROLLERS} == {"CONTROLLER"}
    waits = "\n".join(wait.reason for wait in made.waits)
    assert f"controller-{down} in the voter set" in waits


def test_without_a_leader_a_node_starts_with_the_listener_that_it_had() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = AFTER
    for node in world.nodes.values():
        node.runs = False
    desired = world.observe_and_plan()[0]
    for node in desired.nodes:
        assert node.listeners[0].name == world.first_of(node.node_id)
        assert node.controllers_listener == "CONTROLLER"
    world.settle()
    assert {names(world, node_id) for node_id in CONTROLLERS} == {("SECURED",)}


def test_a_revert_in_the_middle_leads_back() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = BOTH
    while not any(world.first_of(node_id) == "SECURED" for node_id in CONTROLLERS):
        world.round()
    world.manifests = BEFORE
    world.settle()
    assert {names(world, node_id) for node_id in CONTROLLERS} == {("CONTROLLER",)}
    assert {names(world, node_id) for node_id in ALL_BROKERS} == {("PLAINTEXT",)}


def test_another_protocol_under_the_same_name_is_refused_while_nodes_connect_by_it() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = manifests_of([{**OLD, "protocol": "SSL"}], [{**PLAIN, "protocol": "SSL"}])
    made = world.settle()
    assert refused(made) == {PROTOCOL_IN_USE}
    message = next(refusal.message for refusal in made.refusals)
    assert (
        "KafkaController quorum: spec.listeners[CONTROLLER].protocol: 'SSL': nodes run with PLAINTEXT"
        in message
    )
    assert {node.listeners.own[0].protocol for node in world.nodes.values()} == {"PLAINTEXT"}
    world.crash(3000)
    world.crash(0)
    world.settle()
    assert {node.listeners.own[0].protocol for node in world.nodes.values()} == {"PLAINTEXT"}


def test_a_protocol_may_change_while_no_node_runs() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = manifests_of([{**OLD, "protocol": "SSL"}], [{**PLAIN, "protocol": "SSL"}])
    for node in world.nodes.values():
        node.runs = False
    assert not refused(world.settle())
    assert {node.listeners.own[0].protocol for node in world.nodes.values()} == {"SSL"}


def test_a_protocol_that_only_clients_use_may_change() -> None:
    world = ListeningWorld(manifests_of([OLD], [PLAIN, {"name": "CLIENTS"}]))
    world.manifests = manifests_of([OLD], [PLAIN, {"name": "CLIENTS", "protocol": "SSL"}])
    assert not refused(world.settle())
    assert {world.nodes[node_id].protocol_of("CLIENTS") for node_id in ALL_BROKERS} == {"SSL"}


def test_a_pool_without_the_listener_of_the_others_is_named_and_keeps_them_back() -> None:
    world = ListeningWorld(BEFORE)
    world.manifests = manifests_of([OLD], [TLS, PLAIN], [PLAIN])
    for _ in range(60):
        world.round()
    made = world.observe_and_plan()[2]
    assert LISTENER_MISSING in refused(made)
    assert any(
        "KafkaBroker others: spec.listeners: has no TLS" in refusal.message for refusal in made.refusals
    )
    assert {world.first_of(node_id) for node_id in ALL_BROKERS} == {"PLAINTEXT"}
    world.manifests = manifests_of([OLD], [TLS, PLAIN])
    world.settle()
    assert {world.first_of(node_id) for node_id in ALL_BROKERS} == {"TLS"}


def test_nodes_keep_their_rights_at_the_listener_in_use() -> None:
    text = "{superUsers: ['User:ANONYMOUS']}"
    world = ListeningWorld(manifests_of([OLD], [PLAIN], authorization=text))
    secured = {**TLS, "tls": "{clientAuth: required}"}
    of_controllers = {**NEW, "tls": "{clientAuth: required}"}
    text = "{superUsers: ['User:CN=brokers']}"
    world.manifests = manifests_of([of_controllers], [secured], authorization=text)
    with pytest.raises(ManifestError, match=r"superUsers: must have 'User:ANONYMOUS'.*CONTROLLER"):
        world.desired()


def test_a_port_of_a_listener_in_use_is_not_passed_on() -> None:
    world = ListeningWorld(manifests_of([{**OLD, "port": 9093}], [PLAIN]))
    world.manifests = manifests_of([{**NEW, "port": 9093}], [PLAIN])
    with pytest.raises(
        ManifestError, match="9093 is the port of SECURED and of CONTROLLER, by which nodes connect"
    ):
        world.desired()


EDITS: list[tuple[Listed, Listed]] = [
    ([OLD], [PLAIN]),
    ([OLD, NEW], [PLAIN, TLS]),
    ([NEW, OLD], [TLS, PLAIN]),
    ([NEW], [TLS]),
    ([NEW, OLD], [PLAIN]),
    ([OLD], [TLS]),
    ([{**OLD, "protocol": "SSL"}], [{**PLAIN, "protocol": "SSL"}]),
    ([NEW, {**OLD, "protocol": "SSL"}], [TLS, {**PLAIN, "protocol": "SSL"}]),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_edit_crash_or_killed_operator_parts_the_nodes(seed: int) -> None:
    random = Random(seed)
    world = ListeningWorld(BEFORE, seed)
    for _ in range(random.randint(2, 8)):
        world.manifests = manifests_of(*random.choice(EDITS))
        for _ in range(random.randint(0, 40)):
            world.is_led = random.random() > 0.1
            if random.random() < 0.1:
                world.crash(random.choice([*world.nodes]))
            world.round()
    world.is_led = True
    world.manifests = random.choice([BEFORE, BOTH, APPENDED, AFTER])
    made = world.settle()
    if not refused(made):
        for node_id, node in world.nodes.items():
            asked = world.manifests.controllers if node_id in CONTROLLERS else world.manifests.brokers[0]
            assert names(world, node_id) == tuple(own.name for own in asked.spec.listeners)
            assert node.listeners.controllers == world.manifests.controllers.spec.listeners[0].name
