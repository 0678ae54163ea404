"""When a controller registers: whenever the log does not say what it is (KIP-919)."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.config.endpoints import ListenerAddress
from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS
from quorate_controller.node.own_requests import (
    BACKOFF_INITIAL_MS,
    BACKOFF_MAX_MS,
    ControllerIdentity,
    RegistrationKeeper,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import ControllerRegistration, Listener, VersionRange
from quorate_protocol.kafka.enums import SecurityProtocol

START_MS = 1_000_000
IDENTITY = ControllerIdentity(
    node_id=3000,
    incarnation_id=UUID(int=1),
    listeners=(ListenerAddress(name="CONTROLLER", host="c0", port=9093),),
    protocols={"CONTROLLER": SecurityProtocol.PLAINTEXT},
    features={"metadata.version": (7, 33), "kraft.version": (0, 1)},
)
REGISTERED = ControllerRegistration(
    controller_id=3000,
    incarnation_id=UUID(int=1),
    listeners={"CONTROLLER": Listener("CONTROLLER", "c0", 9093, SecurityProtocol.PLAINTEXT)},
    supported_features={"kraft.version": VersionRange(0, 1), "metadata.version": VersionRange(7, 33)},
)


class Desk:
    """A keeper, a clock, and what the log says."""

    def __init__(self) -> None:
        self.keeper = RegistrationKeeper(IDENTITY, Random(1))
        self.now_ms = START_MS
        self.registered: ControllerRegistration | None = None
        self.metadata_version = 15

    def deadline_ms(self) -> int | None:
        """When the keeper sends; None while only another record can change that."""
        if self.keeper.difference(self.registered) is None:
            return None
        return self.keeper.deadline_ms(metadata_version=self.metadata_version)

    def is_due(self) -> bool:
        deadline_ms = self.deadline_ms()
        return deadline_ms is not None and self.now_ms >= deadline_ms

    def wait_until_due(self) -> int:
        """Milliseconds until the keeper sends, by its own deadline."""
        begin_ms = self.now_ms
        deadline_ms = self.deadline_ms()
        assert deadline_ms is not None
        self.now_ms = max(self.now_ms, deadline_ms)
        assert self.is_due()
        return self.now_ms - begin_ms

    def is_at_rest(self) -> bool:
        return self.deadline_ms() is None and not self.is_due()


@pytest.fixture
def desk() -> Desk:
    """A keeper that has sent nothing, at metadata.version 15."""
    return Desk()


def test_registration_waits_for_its_metadata_version(desk: Desk) -> None:
    desk.metadata_version = 14
    assert desk.is_at_rest()
    desk.metadata_version = 15
    assert desk.is_due()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"incarnation_id": UUID(int=2)}, "another incarnation is registered"),
        ({"listeners": {}}, "other endpoints are registered"),
        (
            {"listeners": {"CONTROLLER": Listener("CONTROLLER", "old", 9093, SecurityProtocol.PLAINTEXT)}},
            "other endpoints are registered",
        ),
        (
            {"supported_features": {"metadata.version": VersionRange(7, 30)}},
            "other feature levels are registered",
        ),
    ],
)
def test_whatever_differs_is_registered_again(
    desk: Desk, change: Mapping[str, Any], reason: str | None
) -> None:
    """The log has the truth of a living controller."""
    desk.registered = replace(REGISTERED, **change)
    assert desk.keeper.difference(desk.registered) == reason
    assert desk.is_due() is (reason is not None)
    assert desk.is_at_rest() is (reason is None)


def test_an_unregistered_controller_registers_again(desk: Desk) -> None:
    """Unregistering a living controller does not last (KIP-1312)."""
    assert desk.is_due()
    desk.keeper.sent(desk.now_ms)
    desk.keeper.responded(ErrorCode.none, desk.now_ms)
    desk.registered = REGISTERED
    assert desk.is_at_rest()
    desk.now_ms += BACKOFF_MAX_MS
    desk.registered = None
    assert desk.is_due()
    assert desk.keeper.difference(None) == "not registered"


def test_one_request_is_in_flight(desk: Desk) -> None:
    desk.keeper.sent(desk.now_ms)
    assert not desk.is_due()
    assert desk.wait_until_due() == 2 * OWN_REQUEST_TIMEOUT_MS


def test_after_success_the_record_is_awaited(desk: Desk) -> None:
    desk.keeper.sent(desk.now_ms)
    desk.keeper.responded(ErrorCode.none, desk.now_ms)
    assert desk.wait_until_due() == BACKOFF_MAX_MS


@pytest.mark.parametrize(
    "error_code",
    [ErrorCode.not_controller, ErrorCode.stale_controller_epoch, ErrorCode.unknown_server_error, None],
)
def test_refusals_are_retried_with_growing_pauses(desk: Desk, error_code: ErrorCode | None) -> None:
    """A registration succeeds at last, whatever was in its way, and asks no more often than needed."""
    pauses_ms = []
    for _ in range(10):
        desk.keeper.sent(desk.now_ms)
        desk.keeper.responded(error_code, desk.now_ms)
        pauses_ms.append(desk.wait_until_due())
    for number, pause_ms in enumerate(pauses_ms):
        wanted_ms = min(BACKOFF_INITIAL_MS * 2**number, BACKOFF_MAX_MS)
        assert wanted_ms * 0.8 <= pause_ms <= wanted_ms * 1.2 + 1
    desk.keeper.responded(ErrorCode.none, desk.now_ms)
    desk.keeper.responded(error_code, desk.now_ms)
    assert desk.wait_until_due() <= BACKOFF_INITIAL_MS * 1.2 + 1
