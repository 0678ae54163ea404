"""A quorum with controller.quorum.voters becomes a dynamic one, step by step, while it serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.ledger import ContinuousTopics
from kit.membership import (
    Membership,
    assert_same_everywhere,
    await_progress,
    lead_with,
    quorate,
    refused,
    succeeded,
)
from kit.pauses import RecordPause
from kit.waiting import eventually

pytestmark = pytest.mark.integration

VOTERS = (3000, 3001, 3002)
KINDS = {"python": (), "mixed": (3001,)}
UPGRADE_TIMEOUT_S = 30


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def static(request: pytest.FixtureRequest, tmp_path: Path, kafka_jars: Path) -> Iterator[Membership]:
    """A running static quorum of three, and a broker."""
    manifest = manifests(java=request.param, quorum="static")
    cluster = Membership.found(tmp_path / "cluster", kafka_jars, manifest, founders=len(VOTERS))
    try:
        yield cluster.start_founders()
    finally:
        cluster.close()


def test_a_static_quorum_becomes_dynamic_without_a_stop(
    static: Membership, record_pause: RecordPause
) -> None:
    """Kraft.version 0 -> 1 and configurations without voters, node by node, nothing lost."""
    with ContinuousTopics(static.bootstrap_servers, "migrated") as topics:
        lead_with(static, min({static.implementation(voter) for voter in VOTERS}))
        first = VOTERS[0]
        assert "kraft.version" in refused(static.try_to_remove(first, static.directory_id(first)))

        def upgrade() -> bool:
            # A voter may not have reported its directory to the leader yet.
            ran = quorate(
                "features",
                "--bootstrap-controller",
                static.asks(),
                "upgrade",
                "--feature",
                "kraft.version=1",
            )
            return ran.returncode == 0 and "kraft.version was upgraded to 1" in ran.stdout

        eventually(upgrade, UPGRADE_TIMEOUT_S, "the upgrade", lambda: static.describe(static.quorum()))
        static.await_voters(*VOTERS)
        await_progress(static, topics)
        leader = static.await_leader()
        for node_id in sorted(VOTERS, key=lambda voter: voter == leader):
            static.forget_static_voters(node_id)
            static.await_voters(*VOTERS)
            await_progress(static, topics)
        record_pause(topics.pauses.longest_s)  # of the controllers: next, the only broker restarts
        for node_id in static.brokers:
            static.forget_static_voters(node_id)
        static.await_unfenced(*static.brokers)
        static.dismiss(VOTERS[1])
        static.join(VOTERS[1])
        static.await_voters(*VOTERS)
        await_progress(static, topics)
    assert_same_everywhere(static, topics.acknowledged, VOTERS)
    described = succeeded(quorate("features", "--bootstrap-controller", static.asks(), "describe"))
    (line,) = [
        candidate for candidate in described.splitlines() if candidate.startswith("Feature: kraft.version")
    ]
    assert "FinalizedVersionLevel: 1" in line
