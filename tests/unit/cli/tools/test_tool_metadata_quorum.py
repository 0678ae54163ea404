"""`quorate metadata-quorum`: text, JSON and errors of describe, add-controller and remove-controller."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.fake_cluster import CLUSTER_ID, FakeCluster, quorum_response, replica_state, response_to
from kit.replicas import NOW_MS, replica
from kit.tool_runner import run_tool
from quorate.console import CommandError
from quorate.tools.metadata_quorum.text import endpoint_text, replication_text, status_json, status_text
from quorate_admin.types.cluster import QuorumDescription, RaftVoterEndpoint, ReplicaDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.uuids import uuid_to_text

DIRECTORIES = [uuid.UUID(int=number << 100) for number in (1, 2, 3)]
FIRST, SECOND, THIRD = (uuid_to_text(directory_id) for directory_id in DIRECTORIES)


QUORUM = QuorumDescription(
    leader_id=3001,
    leader_epoch=4,
    high_watermark=90,
    voters=(
        replica(3000, directory_id=DIRECTORIES[0], end=90, fetched_ms=NOW_MS - 40, caught_up_ms=NOW_MS - 50),
        replica(3001, directory_id=DIRECTORIES[1]),
    ),
    observers=(replica(0, directory_id=None, end=-1, fetched_ms=None, caught_up_ms=None),),
    nodes={3000: (RaftVoterEndpoint(name="CONTROLLER", host="::1", port=9093),), 3001: ()},
)


@pytest.fixture
async def controllers() -> AsyncIterator[FakeCluster]:
    """A quorum of one controller, which describes itself as leader."""
    voter = replica_state(
        3000,
        replica_directory_id=DIRECTORIES[0],
        log_end_offset=7,
        last_fetch_timestamp=NOW_MS,
        last_caught_up_timestamp=NOW_MS,
    )
    response = quorum_response(voter, leader_id=3000, leader_epoch=2, high_watermark=7)
    async with FakeCluster([3000], is_controllers=True) as cluster:
        cluster.handle("DescribeQuorum", lambda _: response)
        yield cluster


def test_the_status_of_a_quorum_is_reported_as_by_kafka() -> None:
    assert status_text("cluster", QUORUM) == (
        "ClusterId:              cluster\n"
        "LeaderId:               3001\n"
        "LeaderEpoch:            4\n"
        "HighWatermark:          90\n"
        "MaxFollowerLag:         10\n"
        "MaxFollowerLagTimeMs:   50\n"
        f'CurrentVoters:          [{{"id": 3000, "directoryId": "{FIRST}", "endpoints": ["CONTROLLER://[::1]:9093"]}}'
        f', {{"id": 3001, "directoryId": "{SECOND}"}}]\n'
        'CurrentObservers:       [{"id": 0}]\n'
    )


@pytest.mark.parametrize(
    ("follower", "lag", "lag_ms"),
    [
        (replica(3000, end=101), 0, 0),  # the leader is last itself
        (replica(3000, end=100, caught_up_ms=NOW_MS - 5), 0, 5),  # the first of equals is taken, as by Kafka
        (replica(3000, end=-1, caught_up_ms=None), 101, -1),
    ],
)
def test_the_largest_lag_is_that_of_the_last_voter(
    follower: ReplicaDescription, lag: int, lag_ms: int
) -> None:
    quorum = QuorumDescription(
        leader_id=3001, leader_epoch=1, high_watermark=1, voters=(follower, replica(3001)), observers=()
    )
    status = status_json("cluster", quorum)
    assert (status["maxFollowerLag"], status["maxFollowerLagTimeMs"]) == (lag, lag_ms)


def test_replication_is_reported_in_the_order_leader_followers_observers() -> None:
    lines = [line.split() for line in replication_text(QUORUM, None).splitlines()]
    assert lines == [
        [
            "NodeId",
            "DirectoryId",
            "LogEndOffset",
            "Lag",
            "LastFetchTimestamp",
            "LastCaughtUpTimestamp",
            "Status",
        ],
        ["3001", SECOND, "100", "0", str(NOW_MS), str(NOW_MS), "Leader"],
        ["3000", FIRST, "90", "10", str(NOW_MS - 40), str(NOW_MS - 50), "Follower"],
        ["0", "A" * 22, "-1", "101", "-1", "-1", "Observer"],
    ]


def test_human_readable_times_are_relative() -> None:
    cells = [
        [cell.strip() for cell in line.split("\t")]
        for line in replication_text(QUORUM, NOW_MS + 60).splitlines()
    ]
    assert [row[4:6] for row in cells[1:]] == [
        ["60 ms ago", "60 ms ago"],
        ["100 ms ago", "110 ms ago"],
        ["-1", "-1"],
    ]


def test_a_time_in_the_future_says_that_clocks_differ() -> None:
    with pytest.raises(CommandError, match=f"last fetch time is {NOW_MS}, now it is 5: the clocks"):
        replication_text(QUORUM, 5)


def test_a_leader_that_is_no_voter_any_more_is_reported() -> None:
    quorum = QuorumDescription(
        leader_id=9, leader_epoch=1, high_watermark=1, voters=(replica(3000),), observers=()
    )
    with pytest.raises(CommandError, match=r"the leader 9 is not among the voters \(3000\)"):
        status_text("cluster", quorum)


@pytest.mark.parametrize(("host", "text"), [("h", "C://h:1"), ("::1", "C://[::1]:1")])
def test_endpoints_are_reported_with_brackets_around_ipv6(host: str, text: str) -> None:
    assert endpoint_text(RaftVoterEndpoint(name="C", host=host, port=1)) == text


async def test_describe_asks_the_controllers(controllers: FakeCluster) -> None:
    asked = ("metadata-quorum", "-C", controllers.bootstrap[0], "describe")
    assert (await run_tool(*asked, "--status")).stdout.startswith(f"ClusterId:              {CLUSTER_ID}\n")
    status = (await run_tool(*asked, "--status", "-o", "json")).json
    assert status == {
        "clusterId": CLUSTER_ID,
        "leaderId": 3000,
        "leaderEpoch": 2,
        "highWatermark": 7,
        "maxFollowerLag": 0,
        "maxFollowerLagTimeMs": 0,
        "currentVoters": [{"id": 3000, "directoryId": FIRST, "endpoints": []}],
        "currentObservers": [],
    }
    assert (await run_tool(*asked, "--replication")).stdout.splitlines()[1].endswith("Leader\t")
    assert (await run_tool(*asked, "--replication", "-o", "json")).json == [
        {
            "nodeId": 3000,
            "directoryId": FIRST,
            "logEndOffset": 7,
            "lag": 0,
            "lastFetchTimestamp": NOW_MS,
            "lastCaughtUpTimestamp": NOW_MS,
            "status": "Leader",
        }
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--status", "--replication"],
        ["describe", "--status", "--human-readable"],
        ["add-controller"],
        ["remove-controller", "-i", "1"],
        ["remove-controller", "-d", FIRST],
        ["remove-controller", "-i", "-1", "-d", FIRST],
        ["remove-controller", "-i", "1", "-d", "short"],
        ["remove-controller", "-i", "one", "-d", FIRST],
    ],
)
async def test_wrong_options_exit_with_2_before_any_request(arguments: list[str]) -> None:
    ran = await run_tool("metadata-quorum", "-C", "localhost:1", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")


# remove-controller

REMOVE = ("remove-controller", "--controller-id", "3002", "--controller-directory-id", THIRD)


async def test_a_voter_is_removed(controllers: FakeCluster) -> None:
    controllers.handle("RemoveRaftVoter", lambda _: response_to("RemoveRaftVoter"))
    ran = await run_tool("metadata-quorum", "-C", controllers.bootstrap[0], *REMOVE)
    assert ran.stdout == f"Removed KRaft controller 3002 with directory id {THIRD}\n"
    (request,) = controllers.received("RemoveRaftVoter")
    assert (request.body.voter_id, request.body.voter_directory_id) == (3002, DIRECTORIES[2])


async def test_a_dry_run_asks_nobody() -> None:
    ran = await run_tool("metadata-quorum", "-C", "localhost:1", *REMOVE, "--dry-run", "--unregister")
    assert ran.stdout == (
        f"DRY RUN of removing KRaft controller 3002 with directory id {THIRD}\n"
        "DRY RUN of unregistering KRaft controller 3002\n"
    )
    ran = await run_tool("metadata-quorum", "-C", "localhost:1", *REMOVE, "--dry-run", "-o", "json")
    assert ran.json == {"dryRun": True, "controllerId": 3002, "directoryId": THIRD, "unregister": False}


async def test_a_voter_is_removed_and_then_unregistered(controllers: FakeCluster) -> None:
    """KIP-1312's order."""
    controllers.handle("RemoveRaftVoter", lambda _: response_to("RemoveRaftVoter"))
    controllers.handle("UnregisterController", lambda _: response_to("UnregisterController"))
    ran = await run_tool("metadata-quorum", "-C", controllers.bootstrap[0], *REMOVE, "--unregister")
    assert ran.stdout == (
        f"Removed KRaft controller 3002 with directory id {THIRD}\nUnregistered KRaft controller 3002\n"
    )
    changes = [
        request.api.name
        for request in controllers.nodes[3000].requests
        if request.api.name in ("RemoveRaftVoter", "UnregisterController")
    ]
    assert changes == ["RemoveRaftVoter", "UnregisterController"]


