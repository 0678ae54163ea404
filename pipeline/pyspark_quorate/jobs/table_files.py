"""Writes rows of tables to Parquet files: one folder for each day, ordered by the table's key."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, VariantType

from pyspark_quorate import rows
from pyspark_quorate.jobs.variant import variants
from pyspark_quorate.tables.contract import Row, Table

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)


def stored_fields(table: Table, kind: str) -> list[StructField]:
    """The columns of a stored table of a format, without `day`. VARIANT becomes JSON in Delta."""

    def stored(field: StructField) -> StructField:
        if kind == "delta" and isinstance(field.dataType, VariantType):
            return StructField(field.name, StringType(), field.nullable, field.metadata)
        return field

    return [stored(field) for field in table.schema.fields]


def write_table(table: Table, found: list[Row], where: Path, file: str) -> None:
    """Write rows of one cluster, a file of this name for each day, ordered by the key."""
    fields = table.schema.fields[1:]
    names = [field.name for field in fields]
    day = names.index(table.day)
    key = [names.index(name) for name in _key(table)]
    of_day: dict[int | None, list[Row]] = {}
    for row in found:
        time_us = row[day]
        of_day.setdefault(None if time_us is None else time_us // _DAY_US, []).append(row)
    schema = to_arrow_schema(StructType(fields), timezone="UTC")
    for number, some in of_day.items():
        try:
            some.sort(key=itemgetter(*key))
        except TypeError:  # there are nulls
            some.sort(key=lambda row: [_sortable(row[at]) for at in key])
        columns = [
            pa.array(values, one.type) for values, one in zip(zip(*some, strict=True), schema, strict=True)
        ]
        _write(pa.Table.from_arrays(columns, schema=schema), where, number, file)


def write_records(table: Table, batches: Sequence[pa.RecordBatch], where: Path, file: str, kind: str) -> None:
    """Write rows of table `records` of one cluster, with times as numbers, a file of this name for each day."""
    schema = to_arrow_schema(StructType(stored_fields(table, kind)[1:]), timezone="UTC")
    found = pa.Table.from_batches(batches).combine_chunks()
    for number, some in _by_day(found.sort_by([(name, "ascending") for name in _key(table)])):
        columns = [some.column(name).combine_chunks() for name in schema.names]
        columns = [
            variants(column, field.type) if pa.types.is_struct(field.type) else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        _write(pa.Table.from_arrays(columns, schema=schema), where, number, file)


def _key(table: Table) -> list[str]:
    return [name for name in table.key if name != rows.CLUSTER_ID.name]


def _by_day(found: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """Split rows by the UTC day of their times. Yields the number of days since 1970, and the rows in order."""
    time = found.column("time")
    unknown = pc.is_null(time)
    if pc.any(unknown).as_py():
        yield None, found.filter(unknown)
        found = found.filter(pc.invert(unknown))
        time = found.column("time")
    days = np.floor_divide(time.to_numpy(), _DAY_US)
    for number in np.unique(days).tolist():
        yield number, found.filter(pa.array(days == number))


def _write(found: pa.Table, where: Path, day: int | None, file: str) -> None:
    folder = where / f"day={_day_name(day)}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(found, folder / file, compression="zstd")


def _day_name(number: int | None) -> str:
    """Returns YYYY-MM-DD for a number of days since 1970-01-01, as the folders are named."""
    return NO_DAY if number is None else (_EPOCH + timedelta(days=number)).isoformat()


def _sortable(value: Any) -> tuple[Any, ...]:
    """Returns a sort key that orders nulls before other values, also within lists and structs."""
    if value is None:
        return (0,)
    return (1, tuple(map(_sortable, value))) if isinstance(value, tuple | list) else (1, value)
