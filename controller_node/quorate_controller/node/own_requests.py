"""Requests of this controller itself to the active one: its registration (KIP-919), its heartbeat (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.controller_registration_response import ControllerRegistrationResponse
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import OwnRequest, OwnRequestAnswered
from quorate_controller.raft.messages import Destination, Note
from quorate_controller.raft.model import find_endpoint

if TYPE_CHECKING:
    from quorate_controller.node.events import OwnRequestFailed
    from quorate_controller.node.heartbeats import HeartbeatKeeper
    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.node.registration import RegistrationKeeper
    from quorate_controller.node.snapshotter import Snapshotter
    from quorate_controller.raft.model import Endpoint
    from quorate_controller.raft.node import RaftNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A request that is due now, and what to log of it. Its receiver may be this node."""

    own: OwnRequest
    note: Note | None = None


class OwnRequests:
    """When each of them is due, and what follows from the answers."""

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

    def take_due(self, now_ms: int) -> list[Due]:
        """Returns what is due now; each counts as sent."""
        due = []
        if _is_due(self._registration_deadline_ms(), now_ms):
            due.append(self._register(now_ms))
        if _is_due(self._heartbeat_deadline_ms(), now_ms):
            due.append(self._beat(now_ms))
        return due

    def may_snapshot(self, now_ms: int) -> bool:
        """Whether a standby may write the checkpoint that is due."""
        return self._heartbeats.may_begin(self._snapshotter.due_since_ms, now_ms)

    def take(self, event: OwnRequestAnswered | OwnRequestFailed, now_ms: int) -> Note | None:
        """A response came, or none will. Returns what to log."""
        if isinstance(event, OwnRequestAnswered):
            response = event.response
            if isinstance(response, ControllerHeartbeatResponse):
                self._heartbeats.answered(response, now_ms)
                return None
            assert isinstance(response, ControllerRegistrationResponse)
            return self.registered(response.error_code, response.error_message, now_ms)
        if isinstance(event.request, ControllerRegistrationRequest):
            return self.registered(None, event.reason, now_ms)
        self._heartbeats.failed(is_unsupported=event.is_unsupported)
        return None

    def registered(self, error_code: ErrorCode | None, message: str | None, now_ms: int) -> Note:
        """Takes the active controller's answer to a registration; None when there will be none."""
        self._registration.answered(error_code, now_ms)
        if error_code is ErrorCode.none:
            return Note(event="registered", facts={})
        facts = {"error": "no answer" if error_code is None else error_code.name, "message": message}
        return Note(event="registration_failed", facts=facts, is_warning=True)

    # ----------------------------------------------------------------------------------- registration

    def _registration_deadline_ms(self) -> int | None:
        if self.registration_reason is None or self._endpoint_to_register_at() is None:
            return None
        return self._registration.deadline_ms(metadata_version=self._metadata.image.metadata_version)

    def _endpoint_to_register_at(self) -> Endpoint | None:
        """Returns the active controller's endpoint.

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
        """Only registered controllers are heard."""
        # Asked in each turn. The active controller sends none, and is done here.
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
