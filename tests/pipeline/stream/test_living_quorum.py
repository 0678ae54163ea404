"""The stream's reader against real quorums, without Spark: what it plans, and what it reads whatever happens."""

import json
import pickle
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.cluster import Cluster
from kit.lake.directories import read_rows
from kit.metadata import start_offset
from kit.waiting import eventually
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark_quorate.source.follow_feed import FollowError
from pyspark_quorate.source.stream import QuorumStreamReader
from quorate_protocol.properties import format_properties

Offset = dict[str, Any]
Rows = list[dict[str, Any]]
NewQuorum = Callable[..., Cluster]
Change = Callable[[Cluster, int], None]

WAIT_S = 60
QUIET = {"metadata.max.idle.interval.ms": 0}
"""Without NoOpRecords, of which one is committed while the reader waits for the next, a log has an end."""
SMALL_LOG = {
    "internal.metadata.log.segment.bytes": 2_000,
    "metadata.log.max.record.bytes.between.snapshots": 3_000,
    "metadata.max.retention.bytes": 5_000,
    **QUIET,  # nothing is deleted while a test looks
}


def reader_of(cluster: Cluster, **options: str) -> QuorumStreamReader:
    """A reader of a running quorum."""
    return QuorumStreamReader(
        {"bootstrapControllers": cluster.bootstrap_controllers, "noOps": "true", **options}
    )


def read(reader: QuorumStreamReader, start: Offset, end: Offset) -> Rows:
    """The rows of a micro-batch, read as an executor does: by copies."""
    (partition,) = reader.partitions(start, end)
    copy, partition = pickle.loads(pickle.dumps((fresh(reader), partition)))
    return as_rows(copy.read(partition))


def fresh(reader: QuorumStreamReader) -> QuorumStreamReader:
    """A reader with the same options, as each of Spark's processes makes one."""
    other = object.__new__(QuorumStreamReader)
    other.__dict__ = {**reader.__dict__, "_planner": None}
    return other


def as_rows(batches: Any) -> Rows:
    """Rows without their source."""
    rows = pa.Table.from_batches(batches).to_pylist() if (batches := list(batches)) else []
    return [{name: value for name, value in row.items() if name != "source"} for row in rows]


def rows_of_directory(directory: Path) -> Rows:
    """What the reader of directories has of one."""
    return as_rows(read_rows(directory, noOps="true"))


def of_kind(rows: Rows, kind: str) -> Rows:
    """Rows of one kind."""
    return [row for row in rows if row["kind"] == kind]


def follow(
    reader: QuorumStreamReader, start: Offset, limit: ReadLimit | None = None
) -> tuple[Rows, list[Offset]]:
    """Everything from an offset on, micro-batch by micro-batch, and the offsets between them."""
    rows: Rows = []
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], limit or reader.getDefaultReadLimit())) != offsets[-1]:
        rows += read(reader, offsets[-1], end)
        offsets.append(end)
        if len(offsets) > 500:
            pytest.fail(f"a stream without an end: {offsets[-3:]}")
    return rows, offsets


def await_log_begins_behind(cluster: Cluster, offset: int, change: Change) -> int:
    """Change a cluster until no controller has the record at an offset; the new begin of its leader's log."""

    def is_deleted() -> bool:
        change(cluster, 40)
        return all(start_offset(cluster.metadata(controller)) > offset for controller in cluster.controllers)

    eventually(is_deleted, WAIT_S, f"logs without {offset}")
    return start_offset(cluster.metadata(cluster.await_leader()))


def test_a_quorum_is_read_as_its_directories_are(new_quorum: NewQuorum, change: Change) -> None:
    """Rows of a stream are those of the directories, in order, whatever the limits."""
    quorum = new_quorum()
    change(quorum, 60)
    for limits in ({}, {"maxRecordsPerTrigger": "7"}, {"maxBytesPerTrigger": "300"}):
        reader = reader_of(quorum, **limits)
        reader.prepareForTriggerAvailableNow()
        rows, offsets = follow(reader, reader.initialOffset())
        end = offsets[-1]["offset"]
        expected = [
            row for row in of_kind(rows_of_directory(quorum.data(3000)), "log") if row["offset"] < end
        ]
        assert rows == expected
        assert [row["offset"] for row in rows] == list(range(end))
        assert (len(offsets) == 2) is (not limits)
        change(quorum, 1)
        assert reader.latestOffset(offsets[-1], ReadAllAvailable()) == offsets[-1], "it was to end"
        reader.stop()


