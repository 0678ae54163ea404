"""The tables that the fold makes of plain rows, without Spark, and what every table promises."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType, TimestampType
from pyspark_quorate import rows
from pyspark_quorate.tables.contract import Line, Table
from pyspark_quorate.tables.evidence import evidence_of
from pyspark_quorate.tables.fold import ClusterFold
from pyspark_quorate.tables.summary import Summary, summarize
from pyspark_quorate.tables.timeline import Timeline

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = rows.SCHEMA.names
SCHEMA = pa.schema(
    [
        pa.field(field.name, pa.int64()) if field.name == "time" else field
        for field in rows.arrow_schema(rows.SCHEMA)
    ]
)
Row = dict[str, Any]
SPAN = ("from_offset", "to_offset")


def microseconds(time: datetime | None) -> int | None:
    """An instant as rows of the fold have it."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def batches_of(raw: Iterable[Sequence[Any]], size: int = 7) -> list[pa.RecordBatch]:
    """Rows of the source as batches, in the order in which they are given."""
    named = [dict(zip(COLUMNS, row, strict=True)) for row in raw]
    for row in named:
        row["time"] = microseconds(row["time"])
    return [
        pa.RecordBatch.from_pylist(named[at : at + size], schema=SCHEMA) for at in range(0, len(named), size)
    ]


def by_cluster(raw: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    """The rows of each cluster, in the order of the timeline."""
    found: dict[str, list[Sequence[Any]]] = {}
    for row in raw:
        found.setdefault(row[0], []).append(row)
    return {cluster: sorted(of_cluster, key=_place) for cluster, of_cluster in found.items()}


def _place(row: Sequence[Any]) -> tuple[Any, ...]:
    _, source, kind, offset, ordinal, epoch, *_ = row
    return (
        (False, repr(row)) if kind == rows.GAP else (True, offset, kind == rows.LOG, epoch, source, ordinal)
    )


def summary_of(raw: Iterable[Sequence[Any]]) -> Summary:
    """The summary of rows of one cluster."""
    made = Summary()
    for batch in batches_of(raw):
        made.add(summarize(batch))
    return made


def timelines(raw: Iterable[Sequence[Any]]) -> dict[str, list[Line]]:
    """The lines of each cluster."""
    made = {}
    for cluster, of_cluster in by_cluster(raw).items():
        timeline = Timeline(evidence_of(summary_of(of_cluster)))
        batches = batches_of([row for row in of_cluster if row[2] != rows.GAP])
        chosen = [line for batch in batches for line in timeline.choose(batch).lines]
        made[cluster] = chosen + timeline.finish()
    return made


def fold_rows(raw: Iterable[Sequence[Any]], tables: Sequence[Table]) -> dict[str, list[Row]]:
    """The tables of rows of the source, in any order; the payload of `records` is text."""
    made: dict[str, list[Row]] = {table.name: [] for table in tables}
    for cluster, of_cluster in by_cluster(raw).items():
        fold = ClusterFold(evidence_of(summary_of(of_cluster)), tables)
        for batch in batches_of(of_cluster):
            found = fold.fold(batch).to_pylist()
            if "records" in made:
                made["records"] += [row | {"time": instant(row["time"])} for row in found]
            _drain(fold, cluster, tables, made)
        fold.finish()
        _drain(fold, cluster, tables, made)
    return made


def _drain(fold: ClusterFold, cluster: str, tables: Sequence[Table], made: dict[str, list[Row]]) -> None:
    schemas = {table.name: table.schema for table in tables}
    for name, found in fold.drain():
        for values in found:
            assert len(values) == len(schemas[name].fields) - 1, name
            made[name].append(
                {
                    field.name: plain(value, field.dataType)
                    for field, value in zip(schemas[name].fields, (cluster, *values), strict=True)
                }
            )


def instant(time_us: int | None) -> datetime | None:
    """The reverse of `microseconds`."""
    return None if time_us is None else EPOCH + timedelta(microseconds=time_us)


def plain(value: Any, kind: DataType) -> Any:
    """A value of the fold or of a file as one that compares: instants in UTC, tuples for lists and structs."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return instant(value) if isinstance(value, int) else value.astimezone(UTC)
    if isinstance(kind, ArrayType):
        return tuple(plain(item, kind.elementType) for item in value)
    if isinstance(kind, StructType):
        value = value.values() if isinstance(value, dict) else value
        return tuple(plain(item, field.dataType) for item, field in zip(value, kind.fields, strict=True))
    return value


def assert_promises(table: Table, found: Iterable[Mapping[str, Any]]) -> None:
    """The key identifies a row, and no interval is without length."""
    is_of_intervals = set(SPAN) <= set(table.schema.names)
    spans = SPAN if is_of_intervals else ()
    keys = [tuple(row[name] for name in (*table.key, *spans)) for row in found]
    twice = [key for key, count in Counter(repr(row[: len(table.key)]) for row in keys).items() if count > 1]
    assert not twice, f"{table.name}: more than one row has the key {table.key}: {twice[:5]}"
    if is_of_intervals:
        without = [row for row in keys if row[-1] is not None and row[-1] <= row[-2]]
        assert not without, f"{table.name}: intervals without length: {without[:5]}"


def assert_same(
    table: Table, found: Iterable[Row], expected: Iterable[tuple[Any, ...]], *left_out: str
) -> None:
    """The rows of one cluster are these, whose columns are those of the table but cluster_id and `left_out`."""
    names = [name for name in table.schema.names if name not in ("cluster_id", *left_out)]
    seen = sorted((tuple(row[name] for name in names) for row in found), key=repr)
    wanted = sorted(expected, key=repr)
    assert seen == wanted, (
        f"{table.name}: too much {[row for row in seen if row not in wanted][:3]}, "
        f"lacking {[row for row in wanted if row not in seen][:3]}"
    )
