"""Mistakes in the replicated state."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_IMAGE: Final = "protocol/quorate_protocol/image"
_TESTS: Final = "unit/protocol/image"

MISTAKES: Final = (
    Mistake(
        name="a commit that leaves out the batch at the high watermark",
        file=f"{_IMAGE}/image.py",
        edits=(
            ("self._batch_ends[0].end_offset <= end_offset:", "self._batch_ends[0].end_offset < end_offset:"),
        ),
        harm="checkpoints lag one batch behind; a revert takes committed records",
        tests=(f"{_TESTS}/test_image_journal.py",),
    ),
    Mistake(
        name="a revert that keeps the batch that begins there",
        file=f"{_IMAGE}/image.py",
        edits=(
            (
                "while self._batch_ends and self._batch_ends[-1].end_offset > end_offset:",
                "while self._batch_ends and self._batch_ends[-1].end_offset > end_offset + 1:",
            ),
        ),
        harm="a deposed leader keeps the last record that it decided",
        tests=(f"{_TESTS}/test_image_journal.py",),
    ),
    Mistake(
        name="a revert to before a committed part of an open transaction",
        file=f"{_IMAGE}/image.py",
        edits=(
            (
                "self._batch_ends[-1] if self._batch_ends else self._committed_batch_end",
                "self._batch_ends[-1] if self._batch_ends else self.stable",
            ),
        ),
        harm="a deposed leader forgets committed records of a metadata transaction",
        tests=(f"{_TESTS}/test_metadata_transactions.py",),
    ),
    Mistake(
        name="a checkpoint with uncommitted changes",
        file=f"{_IMAGE}/image.py",
        edits=(("        self._journal.undo_in(copied, self.stable.end_offset)\n", ""),),
        harm="a checkpoint has what is reverted later",
        tests=(f"{_TESTS}/test_image_journal.py",),
    ),
    Mistake(
        name="an unfenced broker counts as active in controlled shutdown",
        file=f"{_IMAGE}/registrations.py",
        edits=(("return not self.fenced and not self.in_controlled_shutdown", "return not self.fenced"),),
        harm="brokers that shut down are elected, and join ISRs",
        tests=("unit/controller/control/replication/test_elections_brokers.py",),
    ),
    Mistake(
        name="a change of a broker without a word of its shutdown ends the shutdown",
        file=f"{_IMAGE}/registrations.py",
        edits=(
            (
                "in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown == 1,",
                "in_controlled_shutdown=change.in_controlled_shutdown == 1,",
            ),
        ),
        harm="a broker that cordons a directory while it shuts down is elected again",
        tests=(f"{_TESTS}/test_node_registrations.py",),
    ),
    Mistake(
        name="the counts of a large topic forget who left",
        file=f"{_IMAGE}/index.py",
        edits=(("            for broker_id in old:\n                counts[broker_id] -= 1\n", ""),),
        harm="a broker that has no replica of the topic any more is looked at for it, and never done with leaving",
        tests=(f"{_TESTS}/test_partition_index.py",),
    ),
    Mistake(
        name="the counts of a deleted topic stay",
        file=f"{_IMAGE}/index.py",
        edits=(
            ("        self._counts.pop(topic.topic_id, None)\n        for unusual", "        for unusual"),
        ),
        harm="memory grows with each topic that is deleted",
        tests=(f"{_TESTS}/test_counts_of_large_topics.py",),
    ),
)
