"""The model cluster finds the mistakes that the rules are about: what never fails proves nothing."""

from collections.abc import Callable

import pytest
from kit.operator_model.desired_spec import DesiredSpec
from kit.operator_model.driver import Cluster
from quorate_operator.planning import address_slots, addresses, membership, restart_obstacles, rollout
from quorate_operator.planning.cluster import ObservedNode, Role
from quorate_operator.planning.safety import QuorumView
from quorate_operator.runtime.verifications import NameProbes

Plant = Callable[[pytest.MonkeyPatch], None]


def _no_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(addresses._Pass, "_overlap_ms", lambda *_: 0)


def _no_look_at_ghosts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "awaits_unregistration", lambda *_: False)


def _no_majority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumView, "forbids_stop", lambda *_: None)
    patch.setattr(restart_obstacles, "_controller_not_back", lambda *_, **__: None)


def _no_patience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObservedNode, "is_starting", False)
    patch.setattr(restart_obstacles, "_broker_on_its_way", lambda *_, **__: None)


def _running() -> Cluster:
    cluster = Cluster(
        DesiredSpec(controllers=3, brokers=2, version="4.4.0", metadata_version="4.4-IV2"), seed=7
    )
    cluster.settle()
    return cluster


def _exchange(cluster: Cluster) -> None:
    cluster.spec.rotate((3000, 3002), "CONTROLLER")


def _leave(cluster: Cluster) -> None:
    cluster.spec.scale(Role.CONTROLLER, 1)


def _change_while_one_lags(cluster: Cluster) -> None:
    cluster.spec.config += 1
    follower = max(cluster.world.live_voters() - {cluster.world.leader_id})
    cluster.crash(cluster.world.nodes[follower])
    cluster.world.nodes[follower].exits_in_a_row = 30


def test_restarts_of_brokers_that_recover_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change_while_one_recovers(cluster: Cluster) -> None:
        broker = cluster.world.nodes[0]
        cluster.crash(broker)
        broker.lag = 100
        while broker.process is None:
            cluster.round()
        cluster.spec.config += 1
        for _ in range(100):
            cluster.round()
        cluster.settle()

    change_while_one_recovers(_running())
    _no_patience(monkeypatch)
    with pytest.raises(AssertionError, match="recovers its logs"):
        change_while_one_recovers(_running())


def test_brokers_that_stay_unregistered_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unregister(cluster: Cluster) -> None:
        cluster.unregister(cluster.world.nodes[1])
        cluster.settle()

    unregister(_running())
    monkeypatch.setattr(rollout, "lacks_registration", lambda *_: False)
    with pytest.raises(AssertionError, match="brokers to be registered and unfenced: 1"):
        unregister(_running())


def test_operators_that_write_nothing_down_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills between a stop and a start are found to undo what was seen."""
    monkeypatch.setattr(NameProbes, "with_verified", lambda look, _: look.probes)
    cluster = Cluster(DesiredSpec(controllers=1, brokers=2, is_external=True), seed=7)
    cluster.settle()
    cluster.spec.rename()
    for _ in range(150):
        cluster.round(cut=1)
    with pytest.raises(AssertionError, match="controller-3000"):
        cluster.check_desired_state()


def _exchange_without_leader() -> Cluster:
    cluster = Cluster(DesiredSpec(controllers=2, brokers=2, is_external=True), seed=7)
    cluster.settle()
    for node_id in (3000, 3001):
        cluster.crash(cluster.world.nodes[node_id])
    cluster.spec.rotate((3000, 3001), "CONTROLLER")
    return cluster


def test_starts_under_names_that_nobody_saw_lead_to_the_node_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _exchange_without_leader().settle()
    monkeypatch.setattr(address_slots, "_recorded", lambda *_: {})
    with pytest.raises(AssertionError, match=r"was told g0-controller-300\d.* leads to node"):
        _exchange_without_leader().settle()


@pytest.mark.parametrize(
    ("plant", "edit", "rule"),
    [
        (_no_window, _exchange, "rule 3"),
        (_no_look_at_ghosts, _leave, "rule 4"),
        (_no_majority, _change_while_one_lags, "rule 1"),
    ],
    ids=["no window", "volume before registration", "no majority"],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, edit: Callable[[Cluster], None], rule: str
) -> None:
    sound = _running()
    edit(sound)
    sound.settle()
    broken = _running()
    plant(monkeypatch)
    edit(broken)
    with pytest.raises(AssertionError, match=rule):
        broken.settle()
