"""`quorate cluster`: text, JSON and errors of its subcommands."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster, answer, nested
from kit.tool_runner import run_tool
from quorate.tools.cluster import endpoints_text
from quorate_admin.diagnosis import judgement
from quorate_admin.types.cluster import NodeDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.uuids import uuid_to_text


def node(node_id: int, host: str = "h", *, rack: str | None = None, fenced: bool = False) -> NodeDescription:
    """A node of DescribeCluster."""
    return NodeDescription(node_id=node_id, host=host, port=9092, rack=rack, fenced=fenced)


def test_endpoints_of_brokers_are_told_as_by_kafka() -> None:
    """Widths by the longest host and rack, blanks at the ends."""
    nodes = [node(1, "host-1", rack="r"), node(10, "h", fenced=True)]
    assert endpoints_text(nodes, controllers=False) == (
        "ID         HOST   PORT       RACK STATE      ENDPOINT_TYPE  \n"
        "1          host-1 9092       r unfenced   broker         \n"
        "10         h      9092       null fenced     broker         \n"
    )


def test_endpoints_of_controllers_have_no_state() -> None:
    assert endpoints_text([node(3000)], controllers=True) == (
        "ID         HOST PORT       RACK       ENDPOINT_TYPE  \n"
        "3000       h 9092       null       controller     \n"
    )


def test_a_cluster_without_nodes_has_a_header() -> None:
    assert endpoints_text([], controllers=True) == (
        f"ID         {'HOST':<100} PORT       RACK       ENDPOINT_TYPE  \n"
    )


async def test_endpoints_are_listed_in_order() -> None:
    async with FakeCluster([2, 1]) as cluster:
        ran = await run_tool("cluster", "list-endpoints", "-b", cluster.bootstrap[0], "-o", "json")
        asked = cluster.received("DescribeCluster")[-1].body.include_fenced_brokers
        await run_tool("cluster", "list-endpoints", "-b", cluster.bootstrap[0], "--include-fenced-brokers")
        assert (asked, cluster.received("DescribeCluster")[-1].body.include_fenced_brokers) == (False, True)
    assert [one["id"] for one in ran.json] == [1, 2]
    assert ran.json[0].keys() == {"id", "host", "port", "rack", "state", "endpointType"}
    assert (ran.json[0]["state"], ran.json[0]["endpointType"]) == ("unfenced", "broker")


async def test_controllers_are_never_fenced() -> None:
    ran = await run_tool("cluster", "list-endpoints", "-C", "h:1", "--include-fenced-brokers")
    assert (ran.exit_code, ran.stdout) == (2, "")


def quorum_with_broker(last_fetch_ms: int) -> Any:
    """A description of a quorum whose leader's clock is at 100,000 ms, and whose observer is broker 7."""
    zero = nested("DescribeQuorum", "ReplicaState", log_end_offset=1, replica_directory_id=None)
    leader, broker = (
        replace(
            zero,
            replica_id=node_id,
            last_fetch_timestamp=at_ms,
            last_caught_up_timestamp=at_ms,
        )
        for node_id, at_ms in ((3000, 100_000), (7, last_fetch_ms))
    )
    partition = nested(
        *("DescribeQuorum", "PartitionData"),
        leader_id=3000,
        leader_epoch=1,
        high_watermark=1,
        current_voters=(leader,),
        observers=(broker,),
    )
    topic = nested("DescribeQuorum", "TopicData", topic_name="__cluster_metadata", partitions=(partition,))
    return answer("DescribeQuorum", topics=(topic,))


async def test_a_broker_is_unregistered() -> None:
    async with FakeCluster() as cluster:
        cluster.handle("DescribeQuorum", lambda _: quorum_with_broker(90_000))
        cluster.handle("UnregisterBroker", lambda _: answer("UnregisterBroker"))
        ran = await run_tool("cluster", "unregister", "-b", cluster.bootstrap[0], "--id", "7")
        assert [one.body.broker_id for one in cluster.received("UnregisterBroker")] == [7]
    assert ran.stdout == "Broker 7 is no longer registered.\n"


