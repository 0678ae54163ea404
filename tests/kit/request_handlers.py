"""Handlers for a listener whose requests a test makes up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate_controller.server.connection import Exchange


class LargeResponses:
    """Responds to each request with `response`."""

    def __init__(self, size_bytes: int = 256 * 1024) -> None:
        self.response = bytes(size_bytes)
        self.handled = 0

    def handle(self, exchange: Exchange) -> None:
        self.handled += 1
        exchange.respond(self.response)