def test_latest_begins_with_what_comes_after(new_quorum: NewQuorum, change: Change) -> None:
    quorum = new_quorum()
    change(quorum, 5)
    reader = reader_of(quorum, initialOffset="latest")
    start = reader.initialOffset()
    change(quorum, 5)
    reader.prepareForTriggerAvailableNow()
    rows, _ = follow(reader, start)
    reader.stop()
    assert start["offset"] > 5
    assert rows[0]["offset"] == start["offset"]
    assert len([row for row in rows if row["type"] == "ConfigRecord"]) == 5


def test_a_read_is_the_same_by_another_leader(new_quorum: NewQuorum, change: Change) -> None:
    quorum = new_quorum(controllers=3)
    change(quorum, 30)
    reader = reader_of(quorum)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    before = read(reader, start, end)
    leader = quorum.await_leader()
    quorum.kill(leader)
    during = read(reader, start, end)
    change(quorum, 5)
    later = reader.latestOffset(end, ReadAllAvailable())
    reader.stop()
    assert before == during
    assert len(before) == end["offset"]
    assert later["offset"] > end["offset"]
    assert later["epoch"] > end["epoch"]
    quorum.start(leader)
    quorum.await_quorum()
    assert read(reader_of(quorum), start, end) == before


def test_a_snapshot_stands_for_what_was_deleted_before_it_was_read(
    new_quorum: NewQuorum, change: Change
) -> None:
    """When the log start has passed, nothing is silently missing, and the state is there once."""
    quorum = new_quorum(config=SMALL_LOG)
    change(quorum, 10)
    reader = reader_of(quorum, maxRecordsPerTrigger="8")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    await_log_begins_behind(quorum, end["offset"], change)
    rows = read(reader, start, middle) + read(reader, middle, end)
    assert {(row["kind"], row["type"]) for row in rows} == {("gap", "missing-offsets")}

    def follow_to_a_kept_snapshot() -> tuple[Rows, list[Offset], Rows] | None:
        # A snapshot that is still being written may replace the one that is read: then there is nothing to compare.
        reader.prepareForTriggerAvailableNow()
        others, offsets = follow(reader, end)
        newest = max(row["offset"] for row in of_kind(others, "snapshot"))
        in_directory = of_kind(rows_of_directory(quorum.data(3000)), "snapshot")
        kept = [row for row in in_directory if row["offset"] == newest]
        return (others, offsets, kept) if kept else None

    others, offsets, kept = eventually(follow_to_a_kept_snapshot, WAIT_S, "a snapshot that is kept")
    reader.stop()
    rows += others
    covered = [_range_of(row) for row in rows if row["kind"] != "snapshot"]
    assert covered[0][0] == 0
    assert all(end == begin for (_, end), (begin, _) in pairwise(covered)), covered
    assert covered[-1][1] == offsets[-1]["offset"]
    # The newest; one before it may have been deleted in the middle.
    end_offset = kept[0]["offset"]
    snapshot = [row for row in of_kind(rows, "snapshot") if row["offset"] == end_offset]
    assert snapshot == kept
    assert [row["ordinal"] for row in snapshot] == list(range(len(snapshot)))
    assert snapshot[0]["type"] == "SnapshotHeaderRecord"
    assert snapshot[-1]["type"] == "SnapshotFooterRecord"
    behind = rows[rows.index(snapshot[-1]) + 1 :]
    assert [row["offset"] for row in behind] == list(range(end_offset, offsets[-1]["offset"]))


def _range_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["offset"], _gap_end(row) if row["kind"] == "gap" else row["offset"] + 1


def _gap_end(row: dict[str, Any]) -> int:
    return int(json.loads(row["payload"])["endOffset"])


