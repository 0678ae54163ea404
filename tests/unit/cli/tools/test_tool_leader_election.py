"""`quorate leader-election`: text, JSON and errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster, nested, response_to
from kit.tool_runner import run_tool
from quorate_protocol.errors import ErrorCode


def elected(results: dict[str, Sequence[tuple[int, ErrorCode]]]) -> Any:
    """An answer: partitions with their errors, by topic."""
    return response_to(
        "ElectLeaders",
        replica_election_results=tuple(
            nested(
                "ElectLeaders",
                "ReplicaElectionResult",
                topic=topic,
                partition_result=tuple(
                    nested(
                        "ElectLeaders",
                        "PartitionResult",
                        partition_id=partition,
                        error_code=code,
                        error_message="No." if code is not ErrorCode.none else None,
                    )
                    for partition, code in partitions
                ),
            )
            for topic, partitions in results.items()
        ),
    )


MIXED = elected(
    {
        "b": [(1, ErrorCode.none), (0, ErrorCode.none)],
        "a": [(0, ErrorCode.election_not_needed), (1, ErrorCode.eligible_leaders_not_available)],
    }
)


async def test_results_are_reported_as_by_kafka() -> None:
    """Elected, not needed, failed, in this order; exit code 1."""
    async with FakeCluster(handlers={"ElectLeaders": lambda _: MIXED}) as cluster:
        asked = (
            "leader-election", "-b", cluster.bootstrap[0], "--election-type", "PREFERRED", "--all-topic-partitions",
        )  # fmt: skip
        ran = await run_tool(*asked)
        reported = await run_tool(*asked, "-o", "json")
        request = cluster.received("ElectLeaders")[0].body
    assert (request.election_type, request.topic_partitions) == (0, None)
    assert ran.stdout == (
        "Successfully completed leader election (PREFERRED) for partitions b-0, b-1\n"
        "Valid replica already elected for partitions a-0\n"
        "Error completing leader election (PREFERRED) for partition: a-1: ELIGIBLE_LEADERS_NOT_AVAILABLE: No.\n"
    )
    assert (ran.exit_code, ran.stderr) == (1, "error: 1 replica(s) could not be elected\n")
    assert reported.exit_code == 1
    assert reported.json == {
        "electionType": "PREFERRED",
        "elected": [{"topic": "b", "partition": 0}, {"topic": "b", "partition": 1}],
        "notNeeded": [{"topic": "a", "partition": 0}],
        "failed": [
            {"topic": "a", "partition": 1, "error": "ELIGIBLE_LEADERS_NOT_AVAILABLE", "errorMessage": "No."}
        ],
    }


async def test_an_election_that_is_not_needed_is_no_failure() -> None:
    results = elected({"a": [(0, ErrorCode.election_not_needed)]})
    async with FakeCluster(handlers={"ElectLeaders": lambda _: results}) as cluster:
        ran = await run_tool(
            "leader-election", "-b", cluster.bootstrap[0], "--election-type", "preferred", "--topic", "a",
            "--partition", "0",
        )  # fmt: skip
    assert (ran.exit_code, ran.stdout) == (0, "Valid replica already elected for partitions a-0\n")


async def test_partitions_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    listed = [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 0}, {"topic": "b", "partition": 2}]
    file.write_text(json.dumps({"version": 1, "partitions": listed}))
    results = elected({"a": [(0, ErrorCode.none), (1, ErrorCode.none)], "b": [(2, ErrorCode.none)]})
    async with FakeCluster(handlers={"ElectLeaders": lambda _: results}) as cluster:
        ran = await run_tool(
            "leader-election", "-b", cluster.bootstrap[0], "--election-type", "unclean", "--path-to-json-file",
            str(file),
        )  # fmt: skip
        request = cluster.received("ElectLeaders")[0].body
    assert ran.stdout == "Successfully completed leader election (UNCLEAN) for partitions a-0, a-1, b-2\n"
    assert request.election_type == 1
    assert {
        topic_partition.topic: sorted(topic_partition.partitions)
        for topic_partition in request.topic_partitions
    } == {"a": [0, 1], "b": [2]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory"),
        ("{", "it is not valid JSON: "),
        ("[]", 'it has no top-level list "partitions"'),
        ('{"partitions": 1}', 'it has no top-level list "partitions"'),
        (
            '{"partitions": [{"topic": "a"}]}',
            'partitions[0] is {"topic": "a"}; it must be {"topic": a string,',
        ),
        ('{"partitions": [{"topic": "a", "partition": -1}]}', "a number from 0 to 2147483647"),
        ('{"partitions": [{"topic": "a", "partition": 2147483648}]}', "a number from 0 to"),
        ('{"partitions": [{"topic": "a", "partition": true}]}', "a number from 0 to"),
        (
            '{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 1}]}',
            "a-1 occurs more than",
        ),
    ],
)
async def test_a_bad_file_is_reported(tmp_path: Path, content: str | None, expected: str) -> None:
    file = tmp_path / "partitions.json"
    if content is not None:
        file.write_text(content)
    ran = await run_tool(
        "leader-election",
        "-b",
        "localhost:1",
        "--election-type",
        "preferred",
        "--path-to-json-file",
        str(file),
    )
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: --path-to-json-file {file}: ")
    assert expected in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--all-topic-partitions"],
        ["--election-type", "any", "--all-topic-partitions"],
        ["--election-type", "preferred"],
        ["--election-type", "preferred", "--all-topic-partitions", "--topic", "a", "--partition", "1"],
        ["--election-type", "preferred", "--topic", "a"],
        ["--election-type", "preferred", "--partition", "1"],
        ["--election-type", "preferred", "--all-topic-partitions", "--partition", "1"],
    ],
)
async def test_wrong_options_exit_with_2(arguments: list[str]) -> None:
    ran = await run_tool("leader-election", "-b", "localhost:1", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")


async def test_the_older_name_of_the_config_option(tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("client.id=from-the-file\n")
    async with FakeCluster(handlers={"ElectLeaders": lambda _: elected({})}) as cluster:
        ran = await run_tool(
            "leader-election", "-b", cluster.bootstrap[0], "--admin.config", str(config), "--election-type",
            "preferred", "--all-topic-partitions",
        )  # fmt: skip
        assert cluster.received("ElectLeaders")[0].client_id == "from-the-file"
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == "warning: --admin.config is deprecated and will be removed; use --command-config\n"
