"""Registrations of brokers and controllers as intervals, and the table `controller_registrations`."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals
from kit.lake.plans.timeline import breaks, events_of, field, sorted_list
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark_quorate.tables.controller_registrations import CONTROLLER, FEATURES, Role
from quorate_protocol.kafka.enums import SecurityProtocol


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
    protocols = f.array(*(f.lit(protocol.name) for protocol in SecurityProtocol))
    return f.array_sort(
        f.transform(
            stated,
            lambda one: f.struct(
                *(one[name].alias(name) for name in ("name", "host", "port")),
                f.get(protocols, one["securityProtocol"]).alias("security_protocol"),
            ),
        )
    )


def controller_registrations(lines: DataFrame) -> DataFrame:
    """One row per registration of a controller, until its next one or until it is unregistered."""
    return registrations(lines, CONTROLLER).withColumnRenamed("node_id", "controller_id")


PLAN: Final = Plan(build=controller_registrations)
