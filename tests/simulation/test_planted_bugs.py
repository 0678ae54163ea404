"""The simulation bites: each of three classic mistakes, switched on, is found within a few seeds.

`pytest --log-cli-level=info` tells by which seed and which invariant.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kit.simulator.invariants import InvariantViolation
from kit.simulator.scenario import run_seed
from kit.simulator.shape import Shape
from quorate_controller.raft import progress
from quorate_controller.storage.controller_storage import ControllerStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quorate_controller.raft.startup import HardState

log = logging.getLogger(__name__)

SEEDS_MAX = 40


def first_violation(shape_of: Callable[[int], Shape]) -> InvariantViolation:
    """Runs seeds until one breaks a promise."""
    for seed in range(1, SEEDS_MAX + 1):
        try:
            run_seed(seed, shape_of(seed))
        except InvariantViolation as violation:
            log.info("found by %s with seed %d", violation.name, seed)
            return violation
    pytest.fail(f"{SEEDS_MAX} seeds did not find the bug")


def test_finds_a_commit_without_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a leader that counts itself alone is found. Method: the high watermark is its own log's end."""

    def highest(end_offsets: Iterable[int | None]) -> int | None:
        return max((offset for offset in end_offsets if offset is not None), default=None)

    monkeypatch.setattr(progress, "majority_offset", highest)
    assert first_violation(Shape.of).name == "MajorityReachedHighWatermark"


def test_finds_a_vote_that_is_not_persisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: voting twice in one epoch, after a restart, is found. Method: quorum-state has the epoch, but no
    vote; voters of a release without pre-vote lose their power just after they voted.
    """
    save = ControllerStorage.save_hard_state

    def forget_vote(storage: ControllerStorage, state: HardState, *, kraft_version: int) -> None:
        save(storage, replace(state, voted_key=None), kraft_version=kraft_version)

    monkeypatch.setattr(ControllerStorage, "save_hard_state", forget_vote)
    assert first_violation(Shape.storm).name == "SingleLeader"


def test_finds_a_reply_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: promising what a power failure still can take is found. Method: the flush of a turn is left out."""
    monkeypatch.setattr(ControllerStorage, "flush", lambda _: None)
    assert first_violation(Shape.of).name in {
        "MajorityReachedHighWatermark",
        "ConsistentCommittedData",
        "NoAcknowledgedRecordLost",
    }
