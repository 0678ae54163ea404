"""Registers this controller with the active one whenever its registration in the log differs (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE
from quorate_protocol.kafka.generated.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from uuid import UUID

    from quorate_protocol.image import ControllerRegistration
    from quorate_protocol.kafka.enums import SecurityProtocol

    from quorate_controller.config.endpoints import ListenerAddress

BACKOFF_INITIAL_MS: Final = 50
BACKOFF_MAX_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerIdentity:
    """The registration of this process. The incarnation is new at each start."""

    node_id: int
    incarnation_id: UUID
    listeners: tuple[ListenerAddress, ...]
    protocols: Mapping[str, SecurityProtocol]
    """By the name of the listener."""
    features: Mapping[str, tuple[int, int]]
    """Lowest and highest supported level by feature."""

    def request(self) -> ControllerRegistrationRequest:
        """Returns the ControllerRegistration request."""
        return ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=self.protocols[listener.name],
                )
                for listener in self.listeners
            ),
            features=tuple(
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in self.features.items()
            ),
        )

    def difference(self, registration: ControllerRegistration | None) -> str | None:
        """Returns how the registration in the log differs from this process; None when it is the same.

        Java compares incarnations alone. Somebody who registers on behalf of an id may have copied ours.
        """
        if registration is None:
            return "not registered"
        if registration.incarnation_id != self.incarnation_id:
            return "another incarnation is registered"
        endpoints = {
            listener.name: (listener.host, listener.port, self.protocols[listener.name])
            for listener in self.listeners
        }
        registered = registration.listeners.values()
        if {one.name: (one.host, one.port, one.security_protocol) for one in registered} != endpoints:
            return "other endpoints are registered"
        if registration.supported_features != self.features:
            return "other feature levels are registered"
        return None


class RegistrationKeeper:
    """Decides when to send a registration: one in flight, with backoff between refusals."""

    def __init__(self, identity: ControllerIdentity, rng: Random) -> None:
        self.identity = identity
        self._rng = rng
        self._in_flight_until_ms: int | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._judged: ControllerRegistration | None = None
        self._difference = identity.difference(None)

    def difference(self, registration: ControllerRegistration | None) -> str | None:
        """Returns the reason to register again, or None. Cheap: called in each turn."""
        if registration is not self._judged:
            self._judged, self._difference = registration, self.identity.difference(registration)
        return self._difference

    def deadline_ms(self, *, metadata_version: int) -> int | None:
        """When to send, given that there is a difference; None below the metadata.version that has registrations."""
        if metadata_version < CONTROLLER_REGISTRATION_SINCE:
            return None
        return max(self._not_before_ms, self._in_flight_until_ms or 0)

    def sent(self, now_ms: int) -> None:
        """Notes that a request was sent. It counts as lost after twice its timeout without a response."""
        self._in_flight_until_ms = now_ms + 2 * OWN_REQUEST_TIMEOUT_MS

    def answered(self, error_code: ErrorCode | None, now_ms: int) -> None:
        """A response came, or (None) none will. After success the record that we await is on its way.

        Every error is tried again, NOT_CONTROLLER and STALE_CONTROLLER_EPOCH among them: by then we may know of
        the new leader.
        """
        self._in_flight_until_ms = None
        if error_code is ErrorCode.none:
            self._failures = 0
            self._not_before_ms = now_ms + BACKOFF_MAX_MS
            return
        self._failures = min(self._failures + 1, 10)
        backoff_ms = min(BACKOFF_INITIAL_MS * 2 ** (self._failures - 1), BACKOFF_MAX_MS)
        self._not_before_ms = now_ms + round(backoff_ms * self._rng.uniform(0.8, 1.2))
