"""Table `membership`: voters over time, with their directories."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals, statements
from kit.lake.plans.timeline import PLACE, breaks, field, records_of
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

VOTERS_RECORD: Final = "VotersRecord"
_VOTERS: Final = (
    "array<struct<voterId: int, voterDirectoryId: string, endpoints: array<struct<name: string, host: string, "
    "port: int>>, kRaftVersionFeature: struct<minSupportedVersion: short, maxSupportedVersion: short>>>"
)


def membership(lines: DataFrame) -> DataFrame:
    """One row per interval in which a node was a voter with the same endpoints and versions."""
    sets = records_of(lines, VOTERS_RECORD)
    voter = f.explode(field("voters", _VOTERS)).alias("voter")
    stated = sets.select("cluster_id", voter, *PLACE).select(
        "cluster_id",
        f.col("voter.voterId").alias("voter_id"),
        f.col("voter.voterDirectoryId").alias("directory_id"),
        f.array_sort("voter.endpoints").alias("endpoints"),
        f.col("voter.kRaftVersionFeature.minSupportedVersion").alias("kraft_version_min"),
        f.col("voter.kRaftVersionFeature.maxSupportedVersion").alias("kraft_version_max"),
        *PLACE,
    )
    key = ["cluster_id", "voter_id", "directory_id"]
    return intervals(
        statements(stated, sets, key=key),
        breaks(lines),
        key=key,
        state=["endpoints", "kraft_version_min", "kraft_version_max"],
    )


PLAN: Final = Plan(build=membership)
