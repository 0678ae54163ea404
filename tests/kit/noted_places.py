"""Places of connections that note what happens to them."""

from __future__ import annotations

from functools import partial

from quorate_controller.server.connection_quotas import Place, Stage


class NotedPlace(Place):
    """The place of a client that was served. `events`: "closed", "granted"."""

    def __init__(self, peer: str = "127.0.0.1:1") -> None:
        super().__init__("CONTROLLER", "127.0.0.1", peer, Stage.SERVED, 0.0)
        self.events: list[str] = []
        self.close = partial(self.events.append, "closed")
        self.memory_granted = partial(self.events.append, "granted")
