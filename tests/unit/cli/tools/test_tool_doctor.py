"""`quorate doctor`: what it asks, and its text, JSON and exit code."""

import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import (
    CLUSTER_ID,
    HANG_UP,
    FakeCluster,
    Handler,
    nested,
    quorum_response,
    replica_state,
    response_to,
)
from kit.tool_runner import run_tool
from quorate.tools.doctor import diagnosis_text
from quorate_admin import examination
from quorate_admin.diagnosis import (
    Blocker,
    Code,
    Diagnosis,
    Examination,
    FeatureOutlook,
    Finding,
    NodeKind,
    Severity,
)
from quorate_admin.types.cluster import FeatureDescription
from quorate_protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000


def described(*voters: int, observers: tuple[int, ...] = (), silent: tuple[int, ...] = ()) -> Any:
    """A response to DescribeQuorum: the first voter leads, and all but the silent ones have everything.

    One observer more has not fetched for a minute: the leader is not new.
    """

    def replica(node_id: int) -> Any:
        at_ms = NOW_MS - (60_000 if node_id in (*silent, 7777) else 0)
        return replica_state(
            node_id, log_end_offset=7, last_fetch_timestamp=at_ms, last_caught_up_timestamp=at_ms
        )

    return quorum_response(
        *map(replica, voters),
        observers=[*map(replica, observers), replica(7777)],
        endpoints={node_id: f"c{number}:9093" for number, node_id in enumerate(voters[:2])},
        leader_id=voters[0],
        leader_epoch=1,
        high_watermark=7,
    )


def refusing(above: int, message: str) -> Any:
    """A handler of UpdateFeatures that refuses metadata.version above a level."""

    def handle(request: Any) -> Any:
        (update,) = request.body.feature_updates
        assert request.body.validate_only, "a doctor changes nothing"
        if update.feature == "metadata.version" and update.max_version_level > above:
            return response_to(
                "UpdateFeatures",
                error_code=ErrorCode.invalid_update_version,
                error_message=f"Invalid update version for feature {update.feature}. {message}",
            )
        return response_to("UpdateFeatures")

    return handle


@pytest.fixture
async def brokers() -> AsyncIterator[FakeCluster]:
    """A broker of a cluster of three voters, in which nothing is wrong."""
    async with FakeCluster([1]) as cluster:
        cluster.handle("DescribeQuorum", lambda _: described(3000, 3001, 3002, observers=(1,)))
        cluster.handle("UpdateFeatures", refusing(99, ""))
        cluster.handle("Metadata", lambda _: response_to("Metadata"))
        yield cluster


async def test_a_healthy_cluster_exits_with_0(brokers: FakeCluster) -> None:
    """No finding but what brokers can't show."""
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0])
    assert ran.exit_code == 0
    assert ran.stdout.startswith(
        f"Cluster {CLUSTER_ID}: leader 3000, 3 voters, metadata.version 30 (4.3-IV0), kraft.version 1, "
        "0 partitions\n\n"
        "NOTE     Registrations of controllers were not examined: brokers do not return them\n"
    )
    assert "Nothing is wrong" not in ran.stdout
    assert brokers.received("UpdateFeatures") == []
    reported = await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")
    assert (reported.json["healthy"], [finding["id"] for finding in reported.json["findings"]]) == (
        True,
        ["registrations-not-examined"],
    )
    assert reported.json["features"][1] == {
        "feature": "metadata.version",
        "finalizedLevel": 30,
        "reachableLevel": 30,
        "highestLevel": 30,
        "blockers": [],
        "obstacle": None,
    }


async def test_a_ghost_is_found_by_asking_and_exits_with_1(brokers: FakeCluster) -> None:
    """The whole way on a stock cluster: probe, parse, advise."""
    brokers.finalized_features["metadata.version"] = 26
    brokers.handle("UpdateFeatures", refusing(27, "Controller 99 only supports versions 7-27"))
    bootstrap = brokers.bootstrap[0]
    ran = await run_tool("doctor", "-b", bootstrap)
    assert ran.exit_code == 1
    assert "BLOCKED  Ghost controller 99 blocks metadata.version 28 to 30 (4.2-IV0 to 4.3-IV0)" in ran.stdout
    refresh = "quorate cluster refresh-controller --bootstrap-controller c0:9093,c1:9093 --controller-id 99"
    assert f"  $ {refresh}\n" in ran.stdout  # brokers take no such request
    upgrade = f"quorate features --bootstrap-server {bootstrap} upgrade --feature metadata.version=30"
    assert f"  $ {upgrade}\n" in ran.stdout
    assert "NOTE     metadata.version is 26 (4.1-IV0), and could be 27 (4.1-IV1)" in ran.stdout
    assert [line.split() for line in ran.stdout.splitlines() if line.startswith("metadata.version ")] == [
        ["metadata.version", "26", "27", "30", "controller", "99"]
    ]
    reported = (await run_tool("doctor", "-b", bootstrap, "-o", "json")).json
    assert reported["findings"][0].keys() == {
        "id", "severity", "code", "message", "evidence", "advice", "commands", "nodeKind", "nodeId", "blocks",
        "count", "examples",
    }  # fmt: skip
    assert (reported["findings"][0]["code"], reported["findings"][0]["blocks"]) == (
        "feature-blocked",
        {"metadata.version": [28, 30]},
    )


