"""Maintenance windows: when they open, and which restarts wait for them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from kit.scenarios import CLUSTER_ID, NOW_MS, Situation, briefly, healthy
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.models.pod_templates import WEEKDAYS, Weekday
from quorate_operator.planning.cluster import (
    Address,
    NodeState,
    Reached,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.windows import Window, opens_at_ms

HOUR_MS = 3_600_000
EVERY_DAY = frozenset(range(7))


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _window(*days: Weekday, start: int = 22, hours: int = 4) -> Window:
    named = frozenset(WEEKDAYS.index(day) for day in days) or EVERY_DAY
    return Window(days=named, start_ms=start * HOUR_MS, duration_ms=hours * HOUR_MS)


@pytest.mark.parametrize(
    ("window", "now", "opens"),
    [
        # 2026-11-25 is a Wednesday.
        (_window(), "2026-11-25 21:59", "2026-11-25 22:00"),
        (_window(), "2026-11-25 22:00", "2026-11-25 22:00"),
        (_window(), "2026-11-26 01:59", "2026-11-26 01:59"),
        (_window(), "2026-11-26 02:00", "2026-11-26 22:00"),
        (_window("Sat"), "2026-11-25 12:00", "2026-11-28 22:00"),
        (_window("Sat"), "2026-11-29 01:00", "2026-11-29 01:00"),
        (_window("Sat"), "2026-11-29 02:00", "2026-12-05 22:00"),
        (_window("Sat", start=0, hours=48), "2026-11-29 23:59", "2026-11-29 23:59"),
        (_window("Mon", "Thu"), "2026-11-25 12:00", "2026-11-26 22:00"),
        (_window("Wed", hours=24 * 7), "2026-11-25 21:00", "2026-11-25 21:00"),
        (_window("Thu", hours=24 * 9999), "2026-11-25 12:00", "2026-11-25 12:00"),
        # Europe's clocks go back at 01:00 UTC on 2026-10-25, a Sunday: UTC has no such hour.
        (_window("Sun", start=0, hours=2), "2026-10-25 01:59", "2026-10-25 01:59"),
        (_window("Sun", start=0, hours=2), "2026-10-25 02:00", "2026-11-01 00:00"),
    ],
)
def test_a_window_comes_back_each_week(window: Window, now: str, opens: str) -> None:
    assert opens_at_ms([window], _ms(now)) == _ms(opens)


def test_the_first_of_several_windows_counts() -> None:
    now_ms = _ms("2026-11-25 12:00")
    assert opens_at_ms([], now_ms) == now_ms
    assert opens_at_ms([_window("Sat"), _window("Fri")], now_ms) == _ms("2026-11-27 22:00")


def test_a_manifest_has_windows() -> None:
    def spec(window: str) -> str:
        return (
            "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}, "
            f"spec: {{rollout: {{windows: [{window}]}}}}}}"
        )

    def windows(window: str) -> tuple[Window, ...]:
        return desired_cluster(load_manifests(spec(window), "test")).rollouts["quorum"].windows

    assert windows('{days: [Sat, Sun], start: "22:30", duration: 90m}') == (
        Window(days=frozenset({5, 6}), start_ms=22 * HOUR_MS + HOUR_MS // 2, duration_ms=90 * 60_000),
    )
    assert windows('{start: "00:00", duration: 1d}')[0].days == EVERY_DAY
    for wrong, named in (
        ('{start: "24:00", duration: 1h}', "spec.rollout.windows[0].start: '24:00'"),
        ('{start: "22:00", duration: 0h}', "spec.rollout.windows[0].duration: '0h'"),
        ('{start: "22:00", duration: 30s}', "spec.rollout.windows[0].duration: '30s'"),
        ('{days: [Saturday], start: "22:00", duration: 1h}', "spec.rollout.windows[0].days[0]: 'Saturday'"),
        ('{days: [], start: "22:00", duration: 1h}', "spec.rollout.windows[0].days"),
    ):
        with pytest.raises(ManifestError) as refused:
            windows(wrong)
        assert named in str(refused.value)


def _closed(opens_ms: int = NOW_MS + HOUR_MS) -> Window:
    day_ms = 24 * HOUR_MS
    return Window(days=EVERY_DAY, start_ms=opens_ms % day_ms, duration_ms=HOUR_MS)


def _changed(**revision: str) -> Situation:
    """Two brokers whose revision has changed, in a pool whose window opens in an hour."""
    situation = healthy(brokers=2).asking(rollouts={"brokers": RolloutPolicy(windows=(_closed(),))})
    nodes = tuple(
        replace(node, revision={**node.revision, **revision}) if node.role is Role.BROKER else node
        for node in situation.desired.nodes
    )
    return situation.asking(nodes=nodes)


@pytest.mark.parametrize("revision", [{"image": "b"}, {"secrets": "b"}, {"image": "b", "secrets": "b"}])
def test_what_nobody_asked_for_waits_for_the_window(revision: dict[str, str]) -> None:
    """A release of the operator and a renewal restart no node by day, and no pass is lost on the wait."""
    situation = _changed(**revision)
    plan = situation.plan()
    assert plan.steps == ()
    assert [(restart.node_id, restart.until_ms) for restart in plan.postponed] == [
        (0, NOW_MS + HOUR_MS),
        (1, NOW_MS + HOUR_MS),
    ]
    assert plan.look_again_at_ms == NOW_MS + HOUR_MS
    opened = situation.plan(NOW_MS + HOUR_MS)
    assert (briefly(opened.due), opened.postponed) == (["StopNode 0"], ())


def test_a_window_that_closes_stops_the_roll_between_two_nodes() -> None:
    situation = _changed(image="b")
    open_ms, closed_ms = NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS
    assert briefly(situation.due(open_ms)) == ["StopNode 0"]
    assert briefly(situation.due(closed_ms - 1)) == ["StopNode 0"]
    stopped = situation.down(0)
    assert briefly(stopped.due(closed_ms)) == ["StartNode 0"]
    revision = {**situation.observed.nodes[0].revision, "image": "b"}
    starting = stopped.node(0, state=NodeState.UNREADY, revision=revision, started_at_ms=closed_ms)
    started = situation.node(0, revision=revision, started_at_ms=closed_ms)
    for each in (starting, started):
        plan = each.plan(closed_ms)
        assert "StopNode 1" not in briefly(plan.due)
        assert [(waits.node_id, waits.until_ms) for waits in plan.postponed] == [(1, open_ms + 24 * HOUR_MS)]
    assert started.plan(closed_ms).look_again_at_ms == open_ms + 24 * HOUR_MS


@pytest.mark.parametrize(
    "revision", [{"config": "b"}, {"version": "4.4.0", "image": "b"}, {"restart": "now"}, {"resources": "b"}]
)
def test_what_somebody_asked_for_waits_for_no_window(revision: dict[str, str]) -> None:
    plan = _changed(**revision).plan()
    assert (briefly(plan.due), plan.postponed) == (["StopNode 0"], ())


def test_a_broker_that_fails_waits_for_no_window() -> None:
    plan = _changed(image="b").node(1, state=NodeState.UNREADY).plan()
    assert briefly(plan.due) == ["StopNode 1"]
    assert [restart.node_id for restart in plan.postponed] == [0]


def test_a_pool_waits_for_its_own_windows_alone() -> None:
    situation = _changed(image="b")
    nodes = tuple(replace(node, revision={**node.revision, "image": "b"}) for node in situation.desired.nodes)
    plan = situation.asking(nodes=nodes).plan()
    assert briefly(plan.due) == ["StopNode 3001"]
    assert [restart.node_id for restart in plan.postponed] == [0, 1]


def test_a_changed_host_waits_for_no_window() -> None:
    address = Address("new", 9092)
    reached = Reached(at_ms=NOW_MS, node_id=0, cluster_id=CLUSTER_ID)
    situation = _changed(image="b").asking_node(0, advertised={"PLAINTEXT": address})
    plan = situation.seeing(probes={address: reached}).plan()
    assert briefly(plan.due) == ["StopNode 0"]
    assert [restart.node_id for restart in plan.postponed] == [1]


def test_a_level_waits_for_a_node_that_waits_for_its_window() -> None:
    """What will be right at night is no obstacle that a user has to remove."""
    old = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
    situation = healthy().registered(3002, Role.CONTROLLER, old).asking(metadata_version="4.4-IV2")
    assert "UpgradeBlocked" in situation.refusals()
    revision = {**situation.desired.nodes[2].revision, "image": "b"}
    waiting = situation.asking(rollouts={"quorum": RolloutPolicy(windows=(_closed(),))})
    waiting = waiting.asking_node(3002, revision=revision)
    assert [restart.node_id for restart in waiting.plan().postponed] == [3002]
    assert waiting.refusals() == {}
