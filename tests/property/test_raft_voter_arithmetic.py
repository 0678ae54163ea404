"""The arithmetic of voters and logs against dumb oracles."""

from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_controller.raft.log import LogMetadata
from quorate_controller.raft.model import (
    Endpoint,
    OffsetAndEpoch,
    RaftSafetyError,
    ReplicaKey,
    SnapshotId,
    VersionRange,
    Voter,
)
from quorate_controller.raft.startup import EpochStart, LogState
from quorate_controller.raft.voters import VoterSet, VoteTally, majority_offset, majority_size
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import decode_control, encode_control_batch

voters = st.builds(
    Voter,
    key=st.builds(
        ReplicaKey,
        node_id=st.integers(0, 6),
        directory_id=st.integers(1, 3).map(lambda number: UUID(int=number)),
    ),
    endpoints=st.lists(
        st.builds(
            Endpoint,
            listener=st.sampled_from(["A", "B"]),
            host=st.text(max_size=5),
            port=st.integers(0, 65535),
        ),
        max_size=2,
        unique_by=lambda endpoint: endpoint.listener,
    ).map(tuple),
    kraft_versions=st.builds(VersionRange, lowest=st.just(0), highest=st.integers(0, 1)),
)
voter_sets = st.lists(voters, max_size=7, unique_by=lambda voter: voter.node_id).map(VoterSet.of)


@given(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=7))
def test_the_committed_offset_is_the_highest_that_a_majority_has(offsets: list[int | None]) -> None:
    reached = [
        offset
        for offset in range(10)
        if sum(known is not None and known >= offset for known in offsets) > len(offsets) / 2
    ]
    assert majority_offset(offsets) == max(reached, default=None)


@given(st.integers(1, 9))
def test_two_majorities_share_a_voter(count: int) -> None:
    size = majority_size(count)
    subsets = [set(subset) for subset in combinations(range(count), size)]
    assert all(subset & other for subset in subsets for other in subsets)
    if size > 1:
        smaller = [set(subset) for subset in combinations(range(count), size - 1)]
        assert count % 2 == 0 or any(not subset & other for subset in smaller for other in smaller)


def majorities(voters: VoterSet) -> list[set[ReplicaKey]]:
    """All smallest majorities of a set."""
    keys = [voter.key for voter in voters.voters]
    return [set(subset) for subset in combinations(keys, majority_size(len(keys)))]


@given(voter_sets, voters)
def test_majorities_before_and_after_one_change_share_a_voter(before: VoterSet, voter: Voter) -> None:
    added = () if voter.node_id in before.ids else (before.add(voter),)
    for after in (before, *added, *(before.remove(voter.key) for voter in before.voters)):
        if after is None or not before.voters or not after.voters:
            continue
        assert before.overlaps(after)
        assert after.overlaps(before)
        assert all(first & second for first in majorities(before) for second in majorities(after))


@given(voter_sets, voter_sets)
def test_the_rule_lets_one_voter_differ_on_each_side(before: VoterSet, after: VoterSet) -> None:
    """KIP-853's rule, which allows the exchange of a voter too."""
    keys, others = ({voter.key for voter in voters.voters} for voters in (before, after))
    assert before.overlaps(after) == (max(len(keys - others), len(others - keys)) <= 1)


@given(voter_sets, voters)
def test_additions_and_removals_undo_each_other(voters: VoterSet, voter: Voter) -> None:
    if voter.node_id in voters.ids:
        with pytest.raises(RaftSafetyError, match="unique"):
            voters.add(voter)
        return
    added = voters.add(voter)
    assert len(added) == len(voters) + 1
    assert added.is_voter(voter.key)
    assert added.remove(voter.key) == (voters if voters.voters else None)


@given(voter_sets, voters)
def test_an_update_keeps_everybody_else(voters: VoterSet, voter: Voter) -> None:
    updated = voters.update(voter)
    assert (updated is None) == (not voters.is_voter(voter.key))
    ignoring = voters.update_ignoring_directory(voter)
    assert (ignoring is None) == (voter.node_id not in voters.ids)
    assert ignoring is None or ignoring.ids == voters.ids
    if updated is not None:
        assert updated.get(voter.node_id) == voter
        assert updated.ids == voters.ids
        assert not updated.needs_update(voter)
        assert [old for old in updated if old != voter] == [
            old for old in voters if old.node_id != voter.node_id
        ]


