"""The log of misrouted connections: a warning at once, and not at each attempt."""

import logging

import pytest
from quorate_admin.config import Address
from quorate_admin.network.routing import Misrouted
from quorate_admin.network.transport import AGAIN_AFTER_MS, REMEMBERED_MAX, MisroutedLog


def misrouted(port: int = 9093, found_node_id: int | None = 2) -> Misrouted:
    """A connection to node 1 that led to another."""
    return Misrouted(
        address=Address("c", port),
        expected_cluster_id="ours",
        expected_node_id=1,
        found_cluster_id="theirs",
        found_node_id=found_node_id,
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an administrator sees."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_same_detection_warns_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Attempts at short backoffs don't fill a log."""
    log = MisroutedLog()
    for now_ms in range(0, AGAIN_AFTER_MS, 1_000):
        log.log(misrouted(), now_ms)
    log.log(misrouted(found_node_id=None), 5)
    assert warnings(caplog) == [
        "misrouted connection to c:9093: expected node 1 of cluster ours, found node 2 of cluster theirs",
        "misrouted connection to c:9093: expected node 1 of cluster ours, found a node of cluster theirs",
    ]
    log.log(misrouted(), AGAIN_AFTER_MS)
    assert len(warnings(caplog)) == 3


def test_its_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = MisroutedLog()
    for port in range(1, 2 * REMEMBERED_MAX):
        log.log(misrouted(port), 0)
    assert len(warnings(caplog)) == 2 * REMEMBERED_MAX - 1