@pytest.mark.parametrize(("last_fetch_ms", "is_running"), [(99_000, True), (90_000, False)])
async def test_unregistering_a_running_broker_warns_first(
    monkeypatch: pytest.MonkeyPatch, last_fetch_ms: int, is_running: bool
) -> None:
    async with FakeCluster() as cluster:
        cluster.handle("DescribeQuorum", lambda _: quorum_with_broker(last_fetch_ms))
        cluster.handle("UnregisterBroker", lambda _: answer("UnregisterBroker"))
        command = ("cluster", "unregister", "-b", cluster.bootstrap[0], "--id", "7")
        ran = await run_tool(*command)
        assert (ran.exit_code, ran.stdout) == (0, "Broker 7 is no longer registered.\n")
        assert ("warning: broker 7 is running" in ran.stderr) is is_running
        assert len(cluster.received("UnregisterBroker")) == 1
        monkeypatch.setattr("quorate.tools.cluster._is_terminal", lambda: True)
        asked = await run_tool(*command)
        assert ("Unregister broker 7 nevertheless? [y/N]" in asked.stderr) is is_running
        assert len(cluster.received("UnregisterBroker")) == (1 if is_running else 2)
        assert asked.exit_code == (1 if is_running else 0)


async def test_a_broker_that_is_not_registered_fails() -> None:
    """The server's words, also for a user who may not describe the quorum."""
    refusal = answer("UnregisterBroker", error_code=ErrorCode.broker_id_not_registered, error_message="No.")
    unauthorized = answer("DescribeQuorum", error_code=ErrorCode.cluster_authorization_failed)
    async with FakeCluster(handlers={"UnregisterBroker": lambda _: refusal}) as cluster:
        cluster.handle("DescribeQuorum", lambda _: unauthorized)
        ran = await run_tool("cluster", "unregister", "-b", cluster.bootstrap[0], "--id", "7")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (1, "", "error: BROKER_ID_NOT_REGISTERED: No.\n")


@pytest.mark.parametrize("option", ["--controller-id", "--id", "-i"])
async def test_a_controller_is_unregistered(option: str) -> None:
    """UnregisterController; both names of the option (KIP-1312, Kafka 4.4)."""
    async with FakeCluster([3000], is_controllers=True) as cluster:
        cluster.handle("UnregisterController", lambda _: answer("UnregisterController"))
        ran = await run_tool("cluster", "unregister-controller", "-C", cluster.bootstrap[0], option, "99")
        assert [one.body.controller_id for one in cluster.received("UnregisterController")] == [99]
    assert ran.stdout == "Controller 99 is no longer registered.\n"


async def test_below_33_unregistering_proposes_to_refresh() -> None:
    refusal = answer(
        "UnregisterController", error_code=ErrorCode.unsupported_version, error_message="Too old."
    )
    async with FakeCluster([3000], is_controllers=True) as cluster:
        cluster.handle("UnregisterController", lambda _: refusal)
        address = cluster.bootstrap[0]
        command = f"quorate cluster refresh-controller --bootstrap-controller {address} --controller-id 99\n"
        ran = await run_tool("cluster", "unregister-controller", "-C", address, "--controller-id", "99")
        assert ran.exit_code == 1
        assert ran.stderr.startswith(
            "error: UNSUPPORTED_VERSION: Too old. Unregistering controllers requires metadata.version 33"
        )
        assert ran.stderr.endswith(command)
        del cluster.nodes[3000].apis[94]
        ran = await run_tool("cluster", "unregister-controller", "-C", address, "--controller-id", "99")
        assert ran.exit_code == 1
        assert ran.stderr.endswith(command)


