"""Registrations of brokers and controllers as intervals, and the table `controller_registrations`."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, IntegerType, ShortType, StringType
from quorate_protocol.kafka.enums import SecurityProtocol

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, intervals
from pyspark_quorate.tables.timeline import breaks, events_of, field, sorted_list

ADDRESS: Final = (
    column("name", StringType(), "listener"),
    column("host", StringType(), "advertised host"),
    column("port", IntegerType(), "advertised port"),
)
ENDPOINTS: Final = list_of(
    *ADDRESS, column("security_protocol", StringType(), ", ".join(one.name for one in SecurityProtocol))
)
FEATURES: Final = list_of(
    column("name", StringType(), "feature"),
    column("min_level", ShortType(), "lowest level that the node supports"),
    column("max_level", ShortType(), "highest level that the node supports"),
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
    levels = "name: string, minSupportedVersion: short, maxSupportedVersion: short"
    events = events_of(
        lines,
        *(role.register, role.unregister),
        node_id=field(role.node_id, "int"),
        incarnation_id=field("incarnationId", "string"),
        endpoints=endpoints(),
        features=sorted_list("features", levels, FEATURES),
        zk_migration_ready=field("zkMigrationReady", "boolean"),
        removed=f.col("type") == role.unregister,
    )
    return intervals(
        events,
        breaks(lines),
        key=["cluster_id", "node_id"],
        state=["incarnation_id", "endpoints", "features", "zk_migration_ready"],
    )


def endpoints() -> Column:
    """The advertised listeners of a registration, as `ENDPOINTS`; sorted, as snapshots have any order."""
    stated = field("endPoints", "array<struct<name: string, host: string, port: int, securityProtocol: int>>")
    protocols = f.array(*(f.lit(one.name) for one in SecurityProtocol))
    return f.array_sort(
        f.transform(
            stated,
            lambda one: f.struct(
                *(one[name].alias(name) for name in ("name", "host", "port")),
                f.get(protocols, one["securityProtocol"]).alias("security_protocol"),
            ),
        )
    )


# The table

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("controller_id", IntegerType(), "node.id of the controller"),
    column("incarnation_id", StringType(), "id of the process, new at each start: 22 characters of base64"),
    column("endpoints", ENDPOINTS, "its advertised listeners"),
    column("features", FEATURES, "supported feature levels"),
    column("zk_migration_ready", BooleanType(), "whether it was ready for a migration from ZooKeeper"),
    *INTERVAL_COLUMNS,
)


def controller_registrations(lines: DataFrame) -> DataFrame:
    """One row per registration of a controller, until its next one or until it is unregistered."""
    return registrations(lines, CONTROLLER).withColumnRenamed("node_id", "controller_id")


TABLE: Final = Table(
    build=controller_registrations,
    doc=(
        "Registrations of controllers (KIP-919), each until the node's next one or until it is unregistered "
        "(KIP-1312). A controller that was removed stays registered, and blocks levels that it does not support."
    ),
    schema=SCHEMA,
    key=("cluster_id", "controller_id", "from_offset"),
)
