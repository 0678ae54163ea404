"""Operators are killed at any time, and the next operator continues."""

import pytest
from kit.operators.dying_operators import final_state, kill_after_each_step
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, SMALL_FILES, Operated
from kit.waiting import eventually

FIRST, SECOND, THIRD, FOURTH, FIFTH = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 5)
STEP_TIMEOUT_S = 60
# Another voter in place of the one that leaves; another disk; three restarts.
REPLACING_KILLS_MIN = 10
# kraft.version and three restarts; a level.
RISING_KILLS_MIN = 6
# Each operator takes seconds to start where others use the processors.
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_a_quorum_is_created_and_scaled(operated: Operated) -> None:
    """After each step of a creation and of scaling, the next operator can continue."""
    operated.create()
    kills = kill_after_each_step(operated, lambda: operated.settled(FIRST, SECOND, THIRD))
    small = final_state(operated)
    operated.patch(replicas=5)
    kills += kill_after_each_step(operated, lambda: operated.settled(FIRST, SECOND, THIRD, FOURTH, FIFTH))
    operated.patch(replicas=3)
    kills += kill_after_each_step(operated, lambda: operated.settled(FIRST, SECOND, THIRD))
    final = final_state(operated)
    # Below metadata.version 33, controllers that left stay registered; their volumes stay by policy.
    stays = {part: final.pop(part) for part in ("registrations", "objects")}
    assert all(reported.items() >= small.pop(part).items() for part, reported in stays.items())
    assert final == small
    assert kills >= 3 + 4 + 6, (
        "formed, created, started; created, started, two voters; removed, stopped, forgotten"
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_nodes_are_replaced_and_rolled(operated: Operated) -> None:
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    operated.operators[-1].kill()
    operated.patch(decommission=[SECOND])
    kills = kill_after_each_step(operated, lambda: operated.settled(FIRST, THIRD, FOURTH))
    disk = operated.voters()[THIRD]
    expected = final_state(operated, disk)
    operated.core.delete_namespaced_persistent_volume_claim(f"data-{QUORUM}-{THIRD}", operated.namespace)
    kills += kill_after_each_step(
        operated,
        lambda: operated.settled(FIRST, THIRD, FOURTH) and operated.voters()[THIRD] != disk,
    )
    assert final_state(operated, operated.voters()[THIRD]) == expected
    operated.patch(config={**SMALL_FILES, "metadata.log.max.snapshot.interval.ms": "3000000"})
    kills += kill_after_each_step(operated, lambda: operated.settled(FIRST, THIRD, FOURTH))
    reported = "metadata.log.max.snapshot.interval.ms: 3000000 added"
    assert any(reported in note for note in operated.events("StopNode"))
    assert final_state(operated, operated.voters()[THIRD]) == expected
    assert kills >= REPLACING_KILLS_MIN
    assert len(operated.claims()) == 4


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_a_cluster_goes_to_sleep_and_wakes(operated: Operated) -> None:
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    operated.operators[-1].kill()
    awake = final_state(operated)
    operated.patch(state="Hibernated")
    kill_after_each_step(
        operated,
        lambda: not operated.pods() and operated.condition("Ready").get("reason") == "Hibernated",
    )
    operated.patch(state="Running")
    kill_after_each_step(operated, lambda: operated.settled(FIRST, SECOND, THIRD))
    assert final_state(operated) == awake


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_levels_rise(operated: Operated) -> None:
    operated.create(quorum="static", metadataVersion="4.1")
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    operated.operators[-1].kill()

    def has_reached(**quorum: int) -> bool:
        found = operated.status()
        return operated.settled(FIRST, SECOND, THIRD) and found["quorum"].items() >= quorum.items()

    operated.patch(quorum="dynamic")
    kills = kill_after_each_step(operated, lambda: has_reached(kraftVersion=1))
    operated.patch(metadataVersion="4.3")
    kills += kill_after_each_step(
        operated, lambda: has_reached() and operated.status()["metadataVersion"].startswith("4.3")
    )
    assert kills >= RISING_KILLS_MIN


def test_another_replica_takes_over(operated: Operated) -> None:
    first = operated.start_operator("--identity=first", "--lease-duration=10")
    eventually(lambda: "ready" in first.events(), STEP_TIMEOUT_S, "the first to lead", first.events)
    second = operated.start_operator("--identity=second", "--lease-duration=10")
    eventually(lambda: second.metric("quorate_leader") == 0, STEP_TIMEOUT_S, "the second to be up")
    operated.create(state="Hibernated")
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the first to reconcile")
    assert first.metric("quorate_leader") == 1
    assert not any("leads" in event for event in second.events())
    first.kill()
    operated.patch(state="Running")
    operated.wait_settled(FIRST, SECOND, THIRD)
    assert any("leads" in event for event in second.events())
    assert second.terminate() == 0
