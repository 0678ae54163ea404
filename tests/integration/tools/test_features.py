"""`quorate features` for releases that the stock tools do not know: at our controllers, and at Java's."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.kafka import jars_of, stock_kafka_of
from kit.tool_runner import Ran, run_tool
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES

pytestmark = pytest.mark.integration

LEVELS = RELEASES[NEWEST_RELEASE]
COMMANDS = (
    "describe",
    f"upgrade --release-version {NEWEST_RELEASE} --dry-run",
    "upgrade --release-version 4.5-IV0 --dry-run",
    "upgrade --feature share.version=3",
    "upgrade --release-version 4.4",
    "describe",
    "downgrade --release-version 4.3 --dry-run",
    "downgrade --feature metadata.version=32 --unsafe",
    "downgrade --feature share.version=1",
    "disable --feature share.version --dry-run",
    "upgrade --release-version 4.4-IV2",
    "describe",
)


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """A controller of ours and one of the newest release, both at metadata.version 4.3, without brokers."""
    kafka = stock_kafka_of(NEWEST_RELEASE)
    with ExitStack() as closing:
        tools = JavaTools(kafka)
        closing.callback(tools.close)
        java = JavaCluster.prepared(tmp_path / "java", kafka.libs, tools, brokers=0, metadata_version="4.3")
        closing.callback(java.close)
        manifest = manifests(controllers=1, brokers=0, metadata_version="4.3")
        ours = Cluster.create(tmp_path / "ours", jars_of(NEWEST_RELEASE), manifest)
        closing.callback(ours.close)
        yield ours.start_all(), java.start_all()


async def at(cluster: Cluster, command: str) -> Ran:
    """A subcommand of the tool at the cluster's controllers."""
    ran = await run_tool(
        "features", "--bootstrap-controller", cluster.bootstrap_controllers, *command.split(), "-o", "json"
    )
    reported = ran.json
    if isinstance(reported, dict):
        reported.pop("finalizedFeaturesEpoch", None)  # an offset
    return Ran(ran.exit_code, repr(reported), ran.stderr)


async def test_levels_of_the_newest_release_at_both_controllers(clusters: tuple[Cluster, Cluster]) -> None:
    ours, java = clusters
    for command in COMMANDS:
        assert await at(ours, command) == await at(java, command), command
    levels = {"metadata.version": LEVELS.metadata_version, **LEVELS.feature_levels}
    described = await run_tool(
        "features", "--bootstrap-controller", ours.bootstrap_controllers, "describe", "-o", "json"
    )
    assert {
        feature["feature"]: feature["finalizedVersionLevel"] for feature in described.json["features"]
    } == levels
