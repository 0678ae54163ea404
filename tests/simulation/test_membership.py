"""Seeds in which an operator changes the voters all the time: sizes, lost disks, static quorums, registrations."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from kit.simulator.__main__ import attempts
from kit.simulator.coverage import Happening
from kit.simulator.planted import first_violation
from kit.simulator.shape import Shape
from quorate_controller.node.own_requests import RegistrationKeeper
from quorate_controller.raft.progress import Progress

SEEDS = range(1, 201)
WANTED = {
    Happening.SIZE_REACHED: 200,
    Happening.VOTER_ADDED: 300,
    Happening.VOTER_REMOVED: 300,
    Happening.VOTER_UPDATED: 50,
    Happening.REMOVED_LEADER_LEFT: 100,
    Happening.DISK_LOST: 100,
    Happening.KRAFT_VERSION_RAISED: 50,
    Happening.CONTROLLER_UNREGISTERED: 200,
    Happening.MISROUTED: 300,
    Happening.SNAPSHOT_LOADED: 200,
    Happening.POWER_FAILURE: 200,
    Happening.PARTITION: 200,
}
"""How often each has to happen in all seeds together: about half of what it does."""


@pytest.mark.parametrize("first", range(1, 41, 5))
def test_an_operator_gets_the_voters_that_it_wants(first: int) -> None:
    results = attempts(range(first, first + 5), 1, Shape.membership)
    failures = [result.failure for result in results if result.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.timeout(900)
def test_an_operator_gets_the_voters_that_it_wants_whatever_breaks() -> None:
    """From one voter to three, five and three, from static to dynamic, with disks lost on the way and names
    that lead elsewhere: no promise to a client is broken, and in calm each wanted voter is there and
    registered.
    """
    results = list(attempts(SEEDS, os.cpu_count() or 1, Shape.membership))
    failures = [result.failure for result in results if result.failure]
    assert not failures, "\n".join(failures[:3])
    counts: Counter[Happening] = Counter()
    for result in results:
        counts.update(result.counts)
    missed = {
        happening.value: counts[happening] for happening, times in WANTED.items() if counts[happening] < times
    }
    assert not missed, f"hardly happened: {missed}"


def test_finds_changes_that_the_former_voters_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "set_voters", lambda _progress, _voters: None)
    assert first_violation(Shape.membership).name in {"MajorityReachedHighWatermark", "Liveness"}


def test_finds_a_controller_that_stays_unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    difference = RegistrationKeeper.difference

    def only_once(self: RegistrationKeeper, registration: object) -> str | None:
        if self._judged is not None and registration is None:
            return None
        return difference(self, registration)  # type: ignore[arg-type]

    monkeypatch.setattr(RegistrationKeeper, "difference", only_once)
    assert first_violation(Shape.membership).name == "Liveness"
