"""`quorate reassign-partitions`: what is asked, text, JSON and errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.reassignments import MOVING, R01, T0, T1, moves_file, to
from kit.scripted_admin import ScriptedAdmin, brokers
from kit.tool_runner import run_tool
from quorate.tools.reassign_partitions import actions
from quorate_admin.errors import ServerError
from quorate_admin.results import Results
from quorate_admin.types.partitions import (
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from quorate_admin.types.topics import PartitionDescription, TopicDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigOpType

AT = ("reassign-partitions", "--bootstrap-server", "localhost:9092")
AT_CONTROLLER = ("reassign-partitions", "--bootstrap-controller", "localhost:9093")


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
    """Write a file, give its path."""

    def write(*partitions: dict[str, Any], text: str | None = None) -> str:
        path = tmp_path / "moves.json"
        path.write_text(moves_file(*partitions) if text is None else text)
        return str(path)

    return write


# Commands


def everything(admin: ScriptedAdmin, **responses: Any) -> None:
    """Script the responses of a cluster with the brokers 1 and 2, where `t` has one partition on 1, in /a."""
    admin.responses |= {
        "list_partition_reassignments": {},
        "describe_cluster": brokers(1, 2),
        "describe_topics": Results({"t": topic((1,))}, {}),
        "describe_replica_log_dirs": Results({R01: ReplicaLogDirInfo(current_log_dir="/a")}, {}),
        "alter_partition_reassignments": Results({T0: None}, {}),
        "incremental_alter_configs": Results(),
        **responses,
    }


CURRENT = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/a"]}]}'
SAVED = (
    f"Current partition replica assignment\n\n{CURRENT}\n\n"
    "Save this to use as the --reassignment-json-file option during rollback\n"
)


async def test_reassignments_are_listed(admin: ScriptedAdmin) -> None:
    admin.responses["list_partition_reassignments"] = {T0: MOVING}
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
    assert [[resource.name for resource in resources] for resources in changed] == [["t"], ["1", "2"], ["2"]]
    assert [call.name for call in admin.calls][-2:] == [
        "alter_partition_reassignments",
        "alter_replica_log_dirs",
    ]


async def test_a_replica_moves_when_its_broker_has_it(
    admin: ScriptedAdmin, file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOVE_RETRY_S", 0)
    replica = TopicPartitionReplica("t", 0, 2)
    not_yet = Results({}, {replica: ServerError(ErrorCode.replica_not_available)})
    responses = [not_yet, not_yet, Results({replica: None}, {})]
    everything(admin, alter_replica_log_dirs=lambda _: responses.pop(0))
    path = file(to(2, log_dirs=["/b"]))
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", path, "-o", "json")
    assert ran.json["logDirMoves"] == [{"topic": "t", "partition": 0, "brokerId": 2, "targetLogDir": "/b"}]
    assert responses == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            ErrorCode.replica_not_available,
            "Timed out before log directory move could be started for: t-0-2",
        ),
        (
            ErrorCode.log_dir_not_found,
            (
                "Failed to alter dir for t-0-2: LOG_DIR_NOT_FOUND: The user-specified log directory is not found in "
                "the broker config."
            ),
        ),
    ],
)
async def test_a_replica_that_can_not_move(
    admin: ScriptedAdmin, file: Callable[..., str], code: ErrorCode, expected: str
) -> None:
    refused = Results({}, {TopicPartitionReplica("t", 0, 2): ServerError(code)})
    everything(admin, alter_replica_log_dirs=refused)
    path = file(to(2, log_dirs=["/b"]))
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", path, "--timeout", "0")
    assert ran.exit_code == 1
    assert ran.stderr == f"error: {expected}\n"


@pytest.mark.parametrize(
    ("responses", "partitions", "expected"),
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
    responses: dict[str, Any],
    partitions: list[dict[str, Any]],
    expected: str,
) -> None:
    everything(admin, **responses)
    ran = await run_tool(*AT, "--execute", "--reassignment-json-file", file(*partitions))
    assert ran.exit_code == 1
    assert expected in ran.stderr


async def test_a_reassignment_goes_on_in_addition(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    everything(admin, list_partition_reassignments={T1: MOVING})
    ran = await run_tool(*AT, "--execute", "--additional", "--reassignment-json-file", file(to(2)))
    assert ran.exit_code == 0


CLEARED = "Clearing broker-level throttles on brokers 1,2\nClearing topic-level throttles on topic t\n"


async def test_a_finished_reassignment_is_verified(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """--verify takes throttles away at the end."""
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
    ("responses", "line"),
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
    admin: ScriptedAdmin, file: Callable[..., str], responses: dict[str, Any], line: str
) -> None:
    everything(admin, **responses)
    ran = await run_tool(*AT, "--verify", "--reassignment-json-file", file(to(2)), "--preserve-throttles")
    assert ran.stdout == f"Status of partition reassignment:\n{line}\n\n"


async def test_throttles_stay_while_anything_moves(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
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
    admin.responses["list_partition_reassignments"] = {}
    path = file(to(1))
    ran = await run_tool(*AT_CONTROLLER, "--cancel", "--preserve-throttles", "--reassignment-json-file", path)
    assert ran.stdout == (
        "None of the specified partition reassignments are active.\n"
        "None of the specified partition moves are active."
    )


async def test_a_refusal_to_cancel_is_a_failure(admin: ScriptedAdmin, file: Callable[..., str]) -> None:
    """The server's reason reaches the person."""
    refused = Results({}, {T0: ServerError(ErrorCode.no_reassignment_in_progress)})
    everything(admin, list_partition_reassignments={T0: MOVING}, alter_partition_reassignments=refused)
    ran = await run_tool(*AT, "--cancel", "--reassignment-json-file", file(to(1)))
    assert ran.exit_code == 1
    assert ran.stderr == (
        "error: Error cancelling partition reassignment for:\n"
        "t-0: NO_REASSIGNMENT_IN_PROGRESS: No partition reassignment is in progress.\n"
    )


async def test_files_that_can_not_be_read_are_named(admin: ScriptedAdmin, tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    verify = (*AT, "--verify", "--reassignment-json-file", str(path))
    for content, reported in (
        (None, "No such file or directory"),
        (b"\xff", "it is not UTF-8 text"),
        (b"{", "it is not valid JSON"),
    ):
        if content is not None:
            path.write_bytes(content)
        ran = await run_tool(*verify)
        assert ran.exit_code == 1
        assert ran.stderr.startswith(f"error: --reassignment-json-file {path}: {reported}")
    assert admin.calls == []