def silent_voter(cluster: FakeCluster) -> None:
    """A voter of three does not fetch: the next failure stops the cluster."""
    cluster.handle("DescribeQuorum", lambda _: described(3000, 3001, 3002, observers=(1,), silent=(3002,)))


def blocked_level(cluster: FakeCluster) -> None:
    """A registration blocks the level of the software."""
    cluster.finalized_features["metadata.version"] = 26
    cluster.handle("UpdateFeatures", refusing(27, "Controller 99 only supports versions 7-27"))


def forbidden(api_name: str) -> Callable[[FakeCluster], None]:
    """The client may not send this request."""

    def prepare(cluster: FakeCluster) -> None:
        cluster.finalized_features["metadata.version"] = 29
        cluster.handle(
            api_name, lambda _: response_to(api_name, error_code=ErrorCode.cluster_authorization_failed)
        )

    return prepare


def nothing(_: FakeCluster) -> None:
    """Leave the cluster as it is."""


@pytest.mark.parametrize(
    ("prepare", "arguments", "exit_code", "severity"),
    [
        (nothing, (), 0, "note"),
        (silent_voter, (), 1, "danger"),
        (blocked_level, (), 1, "blocked"),
        (forbidden("UpdateFeatures"), (), 1, "warning"),
        (forbidden("DescribeQuorum"), (), 1, "warning"),
        (nothing, ("--history", "/no/lake"), 1, "note"),
        (nothing, ("--no-such-option",), 2, None),
        (nothing, ("-C", "127.0.0.1:1"), 2, None),
        (nothing, ("-o", "yaml"), 2, None),
        (nothing, ("-c", "/no/file"), 1, None),
    ],
    ids=lambda value: value if isinstance(value, str | int) else getattr(value, "__name__", None),
)
async def test_exit_codes_are_the_documented_ones(
    brokers: FakeCluster,
    prepare: Callable[[FakeCluster], None],
    arguments: tuple[str, ...],
    exit_code: int,
    severity: str | None,
) -> None:
    """Scripts can rely on `docs/doctor.md`: 0, 1 and 2."""
    prepare(brokers)
    for output in ((), ("-o", "json")) if "-o" not in arguments else ((),):
        ran = await run_tool("doctor", "-b", brokers.bootstrap[0], *output, *arguments)
        assert ran.exit_code == exit_code, ran.stdout + ran.stderr
        assert bool(ran.stderr) is (severity is None or "--history" in arguments)
        if severity is None:
            assert ran.stdout == ""
        elif output:
            assert ran.json["findings"][0]["severity"] == severity
            assert ran.json["healthy"] is (severity == "note")
        else:
            assert ran.stdout.split("\n\n")[1].startswith(severity.upper())


async def test_a_quorum_that_must_not_be_described_is_not_lost(brokers: FakeCluster) -> None:
    forbidden("DescribeQuorum")(brokers)
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0])
    assert f"Cluster {CLUSTER_ID}: leader unknown, metadata.version" in ran.stdout
    assert "WARNING  The quorum was not examined" in ran.stdout
    assert "no leader" not in ran.stdout


def topics_of(partitions: Mapping[str, Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]]]) -> Handler:
    """A handler of DescribeTopicPartitions: leader, replicas and ISR of each partition."""

    def handle(request: Any) -> Any:
        topics = tuple(
            nested(
                "DescribeTopicPartitions",
                "DescribeTopicPartitionsResponseTopic",
                name=topic.name,
                partitions=tuple(
                    nested(
                        "DescribeTopicPartitions",
                        "DescribeTopicPartitionsResponsePartition",
                        partition_index=number,
                        leader_id=leader,
                        replica_nodes=replicas,
                        isr_nodes=isr,
                    )
                    for number, (leader, replicas, isr) in enumerate(partitions[topic.name])
                ),
            )
            for topic in request.body.topics
        )
        return response_to("DescribeTopicPartitions", topics=topics)

    return handle


