"""`quorate reassign-partitions`: options, files, throttles, states, what is asked, text, JSON and errors."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool
from quorate.console import CommandError, UsageError
from quorate.tools.reassign_partitions import actions
from quorate.tools.reassign_partitions.actions import propose, usable_brokers
from quorate.tools.reassign_partitions.command import check_options
from quorate.tools.reassign_partitions.files import (
    parse_broker_list,
    parse_reassignment,
    parse_topics,
    reassignment_text,
)
from quorate.tools.reassign_partitions.states import (
    LogDirMove,
    MoveState,
    log_dir_move,
    moves_text,
    reassignments_text,
)
from quorate.tools.reassign_partitions.throttles import moves_of, throttle_brokers, throttle_topics
from quorate_admin.errors import ServerError
from quorate_admin.results import Results
from quorate_admin.types.cluster import ClusterDescription, NodeDescription
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import (
    PartitionReassignment,
    ReplicaLogDirInfo,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate_admin.types.topics import PartitionDescription, TopicDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType
from quorate_protocol.placement import UsableBroker

AT = ("reassign-partitions", "--bootstrap-server", "localhost:9092")
AT_CONTROLLER = ("reassign-partitions", "--bootstrap-controller", "localhost:9093")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
R01 = TopicPartitionReplica("t", 0, 1)
MOVING = PartitionReassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))


def moves_file(*partitions: dict[str, Any]) -> str:
    """The content of a --reassignment-json-file."""
    return json.dumps({"version": 1, "partitions": partitions})


def to(*replicas: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    """One partition of `t` in such a file."""
    return {"topic": "t", "partition": partition, "replicas": list(replicas), **more}


def nodes(*node_ids: int, racks: tuple[str | None, ...] = ()) -> ClusterDescription:
    """A cluster of these brokers."""
    return ClusterDescription(
        cluster_id="c",
        controller_id=1,
        nodes=tuple(
            NodeDescription(node_id=one, host="h", port=1, rack=racks[place] if racks else None, fenced=False)
            for place, one in enumerate(node_ids)
        ),
    )


def topic(*replicas: tuple[int, ...]) -> TopicDescription:
    """`t` with the replicas of each partition."""
    return TopicDescription(
        name="t",
        topic_id=None,
        is_internal=False,
        partitions=tuple(
            PartitionDescription(
                partition=number,
                leader=brokers[0],
                leader_epoch=1,
                replicas=brokers,
                isr=brokers,
                offline_replicas=(),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for number, brokers in enumerate(replicas)
        ),
        authorized_operations=None,
    )


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Writes a file, gives its path."""

    def write(*partitions: dict[str, Any], text: str | None = None) -> str:
        path = tmp_path / "moves.json"
        path.write_text(moves_file(*partitions) if text is None else text)
        return str(path)

    return write


# Options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--generate --topics-to-move-json-file", "--generate needs --broker-list"),
        ("--generate --broker-list", "--generate needs --topics-to-move-json-file"),
        ("--execute", "--execute needs --reassignment-json-file"),
        ("--verify", "--verify needs --reassignment-json-file"),
        ("--cancel", "--cancel needs --reassignment-json-file"),
        ("--list --reassignment-json-file", "--list can't be used with --reassignment-json-file"),
        ("--verify --reassignment-json-file --throttle", "--verify can't be used with --throttle"),
        ("--verify --reassignment-json-file --additional", "--verify can't be used with --additional"),
        (
            "--execute --reassignment-json-file --preserve-throttles",
            "can't be used with --preserve-throttles",
        ),
        ("--cancel --reassignment-json-file --broker-list", "--cancel can't be used with --broker-list"),
        (
            "--verify --reassignment-json-file --bootstrap-controller",
            "can't be used with --bootstrap-controller",
        ),
    ],
)
def test_options_that_do_not_go_together(options: str, told: str) -> None:
    """Goal: the refusals of kafka-reassign-partitions. Method: a breach of each rule."""
    with pytest.raises(UsageError) as raised:
        check_options(["--bootstrap-server", *options.split()])
    assert told in raised.value.message


