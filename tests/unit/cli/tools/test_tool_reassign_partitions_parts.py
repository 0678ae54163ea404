"""`quorate reassign-partitions`: options, files, places, throttles and states."""

import random
from typing import Any

import pytest
from kit.reassignments import MOVING, R01, T0, T1, moves_file, to
from kit.scripted_admin import brokers
from kit.tool_runner import usage_error
from quorate.console import CommandError, UsageError
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
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import (
    PartitionReassignment,
    ReplicaLogDirInfo,
    TopicPartition,
)
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.placement import UsableBroker

# Options


@pytest.mark.parametrize(
    ("options", "expected"),
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
def test_options_that_do_not_go_together(options: str, expected: str) -> None:
    assert expected in usage_error(check_options, options)


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
    assert check_options(options.split()) == options.split(maxsplit=1)[0]


# Files


def test_a_reassignment_is_read_and_written() -> None:
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
    ("text", "expected"),
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
def test_a_wrong_file_is_reported(text: str, expected: str) -> None:
    """The message names field, value and what is allowed."""
    with pytest.raises(CommandError) as raised:
        parse_reassignment(text)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([to()], "Partition replica list cannot be empty: that of t-0 is"),
        ([to(1), to(2)], "Partition reassignment contains duplicate topic partitions: t-0"),
        ([to(1, 1, 2)], "may not contain duplicate entries: t-0 contains multiple entries for 1"),
    ],
)
def test_what_can_not_be_executed(partitions: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(CommandError) as raised:
        parse_reassignment(moves_file(*partitions)).check_to_execute()
    assert expected in str(raised.value)


def test_topics_and_brokers_are_read() -> None:
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
    current = {T0: (1, 2), T1: (1, 2), TopicPartition("u", 0): (1,)}
    brokers = [UsableBroker(broker_id=broker_id, rack=None, fenced=False) for broker_id in (3, 4, 5, 6)]
    proposed = propose(current, brokers, random.Random(1))
    assert {partition: len(set(replicas)) for partition, replicas in proposed.items()} == {
        partition: len(replicas) for partition, replicas in current.items()
    }
    assert {broker for replicas in proposed.values() for broker in replicas} <= {3, 4, 5, 6}


def test_too_few_brokers_are_reported() -> None:
    brokers = [UsableBroker(broker_id=3, rack=None, fenced=False)]
    with pytest.raises(CommandError, match="topic t: The target replication factor of 2 cannot be reached"):
        propose({T0: (1, 2)}, brokers, random.Random(1))


def test_racks_are_known_of_all_brokers_or_of_none() -> None:
    described = brokers(1, 2, 3, racks=("a", None, "b")).nodes
    assert [broker.rack for broker in usable_brokers(described, [1, 3, 9], rack_aware=True)] == ["a", "b"]
    assert [broker.rack for broker in usable_brokers(described, [2], rack_aware=True)] == [None]
    assert [broker.rack for broker in usable_brokers(described, [1, 2], rack_aware=False)] == [None, None]
    with pytest.raises(CommandError, match=r"Add --disable-rack-aware .* Brokers without: 2"):
        usable_brokers(described, [1, 2], rack_aware=True)


# Throttles


def test_throttles_of_moves() -> None:
    moves = moves_of({T0: MOVING}, {T0: (4,), T1: (2, 1)}, {T0: (1, 2, 3), T1: (1, 2)})
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    assert throttle_topics(moves) == {
        resource: [
            AlterConfigOp(name="leader.replication.throttled.replicas", value="0:1,0:2,1:1,1:2"),
            AlterConfigOp(name="follower.replication.throttled.replicas", value="0:4"),
        ]
    }
    rates = throttle_brokers(moves, 1000)
    assert [rate.name for rate in rates] == ["1", "2", "4"]
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
    """Five states (KIP-113)."""
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
def test_moves_between_directories_are_reported_as_by_kafka(move: LogDirMove, line: str) -> None:
    assert moves_text({R01: move}) == f"{line}\n"


def test_reassignments_are_listed_as_by_kafka() -> None:
    assert reassignments_text({}) == "No partition reassignments found.\n"
    adding = PartitionReassignment(replicas=(1, 2), adding_replicas=(2,), removing_replicas=())
    assert reassignments_text({T1: adding, T0: MOVING}) == (
        "Current partition reassignments:\n"
        "t-0: replicas: 1,2,3. adding: 3. removing: 1.\n"
        "t-1: replicas: 1,2. adding: 2.\n"
    )
