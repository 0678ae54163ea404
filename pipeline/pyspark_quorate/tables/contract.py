"""What a table promises: its name, its columns, and the function that makes it from others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

Build = Callable[..., DataFrame]
"""Takes the DataFrames of `Table.inputs`, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the lake. Each column's documentation is its field's comment.

    `inputs` are names of other tables, or "rows": what the data source yields. `day` is the timestamp column
    whose UTC day the stored table is partitioned by, next to `cluster_id`, which every table has.
    `key` identifies a row; together with `build` it makes a rerun the same. In tables of intervals it ends with
    from_offset: intervals of a key do not overlap, and none is without length.
    """

    name: str
    doc: str
    schema: StructType
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    day: str
    build: Build

    def make(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """The table, made of its inputs, with exactly the columns of its schema in their order and types."""
        return conform(self.build(*(tables[name] for name in self.inputs)), self.schema)


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of `schema` with its types and comments. A column that is missing is an AnalysisException."""
    return frame.select(
        *(
            f.col(field.name).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for field in schema.fields
        )
    )
