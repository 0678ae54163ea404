"""Broker leases: heartbeats, session expiry and the broker state machine (KIP-631, KIP-841).

A broker's control state follows from its registration and from its controlled shutdown, which is soft state::

    state                on a heartbeat that requests       becomes
    -------------------  ---------------------------------  ----------------------------------------------
    FENCED               shutdown, leads nothing            SHUTDOWN_NOW
    FENCED               unfence, is caught up, is not      UNFENCED
                         departing, and has lost no
                         directory since the last one
    UNFENCED             fence                              FENCED
    UNFENCED             fence and shutdown                 SHUTDOWN_NOW
    UNFENCED             shutdown, leads partitions         CONTROLLED_SHUTDOWN
    UNFENCED             shutdown, leads nothing            SHUTDOWN_NOW
    CONTROLLED_SHUTDOWN  anything, leads nothing, and the   SHUTDOWN_NOW
                         other brokers have read that

Everything else keeps the state. A broker is departing while slices take it out of its partitions; only then can a
fenced one lead some of them. A session that expires fences the broker, whatever its state. A granted shutdown ends
the session, so that the broker's next incarnation need not wait for it to expire.
"""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

from quorate_controller.control.api import ControlError, ControlResult, RequestContext

if TYPE_CHECKING:
    from quorate_protocol.image import BrokerRegistration, MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.broker_transitions import PartitionTransitions

FENCED: Final = 1
UNFENCED: Final = -1
"""Values of BrokerRegistrationChangeRecord.fenced; 0 changes nothing."""


class BrokerState(Enum):
    """The state of a broker, which decides its rights (BrokerControlState)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """May not serve clients."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(slots=True)
class _Lease:
    """Soft state of one registered broker."""

    epoch: int
    registration_offset: int
    """The offset of its registration. It is caught up when it has read the log up to there."""
    metadata_offset: int = -1
    """The end of the log that it has read, as of its last heartbeat."""
    controlled_shutdown_offset: int = -1
    """Once every other active broker has read this offset, none of them uses it as a leader. -1: not shutting
    down.
    """

    @property
    def is_shutting_down(self) -> bool:
        return self.controlled_shutdown_offset >= 0


