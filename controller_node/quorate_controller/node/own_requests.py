"""Requests of this controller itself to the active one: its registration (KIP-919), its heartbeat (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse
from quorate_protocol.kafka.generated.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.generated.controller_registration_response import ControllerRegistrationResponse
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS, OwnRequest, OwnRequestAnswered
from quorate_controller.raft.events import Destination, Note
from quorate_controller.raft.model import find_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from uuid import UUID

    from quorate_protocol.image import ControllerRegistration
    from quorate_protocol.kafka.enums import SecurityProtocol

    from quorate_controller.config.endpoints import ListenerAddress
    from quorate_controller.node.events import OwnRequestFailed
    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.node.snapshot_turns import HeartbeatKeeper
    from quorate_controller.node.snapshotter import Snapshotter
    from quorate_controller.raft.model import Endpoint
    from quorate_controller.raft.node import RaftNode


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
        """Return the ControllerRegistration request."""
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
        """Return how the registration in the log differs from this process; None when it is the same.

        Java compares incarnations alone. Another client that registers this id may have copied ours.
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
        if {
            entry.name: (entry.host, entry.port, entry.security_protocol) for entry in registered
        } != endpoints:
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
        """Return the reason to register again, or None. Cheap: called in each turn."""
        if registration is not self._judged:
            self._judged, self._difference = registration, self.identity.difference(registration)
        return self._difference

    def deadline_ms(self, *, metadata_version: int) -> int | None:
        """When to send, given that there is a difference; None below the metadata.version that has registrations."""
        if metadata_version < CONTROLLER_REGISTRATION_SINCE:
            return None
        return max(self._not_before_ms, self._in_flight_until_ms or 0)

    def sent(self, now_ms: int) -> None:
        """Note that a request was sent. It counts as lost after twice its timeout without a response."""
        self._in_flight_until_ms = now_ms + 2 * OWN_REQUEST_TIMEOUT_MS

    def responded(self, error_code: ErrorCode | None, now_ms: int) -> None:
        """A response came, or (None) none will. After success the record that we await is on its way.

        After any error it is sent again, also after NOT_CONTROLLER and STALE_CONTROLLER_EPOCH: by then the new leader
        may be known.
        """
        self._in_flight_until_ms = None
        if error_code is ErrorCode.none:
            self._failures = 0
            self._not_before_ms = now_ms + BACKOFF_MAX_MS
            return
        self._failures = min(self._failures + 1, 10)
        backoff_ms = min(BACKOFF_INITIAL_MS * 2 ** (self._failures - 1), BACKOFF_MAX_MS)
        self._not_before_ms = now_ms + round(backoff_ms * self._rng.uniform(0.8, 1.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A request that is due now, and its log line. Its receiver may be this node."""

    own: OwnRequest
    note: Note | None = None


class OwnRequests:
    """When each of them is due, and what follows from the responses."""

    def __init__(
        self,
        *,
        raft: RaftNode,
        metadata: MetadataState,
        snapshotter: Snapshotter,
        registration: RegistrationKeeper,
        heartbeats: HeartbeatKeeper,
        listener: str,
    ) -> None:
        self._raft = raft
        self._metadata = metadata
        self._snapshotter = snapshotter
        self._registration = registration
        self._heartbeats = heartbeats
        self._listener = listener
        self.node_id = registration.identity.node_id

    @property
    def registration_reason(self) -> str | None:
        """Why this controller has to register: how the image's registration of it differs. None nearly always."""
        return self._registration.difference(self._metadata.image.cluster.controllers.get(self.node_id))

    @property
    def deadline_ms(self) -> int | None:
        """When the next one is due; None while none will be."""
        deadlines = [self._registration_deadline_ms(), self._heartbeat_deadline_ms()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def pop_due(self, now_ms: int) -> list[Due]:
        """Return the requests that are due now; each counts as sent."""
        due = []
        if _is_due(self._registration_deadline_ms(), now_ms):
            due.append(self._register(now_ms))
        if _is_due(self._heartbeat_deadline_ms(), now_ms):
            due.append(self._beat(now_ms))
        return due

    def may_snapshot(self, now_ms: int) -> bool:
        """Whether a standby may write the checkpoint that is due."""
        return self._heartbeats.may_begin(self._snapshotter.due_since_ms, now_ms)

    def receive(self, event: OwnRequestAnswered | OwnRequestFailed, now_ms: int) -> Note | None:
        """Handle a response, or that there will be none. Returns the log line."""
        if isinstance(event, OwnRequestAnswered):
            response = event.response
            if isinstance(response, ControllerHeartbeatResponse):
                self._heartbeats.responded(response, now_ms)
                return None
            assert isinstance(response, ControllerRegistrationResponse)
            return self.registered(response.error_code, response.error_message, now_ms)
        if isinstance(event.request, ControllerRegistrationRequest):
            return self.registered(None, event.reason, now_ms)
        self._heartbeats.failed(is_unsupported=event.is_unsupported)
        return None

    def registered(self, error_code: ErrorCode | None, message: str | None, now_ms: int) -> Note:
        """Note the error code of the response to a registration, or None: there will be no response."""
        self._registration.responded(error_code, now_ms)
        if error_code is ErrorCode.none:
            return Note(event="registered", facts={})
        facts = {"error": "no response" if error_code is None else error_code.name, "message": message}
        return Note(event="registration_failed", facts=facts, is_warning=True)

    # ----------------------------------------------------------------------------------- registration

    def _registration_deadline_ms(self) -> int | None:
        if self.registration_reason is None or self._endpoint_to_register_at() is None:
            return None
        return self._registration.deadline_ms(metadata_version=self._metadata.image.metadata_version)

    def _endpoint_to_register_at(self) -> Endpoint | None:
        """Return the active controller's endpoint.

        None while it, or what is committed, is unknown, and while this node leads and is not active yet.
        """
        raft = self._raft
        leads = raft.epoch_start_offset is not None
        if raft.high_watermark < 0 or (leads and not self._metadata.control.is_active):
            return None
        return self._leader_endpoint()

    def _register(self, now_ms: int) -> Due:
        self._registration.sent(now_ms)
        facts = {"reason": self.registration_reason, "leader_id": self._raft.leader_id}
        own = OwnRequest(destination=self._to_leader(), request=self._registration.identity.request())
        return Due(own=own, note=Note(event="registering", facts=facts))

    # ------------------------------------------------------------------------------------- heartbeats

    def _heartbeat_deadline_ms(self) -> int | None:
        """The active controller refuses heartbeats of controllers that are not registered."""
        # Called in each turn. The active controller sends none.
        deadline_ms = self._heartbeats.deadline_ms(self._snapshotter.state)
        if deadline_ms is None or self.registration_reason is not None or self._leader_endpoint() is None:
            return None
        return deadline_ms

    def _beat(self, now_ms: int) -> Due:
        snapshotter = self._snapshotter
        request = self._heartbeats.request(snapshotter.state, snapshotter.latest_offset, now_ms)
        return Due(own=OwnRequest(destination=self._to_leader(), request=request))

    # ------------------------------------------------------------------------------------- the leader

    def _leader_endpoint(self) -> Endpoint | None:
        raft = self._raft
        return None if raft.leader_id < 0 else find_endpoint(raft.leader_endpoints, self._listener)

    def _to_leader(self) -> Destination:
        endpoint = self._leader_endpoint()
        assert endpoint is not None, "nothing is due without it"
        return Destination(node_id=self._raft.leader_id, host=endpoint.host, port=endpoint.port)


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and now_ms >= deadline_ms
