"""Table `broker_sessions`: registrations of brokers, their states, and how often they were fenced.

Every record about a broker names the broker epoch, which is the incarnation's own: records of one epoch are merged
with the RegisterBrokerRecord of that epoch (ClusterDelta, BrokerRegistration.cloneWith).
"""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.controller_registrations import endpoints
from kit.lake.plans.intervals import EVENT_COLUMNS, carried, following, intervals, of_key
from kit.lake.plans.timeline import breaks, events_of, field
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark_quorate.tables.broker_sessions import CONTROLLED_SHUTDOWN, FENCED, FENCINGS_WINDOW_MS, UNFENCED

_KEY: Final = ("cluster_id", "broker_id")
_STATE: Final = (
    "broker_epoch",
    "incarnation_id",
    "state",
    "rack",
    "endpoints",
    "log_dirs",
    "cordoned_log_dirs",
)

_REGISTER: Final = "RegisterBrokerRecord"
_UNREGISTER: Final = "UnregisterBrokerRecord"
_FENCE: Final = "FenceBrokerRecord"
_UNFENCE: Final = "UnfenceBrokerRecord"
_CHANGE: Final = "BrokerRegistrationChangeRecord"


def broker_sessions(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    lives = intervals(_merged(_stated(lines)), breaks(lines), key=_KEY, state=_STATE)
    return _with_fencings(lives)


def _stated(lines: DataFrame) -> DataFrame:
    """The fields of each record; null: not in this record. `registered` has the fields of registrations only."""
    kind = f.col("type")
    change = field("fenced", "string")  # a boolean in registrations, a number in changes
    fenced = (
        f.when(kind == _FENCE, f.lit(True))
        .when(kind == _UNFENCE, f.lit(False))
        .when(kind == _REGISTER, change == "true")
        .when((kind == _CHANGE) & (change != "0"), change == "1")
    )
    shutdown = field("inControlledShutdown", "string")
    in_shutdown = f.when(kind == _REGISTER, f.coalesce(shutdown == "true", f.lit(False))).when(
        (kind == _CHANGE) & (shutdown == "1"), f.lit(True)
    )
    log_dirs = f.coalesce(field("logDirs", "array<string>"), f.array().cast("array<string>"))
    cordoned = field("cordonedLogDirs", "array<string>")
    registered = f.struct(
        field("incarnationId", "string").alias("incarnation_id"),
        field("rack", "string").alias("rack"),
        endpoints().alias("endpoints"),
    )
    return events_of(
        lines,
        *(_REGISTER, _UNREGISTER, _FENCE, _UNFENCE, _CHANGE),
        broker_id=f.coalesce(field("brokerId", "int"), field("id", "int")),
        broker_epoch=f.coalesce(field("brokerEpoch", "bigint"), field("epoch", "bigint")),
        removed=kind == _UNREGISTER,
        registered=f.when(kind == _REGISTER, registered),
        fenced=fenced,
        in_shutdown=in_shutdown,
        # A change without directories keeps the current ones.
        log_dirs=f.when(
            (kind == _REGISTER) | ((kind == _CHANGE) & (f.size(log_dirs) > 0)), f.array_sort(log_dirs)
        ),
        cordoned=f.when(
            (kind == _REGISTER) | ((kind == _CHANGE) & cordoned.isNotNull()),
            f.struct(f.array_sort(cordoned).alias("directories")),
        ),
    )


def _merged(stated: DataFrame) -> DataFrame:
    """Every event with the complete state after it, as input of :func:`intervals`."""
    order = of_key(*_KEY, "broker_epoch")
    registered = carried("registered", order)
    # BrokerControlState: a fenced broker is fenced, whether it shuts down or not.
    fenced = carried("fenced", order)
    state = (
        f.when(fenced, FENCED)
        .when(~fenced & carried("in_shutdown", order), CONTROLLED_SHUTDOWN)
        .when(~fenced, UNFENCED)
    )
    return stated.select(
        *_KEY,
        "broker_epoch",
        registered["incarnation_id"].alias("incarnation_id"),
        state.alias("state"),
        registered["rack"].alias("rack"),
        registered["endpoints"].alias("endpoints"),
        carried("log_dirs", order).alias("log_dirs"),
        carried("cordoned", order)["directories"].alias("cordoned_log_dirs"),
        *EVENT_COLUMNS,
    )


def _with_fencings(lives: DataFrame) -> DataFrame:
    """Adds `is_fencing`, and `fencings_in_hour` by the timestamps of the records."""
    by_offset = following(_KEY)
    was = f.lag(f.struct("broker_epoch", "state")).over(by_offset)
    is_fencing = (
        (f.col("state") == FENCED) & (was["broker_epoch"] == f.col("broker_epoch")) & (was["state"] != FENCED)
    )
    hour = (
        Window.partitionBy(*_KEY)
        .orderBy(f.unix_millis("valid_from"))
        .rangeBetween(1 - FENCINGS_WINDOW_MS, Window.currentRow)
    )
    return lives.withColumn("is_fencing", f.coalesce(is_fencing, f.lit(False))).withColumn(
        "fencings_in_hour", f.sum(f.col("is_fencing").cast("int")).over(hour)
    )


PLAN: Final = Plan(build=broker_sessions)
