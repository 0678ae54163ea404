"""The transition table: what is documented is what is checked, and nothing else is allowed."""

import pytest
import quorate_controller.raft as package
from quorate_controller.raft.events import Role
from quorate_controller.raft.model import RaftSafetyError
from quorate_controller.raft.transitions import TRANSITIONS, EpochStep


def documented() -> dict[tuple[str, str], str]:
    """The rows of the table in the package's docstring: (from, to) -> epoch."""
    lines = (package.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("-----")) + 1
    rows: dict[tuple[str, str], str] = {}
    for line in lines[first:]:
        if not line.strip():
            break
        before, after, epoch = line[4:17].strip(), line[17:30].strip(), line[30:46].strip()
        rows[before, after] = epoch
    return rows


def test_the_documented_table_is_the_asserted_one() -> None:
    asserted = {
        (before.value, after.value): step.value
        for before, steps in TRANSITIONS.items()
        for after, step in steps.items()
    }
    assert documented() == asserted


def test_every_role_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(Role)
    assert {after for steps in TRANSITIONS.values() for after in steps} == set(Role)


@pytest.mark.parametrize(
    ("step", "before", "allowed"),
    [
        (EpochStep.SAME, 5, {5}),
        (EpochStep.NEXT, 5, {6}),
        (EpochStep.HIGHER, 5, {6, 7}),
        (EpochStep.SAME_OR_HIGHER, 5, {5, 6, 7}),
    ],
)
def test_epochs_never_fall(step: EpochStep, before: int, allowed: set[int]) -> None:
    assert {after for after in range(3, 8) if step.allows(before, after)} == allowed


def test_an_illegal_transition_is_a_bug(lab) -> None:
    quorum = lab.node().node._replica
    with pytest.raises(RaftSafetyError, match="no way from"):
        quorum.become_leader(())


def test_a_transition_cannot_take_the_epoch_back(lab) -> None:
    quorum = lab.leader().node._replica
    with pytest.raises(RaftSafetyError, match="LEADER"):
        quorum.become_unattached(quorum.epoch)
