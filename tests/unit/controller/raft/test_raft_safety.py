"""What a replica refuses to do, whatever its driver or a mistake of ours asks for."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import quorate_controller.raft as package
from quorate_controller.raft.events import (
    Destination,
    LogStartMoved,
    Propose,
    SnapshotRestored,
    SnapshotTaken,
)
from quorate_controller.raft.handlers.common import leader_state
from quorate_controller.raft.log import LogMetadata, OffsetHistory
from quorate_controller.raft.messages import ApiVersionsProbe
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, RaftSafetyError, ReplicaKey, SnapshotId
from quorate_controller.raft.startup import EpochStart, LogState
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.records.control import encode_control_batch


def test_no_check_is_removed_by_optimization() -> None:
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


def _go_on_as_a_follower(lab: Any) -> None:
    node = lab.node()
    node.start()
    leader_state(node.node._replica)


def _lose_a_pre_vote_as_a_follower(lab: Any) -> None:
    node = lab.node()
    node.start()
    node.node._replica.give_up_standing()


def _vote_for_itself(lab: Any) -> None:
    node = lab.node()
    node.start()
    node.node._replica.record_vote(lab.key(1))


def _lead_without_standing(lab: Any) -> None:
    node = lab.node()
    node.start()
    node.node._replica.become_leader(())


def _go_back_to_an_older_epoch(lab: Any) -> None:
    replica = lab.leader().node._replica
    replica.become_unattached(replica.epoch - 1)


def _send_twice(lab: Any) -> None:
    node = lab.node()
    node.start()
    replica = node.node._replica
    destination = Destination(node_id=2, host="h", port=1)
    for _ in range(2):
        replica.peers.send(replica.effects, destination, lab.fetch(1, 0), replica.now_ms)


def _name_a_voter_twice(lab: Any) -> None:
    VoterSet(voters=(lab.voter(1), lab.voter(1)))


def _add_a_voter_twice(lab: Any) -> None:
    lab.voters(1, 2).add(lab.voter(2))


def _begin_without_a_directory(lab: Any) -> None:
    lab.node(key=ReplicaKey(node_id=1))


def _receive_what_is_only_sent(lab: Any) -> None:
    lab.leader().ask(ApiVersionsProbe())


def _roles_that_end_as_they_begin(lab: Any) -> None:
    node = lab.node(fast_backoff_ms_max=0)
    node.node._replica.random_election_timeout_ms = int
    node.start()


def _propose_control_records(lab: Any) -> None:
    leader = lab.leader()
    records = [lab.voters(1, 2, 3, 4).to_record()]
    offset = leader.node.log_end_offset
    leader.step(Propose(batches=encode_control_batch(records, offset, leader.node.epoch, lab.start_ms)))


def _upgrade_in_the_past(lab: Any) -> None:
    leader = lab.leader()
    leader.node.upgrade_kraft_version(1, validate_only=False, now_ms=leader.now_ms - 1)


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
        (_go_on_as_a_follower, r"the leader is expected here: "),
        (_lose_a_pre_vote_as_a_follower, r"a pre-vote is lost in the role "),
        (_vote_for_itself, r"1.* votes for .*1.* in the role "),
        (_lead_without_standing, r"no way from Role.UNATTACHED to Role.LEADER"),
        (_go_back_to_an_older_epoch, r"Role.LEADER of epoch \d+ to Role.UNATTACHED of \d+"),
        (_send_twice, r"node 2 is busy with an earlier request"),
        (_name_a_voter_twice, r"unique and ascending by node id: \[1, 1\]"),
        (_add_a_voter_twice, r"unique and ascending by node id: \[1, 2, 2\]"),
        (_begin_without_a_directory, r"^1 does not know its directory"),
        (_propose_control_records, r"control records proposed: only raft changes voters"),
        (_receive_what_is_only_sent, r"ApiVersionsProbe.* is for sending only"),
        (_roles_that_end_as_they_begin, r"roles do not settle: Prospective|roles do not settle: Unattached"),
        (_upgrade_in_the_past, r"time went back from \d+ to \d+"),
    ],
)
def test_a_breach_of_safety_is_refused_and_named(
    lab: Any, breach: Callable[[Any], None], message: str
) -> None:
    """No step that could lose what is committed is done, and the error has the values."""
    with pytest.raises(RaftSafetyError, match=message):
        breach(lab)


def _log(**state: Any) -> LogMetadata:
    return LogMetadata(
        LogState(**{"end_offset": 10, "epochs": (EpochStart(epoch=3, start_offset=0),), **state})
    )


@pytest.mark.parametrize(
    ("breach", "message"),
    [
        (lambda: _log(start_offset=11), r"the log starts at 11 and ends at 10"),
        (lambda: _log(start_offset=5), r"a log that starts at 5 needs a snapshot"),
        (lambda: _log().epoch_at(10), r"10 is not in the log, 0 to 10"),
        (lambda: _log().epoch_at(-2), r"-2 is not in the log, 0 to 10"),
        (lambda: _log().append(base_offset=11, last_offset=12, epoch=3), r"at 11 is appended at .* 10"),
        (lambda: _log().append(base_offset=9, last_offset=12, epoch=3), r"at 9 is appended at .* 10"),
        (lambda: _log().append(base_offset=10, last_offset=9, epoch=3), r"goes from 10 to 9"),
        (
            lambda: _log().append(base_offset=10, last_offset=10, epoch=2),
            r"epoch 2 is appended after epoch 3",
        ),
        (lambda: _log().persisted(11), r"11 is durable, but was never appended: 10"),
        (lambda: _log().truncate_to(11), r"11 is outside of the log, 0 to 10"),
        (lambda: _log().truncate_to(-1), r"-1 is outside of the log, 0 to 10"),
        (lambda: _log().snapshot_taken(SnapshotId(offset=11, epoch=3)), r"up to 11 of the log 0 to 10"),
        (lambda: _log().move_start(1), r"moved to 1 in the log 0 to 10 with a snapshot up to -1"),
        (lambda: _history(5, 4), r"offset 4 follows 5 in the history of the voters"),
    ],
)
def test_a_log_that_can_not_be_is_refused(breach: Callable[[], object], message: str) -> None:
    with pytest.raises(RaftSafetyError, match=message):
        breach()


def _history(*offsets: int) -> None:
    history: OffsetHistory[str] = OffsetHistory()
    for offset in offsets:
        history.add(offset, "value")
