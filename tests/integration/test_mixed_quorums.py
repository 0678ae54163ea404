"""Quorums of stock Java controllers and ours: leadership, directories and snapshots pass both ways."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.ledger import ContinuousTopics
from kit.membership import PROGRESS_TIMEOUT_S, assert_same_everywhere, await_progress, lead_with
from kit.metadata import snapshots_in, start_offset
from kit.waiting import eventually

pytestmark = pytest.mark.integration

SNAPSHOT_EVERY_BYTES = 10_000

QUORUMS = {
    "2 java + 1 python, dynamic": {"java": (3000, 3001), "quorum": "dynamic"},
    "1 java + 2 python, static": {"java": (3000,), "quorum": "static"},
}


@pytest.fixture(scope="module", params=QUORUMS.values(), ids=QUORUMS.keys())
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path
) -> Iterator[Cluster]:
    """A running cluster of one broker and three controllers, who take snapshots often."""
    manifest = manifests(
        config={
            "metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_EVERY_BYTES,
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1000,
        },
        **request.param,
    )
    cluster = Cluster.create(tmp_path_factory.mktemp("mixed") / "cluster", kafka_jars, manifest)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture
def running(mixed: Cluster) -> Cluster:
    """The cluster with all nodes up."""
    return mixed.start_all()


def test_leadership_passes_both_ways_by_resignation_and_by_death(running: Cluster) -> None:
    """Java and Python leaders take over from each other and lose nothing that was acknowledged."""
    departures: list[Callable[[int], None]] = [running.terminate, running.kill]
    with ContinuousTopics(running.bootstrap_servers, "passing") as topics:
        for implementation in ("python", "java"):
            for leave in departures:
                leader = lead_with(running, implementation)
                await_progress(running, topics)
                leave(leader)
                running.await_leader(other_than=leader)
                await_progress(running, topics)
                running.start(leader)
    assert_same_everywhere(running, topics.acknowledged)


def test_killing_all_controllers_loses_nothing(running: Cluster) -> None:
    """A mixed quorum's disks are enough."""
    with ContinuousTopics(running.bootstrap_servers, "all-killed") as topics:
        await_progress(running, topics)
        running.kill(*running.controllers)
        running.start(*running.controllers)
        await_progress(running, topics)
    assert_same_everywhere(running, topics.acknowledged)


def test_directories_change_hands_in_the_middle_of_life(running: Cluster) -> None:
    """The other implementation continues what one wrote, as follower and as leader."""
    nodes = [running.controllers_in("python")[-1], running.controllers_in("java")[-1]]
    with ContinuousTopics(running.bootstrap_servers, "exchanged") as topics:
        for node_id in nodes:
            own = running.implementation(node_id)
            other = "java" if own == "python" else "python"
            for implementation in (other, own):
                running.terminate(node_id)
                running.run_with(node_id, implementation)
                running.start(node_id)
                running.await_quorum()
                await_progress(running, topics)
            running.kill(node_id)
            running.run_with(node_id, other)
            running.start(node_id)
            lead_with(running, other)
            await_progress(running, topics)
            running.kill(node_id)
            running.run_with(node_id, own)
            running.start(node_id)
            assert_same_everywhere(running, topics.acknowledged)


@pytest.mark.parametrize("leader_is", ["java", "python"])
def test_an_empty_disk_is_filled_by_fetching_a_snapshot(running: Cluster, leader_is: str) -> None:
    leader = lead_with(running, leader_is)
    follower = next(
        controller for controller in running.controllers if running.implementation(controller) != leader_is
    )
    with ContinuousTopics(running.bootstrap_servers, f"snapshot-{leader_is}") as topics:
        await_progress(running, topics)
        eventually(lambda: snapshots_in(running.metadata(leader)), PROGRESS_TIMEOUT_S, "a snapshot")
        running.kill(follower)
        shutil.rmtree(running.data(follower))
        running.format(follower)
        running.start(follower)
        running.await_quorum()
        await_progress(running, topics)
    assert running.await_leader() == leader, "the leader that was to serve the snapshot was lost"
    begin = start_offset(running.metadata(follower))
    assert begin in [snapshot.end_offset for snapshot in snapshots_in(running.metadata(leader))]
    assert begin in [snapshot.end_offset for snapshot in snapshots_in(running.metadata(follower))]
    assert_same_everywhere(running, topics.acknowledged)
    running.start_all()
