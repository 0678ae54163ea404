"""Mistakes in elections, replication and voter changes."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_RAFT: Final = "controller_node/quorate_controller/raft"
_TESTS: Final = "unit/controller/raft"

MISTAKES: Final = (
    Mistake(
        name="voter history trimmed 50 records too far",
        file=f"{_RAFT}/node.py",
        edits=(("replica.history.trim_to(start_offset - 1)", "replica.history.trim_to(start_offset + 49)"),),
        harm="checkpoints that end near the log start have no VotersRecord, or a later one",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_fences_of_voter_changes.py",),
    ),
    Mistake(
        name="voters added or removed before a commit of the own epoch",
        file=f"{_RAFT}/handlers/membership.py",
        edits=(
            (
                "    if leader.high_watermark is None:\n        message",
                "    if replica.high_watermark < 0:\n        message",
            ),
            (
                "if offset is None or offset >= leader.high_watermark:\n        message",
                "if offset is None or offset >= replica.high_watermark:\n        message",
            ),
        ),
        harm="two changes of the voters may be under way at once, whose majorities do not overlap",
        shape="double-change",
        tests=(f"{_TESTS}/test_raft_fences_of_voter_changes.py",),
    ),
    Mistake(
        name="voters changed again one record before the last change is committed",
        file=f"{_RAFT}/handlers/membership.py",
        edits=(
            (
                "    if offset is None or offset >= leader.high_watermark:",
                "    if offset is None or offset > leader.high_watermark:",
            ),
        ),
        harm="two changes of the voters may be under way at once, whose majorities do not overlap",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="voters updated before a commit of the own epoch",
        file=f"{_RAFT}/handlers/membership.py",
        edits=(
            (
                "if leader.change is not None or leader.high_watermark is None:",
                "if leader.change is not None or replica.high_watermark < 0:",
            ),
            (
                "if is_dynamic and (offset is None or offset >= leader.high_watermark):",
                "if is_dynamic and (offset is None or offset >= replica.high_watermark):",
            ),
        ),
        harm="as above, by UpdateRaftVoter",
        shape="double-change",
        tests=(f"{_TESTS}/test_raft_fences_of_voter_changes.py",),
    ),
    Mistake(
        name="a shorter log of the same last epoch wins votes",
        file=f"{_RAFT}/handlers/epochs.py",
        edits=(
            (
                "is_up_to_date=last >= replica.log.last,",
                "is_up_to_date=last.epoch >= replica.log.last_epoch,",
            ),
        ),
        harm="a leader without committed records",
        shape="storm",
        tests=(f"{_TESTS}/test_raft_votes.py",),
    ),
    Mistake(
        name="a follower grants pre-votes to shorter logs",
        file=f"{_RAFT}/roles/follower.py",
        edits=(
            (
                "return is_pre_vote and is_up_to_date and not self.has_fetched_from_leader",
                "return is_pre_vote and not self.has_fetched_from_leader",
            ),
        ),
        harm="epochs rise without a leader: a replica that cannot win the votes wins the pre-votes",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="a commit of records of earlier epochs alone",
        file=f"{_RAFT}/roles/leader.py",
        edits=(
            (
                "if offset is None or offset <= self.epoch_start_offset:",
                "if offset is None or offset < self.epoch_start_offset:",
            ),
        ),
        harm="a later leader may overwrite what was committed (Raft 5.4.2)",
        shape="old-epoch",
        tests=(f"{_TESTS}/test_raft_leader_replication.py",),
    ),
    Mistake(
        name="a vote forgotten when the leader of the epoch is lost",
        file=f"{_RAFT}/transitions.py",
        edits=(("voted_key = before.voted_key if epoch == before.epoch else None", "voted_key = None"),),
        harm="two votes in one epoch, so two leaders",
        shape="storm",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="a vote forgotten by a candidate that asks for pre-votes again",
        file=f"{_RAFT}/transitions.py",
        edits=(
            (
                "leader_endpoints=before.leader_endpoints,\n                voted_key=before.voted_key,",
                "leader_endpoints=before.leader_endpoints,",
            ),
        ),
        harm="a candidate votes for itself and then for another in one epoch",
        shape="storm",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="a removed leader counts itself in CheckQuorum",
        file=f"{_RAFT}/roles/leader.py",
        edits=(
            (
                "needed = majority_size(len(self.progress.voters)) - (replica.key.node_id in self.progress.voters)",
                "needed = majority_size(len(self.progress.voters)) - 1",
            ),
        ),
        harm="a removed leader stays although a majority of the voters does not fetch",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="CheckQuorum keeps who fetched before",
        file=f"{_RAFT}/roles/leader.py",
        edits=(("            self.fetched.clear()\n", ""),),
        harm="a leader that lost one voter after the other leads for ever with a single one",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="a Fetch that acknowledges records before they are durable",
        file=f"{_RAFT}/replica.py",
        edits=(
            (
                "return self.restoring is None and self.log.persisted_offset == self.log.end_offset",
                "return self.restoring is None",
            ),
        ),
        harm="a power cut loses committed records",
        tests=(f"{_TESTS}/test_raft_follower_replication.py",),
    ),
    Mistake(
        name="a leader that counts its own records before they are durable",
        file=f"{_RAFT}/roles/leader.py",
        edits=(
            (
                "self.progress.record_own_end(replica.log.persisted_offset)",
                "self.progress.record_own_end(replica.log.end_offset)",
            ),
        ),
        harm="a power cut loses committed records",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="truncation that keeps the truncated voters",
        file=f"{_RAFT}/replica.py",
        edits=(("        self.history.truncate_to(end_offset)\n", ""),),
        harm="a replica counts voters that no log has",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_membership.py",),
    ),
    Mistake(
        name="held requests of a new voter stay with the observers",
        file=f"{_RAFT}/roles/leader.py",
        edits=(("        for fetch in self._pop_held():\n            self.hold(fetch)\n", ""),),
        harm="a new voter, whose vote commits its own VotersRecord, gets that record half a second later",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_membership.py",),
    ),
    Mistake(
        name="observers read uncommitted records",
        file=f"{_RAFT}/roles/leader.py",
        edits=(("        return self.high_watermark or 0\n", "        return replica.log.end_offset\n"),),
        harm="stock brokers that truncate a VotersRecord find no controller any more (ADR 29)",
        tests=(f"{_TESTS}/test_raft_leader_replication.py",),
    ),
    Mistake(
        name="a removed leader that resigns before its removal is committed",
        file=f"{_RAFT}/roles/leader.py",
        edits=(
            (
                "voters_offset is not None and voters_offset < offset:",
                "voters_offset is not None and voters_offset <= offset:",
            ),
        ),
        harm="the removal may be lost with the leader",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="a voter change acknowledged one record early",
        file=f"{_RAFT}/roles/leader.py",
        edits=(
            (
                "self.change.offset is not None and self.change.offset < offset:",
                "self.change.offset is not None and self.change.offset <= offset:",
            ),
        ),
        harm="a change is acknowledged that can still be lost",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="responses to a former role are taken",
        file=f"{_RAFT}/transitions.py",
        edits=(("        self.peers.forget_all()\n", ""),),
        harm="a pre-vote counts as a vote; a new follower fetches only when an old request has timed out",
        tests=(f"{_TESTS}/test_raft_elections.py",),
    ),
    Mistake(
        name="a snapshot behind the high watermark is loaded",
        file=f"{_RAFT}/handlers/replication.py",
        edits=(
            (
                "if not is_in_range or snapshot_id.offset < replica.high_watermark:",
                "if not is_in_range or snapshot_id.offset < replica.log.start_offset:",
            ),
        ),
        harm="committed records are replaced by an older snapshot",
        tests=(f"{_TESTS}/test_raft_snapshots.py",),
    ),
    Mistake(
        name="epochs counted from the log start of the record after it",
        file=f"{_RAFT}/log.py",
        edits=(
            (
                "while len(self._epochs) > 1 and self._epochs[1].start_offset < start_offset:",
                "while len(self._epochs) > 1 and self._epochs[1].start_offset <= start_offset:",
            ),
        ),
        harm="the epoch of the snapshot at the log start is lost: followers that end there fetch the snapshot again",
        tests=(f"{_TESTS}/test_raft_log_metadata.py",),
    ),
    Mistake(
        name="an observer that caught up long ago becomes a voter",
        file=f"{_RAFT}/progress.py",
        edits=(("            and replica.last_fetch_ms > now_ms - CAUGHT_UP_FETCH_AGE_MS_MAX\n", ""),),
        harm="a voter that is away holds up commits",
        shape="membership",
        tests=(f"{_TESTS}/test_raft_narrow_margins.py",),
    ),
    Mistake(
        name="epochs may fall in fetched records",
        file=f"{_RAFT}/records.py",
        edits=(("if not last_epoch <= epoch <= leader_epoch:", "if not epoch <= leader_epoch:"),),
        harm="a follower's log is not the leader's, and is taken for it",
        tests=("unit/controller/raft/test_raft_follower_replication.py",),
    ),
    Mistake(
        name="a Fetch without the known high watermark",
        file=f"{_RAFT}/peer_requests.py",
        edits=(("        high_watermark=replica.high_watermark,\n", ""),),
        harm="the leader does not tell followers of commits until there are records (KIP-1166)",
        tests=("unit/controller/raft/test_raft_follower_replication.py",),
    ),
    Mistake(
        name="a leader that shuts down takes requests",
        file=f"{_RAFT}/handlers/common.py",
        edits=(("    if replica.is_shutting_down:\n        return ErrorCode.broker_not_available\n", ""),),
        harm="clients wait for a leader that is leaving",
        tests=("unit/controller/raft/test_raft_startup_and_shutdown.py",),
    ),
    Mistake(
        name="a leader that restarts is a candidate of its own epoch",
        file=f"{_RAFT}/transitions.py",
        edits=(
            (
                "        elif leader_id == self.key.node_id:\n            self._enter(self._resigned(epoch, ()))\n",
                "",
            ),
        ),
        harm="two leaders of one epoch, with different records at the same offsets",
        tests=("unit/controller/raft/test_raft_startup_and_shutdown.py",),
    ),
    Mistake(
        name="the epoch of the log above quorum-state is ignored",
        file=f"{_RAFT}/transitions.py",
        edits=(("if epoch < self.log.last_epoch:", "if epoch < 0:"),),
        harm="a replica that lost its quorum-state stands in an epoch that has had a leader",
        tests=("unit/controller/raft/test_raft_elections.py",),
    ),
    Mistake(
        name="a response of another leader is appended",
        file=f"{_RAFT}/handlers/replication.py",
        edits=(
            (
                "if not isinstance(follower, Follower) or response.leader_id != follower.leader_id:",
                "if not isinstance(follower, Follower):",
            ),
        ),
        harm="records of a deposed leader get into the log",
        tests=("unit/controller/raft/test_raft_follower_replication.py",),
    ),
    Mistake(
        name="a chunk at another position is written",
        file=f"{_RAFT}/handlers/replication.py",
        edits=(
            (
                "response.snapshot_id == download.snapshot_id and response.position == download.position",
                "response.snapshot_id == download.snapshot_id",
            ),
        ),
        harm="a repeated response makes a damaged snapshot",
        tests=("unit/controller/raft/test_raft_snapshots.py",),
    ),
    Mistake(
        name="an address where a voter was found is kept after another node answered there",
        file=f"{_RAFT}/lookup.py",
        edits=(("if found is not None and _is_at(", "if found is not None and not _is_at("),),
        harm="a voter that moved again is never looked up again",
        tests=(f"{_TESTS}/test_raft_lookup.py",),
    ),
    Mistake(
        name="failures of a peer are forgotten with the role",
        file=f"{_RAFT}/peers.py",
        edits=(
            (
                "        self._in_flight.clear()\n        self._backoff_until_ms.clear()\n",
                (
                    "        self._in_flight.clear()\n        self._backoff_until_ms.clear()\n"
                    "        self._failures.clear()\n"
                ),
            ),
        ),
        harm="a voter that refuses every vote is asked many times in each election",
        tests=(f"{_TESTS}/test_raft_backoff.py",),
    ),
)
