"""From what was to what changed: the boundaries of intervals."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_quorate.tables.intervals import following


def boundaries(lives: DataFrame, *, key: Sequence[str], state: Sequence[str]) -> DataFrame:
    """key, time, offset, before, after (structs of `state`; null: the key was not there), exact.

    `lives` comes from :func:`pyspark_quorate.tables.intervals.intervals`. Where one interval follows another without
    a hole, their boundary is one line.
    """
    order = following(key)
    now = f.struct(*state)
    follows = f.lag("to_offset").over(order) == f.col("from_offset")
    is_followed = f.lead("from_offset").over(order) == f.col("to_offset")
    begin = f.struct(
        f.col("valid_from").alias("time"),
        f.col("from_offset").alias("offset"),
        f.when(follows, f.lag(now).over(order)).alias("before"),
        now.alias("after"),
        f.col("from_exact").alias("exact"),
    )
    end = f.struct(
        f.col("valid_to").alias("time"),
        f.col("to_offset").alias("offset"),
        now.alias("before"),
        f.when(f.lit(False), now).alias("after"),
        f.col("to_exact").alias("exact"),
    )
    has_end = f.col("to_offset").isNotNull() & ~f.coalesce(is_followed, f.lit(False))
    lines = f.when(has_end, f.array(begin, end)).otherwise(f.array(begin))
    return lives.select(*key, lines.alias("lines")).select(*key, f.inline("lines"))
