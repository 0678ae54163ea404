"""The contract of a plan: the table that it makes, and what it reads."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A Spark plan, named like the table that it makes from the frames `inputs`: other tables, "rows", "timeline"."""

    build: Callable[..., DataFrame]
    inputs: tuple[str, ...] = ("timeline",)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.build.__name__


def conform(frame: DataFrame, schema: StructType) -> DataFrame:
    """Select the columns of `schema`, with its types, in order."""
    return frame.select(
        *(f.col(field.name).cast(field.dataType).alias(field.name) for field in schema.fields)
    )