@pytest.mark.parametrize(
    "options",
    [
        "--generate --topics-to-move-json-file --broker-list --disable-rack-aware --bootstrap-server",
        (
            "--execute --reassignment-json-file --additional --throttle --replica-alter-log-dirs-throttle"
            " --timeout --disallow-replication-factor-change --bootstrap-server"
        ),
        "--verify --reassignment-json-file --preserve-throttles --bootstrap-server --output",
        "--cancel --reassignment-json-file --preserve-throttles --timeout --bootstrap-controller",
        "--list --bootstrap-controller --command-config",
    ],
)
def test_options_that_go_together(options: str) -> None:
    """Goal: nothing else is refused. Method: the fullest line of each action."""
    assert check_options(options.split()) == options.split(maxsplit=1)[0]


# Files


def test_a_reassignment_is_read_and_written() -> None:
    """Goal: what one run writes, the next one reads. Method: directories, any, none; round trip."""
    text = moves_file(to(1, 2, log_dirs=["/a", "any"]), to(2, partition=1))
    wanted = parse_reassignment(text)
    assert wanted.targets == ((T0, (1, 2)), (T1, (2,)))
    assert wanted.log_dirs == {R01: "/a"}
    written = reassignment_text(wanted.assignment, wanted.log_dirs)
    assert written == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["/a","any"]},'
        '{"topic":"t","partition":1,"replicas":[2],"log_dirs":["any"]}]}'
    )
    assert parse_reassignment(written) == wanted
    assert parse_reassignment("{}").targets == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "it is not valid JSON"),
        ("[]", "it must hold one JSON object"),
        ('{"version": 2}', "version 2 is not supported; it must be 1"),
        ('{"partitions": 1}', "partitions must be a list of objects"),
        (moves_file({"partition": 0, "replicas": []}), "partitions[0] has no 'topic'"),
        (moves_file(to(1), to(1, partition="0")), "partitions[1].partition '0' is not a whole number"),
        (moves_file(to(1, partition=True)), "partitions[0].partition True is not a whole number"),
        (
            moves_file(to(1, partition=2**31)),
            "partitions[0].partition 2147483648 is not a whole number from 0 to",
        ),
        (moves_file(to(-1)), "partitions[0].replicas [-1]: -1 is not a whole number from 0 to 2147483647"),
        (moves_file({"topic": "t", "partition": 0, "replicas": 1}), "partitions[0].replicas 1 is not a list"),
        (moves_file({"topic": "t", "partition": 0, "replicas": ["1"]}), "'1' is not a whole number"),
        (
            moves_file(to(1, 2, log_dirs=["any"])),
            "the size of replicas [1, 2] is different from the size of log_dirs",
        ),
    ],
)
def test_a_wrong_file_is_told(text: str, told: str) -> None:
    """Goal: the message names field, value and what is allowed. Method: a fault at each level."""
    with pytest.raises(CommandError) as raised:
        parse_reassignment(text)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("partitions", "told"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([to()], "Partition replica list cannot be empty: that of t-0 is"),
        ([to(1), to(2)], "Partition reassignment contains duplicate topic partitions: t-0"),
        ([to(1, 1, 2)], "may not contain duplicate entries: t-0 contains multiple entries for 1"),
    ],
)
def test_what_can_not_be_executed(partitions: list[dict[str, Any]], told: str) -> None:
    """Goal: nothing begins that can't be meant. Method: nothing, no replica, twice the partition, twice a broker."""
    with pytest.raises(CommandError) as raised:
        parse_reassignment(moves_file(*partitions)).check_to_execute()
    assert told in str(raised.value)


def test_topics_and_brokers_are_read() -> None:
    """Goal: the input of --generate. Method: right ones, twice the same, a word."""
    assert parse_topics('{"topics": [{"topic": "a"}, {"topic": "b"}]}') == ["a", "b"]
    assert parse_broker_list("0,1") == [0, 1]
    with pytest.raises(CommandError, match="contains duplicate entries: a"):
        parse_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(UsageError, match="contains duplicate entries: 1"):
        parse_broker_list("1,1")
    with pytest.raises(UsageError, match="--broker-list '0,a'"):
        parse_broker_list("0,a")


