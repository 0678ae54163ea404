"""Telling an administrator that a connection led elsewhere, without telling it at each attempt."""

import logging

from quorate_admin.network.routing import Misrouted

logger = logging.getLogger(__name__)

AGAIN_AFTER_MS = 60_000
"""The same detection is told as a warning once in this time; in between, on level DEBUG."""
REMEMBERED_MAX = 256


class MisroutedLog:
    """The log of one client's detections. Each is counted elsewhere, told or not."""

    def __init__(self) -> None:
        self._told_at_ms: dict[Misrouted, int] = {}

    def tell(self, misrouted: Misrouted, now_ms: int) -> None:
        """Log a detection with both identities, as far as they are known."""
        told_at_ms = self._told_at_ms.get(misrouted)
        is_news = told_at_ms is None or now_ms - told_at_ms >= AGAIN_AFTER_MS
        if is_news:
            if len(self._told_at_ms) >= REMEMBERED_MAX:
                self._told_at_ms.clear()
            self._told_at_ms[misrouted] = now_ms
        logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "a connection led elsewhere: %s was %s, and is %s",
            misrouted.address,
            _expected(misrouted),
            _found(misrouted),
        )


def _expected(misrouted: Misrouted) -> str:
    if misrouted.expected_node_id is None:
        return f"cluster {misrouted.expected_cluster_id}"
    return f"node {misrouted.expected_node_id} of cluster {misrouted.expected_cluster_id}"


def _found(misrouted: Misrouted) -> str:
    if misrouted.found_cluster_id is None:
        return "another, by its own word"
    if misrouted.found_node_id is None:
        return f"a node of cluster {misrouted.found_cluster_id}"
    return f"node {misrouted.found_node_id} of cluster {misrouted.found_cluster_id}"
