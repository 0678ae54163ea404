"""The bounds of a listener's connections."""

from __future__ import annotations

from quorate_protocol.plain_data import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Bounds of one listener, with Kafka's property names where it has them."""

    frame_size_bytes_max: int = 100 * 1024 * 1024
    """socket.request.max.bytes"""
    in_flight_max: int = 256
    """Requests of one connection that may wait for their responses."""
    socket_send_buffer_bytes: int = 100 * 1024
    """socket.send.buffer.bytes, what the system keeps for a peer that does not read; negative: the system decides."""
    send_buffer_bytes_max: int = 4 * 1024 * 1024
    """Responses of one connection that may wait for the peer to read; one response may be larger."""
    response_memory_bytes_max: int = 128 * 1024 * 1024
    """Memory of the responses on all connections of all listeners, see `connection_memory.ResponseMemory`."""
    idle_timeout_ms: int = 600_000
    """connections.max.idle.ms; negative: never."""
