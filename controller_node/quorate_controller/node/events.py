"""What a controller node takes in a turn, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
    from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse
    from kio.static.protocol import Payload

    from quorate_controller.control.api import ControlError
    from quorate_controller.raft.messages import Destination, Event, Note, Send
    from quorate_controller.server.port import Caller, RaftAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """A canonical request for the active controller, or a read for any; `token` returns in the answer."""

    token: int
    request: Payload
    caller: Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationResponse:
    """What the active controller said of our `RegistrationSend`."""

    response: ControllerRegistrationResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationFailed:
    """Our `RegistrationSend` got no response."""

    reason: str


if TYPE_CHECKING:
    NodeEvent: TypeAlias = Event | ControlRequest | RegistrationResponse | RegistrationFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAnswer:
    """The outcome of the `ControlRequest` with that token: a canonical response, or why it is refused."""

    token: int
    outcome: Payload | ControlError


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftReply:
    """The answer to the raft request with that token, with the log or snapshot bytes that it carries."""

    token: int
    answer: RaftAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSend:
    """Register this controller with the active one (KIP-919). One is in flight at a time."""

    destination: Destination
    request: ControllerRegistrationRequest


@dataclass(slots=True, kw_only=True)
class Effects:
    """What follows from a turn. Everything that these messages promise is durable already."""

    sends: list[Send] = field(default_factory=list)
    raft_replies: list[RaftReply] = field(default_factory=list)
    control_answers: list[ControlAnswer] = field(default_factory=list)
    registration: RegistrationSend | None = None
    notes: list[Note] = field(default_factory=list)
