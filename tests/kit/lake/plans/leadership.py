"""Table `leadership`: the active controller over time."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals
from kit.lake.plans.timeline import breaks, field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark_quorate import rows

_LEADER_CHANGE: Final = "LeaderChangeMessage"
_VOTERS: Final = "array<struct<voterId: int, voterDirectoryId: string>>"


def leadership(lines: DataFrame) -> DataFrame:
    """One row per epoch that has records. A leader starts its epoch with a LeaderChangeMessage."""
    first = (
        lines.where(~f.col("is_snapshot") & (f.col("type") != rows.GAP))
        .groupBy("cluster_id", "epoch")
        .agg(f.min_by(f.struct("offset", "time", "type"), "offset").alias("first"))
        .select("cluster_id", "epoch", "first.*")
    )
    elections = lines.where(f.col("type") == _LEADER_CHANGE).select(
        "cluster_id",
        "offset",
        field("leaderId", "int").alias("leader_id"),
        _ids("voters").alias("voters"),
        _ids("grantingVoters").alias("granting_voters"),
    )
    state = ["epoch", "leader_id", "voters", "granting_voters"]
    events = first.join(elections, ["cluster_id", "offset"], "left").select(
        *("cluster_id", *state, "time", "offset"),
        f.lit(0).alias("ordinal"),
        f.lit(False).alias("is_snapshot"),
        f.lit(False).alias("removed"),
    )
    # Snapshots do not contain the leader: for this table they bridge no gap.
    gaps = breaks(lines).where("not is_snapshot")
    made = intervals(events, gaps, key=["cluster_id"], state=state)
    # The time of an election is exact, whatever is missing before it.
    return made.withColumn("from_exact", f.col("from_exact") | f.col("leader_id").isNotNull())


def _ids(name: str) -> Column:
    return f.array_sort(f.transform(field(name, _VOTERS), lambda voter: voter["voterId"]))


PLAN: Final = Plan(build=leadership)
