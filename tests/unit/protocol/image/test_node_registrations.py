"""BrokerRegistration and ControllerRegistration: changes, questions, and what old levels can't say."""

from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    ControllerRegistration,
    Listener,
    UnwritableImageError,
    VersionRange,
)
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.records.generated import BrokerRegistrationChangeRecord

LOW, HIGH = UUID(int=300), UUID(int=400)
NEGATIVE = UUID(int=1 << 127)
"""Kafka orders UUIDs as two signed numbers: this one comes first."""


def change(**fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, **fields)


def test_broker_from_record(make: Any) -> None:
    broker = BrokerRegistration.from_record(make.broker(1, epoch=7, log_dirs=(HIGH, LOW, NEGATIVE)))
    assert broker.listeners == {"PLAIN": Listener("PLAIN", "localhost", 9092, SecurityProtocol.PLAINTEXT)}
    assert broker.supported_features == {"metadata.version": VersionRange(7, 30)}
    assert broker.supported_features["metadata.version"].contains(30)
    assert not broker.supported_features["metadata.version"].contains(31)
    assert broker.directories == (NEGATIVE, LOW, HIGH)
    assert broker.cordoned_directories is None


@pytest.mark.parametrize("level", [7, 8, 17, 30, 33])
def test_broker_record_round_trip(make: Any, level: int) -> None:
    fields: dict[str, Any] = {"rack": "r", "fenced": False, "in_controlled_shutdown": True}
    if level >= 8:
        fields["is_migrating_zk_broker"] = True
    if level >= 17:
        fields["log_dirs"] = (LOW, HIGH)
    if level >= 30:
        fields["cordoned_log_dirs"] = (HIGH,)
    record = make.broker(1, **fields)
    assert BrokerRegistration.from_record(record).to_record(level) == record


@pytest.mark.parametrize(
    ("fields", "level", "loss"),
    [
        ({"is_migrating_zk_broker": True}, 7, "isMigratingZkBroker"),
        ({"log_dirs": (LOW,)}, 16, "online log directories"),
        ({"cordoned_log_dirs": ()}, 29, "cordoned log directories"),
    ],
)
def test_broker_unwritable_below_level(make: Any, fields: dict[str, Any], level: int, loss: str) -> None:
    broker = BrokerRegistration.from_record(make.broker(1, **fields))
    with pytest.raises(UnwritableImageError, match=loss):
        broker.to_record(level)
    broker.to_record(level + 1)


def test_broker_changes(make: Any) -> None:
    broker = BrokerRegistration.from_record(make.broker(1, epoch=7, log_dirs=(LOW,)))
    assert broker.merge(change()) == broker
    unfenced = broker.merge(change(fenced=-1))
    assert (unfenced.fenced, unfenced.is_active, unfenced.directories) == (False, True, (LOW,))
    leaving = unfenced.merge(change(in_controlled_shutdown=1))
    assert (leaving.fenced, leaving.is_active) == (False, False)
    fenced = leaving.merge(change(fenced=1))
    assert (fenced.fenced, fenced.in_controlled_shutdown) == (True, True)
    moved = fenced.merge(change(log_dirs=(HIGH, NEGATIVE), cordoned_log_dirs=(HIGH, NEGATIVE)))
    assert moved.directories == moved.cordoned_directories == (NEGATIVE, HIGH)
    assert moved.merge(change(cordoned_log_dirs=())).cordoned_directories == ()


def test_online_directories(make: Any) -> None:
    broker = BrokerRegistration.from_record(make.broker(1, log_dirs=(LOW,)))
    assert [
        broker.has_online_directory(directory)
        for directory in (LOW, HIGH, LOST_DIRECTORY, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
    ] == [True, False, False, True, True]
    without = BrokerRegistration.from_record(make.broker(1))
    assert without.has_online_directory(HIGH)
    assert not without.has_online_directory(LOST_DIRECTORY)


@pytest.mark.parametrize(
    ("log_dirs", "cordoned", "expected"),
    [
        ((LOW, HIGH), None, True),
        ((LOW, HIGH), (), True),
        ((LOW, HIGH), (LOW,), True),
        ((LOW, HIGH), (LOW, HIGH), False),
        ((), (LOW,), True),
    ],
)
def test_uncordoned_directory(make: Any, log_dirs: Any, cordoned: Any, expected: bool) -> None:
    record = make.broker(1, log_dirs=log_dirs, cordoned_log_dirs=cordoned)
    assert BrokerRegistration.from_record(record).has_uncordoned_directory is expected


def test_controller_record_round_trip(make: Any) -> None:
    record = make.controller(3000, zk_migration_ready=True)
    assert ControllerRegistration.from_record(record).to_record() == record
