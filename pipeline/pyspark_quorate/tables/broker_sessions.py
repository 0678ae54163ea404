"""Table `broker_sessions`: registrations of brokers, their states, and how often they were fenced.

Every record about a broker names the broker epoch, which is the incarnation's own: records of one epoch are merged
with the RegisterBrokerRecord of that epoch (ClusterDelta, BrokerRegistration.cloneWith).
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.controller_registrations import ENDPOINTS, endpoints
from pyspark_quorate.tables.intervals import (
    EVENT_COLUMNS,
    INTERVAL_COLUMNS,
    carried,
    following,
    intervals,
    of_key,
)
from pyspark_quorate.tables.timeline import breaks, events_of, field

FENCED: Final = "fenced"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
UNFENCED: Final = "unfenced"
FENCINGS_WINDOW_MS: Final = 3_600_000
"""The period of `fencings_in_hour`."""

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("broker_id", IntegerType(), "node id of the broker"),
    column(
        "broker_epoch",
        LongType(),
        "epoch of this registration: the offset of the RegisterBrokerRecord that began it",
    ),
    nullable(
        "incarnation_id",
        StringType(),
        "id of the broker's process, new at each start; null: a gap hides the registration",
    ),
    nullable(
        "state",
        StringType(),
        "fenced (cannot lead, hidden from clients), unfenced, or controlled-shutdown (about to stop); "
        "null: a gap hides it",
    ),
    nullable("rack", StringType(), "broker.rack; null without one"),
    nullable("endpoints", ENDPOINTS, "its advertised listeners; null: a gap hides the registration"),
    nullable(
        "log_dirs",
        ArrayType(StringType()),
        "ids of the online log directories; null: a gap hides the registration",
    ),
    nullable(
        "cordoned_log_dirs",
        ArrayType(StringType()),
        "ids of the log directories that accept no new replicas; null: unknown",
    ),
    column("is_fencing", BooleanType(), "whether the broker was fenced at the start of this interval"),
    column(
        "fencings_in_hour",
        IntegerType(),
        "how often the broker was fenced in the hour up to valid_from, in any incarnation; above 1: it flaps",
    ),
    *INTERVAL_COLUMNS,
)
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


TABLE: Final = Table(
    build=broker_sessions,
    doc="Each registration of a broker, and when it was fenced, unfenced, or shutting down.",
    schema=SCHEMA,
    key=(*_KEY, "from_offset"),
)
