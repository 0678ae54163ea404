"""Tools and doctor with controllers that have no leader: which voters are missing, in seconds."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster, nested, quorum_response, response_to
from kit.tool_runner import Ran, run_tool
from kit.waiting import until
from quorate.console import client
from quorate_admin import leadership
from quorate_admin.config import Address
from quorate_admin.network.connection import Connection
from quorate_protocol.errors import ErrorCode

NO_METADATA = "There is no finalized MetadataVersion, so direct-to-controller communication is not supported."
FREE = "127.0.0.1:9"
"""No process listens at the port of `discard`."""
TOOLS = (
    ("metadata-quorum", "describe", "--status"),
    ("metadata-quorum", "describe", "--replication"),
    ("features", "describe"),
    ("features", "upgrade", "--feature", "metadata.version=30"),
    ("cluster", "list-endpoints"),
    ("cluster", "unregister-controller", "--controller-id", "9"),
    ("configs", "--describe", "--entity-type", "brokers"),
    ("acls", "--list"),
)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for milliseconds: the order of events counts, not the time."""
    monkeypatch.setattr(client, "WATCHED_AFTER_S", 0.05)
    for name in ("REFUSED_WAIT_MS", "LEADER_WAIT_MS", "SEARCH_EVERY_MS"):
        monkeypatch.setattr(leadership, name, 50)


def _described(voters: dict[int, str]) -> Any:
    error_code = ErrorCode.not_leader_or_follower
    return quorum_response(endpoints=voters, error_code=error_code, leader_id=-1, leader_epoch=3)


def _configs_described(request: Any) -> Any:
    results = tuple(
        nested(
            "DescribeConfigs",
            "DescribeConfigsResult",
            error_code=ErrorCode.none,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.body.resources
    )
    return response_to("DescribeConfigs", results=results)


@pytest.fixture(params=[True, False], ids=["restarted", "running on"])
async def survivor(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    """The survivor of three voters: one that has found no leader since its start, or one that still lists all."""
    async with FakeCluster([1], is_controllers=True) as cluster:
        voters = {1: cluster.bootstrap[0], 2: FREE, 3: FREE}
        cluster.handle("DescribeQuorum", lambda _: _described(voters))
        cluster.handle("DescribeConfigs", _configs_described)
        if request.param:
            cluster.finalized_features, cluster.finalized_features_epoch = {}, -1
            cluster.handle(
                "DescribeCluster",
                lambda _: response_to(
                    "DescribeCluster", error_code=ErrorCode.unsupported_version, error_message=NO_METADATA
                ),
            )
        else:
            cluster.controller_id = -1
        yield cluster


def _is_clean(ran: Ran) -> bool:
    return ran.stderr.count("\n") == 1 and "MetadataVersion" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
async def test_tools_name_the_missing_voters(survivor: FakeCluster, tool: tuple[str, ...]) -> None:
    """One line that is true, not a level that is not supported, or a minute of silence."""
    ran = await run_tool(tool[0], "-C", survivor.bootstrap[0], *tool[1:])
    if ran.exit_code == 0:
        assert tool[-1] in ("describe", "list-endpoints", "brokers")
        assert survivor.finalized_features_epoch == 17
        return
    assert (ran.exit_code, _is_clean(ran)) == (1, True), ran
    assert ran.stderr.startswith(
        "error: no leader; voters 2, 3 do not answer (no connection to 127.0.0.1:9: "
    )


async def test_the_doctor_names_the_missing_voters(survivor: FakeCluster) -> None:
    ran = await run_tool("doctor", "-C", survivor.bootstrap[0])
    assert (ran.exit_code, ran.stderr) == (1, "")
    assert "DANGER   The quorum has no leader; voters 2, 3 do not answer\n" in ran.stdout
    assert "Start controllers 2 or 3: a majority of the voters has to run." in ran.stdout
    ran = await run_tool("doctor", "-C", survivor.bootstrap[0], "-o", "json")
    assert [finding["code"] for finding in ran.json["findings"]] == [
        "no-leader",
        "partitions-not-examined",
        "registrations-not-examined",
    ]
    assert ran.json["leaderId"] is None


@pytest.mark.parametrize(
    "tool",
    [
        ("doctor",),
        ("leader-election", "--election-type", "preferred", "--all-topic-partitions"),
        ("metadata-shell", "ls", "/"),
        *TOOLS[:1],
    ],
    ids=" ".join,
)
async def test_refused_connections_are_reported(tool: tuple[str, ...]) -> None:
    """The tools do not wait a minute for controllers that do not run."""
    ran = await run_tool(tool[0], "-C", f"{FREE},127.0.0.1:11", *tool[1:])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == (
        "error: no connection to 127.0.0.1:9: Connection refused; "
        "no connection to 127.0.0.1:11: Connection refused\n"
    )


async def test_a_chosen_timeout_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    connect = Connection.open

    async def open_counted(address: Address, **options: Any) -> Connection:
        nonlocal attempts
        attempts += 1
        return await connect(address, **options)

    monkeypatch.setattr(Connection, "open", open_counted)
    monkeypatch.setattr(client, "WATCHED_AFTER_S", 0)
    monkeypatch.setattr(leadership, "find_leader", lambda *_, **__: pytest.fail("it was looked for"))
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=50000\n")
    async with FakeCluster([1], is_controllers=True) as cluster:
        (node,) = cluster.nodes.values()
        await node.stop()
        running = asyncio.ensure_future(
            run_tool("cluster", "cluster-id", "-C", node.address, "--command-config", str(file))
        )
        await until(lambda: attempts > 2, "attempts to connect")
        await node.start()
        ran = await running
    assert (ran.exit_code, ran.stderr) == (0, "")
