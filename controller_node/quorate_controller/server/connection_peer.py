"""The other end of an accepted connection."""

from __future__ import annotations

from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.node.events import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection, and the listener that it came in on."""

    host: str
    port: int
    listener: str
    principal: Principal = ANONYMOUS
    """The authenticated principal, `User:ANONYMOUS` without authentication."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """How the listener is secured."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
