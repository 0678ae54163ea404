"""One request of a connection and the answer owed for it, as handlers see it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.scheduler import Account, ServiceClass

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.server.connection import Connection
    from quorate_controller.server.misrouting import ConnectionFindings
    from quorate_controller.server.sasl import SaslSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end of a connection, and the listener that it came in on."""

    host: str
    port: int
    listener: str
    principal: Principal = ANONYMOUS
    """Whom the connection has authenticated: `User:ANONYMOUS` if nobody."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """How the listener is secured."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class RequestHandler(Protocol):
    """Answers requests. Implemented by `dispatch.Dispatcher`."""

    def handle(self, exchange: Exchange) -> None:
        """Answer now or later by `exchange.respond`, or end the connection by `exchange.refuse`.

        Raises:
            Exception: a mistake of ours; the connection is closed.
        """


class Exchange:
    """One request frame and the answer owed for it."""

    __slots__ = (
        "_connection",
        "_is_holding",
        "_on_abandoned",
        "_on_ended",
        "answer",
        "frame",
        "is_last",
        "service_class",
    )

    def __init__(
        self, connection: Connection, frame: bytes, service_class: ServiceClass = ServiceClass.CLIENTS
    ) -> None:
        self.frame = frame
        """The request without its length prefix."""
        self.service_class = service_class
        self.answer: bytes | bytearray | None = None
        """The answer with its length prefix, once known."""
        self.is_last = False
        """Whether the connection closes instead of answering."""
        self._connection = connection
        self._is_holding = False
        self._on_abandoned: Callable[[], object] | None = None
        self._on_ended: Callable[[], object] | None = None

    @property
    def peer(self) -> Peer:
        """The sender of the request."""
        return self._connection.peer

    @property
    def findings(self) -> ConnectionFindings:
        """What was found on the connection, see `misrouting`."""
        return self._connection.findings

    @property
    def session(self) -> SaslSession | None:
        """The authentication on the connection, if its listener asks for one."""
        return self._connection.session

    @session.setter
    def session(self, session: SaslSession) -> None:
        self._connection.session = session

    def authenticated(self, principal: Principal) -> None:
        """Whatever comes on the connection from now on is sent by `principal`."""
        self._connection.authenticated(principal)

    @property
    def is_over(self) -> bool:
        """Whether the answer is known, or the connection closes instead."""
        return self.answer is not None or self.is_last

    def respond(self, answer: bytes | bytearray) -> None:
        """Send `answer`, a frame with its length prefix, once all earlier ones are sent.

        Without effect when the exchange is over, or the connection gone.
        """
        if self.is_over:
            return
        self.answer = answer
        self._on_abandoned = None
        self._connection.answered(len(answer))

    def refuse(self, reason: str) -> None:
        """Close the connection after the answers to earlier requests; `reason` is logged.

        Without effect when the exchange is over.
        """
        if not self.is_over:
            self.is_last = True
            self._on_abandoned = None
            self._connection.refuse(reason)

    def end_later(self, answer: bytes | None, delay_s: float) -> None:
        """Read no more, and after a while send `answer`, if there is one, and close the connection."""
        self._connection.drain()
        self._connection.call_later(delay_s, self.drop if answer is None else partial(self.respond, answer))

    @property
    def account(self) -> Account:
        """The account of the connection."""
        return self._connection.account

    def hold_for(self, delay_s: float) -> None:
        """Take no other request of the connection for a while (KIP-219)."""
        self._connection.hold()
        self._connection.call_later(delay_s, self._connection.release)

    def hold(self) -> None:
        """Take no other request of the connection until `release`, at the latest until the response is sent."""
        if not self._is_holding:
            self._is_holding = True
            self._connection.hold()

    def release(self) -> None:
        """Take other requests of the connection now."""
        if self._is_holding:
            self._is_holding = False
            self._connection.release()

    def drop(self) -> None:
        """There will be no answer: close the connection after those to earlier requests.

        Without effect when the exchange is over, or the connection gone.
        """
        if not self.is_over:
            self.is_last = True
            self._on_abandoned = None
            self._connection.drain()

    def on_abandoned(self, callback: Callable[[], object]) -> None:
        """Have `callback` called if the connection goes away before the answer is known."""
        self._on_abandoned = callback

    def abandon(self) -> None:
        """Cancel the work on the answer: nobody waits for it any more."""
        if self._on_abandoned is not None:
            self._on_abandoned()
            self._on_abandoned = None
        self.end()

    def on_ended(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once when the answer is on its way, or the connection gone."""
        self._on_ended = callback

    def end(self) -> None:
        """The response is sent, or the connection lost."""
        if self._is_holding:
            self.release()
        if self._on_ended is not None:
            callback, self._on_ended = self._on_ended, None
            callback()
