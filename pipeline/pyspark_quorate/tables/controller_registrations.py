"""Table `controller_registrations`: what each controller told the cluster of itself, and when."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructType

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS
from pyspark_quorate.tables.registrations import CONTROLLER, ENDPOINTS, FEATURES, registrations

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("controller_id", IntegerType(), "node.id of the controller"),
        column("incarnation_id", StringType(), "of the process: a restart has another one; uuid in base64"),
        column("endpoints", ENDPOINTS, "its listeners, by name"),
        column("features", FEATURES, "the levels that it supports, by name of the feature"),
        column(
            "zk_migration_ready", BooleanType(), "whether it could take part in a migration from ZooKeeper"
        ),
        *INTERVAL_COLUMNS,
    ]
)


def controller_registrations(lines: DataFrame) -> DataFrame:
    """One line for each registration of a controller, until the next one or until it is unregistered."""
    return registrations(lines, CONTROLLER).withColumnRenamed("node_id", "controller_id")


TABLE: Final = Table(
    name="controller_registrations",
    doc=(
        "Registrations of controllers (KIP-919), each until the next of the same node or until it is unregistered "
        "(KIP-1312). A controller that has gone stays registered, and blocks levels that it does not support."
    ),
    schema=SCHEMA,
    inputs=("timeline",),
    key=("cluster_id", "controller_id", "from_offset"),
    day="valid_from",
    build=controller_registrations,
)
