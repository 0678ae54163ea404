"""`quorate doctor`: what it asks, and its text, JSON and exit code."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import CLUSTER_ID, FakeCluster, answer, nested
from kit.tool_runner import run_tool
from quorate.tools.doctor import diagnosis_text
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


def described(*voters: int, observers: tuple[int, ...] = ()) -> Any:
    """An answer to DescribeQuorum: the first voter leads, all have everything.

    One observer more has not fetched for a minute: the leader is not new.
    """

    def replicas(node_ids: tuple[int, ...], at_ms: int = NOW_MS) -> tuple[Any, ...]:
        return tuple(
            nested(
                "DescribeQuorum",
                "ReplicaState",
                replica_id=node_id,
                log_end_offset=7,
                last_fetch_timestamp=at_ms,
                last_caught_up_timestamp=at_ms,
            )
            for node_id in node_ids
        )

    partition = nested(
        "DescribeQuorum",
        "PartitionData",
        partition_index=0,
        leader_id=voters[0],
        leader_epoch=1,
        high_watermark=7,
        current_voters=replicas(voters),
        observers=(*replicas(observers), *replicas((7777,), NOW_MS - 60_000)),
    )
    topic = nested("DescribeQuorum", "TopicData", topic_name="__cluster_metadata", partitions=(partition,))
    nodes = tuple(
        nested(
            "DescribeQuorum",
            "Node",
            node_id=node_id,
            listeners=(
                nested("DescribeQuorum", "Listener", name="CONTROLLER", host=f"c{number}", port=9093),
            ),
        )
        for number, node_id in enumerate(voters[:2])
    )
    return answer("DescribeQuorum", topics=(topic,), nodes=nodes)


def refusing(above: int, message: str) -> Any:
    """A handler of UpdateFeatures that refuses metadata.version above a level."""

    def handle(request: Any) -> Any:
        (update,) = request.body.feature_updates
        assert request.body.validate_only, "a doctor changes nothing"
        if update.feature == "metadata.version" and update.max_version_level > above:
            return answer(
                "UpdateFeatures",
                error_code=ErrorCode.invalid_update_version,
                error_message=f"Invalid update version for feature {update.feature}. {message}",
            )
        return answer("UpdateFeatures")

    return handle


@pytest.fixture
async def brokers() -> AsyncIterator[FakeCluster]:
    """A broker of a cluster of three voters, in which nothing is wrong."""
    async with FakeCluster([1]) as cluster:
        cluster.handle("DescribeQuorum", lambda _: described(3000, 3001, 3002, observers=(1,)))
        cluster.handle("UpdateFeatures", refusing(99, ""))
        yield cluster


async def test_a_healthy_cluster_exits_with_0(brokers: FakeCluster) -> None:
    """Goal: silence when nothing is wrong. Method: text and JSON; nothing was probed without need."""
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0])
    assert ran.exit_code == 0
    assert ran.stdout.startswith(
        f"Cluster {CLUSTER_ID}: leader 3000, 3 voters, metadata.version 30 (4.3-IV0), kraft.version 1\n\n"
        "Nothing is wrong.\n"
    )
    assert brokers.received("UpdateFeatures") == []
    told = await run_tool("doctor", "-b", brokers.bootstrap[0], "-o", "json")
    assert (told.json["healthy"], told.json["findings"]) == (True, [])
    assert told.json["features"][1] == {
        "feature": "metadata.version",
        "finalizedLevel": 30,
        "reachableLevel": 30,
        "highestLevel": 30,
        "blockers": [],
        "obstacle": None,
    }


async def test_a_ghost_is_found_by_asking_and_exits_with_1(brokers: FakeCluster) -> None:
    """Goal: the whole way on a stock cluster: probe, parse, advise. Method: a controller that supports 27 at most."""
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
    told = (await run_tool("doctor", "-b", bootstrap, "-o", "json")).json
    assert told["findings"][0].keys() == {
        "severity", "code", "message", "evidence", "advice", "commands", "nodeKind", "nodeId", "blocks",
    }  # fmt: skip
    assert (told["findings"][0]["code"], told["findings"][0]["blocks"]) == (
        "feature-blocked",
        {"metadata.version": [28, 30]},
    )


async def test_what_must_not_be_asked_is_told(brokers: FakeCluster) -> None:
    """Goal: missing rights are not health. Method: CLUSTER_AUTHORIZATION_FAILED on the probe."""
    brokers.finalized_features["metadata.version"] = 29
    brokers.handle(
        "UpdateFeatures",
        lambda _: answer("UpdateFeatures", error_code=ErrorCode.cluster_authorization_failed),
    )
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0])
    assert "WARNING  The highest possible level of some features is unknown" in ran.stdout
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.stdout
    assert ran.exit_code == 1


async def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    """Goal: no diagnosis without a patient: one message, exit code 1. Method: a port that nobody listens on."""
    config = tmp_path / "admin.properties"
    # The second attempt would come after the end of the call, so there is none.
    config.write_text("reconnect.backoff.ms=120000\nreconnect.backoff.max.ms=120000\n")
    async with FakeCluster() as cluster:
        address = cluster.bootstrap[0]
    ran = await run_tool("doctor", "-b", address, "-c", str(config))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")


def test_findings_are_wrapped_and_their_commands_are_not() -> None:
    """Goal: text that fits, and lines that can be copied. Method: a long evidence, a long command."""
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
    """Goal: --history adds what is known, for people and programs. Method: a lake's answer with one row."""
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
    told = await run_tool("doctor", "-b", blocked.bootstrap[0], "--history", "/lake", "-o", "json")
    first, *rest = told.json["findings"]
    assert first["past"]["blocksSince"]["metadata.version"]["level"] == 28
    assert [one["past"] for one in rest] == [None] * len(rest)


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        ((1, "", "error: Spark is missing: pip install 'quorate[lake]'\n"), "Spark is missing: pip install"),
        ((1, "", "Traceback\nModuleNotFoundError: No module named 'pyarrow'\n"), "needs what `pip install"),
        ((1, "", ""), "it can't be read"),
        ((0, "nonsense", ""), "the output is not JSON"),
        ((0, "[]", ""), "it has no object `tables`"),
    ],
)
async def test_a_lake_that_cannot_be_read_does_not_hide_the_findings(
    blocked: FakeCluster, monkeypatch: pytest.MonkeyPatch, ending: tuple[int, str, str], complaint: str
) -> None:
    """Goal: the present is told whatever is wrong with the past. Method: each fault; text, error and exit code."""
    _printing(monkeypatch, *ending)
    ran = await run_tool("doctor", "-b", blocked.bootstrap[0], "--history", "/lake")
    assert ran.exit_code == 1
    assert "Ghost controller 99 blocks metadata.version 28 to 30" in ran.stdout
    assert ran.stderr.startswith("error: --history /lake: ")
    assert complaint in ran.stderr
