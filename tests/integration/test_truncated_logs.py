"""A leader that has removed the beginning of its log brings followers back by its snapshot."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.ledger import ContinuousTopics
from kit.metadata import assert_same_images, assert_snapshots_hold, end_offset, snapshots_in, start_offset
from kit.waiting import eventually

pytestmark = pytest.mark.integration

JAVA = 3000
WAIT_S = 60


@pytest.fixture
def cluster(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """One Java controller, two of ours, and a broker; logs keep little."""
    config = {
        "internal.metadata.log.segment.bytes": 4_000,
        "metadata.log.max.record.bytes.between.snapshots": 8_000,
        "metadata.max.retention.bytes": 16_000,
    }
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifests(java=(JAVA,), config=config))
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


def test_followers_that_were_away_too_long_fetch_a_snapshot(cluster: Cluster) -> None:
    """A directory with an old log continues from the leader's snapshot, a Java one and ours."""
    if cluster.await_quorum().leader_id == JAVA:
        cluster.terminate(JAVA)
        cluster.await_leader(other_than=JAVA)
        cluster.start(JAVA)
    leader = cluster.await_quorum().leader_id
    ours = next(controller for controller in cluster.controllers_in("python") if controller != leader)
    with ContinuousTopics(cluster.bootstrap_servers, "truncated") as topics:
        for follower in (JAVA, ours):
            cluster.terminate(follower)
            needed = end_offset(cluster.metadata(follower))
            eventually(
                lambda: start_offset(cluster.metadata(leader)) > needed,  # noqa: B023
                WAIT_S,
                f"a log without {needed}",
                lambda: sorted(path.name for path in cluster.metadata(leader).iterdir()),
            )
            cluster.start(follower)
            cluster.await_quorum()
            begin = start_offset(cluster.metadata(follower))
            assert begin > needed
            assert begin in [snapshot.end_offset for snapshot in snapshots_in(cluster.metadata(follower))]
    assert cluster.await_quorum().leader_id == leader, "the leader that was to serve snapshots was lost"
    with cluster.frozen():
        partitions = [cluster.metadata(controller) for controller in cluster.controllers]
        image = assert_same_images(partitions)
        assert_snapshots_hold(partitions)
    assert topics.acknowledged
    assert set(topics.acknowledged) <= image.topics.by_name.keys()