@pytest.mark.parametrize("elections", [0, 2])
def test_a_recreated_quorum_is_reported_and_read_from_its_beginning(
    new_quorum: NewQuorum, change: Change, elections: int
) -> None:
    quorum = new_quorum(config=QUIET)
    for _ in range(elections):
        quorum.terminate(3000)
        quorum.start_all()
    change(quorum, 40)
    reader = reader_of(
        quorum, **{"config.request.timeout.ms": "2000", "config.default.api.timeout.ms": "4000"}
    )
    before, offsets = follow(reader, reader.initialOffset(), ReadAllAvailable())
    planned = (offsets[-2], offsets[-1])
    quorum.terminate(3000)
    shutil.rmtree(quorum.data(3000))
    quorum.format(3000)
    quorum.start_all()
    again = read(reader, *planned)
    assert again[-1]["type"] == "truncated-epoch", "a planned micro-batch that is gone"
    reader.prepareForTriggerAvailableNow()
    rows, offsets = follow(reader, offsets[-1], ReadAllAvailable())
    reader.stop()
    (gap,) = of_kind(rows, "gap")
    assert rows[0] == gap
    assert gap["type"] == "truncated-epoch"
    assert _gap_end(gap) == planned[1]["offset"] == len(before)
    assert [row["offset"] for row in rows[1:]] == list(range(offsets[-1]["offset"]))


def test_another_cluster_is_refused_by_name(new_quorum: NewQuorum) -> None:
    first, other = new_quorum(), new_quorum()
    start = reader_of(first).initialOffset()
    reader = reader_of(other)
    with pytest.raises(FollowError) as raised:
        reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    for words in (
        f"the checkpoint belongs to cluster {start['clusterId']}",
        f"to cluster {reader_of(other).initialOffset()['clusterId']}",
        other.bootstrap_controllers,
    ):
        assert words in str(raised.value)


def test_a_quorum_that_is_away_is_asked_within_a_bound(new_quorum: NewQuorum, change: Change) -> None:
    """An outage fails the micro-batch in time, and names the controllers and the reason; a short one does not."""
    quorum = new_quorum(controllers=3)
    change(quorum, 3)
    bounds = {"config.request.timeout.ms": "1000", "config.default.api.timeout.ms": "2000"}
    reader = reader_of(quorum, **bounds)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    quorum.kill(*quorum.controllers)
    attempts: list[Callable[[], object]] = [
        lambda: reader_of(quorum, **bounds).initialOffset(),
        lambda: reader.latestOffset(end, ReadAllAvailable()),
        lambda: read(reader, start, end),
    ]
    for attempt in attempts:
        with pytest.raises(FollowError) as raised:
            attempt()
        for controller in quorum.controllers:
            assert quorum.address(controller) in str(raised.value)
    assert "2000 ms (default.api.timeout.ms)" in str(raised.value)
    quorum.start_all()

    def read_again() -> Rows:
        try:
            return read(reader, start, end)
        except FollowError as error:  # on a busy machine, the first connection may take longer than the bound
            raise ConnectionError(f"{error}") from error

    assert len(eventually(read_again, WAIT_S, "the same rows")) == end["offset"]
    reader.stop()


def test_java_controllers_are_followed_over_tls_and_sasl(
    new_java_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    """Stock controllers are read like ours, with the client properties of Kafka, and no secret leaks."""
    cluster = new_java_cluster(controllers=1, brokers=0)
    cluster.start(*cluster.controllers)
    cluster.await_quorum()
    properties = cluster.sasl_properties()
    file = tmp_path / "client.properties"
    file.write_text(format_properties(properties))
    base = {"bootstrapControllers": cluster.sasl_controllers, "noOps": "true"}
    for options in (
        {**base, "configFile": str(file)},
        {**base, **{f"config.{name}": value for name, value in properties.items()}},
    ):
        reader = QuorumStreamReader(options)
        reader.prepareForTriggerAvailableNow()
        rows, offsets = follow(reader, reader.initialOffset())
        reader.stop()
        expected = of_kind(rows_of_directory(cluster.data(3000)), "log")
        assert rows == expected[: offsets[-1]["offset"]]
        assert "admin-secret" not in f"{reader._options} {offsets}"
    wrong = QuorumStreamReader(
        {
            **base,
            "configFile": str(file),
            "config.sasl.jaas.config": properties["sasl.jaas.config"].replace("admin-", "no-"),
        }
    )
    with pytest.raises(FollowError, match=cluster.sasl_controllers) as raised:
        wrong.latestOffset(offsets[0], ReadAllAvailable())
    assert "no-secret" not in str(raised.value)
    wrong.stop()
