"""Table `records`: every record of logs and checkpoints, once."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.timeline import first_of, snapshot_copies
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark_quorate import rows


def records(raw: DataFrame) -> DataFrame:
    """Rows without copies and gaps, including records that the quorum did not keep."""
    log = raw.where(f.col("kind") == rows.LOG)
    once = first_of(log, ["cluster_id", "offset", "epoch"], "source")
    copies = first_of(
        snapshot_copies(raw), ["cluster_id", "offset", "epoch"], f.desc("is_complete"), "source"
    )
    chosen = copies.select("cluster_id", "offset", "epoch", "source")
    snapshots = (
        raw.where(f.col("kind") == rows.SNAPSHOT)
        .join(f.broadcast(chosen), ["cluster_id", "offset", "epoch", "source"])
        .dropDuplicates(["cluster_id", "offset", "epoch", "ordinal"])
    )
    return once.unionByName(snapshots).withColumn("payload", f.parse_json("payload"))


PLAN: Final = Plan(build=records, inputs=("rows",))