class HeartbeatManager:
    """Handles BrokerHeartbeat and expires sessions. Its soft state lives only while the controller is active.

    A steady heartbeat costs the same however many partitions there are.
    """

    def __init__(
        self, image: "MetadataImage", transitions: "PartitionTransitions", broker_session_timeout_ms: int
    ) -> None:
        self._image = image
        self._transitions = transitions
        self._session_timeout_ms = broker_session_timeout_ms
        self._leases: dict[int, _Lease] = {}
        self._contacts: OrderedDict[int, int] = OrderedDict()
        """Broker id -> time of the last heartbeat, oldest first: the brokers that have a session."""

    def activate(self, now_ms: int) -> None:
        """Give each unfenced broker a full session: heartbeats to the previous leader are unknown."""
        for broker in self._image.cluster.brokers.values():
            self._leases[broker.broker_id] = _Lease(broker.epoch, broker.epoch)
            if not broker.fenced:
                self._contacts[broker.broker_id] = now_ms

    def deactivate(self) -> None:
        """Drop all sessions."""
        self._leases.clear()
        self._contacts.clear()

    def observe(self, record: "MetadataRecord", offset: int) -> None:
        """Update leases after records about brokers were replayed."""
        match record:
            case RegisterBrokerRecord():
                lease = self._leases.get(record.broker_id)
                if lease is None or lease.epoch != record.broker_epoch:
                    self._leases[record.broker_id] = _Lease(record.broker_epoch, offset)
                    self._contacts.pop(record.broker_id, None)
                else:
                    lease.registration_offset = offset
            case UnregisterBrokerRecord():
                self._leases.pop(record.broker_id, None)
                self._contacts.pop(record.broker_id, None)
            case FenceBrokerRecord() | BrokerRegistrationChangeRecord(fenced=1):
                broker_id = record.id if isinstance(record, FenceBrokerRecord) else record.broker_id
                # A fenced broker leaves controlled shutdown: its next heartbeat may shut it down at once.
                self._leases[broker_id].controlled_shutdown_offset = -1

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether the registered incarnation of `broker_id` sent a heartbeat within the session timeout."""
        contact_ms = self._contacts.get(broker_id)
        return contact_ms is not None and now_ms <= contact_ms + self._session_timeout_ms

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the oldest session expires."""
        for contact_ms in self._contacts.values():
            return contact_ms + self._session_timeout_ms + 1
        return None

    def extend_sessions(self, duration_ms: int) -> None:
        """Extend all sessions by this time."""
        self._contacts.update(
            {broker_id: contact_ms + duration_ms for broker_id, contact_ms in self._contacts.items()}
        )

    def fence_stale_broker(self, now_ms: int) -> ControlResult | None:
        """End the oldest session if it has expired.

        One broker at a time, so that each election sees the changes of the previous one. The result is None if no
        broker was fenced; `deadline_ms` shows whether more sessions have expired.
        """
        deadline_ms = self.deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return None
        broker_id, _ = self._contacts.popitem(last=False)
        broker = self._image.cluster.brokers[broker_id]
        return None if broker.fenced else ControlResult(records=self._fence(broker), atomic=False)

    def heartbeat(self, request: BrokerHeartbeatRequest, context: RequestContext) -> ControlResult:
        """BrokerHeartbeat 0-2.

        Raises:
            ControlError: STALE_BROKER_EPOCH when the broker is not registered, or with another epoch.
        """
        broker = check_broker_epoch(self._image, request.broker_id, request.broker_epoch)
        lease = self._leases[broker.broker_id]
        current = self._state(broker, lease)
        lost = self._lost_directories(broker, request)
        following = self._next_state(current, request, lease)
        if lost and following is BrokerState.UNFENCED and current is BrokerState.FENCED:
            # Elections of this decision still see these directories online. The next heartbeat unfences it.
            following = current
        self._contacts.pop(broker.broker_id, None)
        if following is not BrokerState.SHUTDOWN_NOW:
            self._contacts[broker.broker_id] = context.now_ms
        lease.metadata_offset = request.current_metadata_offset
        records = (
            *(self._transition(broker, following) if following is not current else ()),
            *self._directory_changes(broker, request, lost),
        )
        if following is BrokerState.CONTROLLED_SHUTDOWN and not lease.is_shutting_down:
            lease.controlled_shutdown_offset = context.next_offset + len(records) - 1
        response = BrokerHeartbeatResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            is_caught_up=request.current_metadata_offset >= lease.registration_offset,
            is_fenced=following.is_fenced,
            should_shut_down=following is BrokerState.SHUTDOWN_NOW,
        )
        return ControlResult(records=records, response=response, atomic=False)

    @staticmethod
    def _state(broker: "BrokerRegistration", lease: _Lease) -> BrokerState:
        # After a change of the active controller a broker in controlled shutdown counts as unfenced until
        # it requests its shutdown again: only then is there an offset to wait for.
        if broker.fenced:
            return BrokerState.FENCED
        return BrokerState.CONTROLLED_SHUTDOWN if lease.is_shutting_down else BrokerState.UNFENCED

    def _next_state(
        self, current: BrokerState, request: BrokerHeartbeatRequest, lease: _Lease
    ) -> BrokerState:
        leads_any_partition = self._transitions.leads_any_partition
        is_departing = self._transitions.is_departing(request.broker_id)
        if current is BrokerState.FENCED:
            if request.want_shut_down:
                moves = is_departing and leads_any_partition(request.broker_id)
                return current if moves else BrokerState.SHUTDOWN_NOW
            is_caught_up = request.current_metadata_offset >= lease.registration_offset
            may_return = is_caught_up and not is_departing and not request.want_fence
            return BrokerState.UNFENCED if may_return else current
        if current is BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
            if request.want_shut_down:
                leads = leads_any_partition(request.broker_id)
                return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
            return current
        if is_departing or leads_any_partition(request.broker_id):
            return current
        last_move = self._transitions.departed_offset(request.broker_id)
        is_known = max(lease.controlled_shutdown_offset, last_move) <= self._lowest_active_offset()
        return BrokerState.SHUTDOWN_NOW if is_known else current

    def _lowest_active_offset(self) -> float:
        """The smallest offset up to which an active broker has read the log; infinite without active brokers."""
        brokers = self._image.cluster.brokers
        return min(
            (
                lease.metadata_offset
                for broker_id, lease in self._leases.items()
                if not brokers[broker_id].fenced and not lease.is_shutting_down
            ),
            default=float("inf"),
        )

    def _transition(self, broker: "BrokerRegistration", following: BrokerState) -> "Sequence[MetadataRecord]":
        match following:
            case BrokerState.UNFENCED:
                unfence = BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCED
                )
                return (unfence, *self._transitions.on_broker_unfenced(broker.broker_id))
            case BrokerState.CONTROLLED_SHUTDOWN:
                moves = self._transitions.on_controlled_shutdown(broker.broker_id)
                if broker.in_controlled_shutdown:
                    return moves
                leave = BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
                )
                return (leave, *moves)
            case _:
                return () if broker.fenced else self._fence(broker)

    def _fence(self, broker: "BrokerRegistration") -> "tuple[MetadataRecord, ...]":
        fence = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCED
        )
        return (*self._transitions.on_broker_fenced(broker.broker_id), fence)

    def _lost_directories(self, broker: "BrokerRegistration", request: BrokerHeartbeatRequest) -> "set[UUID]":
        """The registered directories that the broker reports as failed, for the first time (KIP-858)."""
        if not request.offline_log_dirs or self._image.metadata_version < features.DIRECTORY_ASSIGNMENT_SINCE:
            return set()
        return set(broker.directories).intersection(request.offline_log_dirs)

    def _directory_changes(
        self, broker: "BrokerRegistration", request: BrokerHeartbeatRequest, lost: "set[UUID]"
    ) -> "Sequence[MetadataRecord]":
        """Log directories that failed (KIP-858) or that take no new replicas (KIP-1066)."""
        records: list[MetadataRecord] = []
        metadata_version = self._image.metadata_version
        if lost:
            records += self._transitions.on_directories_offline(broker.broker_id, lost)
        if (
            request.cordoned_log_dirs is not None
            and metadata_version >= features.CORDONED_DIRECTORIES_SINCE
            and _differ(request.cordoned_log_dirs, broker.cordoned_directories)
        ):
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.epoch,
                    cordoned_log_dirs=request.cordoned_log_dirs,
                )
            )
        return records


def _differ(reported: Sequence[UUID | None], known: Sequence[UUID] | None) -> bool:
    return known is None or set(reported) != set(known)


def check_broker_epoch(image: "MetadataImage", broker_id: int, broker_epoch: int) -> "BrokerRegistration":
    """The registration of a broker that sends a request of its own.

    Raises:
        ControlError: STALE_BROKER_EPOCH when it is not registered, or with another epoch.
    """
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise ControlError(
            ErrorCode.stale_broker_epoch, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != broker_epoch:
        raise ControlError(
            ErrorCode.stale_broker_epoch,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker
