"""Table `membership`: voters over time, with their directories."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, ShortType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.controller_registrations import ADDRESS
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, intervals, statements
from pyspark_quorate.tables.timeline import PLACE, breaks, field, records_of

VOTERS_RECORD: Final = "VotersRecord"
_VOTERS: Final = (
    "array<struct<voterId: int, voterDirectoryId: string, endpoints: array<struct<name: string, host: string, "
    "port: int>>, kRaftVersionFeature: struct<minSupportedVersion: short, maxSupportedVersion: short>>>"
)

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("voter_id", IntegerType(), "node.id of the voter"),
    column("directory_id", StringType(), "id of its metadata log directory: 22 characters of base64"),
    column("endpoints", list_of(*ADDRESS), "its advertised listeners"),
    column("kraft_version_min", ShortType(), "lowest kraft.version that it supports"),
    column("kraft_version_max", ShortType(), "highest kraft.version that it supports"),
    *INTERVAL_COLUMNS,
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


TABLE: Final = Table(
    build=membership,
    doc=(
        "Voters of the quorum, from the VotersRecords of a dynamic quorum (KIP-853). The voters of a static quorum "
        "(kraft.version 0) are configured in controller.quorum.voters and not recorded in the log: such a cluster "
        "has no rows here. A voter that returns with another directory has another row."
    ),
    schema=SCHEMA,
    key=("cluster_id", "voter_id", "directory_id", "from_offset"),
)