@given(voter_sets)
def test_a_voters_record_says_it_all(voters: VoterSet) -> None:
    (batch,) = decode_batches(encode_control_batch([voters.to_record()], 0, 1, 0))
    assert VoterSet.from_record(decode_control(batch.records[0])) == voters


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12))
def test_a_tally_is_won_or_lost_as_a_count_says(count: int, votes: list[tuple[int, bool]]) -> None:
    tally, oracle = VoteTally(range(count)), {}
    for voter_id, is_granted in votes:
        tally.record(voter_id, is_granted=is_granted)
        if voter_id < count:
            oracle[voter_id] = is_granted
    granted, refused = sum(oracle.values()), sum(not vote for vote in oracle.values())
    assert tally.is_won == (granted > count / 2)
    assert tally.is_lost == (count - refused <= count / 2)
    assert not (tally.is_won and tally.is_lost)


epoch_runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=5)


def epochs_of(runs: list[tuple[int, int]]) -> list[int]:
    """The epoch of each record: runs of (how much the epoch grows, how many records)."""
    epochs: list[int] = []
    epoch = 0
    for growth, count in runs:
        epoch += growth
        epochs += [epoch] * count
    return epochs


def log_of(epochs: list[int]) -> LogMetadata:
    log = LogMetadata(LogState())
    for offset, epoch in enumerate(epochs):
        log.append(base_offset=offset, last_offset=offset, epoch=epoch)
    return log


@given(epoch_runs, epoch_runs, st.integers(0, 20))
def test_a_follower_finds_the_common_prefix(
    leader_runs: list[tuple[int, int]], follower_runs: list[tuple[int, int]], common: int
) -> None:
    """Fetch, diverge, truncate ends with a prefix of the leader's log, and keeps what is common."""
    leader = epochs_of(leader_runs)
    common = min(common, len(leader))
    used = set(leader)
    own = [epoch + (leader[common - 1] if common else 0) for epoch in epochs_of(follower_runs)]
    follower = leader[:common] + [epoch for epoch in own if epoch not in used]
    leader_log, follower_log = log_of(leader), log_of(follower)
    for _ in range(len(follower) + 2):
        position = leader_log.validate(follower_log.end_offset, follower_log.last_epoch)
        if position.is_valid:
            break
        assert position.diverging_epoch is not None
        follower_log.truncate_to(follower_log.truncation_offset(position.diverging_epoch))
    else:
        raise AssertionError("the logs never agree")
    end = follower_log.end_offset
    assert follower[:end] == leader[:end]
    assert end >= min(common, len(follower))


@given(epoch_runs.filter(len), st.data())
def test_retention_does_not_change_what_is_behind_it(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A log that was trimmed, or started from its trimmed self, compares as before."""
    epochs = epochs_of(runs)
    start = data.draw(st.integers(1, len(epochs)))
    whole, trimmed = log_of(epochs), log_of(epochs)
    snapshot_id = SnapshotId(offset=start, epoch=epochs[start - 1])
    whole.snapshot_taken(snapshot_id)
    trimmed.snapshot_taken(snapshot_id)
    trimmed.move_start(start)
    starts = [
        EpochStart(epoch=epoch, start_offset=offset)
        for offset, epoch in enumerate(epochs)
        if offset >= start and (offset == start or epochs[offset - 1] != epoch)
    ]
    restarted = LogMetadata(
        LogState(
            start_offset=start,
            end_offset=len(epochs),
            epochs=tuple(starts),
            snapshot_id=snapshot_id,
            earliest_snapshot_id=snapshot_id,
        )
    )
    for log in (trimmed, restarted):
        assert log.last == whole.last
        for offset in range(start - 1, len(epochs)):
            assert log.epoch_at(offset) == epochs[offset]
        for offset in range(start + 1, len(epochs) + 2):
            for epoch in range(snapshot_id.epoch, max(epochs) + 2):
                assert log.validate(offset, epoch) == whole.validate(offset, epoch)
        for epoch in range(snapshot_id.epoch, max(epochs) + 2):
            end = OffsetAndEpoch(epoch=epoch, offset=10**6)
            assert log.truncation_offset(end) == max(whole.truncation_offset(end), start)
