"""The log's metadata: epochs, divergence, truncation, snapshots."""

import pytest
from quorate_controller.raft.log import LogMetadata, OffsetHistory, VoterHistory
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, OffsetAndEpoch, SnapshotId
from quorate_controller.raft.startup import EpochStart, LogState
from quorate_controller.raft.voters import VoterSet


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=offset, epoch=epoch)


@pytest.fixture
def log() -> LogMetadata:
    """Epoch 1 from 0, 3 from 10, 4 from 15; ends at 20."""
    epochs = tuple(EpochStart(epoch=epoch, start_offset=start) for epoch, start in ((1, 0), (3, 10), (4, 15)))
    return LogMetadata(LogState(end_offset=20, epochs=epochs))


def test_positions_are_ranked_by_epoch_first() -> None:
    assert at(5, 2) > at(100, 1)
    assert at(6, 2) > at(5, 2)


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(0, at(0, 0)), (1, at(10, 1)), (2, at(10, 1)), (3, at(15, 3)), (4, at(20, 4)), (5, at(20, 4))],
)
def test_each_epoch_has_an_end(log: LogMetadata, epoch: int, end: OffsetAndEpoch) -> None:
    assert log.end_offset_for_epoch(epoch) == end


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (0, 0, None),
        (5, 1, None),
        (10, 1, None),
        (20, 4, None),
        (11, 1, at(10, 1)),
        (12, 2, at(10, 1)),
        (21, 4, at(20, 4)),
        (20, 5, at(20, 4)),
    ],
)
def test_a_prefix_is_valid_and_anything_else_diverges(
    log: LogMetadata, offset: int, epoch: int, diverging: OffsetAndEpoch | None
) -> None:
    """A follower's end is compared with ours."""
    position = log.validate(offset, epoch)
    assert position.diverging_epoch == diverging
    assert position.snapshot_id is None


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [(at(12, 3), 12), (at(99, 3), 15), (at(12, 2), 10), (at(7, 1), 7), (at(0, 0), 0), (at(99, 9), 20)],
)
def test_truncation_goes_to_the_common_end(log: LogMetadata, diverging: OffsetAndEpoch, offset: int) -> None:
    assert log.truncation_offset(diverging) == offset


def test_truncation_forgets_epochs_and_durability(log: LogMetadata) -> None:
    log.truncate_to(12)
    assert (log.end_offset, log.persisted_offset, log.last_epoch) == (12, 12, 3)
    log.append(base_offset=12, last_offset=13, epoch=7)
    assert (log.end_offset, log.persisted_offset, log.last) == (14, 12, at(14, 7))
    assert [log.epoch_at(offset) for offset in (0, 9, 10, 11, 12, 13)] == [1, 1, 3, 3, 7, 7]


def test_a_snapshot_keeps_the_epoch_before_the_start(log: LogMetadata) -> None:
    log.snapshot_taken(SnapshotId(offset=10, epoch=1))
    log.snapshot_taken(SnapshotId(offset=17, epoch=4))
    log.move_start(10)
    assert log.earliest_snapshot_id == SnapshotId(offset=10, epoch=1)
    assert log.epoch_at(9) == 1
    assert log.validate(10, 1).is_valid
    assert log.validate(10, 3).snapshot_id == SnapshotId(offset=17, epoch=4)
    log.move_start(17)
    assert log.validate(16, 4).snapshot_id == SnapshotId(offset=17, epoch=4)
    assert log.validate(17, 4).is_valid
    assert log.validate(18, 3).snapshot_id == SnapshotId(offset=17, epoch=4)
    log.truncate_to(17)
    assert log.last == at(17, 4)


def test_an_older_snapshot_changes_nothing(log: LogMetadata) -> None:
    log.snapshot_taken(SnapshotId(offset=17, epoch=4))
    log.snapshot_taken(SnapshotId(offset=10, epoch=1))
    assert log.snapshot_id == SnapshotId(offset=17, epoch=4)


def test_a_restored_snapshot_is_all_there_is(log: LogMetadata) -> None:
    log.reset_to(SnapshotId(offset=50, epoch=6))
    assert (log.start_offset, log.end_offset, log.persisted_offset) == (50, 50, 50)
    assert log.last == at(50, 6)
    assert log.end_offset_for_epoch(6) == at(50, 6)
    log.append(base_offset=50, last_offset=50, epoch=8)
    assert log.end_offset_for_epoch(6) == at(50, 6)
    assert log.validate(51, 8).is_valid


def test_the_bootstrap_checkpoint_does_not_hide_the_log() -> None:
    log = LogMetadata(
        LogState(
            end_offset=3, epochs=(EpochStart(epoch=1, start_offset=0),), snapshot_id=BOOTSTRAP_SNAPSHOT_ID
        )
    )
    assert log.validate(0, 0).is_valid
    assert log.validate(2, 1).is_valid
    assert log.validate(2, 0).diverging_epoch == at(0, 0)


def test_an_epoch_begun_at_the_very_end_does_not_count() -> None:
    """A leader that died before its first record leaves no trace."""
    epochs = (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=2, start_offset=5))
    assert LogMetadata(LogState(end_offset=5, epochs=epochs)).last == at(5, 1)


def test_a_history_answers_by_offset() -> None:
    history: OffsetHistory[str] = OffsetHistory()
    for offset, value in ((-1, "bootstrap"), (5, "five"), (9, "nine")):
        history.add(offset, value)
    assert [history.at(offset) for offset in (-2, -1, 4, 5, 8, 9, 99)] == [
        None,
        "bootstrap",
        "bootstrap",
        "five",
        "five",
        "nine",
        "nine",
    ]
    history.trim_to(6)
    assert history.at(6) == "five"
    assert history.at(4) is None
    history.truncate_to(9)
    assert history.last == (5, "five")
    assert history.previous is None


def test_static_voters_rule_until_the_log_says_otherwise(lab) -> None:
    history = VoterHistory(lab.static_voters(1), LogState())
    assert history.voters == lab.static_voters(1)
    assert (history.voters_offset, history.kraft_version, history.previous_voters) == (None, 0, None)
    history.add_kraft_version(4, 1)
    history.add_voters(5, lab.voters(1, 2))
    assert (history.voters, history.voters_offset) == (lab.voters(1, 2), 5)
    assert history.previous_voters == lab.static_voters(1)
    assert (history.kraft_version_at(3), history.kraft_version_at(4)) == (0, 1)
    history.truncate_to(4)
    assert (history.voters, history.kraft_version) == (lab.static_voters(1), 0)


def test_a_snapshot_without_voters_leaves_the_configuration(lab) -> None:
    history = VoterHistory(lab.static_voters(1), LogState())
    history.add_voters(5, VoterSet())
    history.reset(9, None, None)
    assert history.voters == lab.static_voters(1)
