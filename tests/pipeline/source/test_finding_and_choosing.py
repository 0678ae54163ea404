"""Where metadata logs are found, how they are cut and packed, and what options and filters choose."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.directories import write_directory
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark_quorate import rows
from pyspark_quorate.source.layout import LayoutError, MetadataDirectory, find_directories, open_root
from pyspark_quorate.source.options import OptionError, parse_options
from pyspark_quorate.source.pieces import FILE_COST_BYTES, Piece, pack
from pyspark_quorate.source.reader import FilteringReader, PiecesPartition
from pyspark_quorate.source.record_decoder import Origin
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord, RemoveTopicRecord, TopicRecord

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


def read(filters: list[Filter] | None = None, **options: str) -> tuple[list[dict[str, Any]], list[Filter]]:
    """Rows, with filters pushed down, and those that were not taken."""
    reader = FilteringReader(parse_options(options))
    others = list(reader.pushFilters(filters or []))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return (pa.Table.from_batches(batches).to_pylist() if batches else []), others


def topic_log(first_offset: int, batches: int) -> bytes:
    """Batches of three records."""
    values = [
        encode_record(TopicRecord(name="a", topic_id=None)),
        encode_record(NoOpRecord()),
        encode_record(RemoveTopicRecord(topic_id=None)),
    ]
    return b"".join(build_batch(values, first_offset + 3 * number, 1, 1_000) for number in range(batches))


def test_options_that_are_wrong_say_what_is_allowed() -> None:
    wrong = {
        "path": ({}, "option path: missing"),
        "paths": ({"paths": "not json"}, "option paths: 'not json' is not a JSON list"),
        "startOffset": (
            {"path": "d", "startOffset": "-1"},
            "option startOffset: '-1' is not a whole number from 0 to 9223372036854775807",
        ),
        "endOffset": (
            {"path": "d", "startOffset": "5", "endOffset": "4"},
            "'4' is not a whole number from 5 to",
        ),
        "snapshots": ({"path": "d", "snapshots": "some"}, "'some' is not one of all, newest, none"),
        "noOps": ({"path": "d", "noOps": "yes"}, "'yes' is not one of false, true"),
        "recordTypes": ({"path": "d", "recordTypes": "Topic"}, "option recordTypes: 'Topic' is not a record"),
        "clusters": ({"path": "d", "clusters": ", "}, "option clusters: ', ' is empty"),
        "partitionBytes": ({"path": "d", "partitionBytes": "7"}, "option partitionBytes: '7'"),
        "ENDOFFSET": ({"path": "d", "endOffset": "9" * 5000}, "is not a whole number from 0 to"),
        "colour": ({"path": "d", "colour": "red"}, "option colour: unknown; allowed are path"),
    }
    for name, (options, message) in wrong.items():
        with pytest.raises(OptionError, match=f"(?i)option {name}") as raised:
            parse_options(options)
        assert message in str(raised.value)
    many = parse_options({"paths": '["a", "b"]', "RECORDTYPES": "TopicRecord, NoOpRecord", "noops": "TRUE"})
    assert many.paths == ("a", "b")
    assert many.record_types == {"TopicRecord", "NoOpRecord"}
    assert many.no_ops


def test_directories_are_found_in_any_tree(tmp_path: Path) -> None:
    """Log.dirs, the directory itself, shipped histories and bare copies."""
    files = {f"{0:020d}.log": topic_log(0, 1), f"{3:020d}.log": b"", f"{9:020d}-{2:010d}.checkpoint": b""}
    files |= {"00000000000000000003.log.deleted": b"x", "quorum-state": b"{}", f"{9:020d}.index": b""}
    write_directory(tmp_path / "history" / "c1" / "3000", files, "c1")
    write_directory(tmp_path / "history" / "c1" / "3001", {}, "c1")
    (tmp_path / "history" / "c1" / "3001" / "topic-0").mkdir()
    (tmp_path / "history" / "c1" / "3001" / "topic-0" / f"{0:020d}.log").write_bytes(b"a broker's partition")
    (tmp_path / "empty").mkdir()
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / f"{0:020d}.log").write_bytes(topic_log(0, 1))

    def found(root: Path, cluster_id: str | None = None) -> list[tuple[str, str, int, int]]:
        places = find_directories(open_root(str(root)), cluster_id)
        assert all(isinstance(each, MetadataDirectory) for each in places)
        return [
            (
                str(Path(each.address).relative_to(tmp_path)),
                each.cluster_id,
                len(each.segments),
                len(each.checkpoints),
            )
            for each in places
            if isinstance(each, MetadataDirectory)
        ]

    first = ("history/c1/3000/__cluster_metadata-0", "c1", 2, 1)
    second = ("history/c1/3001/__cluster_metadata-0", "c1", 0, 0)
    assert found(tmp_path / "history") == [first, second]
    assert found(tmp_path / "history" / "c1" / "3000") == [first]
    assert found(tmp_path / "history" / "c1" / "3000" / "__cluster_metadata-0") == [first]
    assert found(bare, "named") == [("bare", "named", 1, 0)]
    assert found(tmp_path, "named") == [first, second]
    by_address, _ = read(path=f"file://{tmp_path}/history")
    assert {row["source"] for row in by_address} >= {f"{tmp_path}/{first[0]}/{0:020d}.log"}
    with pytest.raises(LayoutError, match="not a directory"):
        find_directories(open_root(str(tmp_path / "nowhere")))
    with pytest.raises(LayoutError, match="contains no __cluster_metadata-0"):
        read(path=str(tmp_path / "empty"))


@given(
    sizes=st.lists(st.integers(0, 5_000_000), max_size=60), limit=st.integers(FILE_COST_BYTES + 1, 4_000_000)
)
def test_packing_loses_nothing_and_is_bounded(sizes: list[int], limit: int) -> None:
    pieces = [
        Piece(origin=Origin(cluster_id=str(number), source=""), size_bytes=size)
        for number, size in enumerate(sizes)
    ]
    packed = pack(pieces, limit)
    assert sorted(int(piece.origin.cluster_id) for each in packed for piece in each) == list(
        range(len(sizes))
    )
    assert all(len(each) == 1 or sum(piece.cost_bytes for piece in each) <= limit for each in packed)
    halves = [sum(piece.cost_bytes for piece in each) * 2 <= limit for each in packed]
    assert sum(halves) <= 1


def test_a_large_segment_is_cut_between_batches(tmp_path: Path) -> None:
    """Many tasks read one file to the same rows."""
    log = topic_log(0, 4_000)
    damaged = log[:50_000] + b"\xff" * 300 + log[50_300:]
    for number, content in enumerate((log, damaged)):
        directory = tmp_path / str(number)
        write_directory(directory, {0: content, 20_000: topic_log(20_000, 2)}, "c")
        reader = FilteringReader(parse_options({"path": str(directory), "partitionBytes": "40000"}))
        partitions = reader.partitions()
        assert all(isinstance(each, PiecesPartition) for each in partitions)
        assert len(partitions) > (8 if content is log else 2)
        split, _ = read(path=str(directory), partitionBytes="40000")
        whole, _ = read(path=str(directory))
        order = operator.itemgetter("kind", "offset")
        assert sorted(split, key=order) == sorted(whole, key=order)


CONDITIONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def holds(condition: Any, row: dict[str, Any]) -> bool:
    """Whether a row passes a filter, as SQL has it: null passes none."""
    value = row[condition.attribute[0]]
    if isinstance(condition, IsNotNull) or value is None:
        return value is not None
    if isinstance(condition, In):
        return value in condition.value
    return CONDITIONS[type(condition)](value, condition.value)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stock Kafka's directories beside a damaged one with several segments."""
    directory = tmp_path_factory.mktemp("mixed")
    (directory / "golden").symlink_to(GOLDEN)
    damaged = bytearray(topic_log(0, 20))
    damaged[300] ^= 1
    values = [bytes((1, 99, 0)), b"\x01\x02\x00\xff", encode_record(TopicRecord(name="b", topic_id=None))]
    odd = build_batch(values, 70, 2, 5)
    write_directory(directory / "own", {0: bytes(damaged), 70: odd + b"torn"}, "own")
    return directory


