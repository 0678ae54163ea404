"""The contract of a table: its name, its columns, and the function that builds it from other tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

Build = Callable[..., DataFrame]
"""Takes the DataFrames of `Table.inputs`, in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the lake. Each column's documentation is its field's comment.

    `build` has the name of the table. `inputs` are names of other tables, "rows" (the output of the data source) or
    "timeline". `key` identifies a row. In tables of intervals it ends with from_offset: intervals of the same key do
    not overlap, and none is empty.
    """

    build: Build
    doc: str
    schema: StructType
    key: tuple[str, ...]
    inputs: tuple[str, ...] = ("timeline",)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.build.__name__

    @property
    def day(self) -> str:
        """The timestamp by whose UTC day the stored table is partitioned, in addition to `cluster_id`."""
        return "valid_from" if "valid_from" in self.schema.names else "time"

    def make(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Build the table from its inputs, with exactly the columns of its schema, in order."""
        return conform(self.build(*(tables[name] for name in self.inputs)), self.schema)


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Select the columns of `schema`, with its types and comments.

    Raises:
        AnalysisException: when it is analyzed, if a column is missing.
    """
    return frame.select(
        *(
            f.col(field.name).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for field in schema.fields
        )
    )
