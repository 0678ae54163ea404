"""Mistakes in turns, checkpoints and what waits for a commit."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_NODE: Final = "controller_node/quorate_controller/node"
_TESTS: Final = "unit/controller/node"

MISTAKES: Final = (
    Mistake(
        name="checkpoints without their VotersRecord",
        file=f"{_NODE}/snapshotter.py",
        edits=(("voters=voters.to_record() if voters is not None else None,", "voters=None,"),),
        harm="after retention, a restart of all controllers loses the quorum",
        shape="membership",
        tests=(f"{_TESTS}/test_checkpoints_keep_the_quorum.py",),
    ),
    Mistake(
        name="checkpoints with the voters of the record after their end",
        file=f"{_NODE}/snapshotter.py",
        edits=(("self._raft.voters_at(stable.end_offset - 1)", "self._raft.voters_at(stable.end_offset)"),),
        harm="a checkpoint names voters that are not committed",
        tests=(f"{_TESTS}/test_snapshotter.py",),
    ),
    Mistake(
        name="decisions that were not proposed are kept beyond the leadership",
        file=f"{_NODE}/metadata.py",
        edits=(
            (
                "        self._pending = []\n        self._pending_size_bytes = 0\n        self.image.revert_to",
                "        self.image.revert_to",
            ),
        ),
        harm="the next leadership proposes records that were refused, at a wrong offset",
        tests=(f"{_TESTS}/test_failed_decisions.py",),
    ),
    Mistake(
        name="an abandoned change of levels is remembered",
        file=f"{_NODE}/metadata.py",
        edits=(("        self._features_change_at = None\n        abandoned", "        abandoned"),),
        harm="levels are published that are not committed",
        tests=(f"{_TESTS}/test_soft_state.py",),
    ),
    Mistake(
        name="levels are published one record early",
        file=f"{_NODE}/metadata.py",
        edits=(
            (
                "self._features_change_at < self.applied_offset:",
                "self._features_change_at <= self.applied_offset:",
            ),
        ),
        harm="ApiVersions announces a level that can still be reverted",
        tests=(f"{_TESTS}/test_node_narrow_margins.py",),
    ),
    Mistake(
        name="long reads survive the loss of leadership",
        file=f"{_NODE}/request_processor.py",
        edits=(("        tokens += self._long_reads.pop_all()\n", ""),),
        harm="a client is answered from metadata that was abandoned",
        tests=(f"{_TESTS}/test_long_reads.py",),
    ),
    Mistake(
        name="answers that wait for brokers survive the loss of leadership",
        file=f"{_NODE}/turn.py",
        edits=(("            self._release(self.broker_waits.pop_all(), None)\n", ""),),
        harm="clients of committed requests wait for their whole timeout",
        tests=(f"{_TESTS}/test_broker_waits.py",),
    ),
    Mistake(
        name="times of proposals survive the loss of leadership",
        file=f"{_NODE}/metadata.py",
        edits=(("        self._proposed.clear()\n", "        pass\n"),),
        harm="the commit latency of the next leadership has the time in between",
        tests=(f"{_TESTS}/test_soft_state.py",),
    ),
    Mistake(
        name="records counted as durable before the flush",
        file=f"{_NODE}/turn.py",
        edits=(
            (
                "                self.storage.flush()\n                self.storage.keep_recovery_point",
                "                self.storage.keep_recovery_point",
            ),
        ),
        harm="a power cut loses acknowledged records",
        tests=(f"{_TESTS}/test_turns.py",),
    ),
    Mistake(
        name="reads are answered before what they saw is committed",
        file=f"{_NODE}/request_processor.py",
        edits=(
            (
                "if metadata.control.is_active:\n            metadata.wait(",
                "if metadata.control.is_active and requester is not None:\n            metadata.wait(",
            ),
        ),
        harm="a client sees a topic that is lost with the leader",
        tests=(f"{_TESTS}/test_turns.py",),
    ),
    Mistake(
        name="a controller that failed is active again at once",
        file=f"{_NODE}/turn.py",
        edits=(
            (
                "self._activation_due_ms = self.now_ms + ACTIVATION_PAUSE_MS",
                "self._activation_due_ms = self.now_ms",
            ),
        ),
        harm="a persistent fault makes a hot loop of elections",
        tests=(f"{_TESTS}/test_failed_decisions.py",),
    ),
    Mistake(
        name="what other controllers write is remembered beyond the epoch",
        file=f"{_NODE}/snapshot_turns.py",
        edits=(("            self._states.clear()\n", ""),),
        harm="a controller that leads again lets others wait for one that has written long ago",
        tests=(f"{_TESTS}/test_turns_of_former_leaders.py",),
    ),
    Mistake(
        name="a turn to write a checkpoint counts more than once",
        file=f"{_NODE}/snapshot_turns.py",
        edits=(("            self._turn_of = None\n            return True\n", "            return True\n"),),
        harm="a controller writes its next checkpoint while another one writes",
        tests=(f"{_TESTS}/test_snapshot_turns.py",),
    ),
    Mistake(
        name="a turn to write a checkpoint survives the leader that gave it",
        file=f"{_NODE}/snapshot_turns.py",
        edits=(
            (
                "self._turn_of is not None and self._turn_of == self._leader()",
                "self._turn_of is not None",
            ),
        ),
        harm="two controllers write at the same time",
        tests=(f"{_TESTS}/test_turns_of_former_leaders.py",),
    ),
    Mistake(
        name="an answer waits for a record more than it wrote",
        file=f"{_NODE}/consistency.py",
        edits=(
            (
                "known_high_watermark(held.brokers[-1]) >= held.waiter.end_offset",
                "known_high_watermark(held.brokers[-1]) > held.waiter.end_offset",
            ),
        ),
        harm="each answer to a broker waits for the next record of anybody",
        tests=(f"{_TESTS}/test_broker_waits.py",),
    ),
    Mistake(
        name="a restarted controller answers from its checkpoint",
        file=f"{_NODE}/consistency.py",
        edits=(
            (
                "raft.has_caught_up and raft.high_watermark <= self._metadata.applied_offset",
                "raft.has_caught_up",
            ),
        ),
        harm="a client that saw a topic elsewhere does not see it any more",
        tests=(f"{_TESTS}/test_node_narrow_margins.py",),
    ),
    Mistake(
        name="a restarted controller waits for the leader of its disk",
        file=f"{_NODE}/consistency.py",
        edits=(("self._raft.is_led or now_ms", "self._raft.leader_id >= 0 or now_ms"),),
        harm="the survivor of a lost quorum answers nothing, not even who is registered",
        tests=(f"{_TESTS}/test_first_catch_up.py",),
    ),
    Mistake(
        name="a decision that is half written ends with its client",
        file=f"{_NODE}/request_processor.py",
        edits=(
            (
                "if now_ms > read.requester.deadline_ms and not read.has_written:",
                "if now_ms > read.requester.deadline_ms:",
            ),
        ),
        harm="some topics of a request are created, and others never",
        tests=(f"{_TESTS}/test_long_reads.py",),
    ),
    Mistake(
        name="a part that could not be written does not end its decision",
        file=f"{_NODE}/request_processor.py",
        edits=(
            (
                "if fault is not None and self._long_reads.give_up(read):",
                "if fault is not None and self._long_reads.give_up(read) is None:",
            ),
        ),
        harm="a client waits for ever",
        tests=(f"{_TESTS}/test_long_reads.py",),
    ),
    Mistake(
        name="the read of another is given up",
        file=f"{_NODE}/request_processor.py",
        edits=(("lambda waiting: waiting.token == read.token", "lambda _: True"),),
        harm="a client is never answered",
        tests=(f"{_TESTS}/test_long_reads.py",),
    ),
    Mistake(
        name="a turn begins all that clients ask for",
        file=f"{_NODE}/request_processor.py",
        edits=(("while self._of_clients and budget.is_left:", "while self._of_clients:"),),
        harm="a hundred large requests cost the leadership",
        tests=(f"{_TESTS}/test_budget_of_a_turn.py",),
    ),
    Mistake(
        name="a client has the next turn as well",
        file=f"{_NODE}/request_queue.py",
        edits=(("            self._by_client.move_to_end(client)\n", "            pass\n"),),
        harm="a client that creates topics without end keeps all others waiting",
        tests=(f"{_TESTS}/test_budget_of_a_turn.py",),
    ),
    Mistake(
        name="requests that wait survive the loss of leadership",
        file=f"{_NODE}/request_processor.py",
        edits=(("        self._of_nodes.clear()\n", ""),),
        harm="a request is answered twice",
        tests=(f"{_TESTS}/test_soft_state.py",),
    ),
    Mistake(
        name="a damaged download stays",
        file=f"{_NODE}/snapshotter.py",
        edits=(("            self._storage.discard_fetched()\n", ""),),
        harm="files of damaged downloads fill the disk",
        tests=("unit/controller/node/test_damaged_files.py",),
    ),
)
