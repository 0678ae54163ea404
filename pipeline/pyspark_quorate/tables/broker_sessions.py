"""Table `broker_sessions`: registrations of brokers, their states, and how often they were fenced.

Every record about a broker names the broker epoch, which is the incarnation's own: records of one epoch are merged
with the RegisterBrokerRecord of that epoch (ClusterDelta, BrokerRegistration.cloneWith).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Line, Table
from pyspark_quorate.tables.controller_registrations import ENDPOINTS, endpoints_of
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, KeyedFold, State

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
_REGISTER: Final = "RegisterBrokerRecord"
_UNREGISTER: Final = "UnregisterBrokerRecord"
_FENCE: Final = "FenceBrokerRecord"
_UNFENCE: Final = "UnfenceBrokerRecord"
_CHANGE: Final = "BrokerRegistrationChangeRecord"


@dataclass(slots=True)
class _Session:
    """The state of one broker epoch, merged from its records. None: no record has the field."""

    epoch: int
    registered: tuple[Any, ...] = (None, None, None)
    """Incarnation id, rack and endpoints."""
    fenced: bool | None = None
    in_shutdown: bool | None = None
    log_dirs: tuple[str, ...] | None = None
    cordoned: tuple[str, ...] | None = None

    @property
    def state(self) -> State:
        """The columns of the table.

        A broker that is fenced counts as fenced, even if it shuts down (BrokerControlState).
        """
        incarnation_id, rack, endpoints = self.registered
        in_service = CONTROLLED_SHUTDOWN if self.in_shutdown else UNFENCED
        shown = None if self.fenced is None else FENCED if self.fenced else in_service
        return (self.epoch, incarnation_id, shown, rack, endpoints, self.log_dirs, self.cordoned)


@dataclass(slots=True)
class _Recent:
    """The rows of a broker that wait until all fencings of their hour are known, and the times of these fencings."""

    waiting: list[tuple[Interval, bool]] = field(default_factory=list)
    fencings_ms: list[int] = field(default_factory=list)


class BrokerSessions(KeyedFold):
    """The state of the table.

    `fencings_in_hour` counts by timestamps. Leaders' clocks differ, so a later record may have an earlier time.
    Therefore a row waits until its broker has an interval that begins more than an hour later.
    """

    TYPES = (_REGISTER, _UNREGISTER, _FENCE, _UNFENCE, _CHANGE)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._sessions: dict[int, _Session] = {}
        self._recent: dict[int, _Recent] = {}

    def step(self, line: Line) -> None:
        """Apply a record about a broker."""
        fields = line.fields
        broker_id = fields["brokerId"] if "brokerId" in fields else fields["id"]
        epoch = fields["brokerEpoch"] if "brokerEpoch" in fields else fields["epoch"]
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        _merge(session, line)
        if line.type == _UNREGISTER:
            del self._sessions[broker_id]
        self.intervals.set_state((broker_id,), None if line.type == _UNREGISTER else session.state, line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Queue a row for the interval, and add the rows whose fencings are all known."""
        (broker_id,) = interval.key
        was_epoch, _, was = previous.state[:3] if previous is not None else (None, None, None)
        is_fencing = (
            interval.state[2] == FENCED and was_epoch == interval.state[0] and was not in (None, FENCED)
        )
        recent = self._recent.setdefault(broker_id, _Recent())
        recent.waiting.append((interval, is_fencing))
        if is_fencing:
            recent.fencings_ms.append(_ms(interval))
        if _ms(interval) - _ms(recent.waiting[0][0]) > FENCINGS_WINDOW_MS:
            self._emit(recent, _ms(interval) - FENCINGS_WINDOW_MS)

    def finish(self) -> None:
        """End the open intervals, and add all waiting rows."""
        super().finish()
        for recent in self._recent.values():
            self._emit(recent, None)

    def _emit(self, recent: _Recent, before_ms: int | None) -> None:
        """Add the waiting rows that begin before this time; None: all."""
        waiting = []
        for interval, is_fencing in recent.waiting:
            now_ms = _ms(interval)
            if before_ms is not None and now_ms >= before_ms:
                waiting.append((interval, is_fencing))
                continue
            since_ms = now_ms - FENCINGS_WINDOW_MS
            count = sum(since_ms < time_ms <= now_ms for time_ms in recent.fencings_ms)
            self.rows.append((*interval.key, *interval.state, is_fencing, count, *interval.span))
        recent.waiting = waiting
        if before_ms is not None:
            oldest_ms = (
                min((_ms(interval) for interval, _ in waiting), default=before_ms) - FENCINGS_WINDOW_MS
            )
            recent.fencings_ms = [time_ms for time_ms in recent.fencings_ms if time_ms > oldest_ms]


def _ms(interval: Interval) -> int:
    return (interval.valid_from or 0) // 1000


def _merge(session: _Session, line: Line) -> None:
    """Update a session with a record's fields. A change record without directories keeps the current ones."""
    fields = line.fields
    match line.type:
        case "FenceBrokerRecord":
            session.fenced = True
        case "UnfenceBrokerRecord":
            session.fenced = False
        case "RegisterBrokerRecord":
            session.registered = (fields["incarnationId"], fields.get("rack"), endpoints_of(fields))
            session.fenced = bool(fields.get("fenced"))
            session.in_shutdown = bool(fields.get("inControlledShutdown"))
            session.log_dirs = tuple(sorted(fields.get("logDirs") or ()))
            session.cordoned = _sorted(fields.get("cordonedLogDirs"))
        case "BrokerRegistrationChangeRecord":
            if fields.get("fenced"):
                session.fenced = fields["fenced"] == 1
            if fields.get("inControlledShutdown") == 1:
                session.in_shutdown = True
            if fields.get("logDirs"):
                session.log_dirs = _sorted(fields["logDirs"])
            if fields.get("cordonedLogDirs") is not None:
                session.cordoned = _sorted(fields["cordonedLogDirs"])


def _sorted(directories: list[str] | None) -> tuple[str, ...] | None:
    return None if directories is None else tuple(sorted(directories))


TABLE: Final = Table(
    name="broker_sessions",
    fold=BrokerSessions,
    doc="Each registration of a broker, and when it was fenced, unfenced, or shutting down.",
    schema=SCHEMA,
    key=("cluster_id", "broker_id", "from_offset"),
)