# Places


def test_all_partitions_get_as_many_replicas_as_before() -> None:
    """Goal: a proposal. Method: two topics on four brokers; every partition, distinct brokers, the same count."""
    current = {T0: (1, 2), T1: (1, 2), TopicPartition("u", 0): (1,)}
    brokers = [UsableBroker(broker_id=one, rack=None, fenced=False) for one in (3, 4, 5, 6)]
    proposed = propose(current, brokers, random.Random(1))
    assert {partition: len(set(replicas)) for partition, replicas in proposed.items()} == {
        partition: len(replicas) for partition, replicas in current.items()
    }
    assert {broker for replicas in proposed.values() for broker in replicas} <= {3, 4, 5, 6}


def test_too_few_brokers_are_told() -> None:
    """Goal: the message names the topic. Method: two replicas, one broker."""
    brokers = [UsableBroker(broker_id=3, rack=None, fenced=False)]
    with pytest.raises(CommandError, match="topic t: The target replication factor of 2 cannot be reached"):
        propose({T0: (1, 2)}, brokers, random.Random(1))


def test_racks_are_known_of_all_brokers_or_of_none() -> None:
    """Goal: no rack is left out by accident. Method: all, none, one without; not looking at racks."""
    described = nodes(1, 2, 3, racks=("a", None, "b")).nodes
    assert [broker.rack for broker in usable_brokers(described, [1, 3, 9], rack_aware=True)] == ["a", "b"]
    assert [broker.rack for broker in usable_brokers(described, [2], rack_aware=True)] == [None]
    assert [broker.rack for broker in usable_brokers(described, [1, 2], rack_aware=False)] == [None, None]
    with pytest.raises(CommandError, match=r"Add --disable-rack-aware .* Brokers without: 2"):
        usable_brokers(described, [1, 2], rack_aware=True)


# Throttles


def test_throttles_of_moves() -> None:
    """Goal: senders are throttled as leaders, receivers as followers. Method: a move under way that goes on to
    another broker keeps its sources; a new one; one that adds nothing."""
    moves = moves_of({T0: MOVING}, {T0: (4,), T1: (2, 1)}, {T0: (1, 2, 3), T1: (1, 2)})
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    assert throttle_topics(moves) == {
        resource: [
            AlterConfigOp(name="leader.replication.throttled.replicas", value="0:1,0:2,1:1,1:2"),
            AlterConfigOp(name="follower.replication.throttled.replicas", value="0:4"),
        ]
    }
    rates = throttle_brokers(moves, 1000)
    assert [one.name for one in rates] == ["1", "2", "4"]
    assert {op.name: op.value for op in rates[ConfigResource(ConfigResourceType.BROKER, "1")]} == {
        "leader.replication.throttled.rate": "1000",
        "follower.replication.throttled.rate": "1000",
    }


# States


@pytest.mark.parametrize(
    ("info", "state"),
    [
        (None, MoveState.MISSING_REPLICA),
        (ReplicaLogDirInfo(), MoveState.MISSING_LOG_DIR),
        (ReplicaLogDirInfo(current_log_dir="/a"), MoveState.COMPLETED),
        (ReplicaLogDirInfo(current_log_dir="/b"), MoveState.CANCELLED),
        (ReplicaLogDirInfo(current_log_dir="/b", future_log_dir="/a"), MoveState.ACTIVE),
    ],
)
def test_the_state_of_a_move_between_directories(info: ReplicaLogDirInfo | None, state: MoveState) -> None:
    """Goal: five states (KIP-113). Method: what a broker tells, for the target /a."""
    assert log_dir_move(info, "/a").state is state


