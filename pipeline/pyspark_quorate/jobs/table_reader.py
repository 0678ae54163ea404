"""Reads tables of a lake without Spark, to show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import delta
from pyspark_quorate.jobs.lake import Lake

ROWS_MAX: Final = 200_000
"""The maximum number of rows of a table that are read into memory."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table. `is_all` is false if there are more rows than the limit."""

    rows: tuple[Row, ...]
    is_all: bool


def read_table(lake: Lake, name: str, cluster_id: str | None = None, limit: int = ROWS_MAX) -> Rows | None:
    """Up to `limit` rows of a table, of one cluster or of all; None if the lake does not have the table.

    Times have a time zone; the column `day` is left out. Raises LakeError for a table with VARIANT columns.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - half a second

    dataset = _dataset(lake, name)
    if dataset is None:
        return None
    columns = [column for column in dataset.schema.names if column != "day"]
    wanted = pc.field("cluster_id") == cluster_id if cluster_id is not None else None
    head = dataset.head(limit + 1, columns=columns, filter=wanted)
    rows = tuple(head.slice(0, limit).to_pylist())
    return Rows(rows, is_all=head.num_rows <= limit)


def count_rows(lake: Lake, name: str) -> int:
    """The number of rows of a table, from the footers of its files."""
    dataset = _dataset(lake, name, is_counted=True)
    return 0 if dataset is None else int(dataset.count_rows())


def _dataset(lake: Lake, name: str, *, is_counted: bool = False) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.dataset as ds  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = lake.table(name)
    if lake.state.format == "delta":
        found = delta.open_table(table)
        return None if found is None else found.to_pyarrow_dataset()
    if not (table / "_common_metadata").exists():
        return None
    schema = pq.read_schema(table / "_common_metadata")
    variants = [
        column.name
        for column in schema
        if pa.types.is_struct(column.type) and {"metadata", "value"} <= {part.name for part in column.type}
    ]
    if variants and not is_counted:
        raise LakeError(
            f"{name} has VARIANT columns ({', '.join(variants)}), which only Spark can read: "
            f'spark.read.parquet("{table}")'
        )
    if is_counted:
        schema = pa.schema([])
    return ds.dataset(table, schema=schema, format="parquet", partitioning=delta.hive_partitioning())


def as_json(value: Any) -> Any:
    """A value as JSON: times as 2026-01-31T12:00:00.000Z, days as 2026-01-31, bytes in hexadecimal."""
    match value:
        case datetime():
            shown = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict():
            return {key: as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
    return value
