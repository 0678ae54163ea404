"""What a replica refuses to do, whatever its driver or a mistake of ours asks for."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quorate_controller.raft as package
from quorate_controller.raft.messages import LogStartMoved, SnapshotRestored, SnapshotTaken
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from quorate_controller.raft.safety import RaftSafetyError
from quorate_controller.raft.voters import VoterSet


def test_no_check_is_removed_by_optimization() -> None:
    """Goal: `python -O` changes nothing of raft. Method: look for asserts in all of its modules."""
    modules = sorted(Path(package.__file__).parent.rglob("*.py"))
    asserts = [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert len(modules) > 20
    assert not asserts


def _truncate_what_is_committed(lab: Any) -> None:
    replica = lab.node(log=lab.log(1, 2, 3)).node._replica
    replica.set_high_watermark(5)
    replica.truncate_to(4)


def _commit_beyond_the_end(lab: Any) -> None:
    lab.node(log=lab.log(1, 2, 3)).node._replica.set_high_watermark(11)


def _append_of_an_older_epoch(lab: Any) -> None:
    lab.node(log=lab.log(1, 2, 3, epochs=((3, 0),))).node._replica.append(lab.batch(10, 2))


def _restore_as_leader(lab: Any) -> None:
    lab.leader().node._replica.begin_restore(SnapshotId(offset=100, epoch=1))


def _restore_another_snapshot(lab: Any) -> None:
    node = lab.node()
    node.start()
    node.step(SnapshotRestored(snapshot_id=SnapshotId(offset=9, epoch=1), kraft_version=1, voters=None))


def _snapshot_of_what_is_not_committed(lab: Any) -> None:
    lab.leader().step(SnapshotTaken(snapshot_id=SnapshotId(offset=3, epoch=2)))


def _start_without_a_snapshot(lab: Any) -> None:
    lab.leader().step(LogStartMoved(start_offset=3))


def _vote_twice(lab: Any) -> None:
    node = lab.node()
    node.start()
    for candidate in (2, 3):
        node.node._replica.record_vote(lab.key(candidate))


def _stand_as_an_observer(lab: Any) -> None:
    node = lab.node(4)
    node.start()
    node.node._replica.become_prospective()


def _name_a_voter_twice(lab: Any) -> None:
    VoterSet(voters=(lab.voter(1), lab.voter(1)))


@pytest.mark.parametrize(
    ("breach", "message"),
    [
        (_truncate_what_is_committed, r"truncation to 4 .* committed records up to 5"),
        (_commit_beyond_the_end, r"11 is committed, but the log ends at 10"),
        (_append_of_an_older_epoch, r"epoch 2 is appended after epoch 3"),
        (_restore_as_leader, r"the leader of epoch \d+ would load the snapshot"),
        (_restore_another_snapshot, r"is put in place instead of None"),
        (_snapshot_of_what_is_not_committed, r"more than what is committed: -1"),
        (_start_without_a_snapshot, rf"moved to 3 .* up to {BOOTSTRAP_SNAPSHOT_ID.offset}"),
        (_vote_twice, r"votes for .*2.* and then for .*3.* in epoch"),
        (_stand_as_an_observer, r"no voter and does not stand: \(1, 2, 3\)"),
        (_name_a_voter_twice, r"unique and ascending by node id: \[1, 1\]"),
    ],
)
def test_a_breach_of_safety_is_refused_and_named(
    lab: Any, breach: Callable[[Any], None], message: str
) -> None:
    """Goal: no step that could lose what is committed is done, and the error has the values. Method: ask for each."""
    with pytest.raises(RaftSafetyError, match=message):
        breach(lab)
