"""After `quorate controller rebuild-quorum`, a controller with records that the quorum lacks is named as such."""

import json
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.membership import Membership, quorate, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

THREE = (3000, 3001, 3002)
RECORDS = 3
TIMEOUT_S = 60


def end_offset(cluster: Membership, node_id: int) -> int:
    """How far the quorum has committed, as this node's leader says."""
    quorum = cluster.quorum(node_id)
    return -1 if quorum is None else quorum.high_watermark


def test_a_controller_with_records_that_the_rebuilt_quorum_lacks_is_not_lagging_behind(
    tmp_path: Path,
) -> None:
    config = {"controller.quorum.fetch.timeout.ms": 1000, "controller.quorum.election.timeout.ms": 500}
    cluster = Membership.found(
        tmp_path / "rebuilt" / "cluster", None, manifests(brokers=0, config=config), founders=len(THREE)
    )
    try:
        leader = cluster.start_founders().await_quorum().leader_id
        survivor, lost = (node_id for node_id in THREE if node_id != leader)
        cluster.kill(survivor)
        before = end_offset(cluster, leader)
        # An idle quorum commits a NoOpRecord twice a second.
        eventually(
            lambda: end_offset(cluster, leader) > before + RECORDS,
            TIMEOUT_S,
            "records that the survivor lacks",
            lambda: cluster.describe(before),
        )
        cluster.kill(lost)
        rebuilt = succeeded(
            quorate(
                "controller",
                "rebuild-quorum",
                "--config",
                str(cluster.config_file(survivor)),
                "--output",
                "json",
            )
        )
        document = json.loads(rebuilt)
        assert (document["nodeId"], document["formerVoters"]) == (survivor, list(THREE))
        assert cluster.address(survivor) in document["nextSteps"][0]
        cluster.start(survivor)

        def refusal() -> str | None:
            ran = quorate(
                "metadata-quorum",
                "--bootstrap-controller",
                cluster.address(survivor),
                "--command-config",
                str(cluster.config_file(leader)),
                "add-controller",
            )
            assert ran.returncode == 1, ran.stdout
            return ran.stderr if "its log diverged from that of this quorum" in ran.stderr else None

        refused = eventually(
            refusal, TIMEOUT_S, "a refusal", lambda: cluster.describe(cluster.quorum(survivor))
        )
        assert "Format the directory again" in refused
    finally:
        cluster.close()