def filters_of(everything: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Filters on columns that are pushed down, with values that occur and others."""
    offsets = st.integers(-2, 260)
    compare = st.sampled_from(tuple(CONDITIONS))
    of_offset = st.builds(lambda kind, value: kind(("offset",), value), compare, offsets)
    names = {name: sorted({row[name] for row in everything}) for name in ("cluster_id", "kind", "type")}

    def of_name(name: str) -> st.SearchStrategy[Any]:
        values = st.sampled_from([*names[name], "other"])
        equal = values.map(lambda value: EqualTo((name,), value))
        within = st.lists(values, max_size=3).map(lambda several: In((name,), tuple(several)))
        return equal | within

    return of_offset | st.sampled_from(sorted(names)).flatmap(of_name) | st.just(IsNotNull(("offset",)))


@settings(max_examples=60)
@given(data=st.data())
def test_pushed_filters_are_filters_after_reading(mixed: Path, data: st.DataObject) -> None:
    everything, _ = read(path=str(mixed))
    assert {row["type"] for row in everything} >= {rows.CORRUPT_BATCH, rows.UNKNOWN_RECORD, rows.TORN_TAIL}
    filters = data.draw(st.lists(filters_of(everything), min_size=1, max_size=3))
    chosen, others = read(filters, path=str(mixed))
    assert others == []
    expected = [row for row in everything if all(holds(each, row) for each in filters)]
    key = repr
    assert sorted(chosen, key=key) == sorted(expected, key=key)


def test_other_filters_are_left_to_spark(mixed: Path) -> None:
    others = [
        Not(EqualTo(("type",), "TopicRecord")),
        StringContains(("payload",), "x"),
        EqualTo(("epoch",), 1),
    ]
    others += [EqualTo(("offset",), "7"), GreaterThan(("type",), "A")]
    everything, left = read(list(others), path=str(mixed))
    assert left == others
    assert len(everything) == len(read(path=str(mixed))[0])


@settings(max_examples=30)
@given(start=st.integers(0, 250), length=st.integers(0, 100))
def test_offset_options_choose_records_and_keep_gaps_that_touch(mixed: Path, start: int, length: int) -> None:
    everything, _ = read(path=str(mixed))
    chosen, _ = read(path=str(mixed), startOffset=str(start), endOffset=str(start + length))

    def records(found: list[dict[str, Any]]) -> list[str]:
        return sorted(
            repr(row) for row in found if row["kind"] != rows.GAP and start <= row["offset"] < start + length
        )

    assert records(chosen) == records(everything)
    assert all(row["kind"] == rows.GAP or start <= row["offset"] < start + length for row in chosen)


def test_clusters_and_record_types(mixed: Path) -> None:
    """The options choose, and gaps are reported whatever records are chosen."""
    chosen, _ = read(path=str(mixed), clusters="own", recordTypes="RemoveTopicRecord")
    assert {row["cluster_id"] for row in chosen} == {"own"}
    assert {row["type"] for row in chosen if row["kind"] == rows.LOG} == {"RemoveTopicRecord"}
    reasons = {row["type"] for row in chosen if row["kind"] == rows.GAP}
    assert reasons >= {rows.CORRUPT_BATCH, rows.UNKNOWN_RECORD, rows.TORN_TAIL}
