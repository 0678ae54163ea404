"""Table `feature_levels`: finalized feature levels over time."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals
from kit.lake.plans.timeline import PLACE, breaks, field, records_of
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS

_FEATURE_LEVEL: Final = "FeatureLevelRecord"
_KRAFT_VERSION: Final = "KRaftVersionRecord"


def feature_levels(lines: DataFrame) -> DataFrame:
    """One row per interval in which a feature had the same level."""
    is_kraft = f.col("type") == _KRAFT_VERSION
    levels = (
        records_of(lines, _FEATURE_LEVEL, _KRAFT_VERSION)
        .withColumn("feature", f.when(is_kraft, f.lit(KRAFT_VERSION)).otherwise(field("name", "string")))
        # Kafka ignores a FeatureLevelRecord of kraft.version, which has its own control record.
        .where(is_kraft | (f.col("feature") != KRAFT_VERSION))
    )
    level = f.when(is_kraft, field("kRaftVersion", "short")).otherwise(field("featureLevel", "short"))
    events = levels.select(
        "cluster_id", "feature", level.alias("level"), (level == 0).alias("removed"), *PLACE
    )
    made = intervals(events, breaks(lines), key=["cluster_id", "feature"], state=["level"])
    return made.withColumn("level_name", level_name(f.col("feature"), f.col("level")))


def level_name(feature: Column, level: Column) -> Column:
    """4.3-IV0 for level 30 of metadata.version; the number for other features and unknown levels."""
    names = f.create_map(
        *(f.lit(part) for number, version in METADATA_VERSIONS.items() for part in (number, version.name))
    )
    named = f.when(feature == METADATA_VERSION, f.element_at(names, level.cast("int")))
    return f.coalesce(named, level.cast("string"))


PLAN: Final = Plan(build=feature_levels)
