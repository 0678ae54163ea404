"""What is counted while requests are served: plain numbers, read by `metrics.py` on a scrape.

Counting needs no metrics library; without a metrics listener that library is never loaded.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING

from quorate_controller.node.measurements import LatencyHistogram

if TYPE_CHECKING:
    from quorate_protocol.bounded_http.places import HttpLimit
    from quorate_protocol.errors import ErrorCode


class Limit(StrEnum):
    """What bounds connections, by Kafka's key where it has one: the label `limit` of a metric."""

    CONNECTIONS = "max.connections"
    CONNECTIONS_OF_HOST = "max.connections.per.ip"
    CREATION_RATE = "max.connection.creation.rate"
    HANDSHAKES = "handshakes"
    HANDSHAKE_TIME = "handshake.time"
    AUTHENTICATION_TIME = "authentication.time"
    FAILED_LOGINS = "failed.logins"
    IDLE_TIME = "connections.max.idle.ms"
    REQUEST_SIZE = "socket.request.max.bytes"
    REQUEST_MEMORY = "queued.max.request.bytes"
    REQUEST_RATE = "request.rate"
    REQUEST_ELEMENTS = "request.elements"
    RESPONSE_MEMORY = "response.memory"
    MUTATION_RATE = "controller_mutation_rate"


class RequestCounters:
    """Requests and errors by API, responses after the first, and connections refused or misrouted."""

    __slots__ = (
        "denied",
        "dropped_responses",
        "errors",
        "failed_authentications",
        "failed_handshakes",
        "limited",
        "misrouted_connections",
        "misrouted_peer_connections",
        "refused_connections",
        "requests",
        "seconds",
    )

    def __init__(self) -> None:
        self.requests: dict[int, int] = defaultdict(int)
        """API key -> number of requests; a forwarded request counts as Envelope and as itself."""
        self.errors: dict[tuple[int, ErrorCode], int] = defaultdict(int)
        """Error responses to a request as a whole, by API key and code."""
        self.seconds: dict[int, LatencyHistogram] = defaultdict(LatencyHistogram)
        """Time from a control request to its committed response, by API key."""
        self.denied: dict[str, int] = defaultdict(int)
        """Denials of an authorizer that its audit log has, by the name of the API."""
        self.dropped_responses = 0
        """Responses to requests that had one already, or whose connection was refused meanwhile."""
        self.failed_authentications = 0
        """Connections that SASL has refused."""
        self.failed_handshakes = 0
        """Connections whose TLS handshake failed."""
        self.limited: dict[Limit | HttpLimit, int] = defaultdict(int)
        """Connections refused, closed or held back by a limit, each time that it applied."""
        self.refused_connections = 0
        """Connections closed because of garbage, unknown APIs or versions."""
        self.misrouted_connections: dict[str, int] = defaultdict(int)
        """Connections of clients and controllers to the wrong node, by the value of `misrouting.Misrouting`."""
        self.misrouted_peer_connections = 0
        """Our own connections to other controllers that reached another node."""
