"""Registrations of brokers and controllers as intervals, and the table `controller_registrations`."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, ShortType, StringType, StructType
from quorate_protocol.kafka.enums import SecurityProtocol

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, intervals
from pyspark_quorate.tables.timeline import breaks, field, records_of

# What casts into arrays of structs has to be nullable throughout.
ENDPOINTS: Final = ArrayType(
    StructType(
        [
            column("name", StringType(), "listener", is_nullable=True),
            column("host", StringType(), "advertised host", is_nullable=True),
            column("port", IntegerType(), "advertised port", is_nullable=True),
            column(
                "security_protocol",
                StringType(),
                ", ".join(one.name for one in SecurityProtocol),
                is_nullable=True,
            ),
        ]
    )
)
FEATURES: Final = ArrayType(
    StructType(
        [
            column("name", StringType(), "feature", is_nullable=True),
            column("min_level", ShortType(), "lowest level that the node supports", is_nullable=True),
            column("max_level", ShortType(), "highest level that the node supports", is_nullable=True),
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The records that register and unregister nodes of a role, and their field of the node's id."""

    name: str
    register: str
    unregister: str
    node_id: str


BROKER: Final = Role(
    name="broker", register="RegisterBrokerRecord", unregister="UnregisterBrokerRecord", node_id="brokerId"
)
CONTROLLER: Final = Role(
    name="controller",
    register="RegisterControllerRecord",
    unregister="UnregisterControllerRecord",
    node_id="controllerId",
)


def registrations(lines: DataFrame, role: Role) -> DataFrame:
    """Intervals of node_id with incarnation_id, endpoints, features and zk_migration_ready (null for brokers)."""
    events = records_of(lines, role.register, role.unregister).select(
        "cluster_id",
        field(role.node_id, "int").alias("node_id"),
        field("incarnationId", "string").alias("incarnation_id"),
        _endpoints().alias("endpoints"),
        _features().alias("features"),
        field("zkMigrationReady", "boolean").alias("zk_migration_ready"),
        (f.col("type") == role.unregister).alias("removed"),
        "time",
        "offset",
        "ordinal",
        "is_snapshot",
    )
    return intervals(
        events,
        breaks(lines),
        key=["cluster_id", "node_id"],
        state=["incarnation_id", "endpoints", "features", "zk_migration_ready"],
    )


def _endpoints() -> Column:
    """Sorted, because a snapshot may have them in another order."""
    stated = field("endPoints", "array<struct<name: string, host: string, port: int, securityProtocol: int>>")
    protocols = f.array(*(f.lit(one.name) for one in SecurityProtocol))
    return f.array_sort(
        f.transform(
            stated,
            lambda one: f.struct(
                one["name"].alias("name"),
                one["host"].alias("host"),
                one["port"].alias("port"),
                f.get(protocols, one["securityProtocol"]).alias("security_protocol"),
            ),
        )
    )


def _features() -> Column:
    stated = field(
        "features", "array<struct<name: string, minSupportedVersion: short, maxSupportedVersion: short>>"
    )
    return f.array_sort(
        f.transform(
            stated,
            lambda one: f.struct(
                one["name"].alias("name"),
                one["minSupportedVersion"].alias("min_level"),
                one["maxSupportedVersion"].alias("max_level"),
            ),
        )
    )


# The table

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("controller_id", IntegerType(), "node.id of the controller"),
        column(
            "incarnation_id", StringType(), "id of the process, new at each start: 22 characters of base64"
        ),
        column("endpoints", ENDPOINTS, "its advertised listeners"),
        column("features", FEATURES, "supported feature levels"),
        column("zk_migration_ready", BooleanType(), "whether it was ready for a migration from ZooKeeper"),
        *INTERVAL_COLUMNS,
    ]
)


def controller_registrations(lines: DataFrame) -> DataFrame:
    """One row per registration of a controller, until its next one or until it is unregistered."""
    return registrations(lines, CONTROLLER).withColumnRenamed("node_id", "controller_id")


TABLE: Final = Table(
    name="controller_registrations",
    doc=(
        "Registrations of controllers (KIP-919), each until the node's next one or until it is unregistered "
        "(KIP-1312). A controller that was removed stays registered, and blocks levels that it does not support."
    ),
    schema=SCHEMA,
    inputs=("timeline",),
    key=("cluster_id", "controller_id", "from_offset"),
    day="valid_from",
    build=controller_registrations,
)
