"""Connections between controllers that nothing uses are closed; the leader stays."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.waiting import eventually

pytestmark = pytest.mark.integration

IDLE_MS = 2_000
PERIODS = 4
WAIT_S = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three controllers that close connections after two seconds without use, and no broker."""
    manifest = manifests(brokers=0, config={"connections.max.idle.ms": IDLE_MS})
    cluster = Cluster.settle(tmp_path / "cluster", None, manifest)
    cluster.format(*cluster.controllers)
    try:
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        yield cluster
    finally:
        cluster.close()


def has_lost_connection(cluster: Cluster, node_id: int, peer: int) -> bool:
    """Whether the node has logged the end of a connection to that peer."""
    lines = cluster.log_of(node_id).splitlines()
    return any("peer_connection_lost" in line and f"{peer} (" in line for line in lines)


def test_idle_connections_that_close_depose_nobody(cluster: Cluster) -> None:
    before = cluster.await_quorum()
    followers = set(cluster.controllers) - {before.leader_id}
    for node_id in followers:
        is_closed = partial(has_lost_connection, cluster, node_id, before.leader_id)
        eventually(is_closed, WAIT_S, f"{node_id} to lose an idle connection to the leader")
    deadline_s = time.monotonic() + PERIODS * IDLE_MS / 1000
    while time.monotonic() < deadline_s:
        quorum = cluster.await_quorum()
        assert (quorum.leader_id, quorum.leader_epoch) == (before.leader_id, before.leader_epoch), (
            cluster.describe(quorum)
        )