def list_topics(cluster: FakeCluster, *names: str) -> None:
    """What Metadata returns for all topics."""
    topics = tuple(nested("Metadata", "MetadataResponseTopic", name=name) for name in names)
    cluster.handle("Metadata", lambda _: response_to("Metadata", topics=topics))


async def test_partitions_that_brokers_describe_are_findings(brokers: FakeCluster) -> None:
    list_topics(brokers, "a", "b", "c")
    brokers.handle(
        "DescribeTopicPartitions",
        topics_of({
            "a": [(-1, (7,), ()), (1, (1,), (1,))],
            "b": [(1, (1, 7), (1,))],
            "c": [(1, (1, 7), (1,))],
        }),
    )  # fmt: skip
    own = brokers.nodes[1].describe_configs

    def configs(request: Any) -> Any:
        if any(resource.resource_type != 2 for resource in request.body.resources):
            return own(request)
        assert [resource.resource_name for resource in request.body.resources] == ["b", "c"], (
            "those that lack replicas"
        )
        entry = nested(
            "DescribeConfigs", "DescribeConfigsResourceResult", name="min.insync.replicas", value="2"
        )
        results = tuple(
            nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                error_code=ErrorCode.none if name == "b" else ErrorCode.topic_authorization_failed,
                resource_type=2,
                resource_name=name,
                configs=(entry,) if name == "b" else (),
            )
            for name in ("b", "c")
        )
        return response_to("DescribeConfigs", results=results)

    brokers.handle("DescribeConfigs", configs)
    reported = (await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")).json
    assert reported["partitions"] == {"topics": 3, "partitions": 4, "offline": 1, "underMinIsr": 1}
    assert [(finding["id"], finding["count"], finding["examples"]) for finding in reported["findings"]] == [
        ("partitions-offline", 1, ["a-0"]),
        ("partitions-under-min-isr", 1, ["b-0"]),
        ("replicas-without-broker/broker-7", 3, ["a-0", "b-0", "c-0"]),
        ("min-isr-not-examined", 1, []),
        ("registrations-not-examined", None, []),
    ]


async def test_topics_that_are_not_described_are_reported(
    brokers: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_topics(brokers, "a")
    refused = nested(
        "DescribeTopicPartitions",
        "DescribeTopicPartitionsResponseTopic",
        name="a",
        error_code=ErrorCode.topic_authorization_failed,
    )
    brokers.handle(
        "DescribeTopicPartitions", lambda _: response_to("DescribeTopicPartitions", topics=(refused,))
    )
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")
    assert (ran.exit_code, ran.json["partitions"]) == (1, None)
    assert ran.json["findings"][0]["id"] == "partitions-not-examined"
    assert ran.json["findings"][0]["evidence"].startswith("TOPIC_AUTHORIZATION_FAILED")
    monkeypatch.setattr(examination, "TOPICS_TIMEOUT_MS", 1)
    brokers.handle("Metadata", lambda _: HANG_UP)
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")
    assert (ran.exit_code, ran.json["findings"][0]["id"]) == (1, "partitions-not-examined")


async def test_a_broker_that_lists_no_broker_is_examined(brokers: FakeCluster) -> None:
    brokers.handle(
        "DescribeCluster", lambda _: response_to("DescribeCluster", cluster_id=CLUSTER_ID, endpoint_type=1)
    )
    list_topics(brokers, "a")
    brokers.handle("DescribeTopicPartitions", topics_of({"a": [(-1, (1,), ())]}))
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")
    assert [finding["id"] for finding in ran.json["findings"] if finding["severity"] == "danger"] == [
        "broker-not-registered/broker-1",
        "partitions-offline",
    ]
    # Its clients would wait for a broker, so that no command is proposed that lists partitions.
    assert all(
        "quorate topics" not in command for finding in ran.json["findings"] for command in finding["commands"]
    )


def test_the_documentation_has_each_finding() -> None:
    page = (Path(__file__).parents[4] / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+)", page, re.MULTILINE)
    assert sorted(code for code, _ in rows) == sorted(Code)
    assert {severity.lower() for _, severity in rows} == set(Severity)


async def test_what_must_not_be_asked_is_reported(brokers: FakeCluster) -> None:
    brokers.finalized_features["metadata.version"] = 29
    brokers.handle(
        "UpdateFeatures",
        lambda _: response_to("UpdateFeatures", error_code=ErrorCode.cluster_authorization_failed),
    )
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0])
    assert "WARNING  The highest possible level of some features is unknown" in ran.stdout
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.stdout
    assert ran.exit_code == 1


