"""quorate metadata-shell against Kafka's, and against quorums that live, die and elect."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.membership import lead_with, quorate, succeeded
from kit.metadata import snapshots_in
from kit.names import unused
from kit.releases import NEWEST_LEVEL, SHELL_LEVEL
from kit.waiting import eventually
from quorate_admin.config import AdminConfig, addresses_of
from quorate_admin.metadata_log import MetadataFeed, load_live_image
from quorate_protocol.observer import (
    Committed,
    Event,
    LeaderChanged,
    ObserverConfig,
    Position,
    SnapshotLoaded,
)

pytestmark = pytest.mark.integration

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
SHELL = "org.apache.kafka.shell.MetadataShell"
TIMEOUT_S = 60
ATTEMPTS = 8
ATTEMPT_TIMEOUT_S = 10
SNAPSHOT_EVERY_BYTES = 10_000
# Many paths at once: Kafka's shell is started, and may hang, for each command.
COMMANDS = (
    ("tree", "/image"),
    (
        *("ls", "/", "/image", "/image/*", "/image/topics/*", "/local"),
        *("/image/topics/byName/first/{0,name}", "/image/cluster"),
    ),
    (
        *("cat", "/image/cluster/*/*", "/image/features/*", "/image/provenance"),
        *("/image/topics/byName/f*/?", "/image/configs/TOPIC:first/*"),
        *("/image", "/nowhere", "/image/producerIds/nextProducerId"),
    ),
    ("tree", "image/scram", "nowhere", "/image/topics/byName/./../byName"),
    ("find", "/image", "image/cluster", "nowhere"),
)


@pytest.fixture(scope="module")
def mixed(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[Cluster]:
    """One Java and two Python controllers, who take snapshots often, and a broker; topics and configs in it."""
    manifest = manifests(
        java=(3000,),
        metadata_version=SHELL_LEVEL,
        config={
            "metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_EVERY_BYTES,
            "controller.quorum.election.timeout.ms": 500,
            "controller.quorum.fetch.timeout.ms": 1000,
        },
    )
    cluster = Cluster.create(tmp_path_factory.mktemp("shell") / "cluster", kafka_jars, manifest)
    try:
        cluster.start_all()
        for name, *arguments in (
            (TOPICS, "--create", "--topic", "first", "--partitions", "3", "--config", "retention.ms=77000"),
            (TOPICS, "--create", "--topic", "second", "--partitions", "12"),
            (CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default",
             "--add-config", "log.cleaner.threads=2"),
        ):  # fmt: skip
            java_tool(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments).succeeded()
        yield cluster
    finally:
        cluster.close()


def copied(cluster: Cluster, node_id: int, directory: Path) -> Path:
    """The metadata partition of a node, as it is at one moment; Kafka's shell requires that no node uses it."""
    with cluster.frozen():
        return Path(shutil.copytree(cluster.metadata(node_id), directory / str(node_id)))


def assert_kafka_prints(java_tool: JavaTools, expected: str, *arguments: str) -> None:
    """Kafka's shell prints this.

    It has two races with its own reader, so it gets several attempts: it may answer from the empty image before
    the publisher has the first one (MetadataLoader.maybePublishMetadata), and it waits for ever when it has
    replayed a checkpoint before the footer is read (MetadataShell.waitUntilCaughtUp).
    """
    printed = ""
    for _ in range(ATTEMPTS):
        try:
            printed = java_tool(SHELL, *arguments, timeout_s=ATTEMPT_TIMEOUT_S).stdout
        except AssertionError as error:
            if "waitUntilCaughtUp" not in str(error):
                raise
            continue
        if printed == expected:
            return
    assert expected == printed, arguments


@pytest.mark.parametrize("implementation", ["java", "python"])
def test_every_path_reads_as_in_kafkas_shell(
    mixed: Cluster, java_tool: JavaTools, tmp_path: Path, implementation: str
) -> None:
    """Our shell prints what Kafka's prints, for the logs and snapshots of Java and Python controllers."""
    node_id = mixed.controllers_in(implementation)[0]
    eventually(lambda: snapshots_in(mixed.metadata(node_id)), TIMEOUT_S, f"a snapshot of {node_id}")
    partition = copied(mixed, node_id, tmp_path)
    log, checkpoint = min(partition.glob("*.log")), max(partition.glob("*[1-9]*-*.checkpoint"))
    for file, commands in ((log, COMMANDS), (checkpoint, COMMANDS[:1])):
        for words in commands:
            ours = succeeded(quorate("metadata-shell", "--snapshot", str(file), *words))
            assert_kafka_prints(java_tool, ours, "--snapshot", str(file), *words)


def test_a_directory_is_its_newest_checkpoint_and_the_log_after_it(mixed: Cluster, tmp_path: Path) -> None:
    """--directory shows what a controller that started there would know, Java's and ours alike."""
    trees = {}
    with mixed.frozen():
        for node_id in mixed.controllers:
            shutil.copytree(mixed.metadata(node_id), tmp_path / str(node_id))
    for node_id in mixed.controllers:
        ran = quorate("metadata-shell", "--directory", str(tmp_path / str(node_id)), "tree", "/image/topics")
        trees[node_id] = succeeded(ran)
        assert ran.stderr == ""
    assert "second:" in trees[3000]
    assert len(set(trees.values())) == 1

    damaged = tmp_path / "3000"
    with max(damaged.glob("*.log")).open("ab") as log:
        log.write(b"\0" * 100)
    torn = quorate("metadata-shell", "--directory", str(damaged), "tree", "/image/topics")
    assert succeeded(torn) == trees[3000]
    assert "the last 100 bytes are left out" in torn.stderr

    max(damaged.glob("*.checkpoint")).write_bytes(b"no checkpoint")
    spoilt = quorate("metadata-shell", "--directory", str(damaged), "ls", "/image/topics/byName")
    assert succeeded(spoilt) == "__consumer_offsets\nfirst\nsecond\n" or "first" in spoilt.stdout
    assert "not used" in spoilt.stderr


