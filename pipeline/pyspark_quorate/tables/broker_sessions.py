"""Table `broker_sessions`: registrations of brokers, their states, and how often they were fenced.

Every record about a broker names the broker epoch, which is the incarnation's own: records of one epoch are merged
with the RegisterBrokerRecord of that epoch (ClusterDelta, BrokerRegistration.cloneWith).
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)
from quorate_protocol.kafka.enums import SecurityProtocol

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, following, intervals
from pyspark_quorate.tables.timeline import breaks, field, records_of

FENCED: Final = "fenced"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
UNFENCED: Final = "unfenced"
FENCINGS_WINDOW_MS: Final = 3_600_000
"""The period of `fencings_in_hour`."""

_ENDPOINTS: Final = ArrayType(
    StructType(
        [
            column("listener", StringType(), "name of the listener", is_nullable=True),
            column("host", StringType(), "the advertised host", is_nullable=True),
            column("port", IntegerType(), "the advertised port", is_nullable=True),
            column(
                "security_protocol",
                StringType(),
                ", ".join(one.name for one in SecurityProtocol),
                is_nullable=True,
            ),
        ]
    )
)

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column("broker_id", IntegerType(), "node id of the broker"),
        column(
            "broker_epoch",
            LongType(),
            "epoch of this registration: the offset of the RegisterBrokerRecord that began it",
        ),
        column(
            "incarnation_id",
            StringType(),
            "id of the broker's process, new at each start; null: a gap hides the registration",
            is_nullable=True,
        ),
        column(
            "state",
            StringType(),
            "fenced (cannot lead, hidden from clients), unfenced, or controlled-shutdown (about to stop); "
            "null: a gap hides it",
            is_nullable=True,
        ),
        column("rack", StringType(), "broker.rack; null without one", is_nullable=True),
        column(
            "endpoints",
            _ENDPOINTS,
            "its advertised listeners; null: a gap hides the registration",
            is_nullable=True,
        ),
        column(
            "log_dirs",
            ArrayType(StringType()),
            "ids of the online log directories; null: a gap hides the registration",
            is_nullable=True,
        ),
        column(
            "cordoned_log_dirs",
            ArrayType(StringType()),
            "ids of the log directories that accept no new replicas; null: unknown",
            is_nullable=True,
        ),
        column("is_fencing", BooleanType(), "whether the broker was fenced at the start of this interval"),
        column(
            "fencings_in_hour",
            IntegerType(),
            "how often the broker was fenced in the hour up to valid_from, in any incarnation; above 1: it flaps",
        ),
        *INTERVAL_COLUMNS,
    ]
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
        _endpoints().alias("endpoints"),
    )
    return records_of(lines, _REGISTER, _UNREGISTER, _FENCE, _UNFENCE, _CHANGE).select(
        "cluster_id",
        f.coalesce(field("brokerId", "int"), field("id", "int")).alias("broker_id"),
        f.coalesce(field("brokerEpoch", "bigint"), field("epoch", "bigint")).alias("broker_epoch"),
        "time",
        "offset",
        "ordinal",
        "is_snapshot",
        (kind == _UNREGISTER).alias("removed"),
        f.when(kind == _REGISTER, registered).alias("registered"),
        fenced.alias("fenced"),
        in_shutdown.alias("in_shutdown"),
        # A change without directories keeps the current ones.
        f.when(
            (kind == _REGISTER) | ((kind == _CHANGE) & (f.size(log_dirs) > 0)), f.array_sort(log_dirs)
        ).alias("log_dirs"),
        f.when(
            (kind == _REGISTER) | ((kind == _CHANGE) & cordoned.isNotNull()),
            f.struct(f.array_sort(cordoned).alias("directories")),
        ).alias("cordoned"),
    )


def _endpoints() -> Column:
    stated = field("endPoints", "array<struct<name: string, host: string, port: int, securityProtocol: int>>")
    names = f.array(*(f.lit(one.name) for one in SecurityProtocol))
    return f.transform(
        stated,
        lambda one: f.struct(
            one["name"].alias("listener"),
            one["host"].alias("host"),
            one["port"].alias("port"),
            f.get(names, one["securityProtocol"]).alias("security_protocol"),
        ),
    )


def _merged(stated: DataFrame) -> DataFrame:
    """Every event with the complete state after it, as input of :func:`intervals`."""
    order = Window.partitionBy(*_KEY, "broker_epoch").orderBy("offset", "ordinal")
    registered = _carried("registered", order)
    # BrokerControlState: a fenced broker is fenced, whether it shuts down or not.
    fenced = _carried("fenced", order)
    state = (
        f.when(fenced, FENCED)
        .when(~fenced & _carried("in_shutdown", order), CONTROLLED_SHUTDOWN)
        .when(~fenced, UNFENCED)
    )
    return stated.select(
        *_KEY,
        "broker_epoch",
        registered["incarnation_id"].alias("incarnation_id"),
        state.alias("state"),
        registered["rack"].alias("rack"),
        registered["endpoints"].alias("endpoints"),
        _carried("log_dirs", order).alias("log_dirs"),
        _carried("cordoned", order)["directories"].alias("cordoned_log_dirs"),
        "time",
        "offset",
        "ordinal",
        "is_snapshot",
        "removed",
    )


def _carried(name: str, order: WindowSpec) -> Column:
    """The last value that is not null."""
    return f.last(name, ignorenulls=True).over(order)


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
    name="broker_sessions",
    doc="Each registration of a broker, and when it was fenced, unfenced, or shutting down.",
    schema=SCHEMA,
    inputs=("timeline",),
    key=(*_KEY, "from_offset"),
    day="valid_from",
    build=broker_sessions,
)
