"""Single decisions of the routing, where the property tests show only that it gets there."""

from random import Random

from quorate_admin.config import Address, AdminConfig
from quorate_admin.network.routing import Discover, Misrouted, Routing, Send, Target, To, Wait

FRONT, ONE, TWO, THREE = (Address(host, 9092) for host in ("front", "one", "two", "three"))
NODES = {1: ONE, 2: TWO, 3: THREE}


def routing(**policy: object) -> Routing:
    """The routing of a client of controllers, with one bootstrap address."""
    defaults: dict[str, object] = {
        "bootstrap_controllers": (FRONT,),
        "metadata_recovery_rebootstrap_trigger_ms": 10_000,
    }
    return Routing(AdminConfig(**(defaults | policy)), Random(1))  # type: ignore[arg-type]


def unconnected(_: Address) -> int | None:
    """No connection anywhere."""
    return None


def learn(client: Routing, now_ms: int = 0, controller_id: int = 1) -> None:
    """The bootstrap address describes three nodes."""
    client.discovered(
        Target(address=FRONT), cluster_id="c", nodes=NODES, controller_id=controller_id, now_ms=now_ms
    )


def test_it_begins_with_a_look_at_the_bootstrap_address_and_no_identity() -> None:
    """KIP-1242's order."""
    fresh = routing()
    assert fresh.next_step(To.ANY, 0, unconnected) == Discover(target=Target(address=FRONT))
    learn(fresh)
    wanted = Target(address=ONE, node_id=1, cluster_id="c", is_checked=True)
    assert fresh.next_step(To.CONTROLLER, 0, unconnected) == Send(target=wanted)


def test_without_news_for_the_triggers_time_it_begins_again() -> None:
    """KIP-1102."""
    waiting = routing()
    learn(waiting, controller_id=-1)
    now_ms, looks = 0, 0
    while waiting.rebootstraps == 0:
        step = waiting.next_step(To.CONTROLLER, now_ms, unconnected)
        if isinstance(step, Wait):
            now_ms = step.until_ms
            continue
        assert isinstance(step, Discover)
        looks += 1
        waiting.succeeded(step.target)
        if step.target.node_id is not None:
            waiting.failed(step.target, now_ms - 10_000)  # connected, but without a response; not in backoff
        now_ms += 50
        assert now_ms < 20_000
    assert 10_000 < now_ms < 12_000
    assert looks > 3


def test_one_lost_node_is_not_a_lost_cluster() -> None:
    """KIP-899's condition."""
    losing = routing()
    learn(losing)
    for address in (ONE, TWO):
        losing.failed(Target(address=address), 1_000)
        losing.next_step(To.ANY, 1_000, unconnected)
        assert losing.rebootstraps == 0
    losing.failed(Target(address=THREE), 1_000)
    assert losing.next_step(To.ANY, 1_000, unconnected) == Discover(target=Target(address=FRONT))
    assert losing.rebootstraps == 1


def test_a_dead_node_that_has_described_nothing_yet_delays_no_request() -> None:
    """A ghost that is listed among the controllers costs a try, not the whole time limit."""
    haunted = routing()
    learn(haunted)
    for node_id in (1, 2):
        target = Target(address=NODES[node_id], node_id=node_id, cluster_id="c")
        haunted.discovered(target, cluster_id="c", nodes=NODES, controller_id=1, now_ms=0)
    haunted.failed(Target(address=THREE), 1_000)
    step = haunted.next_step(To.CONTROLLER, 1_000, unconnected)
    assert isinstance(step, Discover)
    assert step.target.address in (ONE, TWO)


def test_the_least_loaded_connection_is_used() -> None:
    loaded = routing()
    learn(loaded)
    loads = {TWO: 3, THREE: 1}
    for load, expected in ((loads.get, 3), (unconnected, 1)):
        step = loaded.next_step(To.ANY, 0, load)
        assert isinstance(step, Send)
        assert step.target.node_id == expected


def test_a_node_that_described_in_vain_is_not_the_next_to_be_believed() -> None:
    doubting = routing()
    learn(doubting)
    asked = []
    for now_ms in (1_000, 2_000, 3_000):
        doubting.not_in_charge(Target(address=ONE, node_id=1, cluster_id="c"))
        step = doubting.next_step(To.CONTROLLER, now_ms, unconnected)
        assert isinstance(step, Discover)
        asked.append(step.target.node_id)
        doubting.discovered(step.target, cluster_id="c", nodes=NODES, controller_id=1, now_ms=now_ms)
    assert sorted(asked) == [1, 2, 3]


def test_a_misrouted_connection_is_resolved_when_the_cluster_is_known_again() -> None:
    moved = routing()
    learn(moved)
    meant = Target(address=ONE, node_id=1, cluster_id="c", is_checked=True)
    noticed = moved.rebootstrap_required(meant, 0, is_misrouted=True)
    assert noticed == Misrouted(address=ONE, expected_cluster_id="c", expected_node_id=1)
    (resolved,) = moved.discovered(
        Target(address=FRONT), cluster_id="d", nodes={4: ONE}, controller_id=4, now_ms=0
    )
    assert (resolved.found_cluster_id, resolved.found_node_id) == ("d", 4)
    assert moved.misrouted_connections == 1


def test_without_the_check_another_cluster_is_followed() -> None:
    following = routing(metadata_cluster_check_enable=False)
    learn(following)
    (found,) = following.discovered(
        Target(address=ONE), cluster_id="d", nodes={4: TWO}, controller_id=4, now_ms=0
    )
    assert (found.expected_cluster_id, found.found_cluster_id) == ("c", "d")
    assert (following.cluster_id, following.nodes, following.rebootstraps) == ("d", {4: TWO}, 0)


def test_a_node_that_knows_nobody_is_not_believed() -> None:
    """A broker that just started does not make us forget."""
    kept = routing()
    learn(kept)
    kept.discovered(Target(address=ONE), cluster_id="c", nodes={}, controller_id=-1, now_ms=0)
    assert kept.nodes == NODES
