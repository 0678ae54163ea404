"""Input and output of a turn: events and effects."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeAlias

from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.access import UNRESTRICTED, Access

if TYPE_CHECKING:
    from collections.abc import Hashable

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.control.api import ControlError
    from quorate_controller.raft.events import Destination, Event, Note, Send
    from quorate_controller.raft.messages import RaftResponse


OWN_REQUEST_TIMEOUT_MS: Final = 2_000

UNAWAITED_TIMEOUT_MS: Final = 30_000
"""How long a request with a timeout of 0 may wait to be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The sender of a request: `User:ANONYMOUS` on a connection without authentication."""

    type: str = "User"
    name: str = "ANONYMOUS"
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The data about the sender of a request that authorization and version-dependent responses need.

    A forwarded request (Envelope) has the principal and host of the broker's client, and the listener of the
    envelope.
    """

    principal: Principal
    client_host: str
    client_id: str | None
    listener: str
    api_version: int
    request_timeout_ms: int
    forwarded: bool = False
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """How the listener is secured on which the request, or its envelope, came in."""
    broker_id: int | None = None
    """The id that the broker that forwarded the request gave for itself."""
    access: Access = UNRESTRICTED
    connection: Hashable = None
    """Identifies the connection: those with requests are served in turn."""

    @property
    def client(self) -> Hashable:
        """The sender, for round robin: a connection, or a client behind that of a broker that forwards."""
        if not self.forwarded:
            return self.connection
        return self.connection, self.principal, self.client_host


@dataclass(frozen=True, slots=True)
class Requester:
    """The receiver of a response: the broker that forwarded the request, None for a direct client; the Unix time of
    the timeout.

    With `awaits_commit` false, the response is due as soon as the request is decided (KIP-4).
    """

    broker_id: int | None
    deadline_ms: int
    awaits_commit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWithData:
    """A raft response and the bytes that belong to it.

    `data` holds the record batches of a FetchResponse or the chunk of a FetchSnapshotResponse, exactly as
    storage read them; it is empty for every other response.
    """

    response: RaftResponse
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """A canonical request for the active controller, or a read for any; `token` returns in the response.

    After `deadline_ms` (Unix time) its response is REQUEST_TIMED_OUT, and it is not decided. `unresolved_hosts` are
    the host names in it that do not resolve.
    """

    token: int
    request: Payload
    caller: Caller
    deadline_ms: int
    unresolved_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequestAnswered:
    """The active controller's response to a request of this controller itself."""

    response: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequestFailed:
    """A request of this controller itself got no response. `is_unsupported`: the receiver does not have the API."""

    request: Payload
    reason: str
    is_unsupported: bool = False


if TYPE_CHECKING:
    NodeEvent: TypeAlias = Event | ControlRequest | OwnRequestAnswered | OwnRequestFailed


@dataclass(frozen=True, slots=True)
class NotAwaited:
    """The response to a request with a timeout of 0: its records are decided, but need not be committed yet."""

    response: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResponse:
    """The result of the `ControlRequest` with that token: a canonical response, or the reason for its refusal."""

    token: int
    result: Payload | NotAwaited | ControlError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRaftResponse:
    """The response to the raft request with that token, with the log or snapshot bytes that it carries."""

    token: int
    response: ResponseWithData
    is_for_observer: bool = False
    """See `raft.events.OutgoingResponse`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequest:
    """A request of this controller itself to the active one: its registration (KIP-919), its heartbeat (KIP-631).

    One of each API is in flight at a time.
    """

    destination: Destination
    request: Payload


@dataclass(slots=True, kw_only=True)
class Effects:
    """The result of a turn. Everything that these messages promise is already durable."""

    sends: list[Send] = field(default_factory=list)
    raft_responses: list[OutgoingRaftResponse] = field(default_factory=list)
    control_responses: list[ControlResponse] = field(default_factory=list)
    own_requests: list[OwnRequest] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    has_loaded: bool = False
    """Whether a part of a snapshot was loaded: nearly all objects of this turn stay."""
