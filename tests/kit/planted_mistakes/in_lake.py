"""Mistakes in the tables of the lake."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_TABLES: Final = "pipeline/pyspark_quorate/tables"
_QUORUM: Final = ("pipeline/tables/test_quorum_tables.py",)
_METADATA: Final = ("pipeline/tables/test_metadata_tables.py",)
_STORIES: Final = ("pipeline/tables/test_stories.py",)

_JOBS: Final = "pipeline/pyspark_quorate/jobs"

MISTAKES: Final = (
    Mistake(
        name="a commit does not look whether its files are there",
        file=f"{_JOBS}/lake.py",
        edits=(("        self.check_staged(change)\n", ""),),
        harm="files that were lost between a task and its commit count as stored",
        tests=("pipeline/jobs/test_unshared_directories.py", "pipeline/jobs/test_faults_of_jobs.py"),
    ),
    Mistake(
        name="a file that could not be read counts as read",
        file=f"{_JOBS}/ingest.py",
        edits=(
            (
                "    files |= {failure.source: unreadable_mark(failure.detail) for failure in stored.failures}\n",
                "",
            ),
        ),
        harm="its records are missing for ever",
        tests=("pipeline/jobs/test_unreadable_files.py",),
    ),
    Mistake(
        name="a truncated log and the one that took its place are one log",
        file=f"{_TABLES}/generations.py",
        edits=(("if place is not None:", "if place is not None and place < 0:"),),
        harm="tables have records of a leader that lost, and lack those that the quorum kept",
        tests=("pipeline/jobs/test_truncated_logs.py",),
    ),
    Mistake(
        name="records that came back after a truncation are not noted",
        file="pipeline/pyspark_quorate/jobs/store_tasks.py",
        edits=(("            self.writer.note_again(cluster_id, back)\n", ""),),
        harm="tables lack records that a later leader kept, until another record follows",
        tests=("pipeline/jobs/test_truncated_logs.py",),
    ),
    Mistake(
        name="a report ends at the last row of its tables",
        file="pipeline/pyspark_quorate/report/history.py",
        edits=(("(end and end.time) or max(times, default=first)", "max(times, default=first)"),),
        harm="a broker that is fenced for hours and still is seems to be fenced for seconds",
        tests=("pipeline/report/test_end_of_a_history.py",),
    ),
    Mistake(
        name="a copy of the last offsets of a gap does not cover it",
        file=f"{_TABLES}/gaps.py",
        edits=(("stretch.end >= gap.behind", "stretch.end > gap.behind"),),
        harm="gaps count as hidden changes although another node has the records",
        tests=_QUORUM,
    ),
    Mistake(
        name="the record before the end of a gap counts as the first one after it",
        file=f"{_TABLES}/gaps.py",
        edits=(('np.searchsorted(offsets, end - 1, "right")', 'np.searchsorted(offsets, end - 1, "left")'),),
        harm="a gap seems to end before it began",
        tests=_QUORUM,
    ),
    Mistake(
        name="the time of a gap is that before it",
        file=f"{_TABLES}/gaps.py",
        edits=(
            (
                "time_us = not_after if not_after is not None else not_before",
                "time_us = not_before if not_before is not None else not_after",
            ),
        ),
        harm="gaps are stored below the wrong day",
        tests=_QUORUM,
    ),
    Mistake(
        name="gaps of a source lose their end",
        file=f"{_TABLES}/fold.py",
        edits=(('reported.get("endOffset")', 'reported.get("end_offset")'),),
        harm="each damaged part of a file counts as one offset",
        tests=_QUORUM,
    ),
    Mistake(
        name="the torn copy of a checkpoint is stored",
        file=f"{_TABLES}/evidence.py",
        edits=(
            (
                "key=lambda copy: (not summary.is_complete(copy), copy.source)",
                "key=lambda copy: (summary.is_complete(copy), copy.source)",
            ),
        ),
        harm="table records lacks the end of checkpoints that another node has whole",
        tests=_QUORUM,
    ),
    Mistake(
        name="an abort whose begin is missing voids nothing",
        file=f"{_TABLES}/evidence.py",
        edits=(("elif kind == ABORT and at == 0 and", "elif kind == ABORT and at > 0 and"),),
        harm="tables have records of a transaction that was aborted after a gap",
        tests=_QUORUM,
    ),
    Mistake(
        name="a copy at the start of a batch is folded twice",
        file=f"{_TABLES}/timeline.py",
        edits=(("first[0] = self._last_log != (offsets[0], epochs[0])", "first[0] = True"),),
        harm="table records has copies of a record",
        tests=_QUORUM,
    ),
    Mistake(
        name="merged intervals end at the time of the first",
        file=f"{_TABLES}/intervals.py",
        edits=(
            (
                "valid_to=interval.valid_to, to_offset=interval.to_offset, to_exact=interval.to_exact",
                "to_offset=interval.to_offset, to_exact=interval.to_exact",
            ),
        ),
        harm="addresses and blockers seem to end when a node was started again",
        tests=_QUORUM,
    ),
    Mistake(
        name="merged intervals forget the gaps within them",
        file=f"{_TABLES}/intervals.py",
        edits=(
            (
                "interval._replace(through_gap=gap_ends.is_within(interval.from_offset, interval.to_offset))",
                "interval",
            ),
        ),
        harm="an address that a gap may have interrupted counts as certain",
        tests=_QUORUM,
    ),
    Mistake(
        name="a blocked level has the name of the supported one",
        file=f"{_TABLES}/upgrade_blockers.py",
        edits=(("name = level_name(feature, level)", "name = level_name(feature, supported)"),),
        harm="the report names a level that nothing blocks",
        tests=_QUORUM,
    ),
    Mistake(
        name="a snapshot right after a partial record begins another interval",
        file=f"{_TABLES}/intervals.py",
        edits=(
            ("if entry is not None and entry.from_offset == offset:", "if entry is not None and offset < 0:"),
        ),
        harm="two rows of a broker have the same key, one of them without length",
        tests=_METADATA,
    ),
    Mistake(
        name="a topic that took a name does not end the one before",
        file=f"{_TABLES}/topics.py",
        edits=(
            (
                "is_replaced = not line.is_snapshot and previous is not None and previous != topic_id",
                "is_replaced = False",
            ),
        ),
        harm="a topic whose deletion is in a gap exists for ever",
        tests=_STORIES,
    ),
    Mistake(
        name="a secret in a snapshot counts as set again",
        file=f"{_TABLES}/config_changes.py",
        edits=(("before is None or before != after or set_offset is not None", "True"),),
        harm="each bridged gap shows a change of every secret",
        tests=_METADATA,
    ),
    Mistake(
        name="producer ids that a gap hides are not reported",
        file=f"{_TABLES}/producer_id_blocks.py",
        edits=(("if first > self._known_until:", "if line.is_snapshot and first > self._known_until:"),),
        harm="the blocks seem complete although some are missing",
        tests=_STORIES,
    ),
    Mistake(
        name="epochs of partitions stay known after a gap",
        file=f"{_TABLES}/partition_leadership.py",
        edits=(("is_known = run == known.run", "is_known = True"),),
        harm="partition epochs are wrong by the changes in the gap",
        tests=_METADATA,
    ),
)