@pytest.mark.parametrize("code", [ErrorCode.unsupported_version, ErrorCode.voter_not_found])
async def test_a_removal_that_fails_directs_to_unregistering_alone(
    controllers: FakeCluster, code: ErrorCode
) -> None:
    """KIP-1312: where a voter can't be removed, --unregister fails and names the other command."""
    controllers.handle(
        "RemoveRaftVoter", lambda _: response_to("RemoveRaftVoter", error_code=code, error_message="No.")
    )
    address = controllers.bootstrap[0]
    ran = await run_tool("metadata-quorum", "-C", address, *REMOVE, "--unregister")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"error: Failed to remove KRaft voter 3002: {code.name.upper()}: No. To unregister the stopped controller "
        f"alone: quorate cluster unregister-controller --bootstrap-controller {address} --controller-id 3002\n"
    )
    assert controllers.received("UnregisterController") == []
    plain = await run_tool("metadata-quorum", "-C", address, *REMOVE)
    assert (plain.exit_code, plain.stderr) == (1, f"error: {code.name.upper()}: No.\n")


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_removal_from_a_static_quorum_directs_to_its_property(
    controllers: FakeCluster, refuses: bool
) -> None:
    del controllers.finalized_features["kraft.version"]
    if refuses:
        refusal = response_to(
            "RemoveRaftVoter", error_code=ErrorCode.unsupported_version, error_message="No."
        )
        controllers.handle("RemoveRaftVoter", lambda _: refusal)
    else:
        for node in controllers.nodes.values():
            del node.apis[ApiKey.REMOVE_RAFT_VOTER]
    address = controllers.bootstrap[0]
    advice = (
        "The voters of this quorum are static: remove the controller from controller.quorum.voters of all nodes and "
        "restart them"
    )
    ran = await run_tool("metadata-quorum", "-C", address, *REMOVE, "--unregister")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: Failed to remove KRaft voter 3002: ")
    assert ran.stderr.endswith(
        f". {advice}, then unregister it: quorate cluster unregister-controller --bootstrap-controller {address} "
        "--controller-id 3002\n"
    )
    plain = await run_tool("metadata-quorum", "-C", address, *REMOVE)
    assert plain.stderr.endswith(f". {advice}\n")


