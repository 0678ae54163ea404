"""The tables of plain rows, made by the fold without Spark."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructType, TimestampType
from pyspark_quorate import rows
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.evidence import evidence_of
from pyspark_quorate.tables.fold import ClusterFold
from pyspark_quorate.tables.lines import Line
from pyspark_quorate.tables.summary import Summary, summarize
from pyspark_quorate.tables.timeline import Timeline

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = rows.SCHEMA.names
SCHEMA = pa.schema(
    [
        pa.field(one.name, pa.int64()) if one.name == "time" else one
        for one in to_arrow_schema(rows.SCHEMA, timezone="UTC")
    ]
)
Row = dict[str, Any]


def microseconds(time: datetime | None) -> int | None:
    """An instant as rows of the fold have it."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def batches_of(raw: Iterable[Sequence[Any]], size: int = 7) -> list[pa.RecordBatch]:
    """Rows of the source as batches, in the order in which they are given."""
    reported = [{**dict(zip(COLUMNS, one, strict=True))} for one in raw]
    for one in reported:
        one["time"] = microseconds(one["time"])
    return [
        pa.RecordBatch.from_pylist(reported[at : at + size], schema=SCHEMA)
        for at in range(0, len(reported), size)
    ]


def by_cluster(raw: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    """The rows of each cluster, in the order of the timeline."""
    found: dict[str, list[Sequence[Any]]] = {}
    for one in raw:
        found.setdefault(one[0], []).append(one)
    return {cluster: sorted(reported, key=_place) for cluster, reported in found.items()}


def _place(row: Sequence[Any]) -> tuple[Any, ...]:
    one = dict(zip(COLUMNS, row, strict=True))
    if one["kind"] == rows.GAP:
        return (False, repr(row))
    return (True, one["offset"], one["kind"] == rows.LOG, one["epoch"], one["source"], one["ordinal"])


def summary_of(told: Iterable[Sequence[Any]]) -> Summary:
    """The summary of rows of one cluster."""
    made = Summary()
    for batch in batches_of(told):
        made.add(summarize(batch))
    return made


def timelines(raw: Iterable[Sequence[Any]]) -> dict[str, list[Line]]:
    """The lines of each cluster."""
    made = {}
    for cluster, reported in by_cluster(raw).items():
        timeline = Timeline(evidence_of(summary_of(reported)))
        taken = [timeline.choose(batch).lines for batch in batches_of(_but_gaps(reported))]
        made[cluster] = [line for lines in taken for line in lines] + timeline.finish()
    return made


def _but_gaps(told: list[Sequence[Any]]) -> list[Sequence[Any]]:
    return [one for one in told if one[2] != rows.GAP]


def fold_rows(raw: Iterable[Sequence[Any]], tables: Sequence[Table]) -> dict[str, list[Row]]:
    """The tables of rows of the source, in any order; the payload of `records` is text."""
    made: dict[str, list[Row]] = {table.name: [] for table in tables}
    for cluster, reported in by_cluster(raw).items():
        fold = ClusterFold(evidence_of(summary_of(reported)), tables)
        for batch in batches_of(reported):
            found = fold.fold(batch).to_pylist()
            if "records" in made:
                made["records"] += [one | {"time": instant(one["time"])} for one in found]
            _drain(fold, cluster, tables, made)
        fold.finish()
        _drain(fold, cluster, tables, made)
    return made


def fold_lines(
    lines: Iterable[Line], cluster: str, fold: ClusterFold, tables: Sequence[Table]
) -> dict[str, list[Row]]:
    """The tables of a timeline."""
    made: dict[str, list[Row]] = {table.name: [] for table in tables}
    for line in lines:
        fold.step(line)
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


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame of Spark."""
    kinds = [field.dataType for field in frame.schema.fields]
    return [
        tuple(plain(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in frame.collect()
    ]


def plain(value: Any, kind: DataType) -> Any:
    """A value of the fold or of Spark as one that compares: instants in UTC, tuples for lists and structs."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return instant(value) if isinstance(value, int) else value.astimezone(UTC)
    if isinstance(kind, ArrayType):
        return tuple(plain(one, kind.elementType) for one in value)
    if isinstance(kind, StructType):
        return tuple(plain(one, field.dataType) for one, field in zip(value, kind.fields, strict=True))
    return value
