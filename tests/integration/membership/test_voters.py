"""Voters come and go under load (KIP-853): by Quorate's tools, in quorums of ours and in mixed ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.document import run_block
from kit.ledger import ContinuousTopics
from kit.membership import (
    Membership,
    assert_same_everywhere,
    await_progress,
    lead_with,
    refused,
    succeeded,
)
from kit.pauses import RecordPause

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[3] / "examples" / "membership" / "replace-voter.sh"
THREE = (3000, 3001, 3002)
FIVE = (*THREE, 3003, 3004)
KINDS = {"python": (), "mixed": (3001, 3003)}
"""The controllers that stock Kafka runs."""
ELECTION_TIMEOUT_S = 40


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def quorum(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: object
) -> Iterator[Membership]:
    """One voter and a broker that run, and places for four more controllers."""
    manifest = manifests(
        controllers=len(FIVE),
        java=request.param,
        config={
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1000,
            "metadata.log.max.record.bytes.between.snapshots": 20_000,
        },
    )
    directory = tmp_path_factory.mktemp("voters") / "cluster"
    cluster = Membership.found(directory, kafka_jars, manifest, founders=1)
    try:
        yield cluster.start_founders()
    finally:
        cluster.close()


def kinds_of(cluster: Membership) -> list[str]:
    """The implementations that the controllers of the cluster have."""
    return sorted({cluster.implementation(controller) for controller in cluster.controllers})


def test_a_quorum_grows_to_five_and_shrinks_to_three(quorum: Membership, record_pause: RecordPause) -> None:
    """1 -> 3 -> 5 -> 3 voters without losing an acknowledged topic, added by a leader of each kind."""
    with ContinuousTopics(quorum.bootstrap_servers, "grown") as topics:
        quorum.join(*THREE[1:])
        quorum.await_voters(*THREE)
        await_progress(quorum, topics)
        lead_with(quorum, kinds_of(quorum)[0], THREE)
        quorum.join(*FIVE[len(THREE) :])
        quorum.await_voters(*FIVE)
        await_progress(quorum, topics)
        assert_same_everywhere(quorum, topics.acknowledged, FIVE)
        quorum.dismiss(*FIVE[len(THREE) :])
        quorum.await_voters(*THREE)
        await_progress(quorum, topics)
    assert_same_everywhere(quorum, topics.acknowledged, THREE)
    record_pause(topics.pauses.longest_s)


def test_a_voter_whose_disk_was_lost_is_replaced(quorum: Membership, record_pause: RecordPause) -> None:
    """A new disk is a new voter: the old (id, directory) is removed, the new one added; nothing is lost."""

    def by_commands(node_id: int, lost: str) -> None:
        twice = refused(quorum.metadata_quorum("add-controller", config=quorum.config_file(node_id)))
        assert "already part of the set of voters" in twice
        quorum.remove(node_id, lost)
        quorum.add(node_id)

    def by_script(node_id: int, lost: str) -> None:
        variables = {"CONTROLLERS": quorum.asks(), "CONFIG": str(quorum.config_file(node_id))}
        done = succeeded(run_block(f'{SCRIPT} "$CONTROLLERS" "$CONFIG"', variables))
        assert f"KRaft controller {node_id} with directory id {lost}" in done

    quorum.bring_to(*THREE)
    with ContinuousTopics(quorum.bootstrap_servers, "replaced") as topics:
        for node_id, replace in zip(THREE[1:], (by_commands, by_script), strict=True):
            await_progress(quorum, topics)
            lost = quorum.lose_disk(node_id)
            assert quorum.voters()[node_id] == lost
            replace(node_id, lost)
            quorum.await_voters(*THREE)
    assert_same_everywhere(quorum, topics.acknowledged, THREE)
    record_pause(topics.pauses.longest_s)


def test_the_leader_is_removed(quorum: Membership, record_pause: RecordPause) -> None:
    quorum.bring_to(*THREE)
    with ContinuousTopics(quorum.bootstrap_servers, "removed") as topics:
        for implementation in kinds_of(quorum):
            leader = lead_with(quorum, implementation, THREE)
            await_progress(quorum, topics)
            quorum.remove(leader, quorum.directory_id(leader))
            assert quorum.await_leader(other_than=leader) != leader
            left = [voter for voter in THREE if voter != leader]
            quorum.await_voters(*left)
            await_progress(quorum, topics)
            quorum.await_observer(leader)
            assert sorted(quorum.voters()) == left
            quorum.add(leader)
            quorum.await_voters(*THREE)
    assert_same_everywhere(quorum, topics.acknowledged, THREE)
    record_pause(topics.pauses.longest_s)