async def test_an_unregistration_that_fails_says_that_the_voter_is_gone(controllers: FakeCluster) -> None:
    controllers.handle("RemoveRaftVoter", lambda _: response_to("RemoveRaftVoter"))
    refusal = response_to(
        "UnregisterController", error_code=ErrorCode.unsupported_version, error_message="Too old."
    )
    controllers.handle("UnregisterController", lambda _: refusal)
    ran = await run_tool("metadata-quorum", "-C", controllers.bootstrap[0], *REMOVE, "--unregister")
    assert ran.exit_code == 1
    assert (
        "KRaft voter 3002 was removed, but not unregistered: UNSUPPORTED_VERSION: Too old. To" in ran.stderr
    )


# add-controller

PROPERTIES = """\
process.roles=controller
node.id=3003
listeners=CONTROLLER://:9093,internal://[::1]:9094
advertised.listeners=CONTROLLER://c3.example.com:9093
controller.listener.names=CONTROLLER,INTERNAL
"""


def controller_file(
    directory: Path, properties: str = PROPERTIES, meta: str | None = f"directory.id={THIRD}\n"
) -> str:
    """A controller's properties, and its directory with meta.properties."""
    if meta is not None:
        (directory / "meta.properties").write_text(meta)
    path = directory / "controller.properties"
    path.write_text(properties + f"log.dirs={directory},/elsewhere\n")
    return str(path)