@pytest.mark.parametrize(
    ("move", "line"),
    [
        (
            LogDirMove(state=MoveState.MISSING_LOG_DIR, target_log_dir="/a"),
            (
                "Partition t-0 is not found in any live log dir on broker 1."
                " There is likely an offline log directory on the broker."
            ),
        ),
        (
            LogDirMove(state=MoveState.MISSING_REPLICA, target_log_dir="/a"),
            "Partition t-0 cannot be found in any live log directory on broker 1.",
        ),
        (
            LogDirMove(state=MoveState.COMPLETED, target_log_dir="/a", current_log_dir="/a"),
            "Reassignment of replica t-0-1 completed successfully.",
        ),
        (
            LogDirMove(state=MoveState.CANCELLED, target_log_dir="/a", current_log_dir="/b"),
            "Partition t-0 on broker 1 is not being moved from log dir /b to /a.",
        ),
        (
            LogDirMove(
                state=MoveState.ACTIVE, target_log_dir="/a", current_log_dir="/b", future_log_dir="/a"
            ),
            "Reassignment of replica t-0-1 is still in progress.",
        ),
        (
            LogDirMove(
                state=MoveState.ACTIVE, target_log_dir="/a", current_log_dir="/b", future_log_dir="/c"
            ),
            "Partition t-0 on broker 1 is being moved to log dir /c instead of /a.",
        ),
    ],
)
def test_moves_between_directories_are_told_as_by_kafka(move: LogDirMove, line: str) -> None:
    """Goal: the words for each state. Method: one of each."""
    assert moves_text({R01: move}) == f"{line}\n"


def test_reassignments_are_listed_as_by_kafka() -> None:
    """Goal: the text of --list. Method: none; one that adds and removes; one that only adds; sorted."""
    assert reassignments_text({}) == "No partition reassignments found.\n"
    adding = PartitionReassignment(replicas=(1, 2), adding_replicas=(2,), removing_replicas=())
    assert reassignments_text({T1: adding, T0: MOVING}) == (
        "Current partition reassignments:\n"
        "t-0: replicas: 1,2,3. adding: 3. removing: 1.\n"
        "t-1: replicas: 1,2. adding: 2.\n"
    )


# Commands


def everything(admin: ScriptedAdmin, **answers: Any) -> None:
    """Answers of a cluster with the brokers 1 and 2, where `t` has one partition on 1, in /a."""
    admin.answers |= {
        "list_partition_reassignments": {},
        "describe_cluster": nodes(1, 2),
        "describe_topics": Results({"t": topic((1,))}, {}),
        "describe_replica_log_dirs": Results({R01: ReplicaLogDirInfo(current_log_dir="/a")}, {}),
        "alter_partition_reassignments": Results({T0: None}, {}),
        "incremental_alter_configs": Results(),
        **answers,
    }


CURRENT = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/a"]}]}'
SAVED = (
    f"Current partition replica assignment\n\n{CURRENT}\n\n"
    "Save this to use as the --reassignment-json-file option during rollback\n"
)


async def test_reassignments_are_listed(admin: ScriptedAdmin) -> None:
    """Goal: --list, at controllers too. Method: text, JSON; the client's name is Kafka's."""
    admin.answers["list_partition_reassignments"] = {T0: MOVING}
    ran = await run_tool(*AT_CONTROLLER, "--list")
    assert ran.stdout.endswith("t-0: replicas: 1,2,3. adding: 3. removing: 1.\n")
    assert admin.config.client_id == "reassign-partitions-tool"
    assert (await run_tool(*AT, "--list", "-o", "json")).json == {
        "reassignments": [
            {
                "topic": "t",
                "partition": 0,
                "replicas": [1, 2, 3],
                "addingReplicas": [3],
                "removingReplicas": [1],
            }
        ]
    }


