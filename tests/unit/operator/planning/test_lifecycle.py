"""Pause, hibernation and waking, and machines that do not answer meanwhile."""

from kit.scenarios import NOW_MS, Situation, briefly, healthy
from quorate_operator.planning.cluster import Lifecycle, NodeState, RolloutPolicy
from quorate_operator.planning.steps import STARTS_LONG, StopNode


def test_a_paused_cluster_is_left_alone() -> None:
    situation = healthy(3, brokers=1).asking_config().down(3001).asking(lifecycle=Lifecycle.PAUSED)
    assert situation.plan().steps == ()
    assert situation.refusals() == {
        "Paused": "the cluster quorum is paused: nothing is changed until it is resumed"
    }


def hibernating() -> Situation:
    """A cluster that is to sleep."""
    return healthy(3, brokers=2).asking(lifecycle=Lifecycle.HIBERNATED)


def test_hibernation_stops_brokers_then_standbys_then_the_leader() -> None:
    situation, order = hibernating(), []
    while stops := situation.due():
        assert all(isinstance(step, StopNode) for step in stops)
        order.append(briefly(stops))
        for stop in stops:
            assert stop.node_id is not None
            situation = situation.down(stop.node_id)
    assert order == [["StopNode 0", "StopNode 1"], ["StopNode 3001", "StopNode 3002"], ["StopNode 3000"]]
    assert situation.plan().steps == ()


def test_nodes_have_the_same_grace_in_a_hibernation_as_in_a_roll() -> None:
    def graces(seen: Situation) -> set[tuple[int, int]]:
        stops = [step for step in seen.plan().steps if isinstance(step, StopNode)]
        return {(stop.node_id, stop.grace_ms) for stop in stops if stop.node_id in (0, 3001)}

    assert graces(hibernating()) == {(0, 120_000), (3001, 30_000)}, "as in a roll"
    situation = hibernating().asking(rollouts={"brokers": RolloutPolicy(grace_ms=3_600_000)})
    assert graces(situation) == {(0, 3_600_000), (3001, 30_000)}
    assert graces(situation.leaderless()) == {(0, 3_000), (3001, 30_000)}, (
        "nobody answers its controlled shutdown"
    )


def test_hibernation_keeps_registrations_and_volumes() -> None:
    asleep = hibernating().finalized(metadata_version=33)
    for node_id in asleep.observed.nodes:
        asleep = asleep.down(node_id)
    assert asleep.plan().steps == ()


def test_waking_starts_everything() -> None:
    asleep = healthy(3, brokers=1).leaderless()
    for node_id in asleep.observed.nodes:
        asleep = asleep.down(node_id)
    assert briefly(asleep.due())[:3] == ["StartNode 3000", "StartNode 3001", "StartNode 3002"]
    assert briefly(healthy(3, brokers=1).down(0).due()) == ["StartNode 0"]


def test_what_runs_without_being_desired_sleeps_too() -> None:
    situation = hibernating().asking_controllers(3000, 3001).down(0).down(1)
    assert briefly(situation.due()) == ["StopNode 3001", "StopNode 3002"]


def test_a_start_that_takes_long_is_reported() -> None:
    situation = healthy(3, brokers=2)
    for minutes, codes in ((14, [""]), (16, [STARTS_LONG])):
        started_ms = NOW_MS - minutes * 60_000
        late = situation.node(0, state=NodeState.STARTING, started_at_ms=started_ms)
        assert [wait.code for wait in late.plan().waits] == codes
    (wait,) = late.plan().waits
    assert wait.reason.startswith(
        "broker-0 to be in service: it has been starting since 1970-01-01 02:30 UTC"
    )
    assert wait.node_ids == (0,)


def test_a_machine_that_does_not_answer_is_waited_for() -> None:
    situation = hibernating()
    for node_id in (0, 1, 3000, 3002):
        situation = situation.down(node_id)
    away = situation.node(3001, state=NodeState.UNREADY, unreachable_host=True)
    assert away.due() == ()
    assert "the machines of 3001 to answer or to be decommissioned" in away.waits()