async def test_a_controller_is_added_as_its_files_say(tmp_path: Path, controllers: FakeCluster) -> None:
    """AddRaftVoter from properties and meta.properties; advertised listeners go before listeners."""
    controllers.handle("AddRaftVoter", lambda _: response_to("AddRaftVoter"))
    ran = await run_tool(
        "metadata-quorum", "-C", controllers.bootstrap[0], "-c", controller_file(tmp_path), "add-controller"
    )
    assert ran.stdout == (
        f"Added controller 3003 with directory id {THIRD} and endpoints: "
        "CONTROLLER://c3.example.com:9093, INTERNAL://[::1]:9094\n"
    )
    (request,) = controllers.received("AddRaftVoter")
    reported = request.body
    assert (reported.voter_id, reported.voter_directory_id) == (3003, DIRECTORIES[2])
    assert [(listener.name, listener.host, listener.port) for listener in reported.listeners] == [
        ("CONTROLLER", "c3.example.com", 9093),
        ("INTERNAL", "::1", 9094),
    ]


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
async def test_a_dry_run_of_adding_reads_the_files_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "this-host.example.com")
    properties = PROPERTIES.replace("advertised.listeners", "ignored").replace("://:9093", f"://{host}:9093")
    ran = await run_tool(
        "metadata-quorum", "-C", "localhost:1", "-c", controller_file(tmp_path, properties), "add-controller",
        "--dry-run", "-o", "json",
    )  # fmt: skip
    assert ran.json == {
        "dryRun": True,
        "controllerId": 3003,
        "directoryId": THIRD,
        "endpoints": ["CONTROLLER://this-host.example.com:9093", "INTERNAL://[::1]:9094"],
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("node.id=3003", ""), "node.id is missing"),
        (("node.id=3003", "node.id=-3"), "node.id=-3: it must be a number from 0 to 2147483647"),
        (("node.id=3003", "node.id=2147483648"), "node.id=2147483648: it must be a number from 0 to"),
        (
            ("process.roles=controller", "process.roles=broker"),
            "process.roles=broker: it must contain controller",
        ),
        (("controller.listener.names", "ignored"), "controller.listener.names is missing"),
        (("names=CONTROLLER", "names=OTHER"), "controller.listener.names: OTHER is neither in listeners nor"),
        (("CONTROLLER://:9093", "CONTROLLER"), "listeners: 'CONTROLLER' is not of the form NAME://host:port"),
    ],
)
async def test_a_file_that_is_no_controllers_is_refused(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    """The message names the key, its value and what is allowed."""
    path = controller_file(tmp_path, PROPERTIES.replace(*change))
    ran = await run_tool("metadata-quorum", "-C", "localhost:1", "-c", path, "add-controller")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: {expected}")


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (None, "meta.properties: No such file or directory"),
        ("version=1\n", "meta.properties: it has no directory.id"),
        ("directory.id=short\n", "directory.id=short: 'short' is not a uuid"),
    ],
)
async def test_a_directory_without_an_id_is_refused(tmp_path: Path, meta: str | None, expected: str) -> None:
    path = controller_file(tmp_path, meta=meta)
    ran = await run_tool("metadata-quorum", "-C", "localhost:1", "-c", path, "add-controller")
    assert ran.exit_code == 1
    assert expected in ran.stderr
