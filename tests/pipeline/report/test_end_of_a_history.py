"""Where a report ends: at the last known time of the cluster."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from kit.lake.lakes import ingest_into
from kit.lake.logs import NO_OP, START_MS, NodeLog
from kit.lake.tasks import local_tasks
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.report.history import History, collect
from pyspark_quorate.report.sections import sections_of
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)

HOURS = 3
FENCED, UNFENCED = 1, -1


def registered(broker: int) -> bytes:
    """A broker registers, and is fenced until it has caught up."""
    record = RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=UUID(int=broker),
        broker_epoch=1,
        end_points=(),
        features=(),
        rack=None,
        fenced=True,
    )
    return encode_record(record)


def change(broker: int, fenced: int) -> bytes:
    """A broker is fenced or unfenced."""
    return encode_record(BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=1, fenced=fenced))


def fenced_for_hours() -> NodeLog:
    """A broker is fenced, and after that the leader appends NoOpRecords alone, for hours."""
    log = NodeLog().elected(1).appended(registered(1)).appended(change(1, UNFENCED))
    log = log.later(60_000).appended(change(1, FENCED))
    for _ in range(HOURS * 60):
        log = log.later(59_000).appended(NO_OP)
    return log


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of that log."""
    where = tmp_path_factory.mktemp("lake")
    fenced_for_hours().write(where / "node")
    ingest_into(local_tasks(), where / "lake", where / "node")
    return Lake.open(str(where / "lake"))


def brokers(history: History) -> str:
    """What the report says of brokers."""
    return next(
        section.finding for section in sections_of(history) if section.title.startswith("Brokers in and out")
    )


def test_a_broker_that_is_still_fenced_is_fenced_until_the_last_known_time(lake: Lake) -> None:
    (history,) = collect(lake, None, None, None)
    assert brokers(history) == "Went out of service: broker 1 (once, 3 h fenced)."
    last = datetime.fromtimestamp(fenced_for_hours().batches[-1].time_ms / 1000, UTC)
    assert history.until == last + timedelta(milliseconds=1)


def test_a_later_end_of_the_period_adds_nothing_unknown(lake: Lake) -> None:
    (whole,) = collect(lake, None, None, None)
    (later,) = collect(lake, None, None, whole.until + timedelta(days=30))
    assert later == whole
    hour = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(hours=1, minutes=1)
    (earlier,) = collect(lake, None, None, hour)
    assert earlier.until == hour
    assert "once, 59 min" in brokers(earlier)