async def test_a_reassignment_is_proposed(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --generate. Method: the only broker that is allowed is the only place."""
    everything(admin)
    path = file(text='{"topics": [{"topic": "t"}]}')
    generate = (*AT, "--generate", "--topics-to-move-json-file", path, "--broker-list", "2")
    proposed = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
    ran = await run_tool(*generate)
    assert ran.exit_code == 0
    assert ran.stdout == (
        f"Current partition replica assignment\n{CURRENT}\n\n"
        f"Proposed partition reassignment configuration\n{proposed}\n"
    )
    ran = await run_tool(*generate, "-o", "json")
    assert ran.json == {"current": json.loads(CURRENT), "proposed": json.loads(proposed)}


async def test_a_reassignment_begins(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --execute. Method: text, JSON, and what the cluster is asked."""
    everything(admin)
    execute = (*AT, "--execute", "--reassignment-json-file", file(to(2)))
    ran = await run_tool(*execute)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout == f"{SAVED}Successfully started partition reassignment for t-0\n"
    (call,) = admin.calls_of("alter_partition_reassignments")
    assert call.args == ({T0: (2,)},)
    assert call.kwargs == {"allow_replication_factor_change": True}
    ran = await run_tool(*execute, "--disallow-replication-factor-change", "-o", "json")
    assert ran.json == {
        "current": json.loads(CURRENT),
        "started": [{"topic": "t", "partition": 0}],
        "logDirMoves": [],
    }
    assert admin.calls[-1].kwargs == {"allow_replication_factor_change": False}


async def test_a_reassignment_is_throttled_before_it_begins(
    admin: ScriptedAdmin, file: Callable[..., str]
) -> None:
    """Goal: --throttle and that of directories. Method: text, and the order of what is asked."""
    everything(admin, alter_replica_log_dirs=lambda moves: Results(dict.fromkeys(moves), {}))
    path = file(to(2, log_dirs=["/b"]))
    limits = ("--throttle", "1000", "--replica-alter-log-dirs-throttle", "2000")
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", path, *limits)
    assert ran.stdout == (
        f"{SAVED}Warning: You must run --verify periodically, until the reassignment completes, to ensure the"
        " throttle is removed.\n"
        "The inter-broker throttle limit was set to 1000 B/s\n"
        "The replica-alter-dir throttle limit was set to 2000 B/s\n"
        "Successfully started partition reassignment for t-0\n"
        "Successfully started moving log directory to /b for replica t-0 with broker 2 \n"
    )
    changed = [call.args[0] for call in admin.calls_of("incremental_alter_configs")]
    assert [[one.name for one in resources] for resources in changed] == [["t"], ["1", "2"], ["2"]]
    assert [call.name for call in admin.calls][-2:] == [
        "alter_partition_reassignments",
        "alter_replica_log_dirs",
    ]


async def test_a_replica_moves_when_its_broker_has_it(
    admin: ScriptedAdmin, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a broker that does not have the replica yet is asked again. Method: it has it at the third time."""
    monkeypatch.setattr(actions, "MOVE_RETRY_S", 0)
    replica = TopicPartitionReplica("t", 0, 2)
    not_yet = Results({}, {replica: ServerError(ErrorCode.replica_not_available)})
    answers = [not_yet, not_yet, Results({replica: None}, {})]
    everything(admin, alter_replica_log_dirs=lambda _: answers.pop(0))
    path = file(to(2, log_dirs=["/b"]))
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", path, "-o", "json")
    assert ran.json["logDirMoves"] == [{"topic": "t", "partition": 0, "brokerId": 2, "targetLogDir": "/b"}]
    assert answers == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            ErrorCode.replica_not_available,
            "Timed out before log directory move could be started for: t-0-2",
        ),
        (ErrorCode.log_dir_not_found, "Failed to alter dir for t-0-2: LOG_DIR_NOT_FOUND"),
    ],
)
async def test_a_replica_that_can_not_move(
    admin: ScriptedAdmin, file: Callable[..., str], code: ErrorCode, told: str
) -> None:
    """Goal: waiting ends, and does not begin for other reasons. Method: no time at all."""
    refused = Results({}, {TopicPartitionReplica("t", 0, 2): ServerError(code)})
    everything(admin, alter_replica_log_dirs=refused)
    path = file(to(2, log_dirs=["/b"]))
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", path, "--timeout", "0")
    assert ran.exit_code == 1
    assert ran.stderr == f"error: {told}\n"


@pytest.mark.parametrize(
    ("answers", "partitions", "told"),
    [
        ({"list_partition_reassignments": {T1: MOVING}}, [to(2)], "Use --additional to override"),
        ({}, [to(7)], "Unknown broker id 7 among the replicas of t-0"),
        (
            {"describe_topics": Results({}, {"t": ServerError(ErrorCode.unknown_topic_or_partition)})},
            [to(2)],
            "Topic t not found.",
        ),
        ({}, [to(2, partition=5)], "Unable to find partition: t-5"),
        (
            {
                "alter_partition_reassignments": Results(
                    {}, {T0: ServerError(ErrorCode.invalid_replica_assignment, "No.")}
                )
            },
            [to(2)],
            "Error reassigning partition(s):\nt-0: No.",
        ),
    ],
)
async def test_what_the_cluster_does_not_take(
    admin: ScriptedAdmin,
    file: Callable[..., str],
    answers: dict[str, Any],
    partitions: list[dict[str, Any]],
    told: str,
) -> None:
    """Goal: each refusal of --execute. Method: what is under way, brokers, topics, partitions, a no."""
    everything(admin, **answers)
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", file(*partitions))
    assert ran.exit_code == 1
    assert told in ran.stderr


async def test_a_reassignment_goes_on_in_addition(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --additional. Method: another reassignment is under way."""
    everything(admin, list_partition_reassignments={T1: MOVING})
    ran = await run_tool(*AT, "--execute", "--additional", "--reassignment-json-file", file(to(2)))
    assert ran.exit_code == 0


CLEARED = "Clearing broker-level throttles on brokers 1,2\nClearing topic-level throttles on topic t\n"


async def test_a_finished_reassignment_is_verified(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --verify takes throttles away at the end. Method: where it should be; with --preserve-throttles."""
    everything(admin)
    path = file(to(1, log_dirs=["/a"]))
    ran = await run_tool(*AT, "--verify", "--reassignment-json-file", path)
    status = (
        "Status of partition reassignment:\nReassignment of partition t-0 is completed.\n"
        "Reassignment of replica t-0-1 completed successfully.\n"
    )
    assert (ran.exit_code, ran.stdout) == (0, status + CLEARED)
    changes = {
        resource: operations
        for call in admin.calls_of("incremental_alter_configs")
        for resource, operations in call.args[0].items()
    }
    assert sorted(resource.name for resource in changes) == ["1", "2", "t"]
    assert {op.operation for operations in changes.values() for op in operations} == {ConfigOpType.DELETE}
    admin.calls.clear()
    ran = await run_tool(*AT, "--verify", "--preserve-throttles", "--reassignment-json-file", path)
    assert ran.stdout == status
    assert admin.calls_of("incremental_alter_configs") == []


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (
            {"list_partition_reassignments": {T0: MOVING}},
            "Reassignment of partition t-0 is still in progress.",
        ),
        (
            {},
            "There is no active reassignment of partition t-0, but replica set is 1 rather than 2.",
        ),
        (
            {"describe_topics": Results({}, {"t": ServerError(ErrorCode.unknown_topic_or_partition)})},
            "There is no active reassignment of partition t-0, but replica set is  rather than 2.",
        ),
    ],
)
async def test_a_reassignment_that_is_not_finished(
    admin: ScriptedAdmin, file: Callable[..., str], answers: dict[str, Any], line: str
) -> None:
    """Goal: the words of --verify. Method: under way, elsewhere, no such topic; an empty line for no directories."""
    everything(admin, **answers)
    ran = await run_tool(*AT, "--verify", "--reassignment-json-file", file(to(2)), "--preserve-throttles")
    assert ran.stdout == f"Status of partition reassignment:\n{line}\n\n"


async def test_throttles_stay_while_anything_moves(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: no throttle is taken away too early. Method: another partition's move; a move between directories."""
    everything(admin, list_partition_reassignments={T1: MOVING})
    ran = await run_tool(*AT, "--verify", "--reassignment-json-file", file(to(1)), "-o", "json")
    assert (ran.json["reassignmentsOngoing"], ran.json["throttlesCleared"]) == (True, False)
    moving = ReplicaLogDirInfo(current_log_dir="/a", future_log_dir="/b")
    everything(admin, describe_replica_log_dirs=Results({R01: moving}, {}))
    path = file(to(1, log_dirs=["/b"]))
    ran = await run_tool(*AT, "--verify", "--reassignment-json-file", path, "-o", "json")
    assert ran.json == {
        "partitions": [
            {"topic": "t", "partition": 0, "done": True, "currentReplicas": [1], "targetReplicas": [1]}
        ],
        "logDirMoves": [
            {
                "topic": "t",
                "partition": 0,
                "brokerId": 1,
                "state": "active",
                "currentLogDir": "/a",
                "targetLogDir": "/b",
                "futureLogDir": "/b",
            }
        ],
        "reassignmentsOngoing": False,
        "throttlesCleared": False,
    }


async def test_a_reassignment_is_cancelled(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --cancel, of partitions and of directories. Method: both under way."""
    moving = ReplicaLogDirInfo(current_log_dir="/a", future_log_dir="/b")
    everything(
        admin,
        list_partition_reassignments={T0: MOVING},
        describe_replica_log_dirs=Results({R01: moving}, {}),
        alter_replica_log_dirs=lambda moves: Results(dict.fromkeys(moves), {}),
    )
    cancel = (*AT, "--cancel", "--reassignment-json-file", file(to(1, log_dirs=["/b"])))
    ran = await run_tool(*cancel)
    assert ran.stdout == (
        "Successfully cancelled partition reassignment for: t-0\n"
        "Successfully started moving log directory to /a for replica t-0 with broker 1 \n" + CLEARED
    )
    assert admin.calls_of("alter_partition_reassignments")[0].args == ({T0: None},)
    assert admin.calls_of("alter_replica_log_dirs")[0].args == ({R01: "/a"},)
    ran = await run_tool(*cancel, "--preserve-throttles", "-o", "json")
    assert ran.json == {
        "cancelled": [{"topic": "t", "partition": 0}],
        "logDirMoves": [{"topic": "t", "partition": 0, "brokerId": 1, "targetLogDir": "/a"}],
        "throttlesCleared": False,
    }


async def test_nothing_to_cancel_at_controllers(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: --cancel without brokers asks for no directories. Method: nothing moves; Kafka's two sentences."""
    admin.answers["list_partition_reassignments"] = {}
    path = file(to(1))
    ran = await run_tool(*AT_CONTROLLER, "--cancel", "--preserve-throttles", "--reassignment-json-file", path)
    assert ran.stdout == (
        "None of the specified partition reassignments are active.\n"
        "None of the specified partition moves are active."
    )


async def test_a_refusal_to_cancel_is_a_failure(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """Goal: the server's reason reaches the person. Method: it refuses."""
    refused = Results({}, {T0: ServerError(ErrorCode.no_reassignment_in_progress)})
    everything(admin, list_partition_reassignments={T0: MOVING}, alter_partition_reassignments=refused)
    ran = await run_tool(*AT, "--cancel", "--reassignment-json-file", file(to(1)))
    assert ran.exit_code == 1
    assert (
        ran.stderr
        == "error: Error cancelling partition reassignment for:\nt-0: NO_REASSIGNMENT_IN_PROGRESS\n"
    )


async def test_files_that_can_not_be_read_are_named(admin: ScriptedAdmin, tmp_path: Path) -> None:
    """Goal: the message names option and file. Method: no file, no text, no JSON."""
    path = tmp_path / "moves.json"
    verify = (*AT, "--verify", "--reassignment-json-file", str(path))
    for content, told in (
        (None, "No such file or directory"),
        (b"\xff", "it is not UTF-8 text"),
        (b"{", "it is not valid JSON"),
    ):
        if content is not None:
            path.write_bytes(content)
        ran = await run_tool(*verify)
        assert ran.exit_code == 1
        assert ran.stderr.startswith(f"error: --reassignment-json-file {path}: {told}")
    assert admin.calls == []