async def test_no_server_there_is_an_error(tmp_path: Path) -> None:
    """No diagnosis without a patient: one message, exit code 1."""
    config = tmp_path / "admin.properties"
    # The second attempt would come after the end of the call, so it is not made.
    config.write_text("reconnect.backoff.ms=120000\nreconnect.backoff.max.ms=120000\n")
    async with FakeCluster() as cluster:
        address = cluster.bootstrap[0]
    ran = await run_tool("doctor", "-b", address, "-c", str(config))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")


def test_findings_are_wrapped_and_their_commands_are_not() -> None:
    command = "quorate " + "x" * 200
    finding = Finding(
        severity=Severity.WARNING,
        code=Code.VOTER_SILENT,
        message="A voter is silent",
        evidence="word " * 40,
        advice="Do it.",
        commands=(command,),
    )
    outlook = FeatureOutlook(
        feature="kraft.version",
        finalized=0,
        target=1,
        reachable=0,
        blockers=(Blocker(kind=NodeKind.CONTROLLER, node_id=3, is_registered=False),),
        obstacle="because",
    )
    facts = Examination(
        cluster_id="c",
        features=FeatureDescription(finalized={"metadata.version": 30}, finalized_epoch=1, supported={}),
    )
    text = diagnosis_text(
        facts,
        Diagnosis(findings=(finding,), outlooks=(outlook,)),
        lambda severity, label: f"<{severity}>{label}",
    )
    lines = text.splitlines()
    assert lines[0] == "Cluster c: no leader, metadata.version 30 (4.3-IV0), kraft.version 0"
    assert diagnosis_text(facts, Diagnosis(findings=(), outlooks=())).endswith("\n\nNothing is wrong.\n")
    assert lines[2] == "<warning>WARNING  A voter is silent"
    assert all(len(line) <= 110 for line in lines if "x" * 200 not in line)
    assert f"           $ {command}" in lines
    assert lines[-1] == "kraft.version  0          0         1      controller 3 (not registered), because"


def _printing(monkeypatch: pytest.MonkeyPatch, code: int, output: str, errors: str) -> list[list[str]]:
    """Every `quorate lake show` ends like this; the commands that were run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, code, output, errors)

    monkeypatch.setattr("subprocess.run", run)
    return commands


@pytest.fixture
def blocked(brokers: FakeCluster) -> FakeCluster:
    """A cluster in which controller 99 supports metadata.version 27 at most."""
    brokers.finalized_features["metadata.version"] = 26
    brokers.handle("UpdateFeatures", refusing(27, "Controller 99 only supports versions 7-27"))
    return brokers


async def test_a_lake_tells_the_past_of_a_blocker(
    blocked: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--history adds what is known, for people and programs."""
    row = {
        "role": "controller",
        "node_id": 99,
        "feature": "metadata.version",
        "level": 28,
        "valid_from": "2026-01-31T12:00:00.000Z",
        "valid_to": None,
        "from_offset": 7,
        "from_exact": True,
    }
    commands = _printing(monkeypatch, 0, json.dumps({"tables": {"upgrade_blockers": [row]}}), "")
    ran = await run_tool("doctor", "-b", blocked.bootstrap[0], "--history", "/lake")
    assert ran.exit_code == 1
    assert "It keeps metadata.version from level 28 since 2026-01-31 12:00:00 UTC." in ran.stdout
    assert commands[0][1:4] == ["-P", "-m", "quorate"]
    assert commands[0][4:7] == ["lake", "show", "/lake"]
    assert CLUSTER_ID in commands[0]
    reported = await run_tool("doctor", "-b", blocked.bootstrap[0], "--history", "/lake", "-o", "json")
    first, *rest = reported.json["findings"]
    assert first["past"]["blocksSince"]["metadata.version"]["level"] == 28
    assert [finding["past"] for finding in rest] == [None] * len(rest)


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        (
            (1, "", "error: pyspark is missing: pip install 'quorate[lake]'\n"),
            "pyspark is missing: pip install",
        ),
        ((1, "", ""), "it can't be read"),
        ((0, "nonsense", ""), "the output is not JSON"),
        ((0, "[]", ""), "it has no object `tables`"),
    ],
)
async def test_a_lake_that_cannot_be_read_does_not_hide_the_findings(
    blocked: FakeCluster, monkeypatch: pytest.MonkeyPatch, ending: tuple[int, str, str], complaint: str
) -> None:
    """The present is reported whatever is wrong with the past."""
    _printing(monkeypatch, *ending)
    ran = await run_tool("doctor", "-b", blocked.bootstrap[0], "--history", "/lake")
    assert ran.exit_code == 1
    assert "Ghost controller 99 blocks metadata.version 28 to 30" in ran.stdout
    assert ran.stderr.startswith("error: --history /lake: ")
    assert complaint in ran.stderr
