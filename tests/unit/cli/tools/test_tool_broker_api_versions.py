"""`quorate broker-api-versions`: text, JSON and errors."""

from pathlib import Path

import pytest
from kit.fake_cluster import HANG_UP, FakeCluster
from kit.tool_runner import run_tool
from kit.waiting import HANG_S
from quorate.console import api_versions
from quorate.console.api_versions import node_json, node_text
from quorate_admin.types.cluster import NodeApiVersions, NodeDescription

NODE = NodeDescription(node_id=1, host="h", port=9092, rack=None, fenced=False)


def versions(**api_versions: tuple[int, int]) -> NodeApiVersions:
    """What a node has, by `k` and the API's key."""
    return NodeApiVersions(
        api_versions={int(key[1:]): versions for key, versions in api_versions.items()},
        supported_features={},
        finalized_features={},
        finalized_features_epoch=-1,
    )


@pytest.mark.parametrize(
    ("key", "range_", "text"),
    [
        (0, (3, 13), "Produce(0): 3 to 13 [usable: 13]"),
        (0, (3, 99), "Produce(0): 3 to 99 [usable: 13]"),
        (0, (3, 5), "Produce(0): 3 to 5 [usable: 5]"),
        (64, (0, 0), "UnregisterBroker(64): 0 [usable: 0]"),
        (0, (90, 99), "Produce(0): 90 to 99 [unusable: node too new]"),
        (0, (0, 2), "Produce(0): 0 to 2 [unusable: node too old]"),
        (50, (0, 0), "DescribeUserScramCredentials(50): 0 [usable: 0]"),
        (999, (1, 2), "UNKNOWN(999): 1 to 2"),
    ],
)
def test_an_api_is_reported_as_by_kafka(key: int, range_: tuple[int, int], text: str) -> None:
    assert node_text(NODE, versions(**{f"k{key}": range_}), ()) == (
        f"h:9092 (id: 1 rack: null isFenced: false) -> (\n\t{text}\n)\n"
    )


def test_apis_are_in_the_order_of_their_keys_and_missing_ones_are_reported() -> None:
    """An older node's gaps are seen."""
    assert node_text(NODE, versions(k18=(0, 4), k3=(0, 13)), (1, 3)) == (
        "h:9092 (id: 1 rack: null isFenced: false) -> (\n"
        "\tFetch(1): UNSUPPORTED,\n\tMetadata(3): 0 to 13 [usable: 13],\n\tApiVersions(18): 0 to 4 [usable: 4]\n)\n"
    )


def test_programs_get_numbers() -> None:
    assert node_json(NODE, versions(k0=(90, 99)))["apis"] == [
        {"apiKey": 0, "name": "Produce", "minVersion": 90, "maxVersion": 99, "usableVersion": None}
    ]


async def test_every_broker_is_asked_and_one_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One broker's failure hides no other; exit code 1."""
    monkeypatch.setattr(api_versions, "NODE_TIMEOUT_MS", HANG_S * 1000)
    config = tmp_path / "admin.properties"
    config.write_text("retries=0\n")
    async with FakeCluster([2, 1]) as cluster:
        ask = ("broker-api-versions", "-b", cluster.bootstrap[1], "-c", str(config))
        whole = await run_tool(*ask)
        cluster.nodes[2].handlers["ApiVersions"] = lambda _: HANG_UP
        ran = await run_tool(*ask)
        address = cluster.nodes[2].address
    assert whole.exit_code == 0
    assert whole.stdout.startswith(f"{cluster.bootstrap[1]} (id: 1 ")
    assert "UNSUPPORTED" not in whole.stdout
    assert f"{address} (id: 2 rack: null isFenced: false) -> ERROR: " in ran.stdout
    assert (ran.exit_code, ran.stderr) == (1, "error: no response from 2\n")


async def test_controllers_can_be_asked_too() -> None:
    async with FakeCluster([3000], is_controllers=True) as cluster:
        ran = await run_tool("broker-api-versions", "-C", cluster.bootstrap[0])
    assert "Vote(52): 0 to 2" in ran.stdout
    assert "UNSUPPORTED" not in ran.stdout


async def test_the_cluster_tool_lists_what_brokers_should_have_of_controllers_too() -> None:
    async with FakeCluster([3000], is_controllers=True) as cluster:
        cluster.nodes[3000].apis = {
            key: versions for key, versions in cluster.nodes[3000].apis.items() if key
        }
        at = ("-C", cluster.bootstrap[0])
        listed = await run_tool("cluster", "api-versions", *at)
        plain = await run_tool("broker-api-versions", *at)
    assert (listed.exit_code, plain.exit_code) == (0, 0)
    assert "\tProduce(0): UNSUPPORTED,\n" in listed.stdout
    assert "Produce(0)" not in plain.stdout