@pytest.mark.parametrize("implementation", ["java", "python"])
def test_a_live_shell_sees_what_was_just_acknowledged(mixed: Cluster, implementation: str) -> None:
    """What no shell of Kafka has: the metadata of a running quorum, with nothing missing."""
    mixed.start_all()
    lead_with(mixed, implementation)
    before = mixed.await_quorum()
    topic = unused(f"seen-by-{implementation}")
    created = mixed.tool(
        "kafka-topics", "--bootstrap-server", mixed.bootstrap_servers, "--create", "--topic", topic
    )
    assert created.returncode == 0, created.stdout + created.stderr
    live = ("metadata-shell", "--bootstrap-controller", mixed.bootstrap_controllers)
    assert succeeded(quorate(*live, "cat", f"/image/topics/byName/{topic}/name")) == f"{topic}\n"
    registered = json.loads(succeeded(quorate(*live, "-o", "json", "cat", "/image/cluster/*/*")))
    assert {
        f"/image/cluster/controllers/{controller}" for controller in mixed.controllers
    } <= registered.keys()
    assert registered["/image/cluster/controllers/3000"]["supportedFeatures"]["metadata.version"] == {
        "minVersion": 7,
        "maxVersion": NEWEST_LEVEL,
    }
    after = mixed.await_quorum()
    assert {observer.node_id for observer in after.observers} == {
        observer.node_id for observer in before.observers
    }
    assert after.leader_epoch == before.leader_epoch


def test_one_controller_that_follows_is_enough_to_find_the_leader(mixed: Cluster) -> None:
    mixed.start_all()
    leader = mixed.await_quorum().leader_id
    for node_id in mixed.controllers:
        config = AdminConfig(bootstrap_controllers=addresses_of("bootstrap", [mixed.address(node_id)]))
        image = asyncio.run(load_live_image(config))
        assert set(image.cluster.controllers) == set(mixed.controllers), (node_id, leader)
        assert set(image.cluster.brokers) == set(mixed.brokers)


@pytest.mark.parametrize("implementation", ["java", "python"])
def test_a_feed_goes_on_across_the_death_of_the_leader(mixed: Cluster, implementation: str) -> None:
    mixed.start_all()
    leader = lead_with(mixed, implementation)
    addresses = addresses_of("bootstrap", mixed.bootstrap_controllers.split(","))
    config = AdminConfig(bootstrap_controllers=addresses, request_timeout_ms=5_000)
    topic = unused(f"after-{implementation}")

    async def follow_through() -> tuple[Position, list[Event]]:
        loop = asyncio.get_running_loop()
        async with MetadataFeed(config, observer_config=ObserverConfig(fetch_size_bytes_max=2_000)) as feed:
            events: list[Event] = []
            while not feed.observer.is_caught_up:
                events += await feed.exchange(500)
            start = feed.observer.position
            events.clear()
            await loop.run_in_executor(None, mixed.kill, leader)
            new_leader = await loop.run_in_executor(None, mixed.await_leader, leader)
            assert new_leader != leader
            ran = await loop.run_in_executor(
                None,
                lambda: mixed.tool(
                    "kafka-topics", "--bootstrap-server", mixed.bootstrap_servers,
                    "--create", "--topic", topic,
                ),
            )  # fmt: skip
            assert ran.returncode == 0, ran.stdout + ran.stderr
            async with asyncio.timeout(TIMEOUT_S):
                while topic.encode() not in values_of(events):
                    events += await feed.exchange(500)
            return start, events

    async def read_again(start: Position, end: int) -> list[Event]:
        async with MetadataFeed(config, position=start) as feed:
            events: list[Event] = []
            async with asyncio.timeout(TIMEOUT_S):
                while feed.observer.position.offset < end:
                    events += await feed.exchange(500)
            return events

    start, events = asyncio.run(follow_through())
    assert any(isinstance(event, LeaderChanged) and event.leader_id != leader for event in events)
    batches = [batch for event in events if isinstance(event, Committed) for batch in event.batches]
    assert not any(isinstance(event, SnapshotLoaded) for event in events)
    expected = start.offset
    for batch in batches:
        assert batch.base_offset == expected
        expected = batch.last_offset + 1
    again = asyncio.run(read_again(start, expected))
    same = [batch for event in again if isinstance(event, Committed) for batch in event.batches]
    assert same[: len(batches)] == batches


def values_of(events: list[Event]) -> bytes:
    """The values of all records."""
    return b"".join(
        record.value or b""
        for event in events
        if isinstance(event, Committed)
        for batch in event.batches
        for record in batch.records
    )


def test_a_live_shell_authenticates_and_needs_cluster_action(java_cluster: JavaCluster) -> None:
    """Secured controllers of stock Kafka can be observed by permitted users alone."""
    live = ("metadata-shell", "--bootstrap-controller", java_cluster.sasl_controllers, "--command-config")
    admin = java_cluster.client_config("shell-admin", java_cluster.sasl_properties())
    expected = "".join(f"{node_id}\n" for node_id in java_cluster.brokers)
    assert succeeded(quorate(*live, str(admin), "ls", "/image/cluster/brokers")) == expected
    alice = java_cluster.client_config("shell-alice", java_cluster.sasl_properties("alice"))
    ran = quorate(*live, str(alice), "ls", "/image")
    assert ran.returncode == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.stderr
    assert "CLUSTER_ACTION" in ran.stderr
    assert "Traceback" not in ran.stderr