async def test_other_refusals_are_told_as_they_are() -> None:
    refusal = answer(
        "UnregisterController",
        error_code=ErrorCode.controller_id_not_registered,
        error_message="Controller ID 99.",
    )
    async with FakeCluster([3000], is_controllers=True) as cluster:
        cluster.handle("UnregisterController", lambda _: refusal)
        ran = await run_tool("cluster", "unregister-controller", "-C", cluster.bootstrap[0], "--id", "99")
    assert (ran.exit_code, ran.stderr) == (1, "error: CONTROLLER_ID_NOT_REGISTERED: Controller ID 99.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["unregister"],
        ["unregister", "--id", "-1"],
        ["unregister-controller"],
        ["unregister-controller", "--id", "-1"],
        ["unregister-controller", "--id", "x"],
    ],
)
async def test_wrong_ids_exit_with_2(arguments: list[str]) -> None:
    ran = await run_tool("cluster", *arguments, "-C", "localhost:1")
    assert (ran.exit_code, ran.stdout) == (2, "")


@pytest.fixture
async def controllers() -> AsyncIterator[FakeCluster]:
    """A controller that leads, and beside it a registration 99 whose node is gone."""
    leader = nested(
        "DescribeQuorum", "ReplicaState", replica_id=3000, last_fetch_timestamp=1, log_end_offset=7
    )
    partition = nested(
        "DescribeQuorum", "PartitionData", leader_id=3000, high_watermark=7, current_voters=(leader,)
    )
    topic = nested("DescribeQuorum", "TopicData", topic_name="__cluster_metadata", partitions=(partition,))
    async with FakeCluster([3000, 99], is_controllers=True) as cluster:
        cluster.handle("DescribeQuorum", lambda _: answer("DescribeQuorum", topics=(topic,)))
        cluster.handle("ControllerRegistration", lambda _: answer("ControllerRegistration"))
        await cluster.nodes[99].stop()
        yield cluster


async def test_a_ghost_is_refreshed(controllers: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent is shown; a dry run sends nothing."""
    monkeypatch.setattr(judgement, "FETCH_SILENCE_MS_MAX", 20)
    asked = ("cluster", "refresh-controller", "-C", controllers.bootstrap[0], "--controller-id", "99")
    dry = await run_tool(*asked, "--dry-run")
    assert controllers.received("ControllerRegistration") == []
    ran = await run_tool(*asked)
    reported = await run_tool(*asked, "-o", "json")
    request = controllers.received("ControllerRegistration")[0].body
    assert dry.stdout.startswith("DRY RUN of refreshing the registration of controller 99:\n")
    assert ran.stdout == (
        "Refreshed the registration of controller 99:\n"
        f"  incarnation id: {uuid_to_text(request.incarnation_id)}\n"
        "  listeners: none\n"
        "  kraft.version: 0 to 1\n"
        "  metadata.version: 7 to 30\n"
    )
    assert (request.controller_id, request.listeners) == (99, ())
    assert reported.json["features"]["metadata.version"] == {
        "minSupportedVersion": 7,
        "maxSupportedVersion": 30,
    }
    assert (reported.json["dryRun"], reported.json["controllerId"], reported.json["listeners"]) == (
        False,
        99,
        [],
    )


@pytest.mark.parametrize(
    ("controller_id", "told"),
    [("3000", "it leads the quorum"), ("98", "it has no registration with endpoints")],
)
async def test_what_is_no_ghost_is_not_refreshed(
    controllers: FakeCluster, controller_id: str, told: str
) -> None:
    ran = await run_tool(
        "cluster", "refresh-controller", "-C", controllers.bootstrap[0], "--controller-id", controller_id
    )
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: controller {controller_id} is not refreshed: {told}")
    assert controllers.received("ControllerRegistration") == []


async def test_brokers_can_not_refresh() -> None:
    ran = await run_tool("cluster", "refresh-controller", "-b", "localhost:1", "--controller-id", "99")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "refresh-controller needs --bootstrap-controller" in ran.stderr
