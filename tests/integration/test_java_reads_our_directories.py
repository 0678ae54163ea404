"""Java's readers of metadata, MetadataShell and DumpLogSegments, on directories that our controller wrote.

The cluster has small segments and takes snapshots often. It is stopped before its directory is read; what the
readers print is compared with the image that we replay from the same files.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kit.cluster import Cluster, manifests
from kit.ledger import ContinuousProducer
from kit.metadata import batches_in, image_of, images_of, snapshots_in
from kit.releases import SHELL_LEVEL
from kit.waiting import eventually
from quorate_protocol.image.state import ImageState
from quorate_protocol.records.batch import RecordBatch, decode_batches
from quorate_protocol.records.framing import decode_record

pytestmark = pytest.mark.integration

CONTROLLER = 3000
TOPICS = 60
SEGMENTS_MIN = 3
WAIT_S = 40
RETENTION_MS = "3600000"
# What DumpLogSegments prints when it finds something wrong.
COMPLAINTS = re.compile(
    r"mismatch|not found|out of order|isvalid: false|Non-consecutive|Exception", re.IGNORECASE
)
# It says so of the first record of each segment that does not begin at 0.
FIRST_OF_SEGMENT = re.compile(r"Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1\n")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """A stopped cluster of one controller and one broker with a life behind it."""
    config = {
        "metadata.log.max.record.bytes.between.snapshots": 10_000,
        "internal.metadata.log.segment.bytes": 8000,
    }
    manifest = manifests(controllers=1, config=config, metadata_version=SHELL_LEVEL)
    cluster = Cluster.create(tmp_path_factory.mktemp("read-by-java") / "cluster", kafka_jars, manifest)
    try:
        cluster.start_all()
        live(cluster)
        partition = cluster.metadata(CONTROLLER)
        eventually(lambda: len(list(partition.glob("*.log"))) >= SEGMENTS_MIN, WAIT_S, "several segments")
        eventually(lambda: len(snapshots_in(partition)) >= 2, WAIT_S, "snapshots")
        cluster.stop()
        yield cluster
    finally:
        cluster.close()


def live(cluster: Cluster) -> None:
    """Write records of many kinds: topics with configs, some deleted; producer ids; broker configs."""
    done = cluster.tool(
        "kafka-configs",
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-name",
        "0",
        "--add-config",
        "log.cleaner.threads=2",
    )
    assert done.returncode == 0, done.stderr
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    names = [f"topic-{number}" for number in range(TOPICS)]
    for first in range(0, TOPICS, 10):
        topics = [
            NewTopic(name, 3, 1, config={"retention.ms": RETENTION_MS}) for name in names[first : first + 10]
        ]
        for future in admin.create_topics(topics).values():
            future.result()
    for future in admin.delete_topics(names[:5]).values():
        future.result()
    with ContinuousProducer(cluster.bootstrap_servers, names[-1]) as producer:
        eventually(lambda: producer.acknowledged, WAIT_S, "a record")


def shell(cluster: Cluster, snapshot: Path, *command: str, text: str | None = None) -> str:
    """What MetadataShell prints for a command, or for lines typed into it."""
    done = cluster.tool("kafka-metadata-shell", "--snapshot", str(snapshot), *command, text=text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dump(cluster: Cluster, files: Sequence[Path], *options: str) -> str:
    """What DumpLogSegments prints about files; it has nothing to complain about."""
    done = cluster.tool("kafka-dump-log", *options, "--files", ",".join(map(str, files)))
    assert done.returncode == 0, done.stdout + done.stderr
    said = FIRST_OF_SEGMENT.sub("", done.stdout + done.stderr)
    assert [line for line in said.splitlines() if COMPLAINTS.search(line)] == []
    return done.stdout


def newest(cluster: Cluster) -> tuple[Path, ImageState]:
    """The newest snapshot, and the image that the log leads to at its place."""
    partition = cluster.metadata(CONTROLLER)
    snapshot = snapshots_in(partition)[-1]
    return snapshot.path, image_of(partition, snapshot.end_offset)


def as_java_prints(value: object) -> object:
    """A value of a record as Java's JSON has it."""
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, tuple):
        return [as_java_prints(item) for item in value]
    if is_dataclass(value):
        return {camel(field.name): as_java_prints(getattr(value, field.name)) for field in fields(value)}
    return value


def camel(name: str) -> str:
    """`topic_id` as `topicId`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def assert_same_records(printed: str, batches: Iterable[RecordBatch]) -> set[str]:
    """Assert that the dumped payloads are the records of the batches; the kinds there were."""
    theirs = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", printed, re.MULTILINE)]
    ours = [
        decode_record(record.value)
        for batch in batches
        if not batch.is_control
        for record in batch.records
        if record.value is not None
    ]
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        mine = as_java_prints(our)
        assert isinstance(mine, dict)
        assert their["type"].replace("_", "").lower() == type(our).__name__.lower()
        assert their["data"].items() <= mine.items(), (their, our)
    return {their["type"] for their in theirs}


def test_metadata_shell_shows_our_image(written: Cluster) -> None:
    snapshot, image = newest(written)
    topic = image.topics.by_name[f"topic-{TOPICS - 1}"]
    looks = [
        "ls /image/topics/byName",
        f"cat /image/topics/byName/{topic.name}/id",
        *(f"cat /image/topics/byName/{topic.name}/{number}" for number in sorted(topic.partitions)),
        f"cat /image/configs/TOPIC:{topic.name}/retention.ms",
        "cat /image/configs/BROKER:0/log.cleaner.threads",
        "cat /image/producerIds/nextProducerId",
        "cat /image/features/metadataVersion",
        "cat /image/cluster/brokers/0",
        f"cat /image/cluster/controllers/{CONTROLLER}",
    ]
    printed = shell(written, snapshot, text="\n".join([*looks, "exit", ""]))
    listed, topic_id, *others = (part.strip() for part in printed.split(">> ")[1 : len(looks) + 1])
    assert sorted(listed.split()) == sorted(image.topics.by_name)
    assert topic_id == as_java_prints(topic.topic_id)
    for number, partition in sorted(topic.partitions.items()):
        shown = others[number]
        for name in ("replicas", "isr", "elr"):
            assert f"{name}={list(getattr(partition, name))}" in shown.replace("lastKnownElr", "")
        assert f"leader={partition.leader}, " in shown
        assert f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})" in shown
    retention, threads, next_producer_id, version, broker, controller = others[len(topic.partitions) :]
    assert (retention, threads) == (RETENTION_MS, "2")
    assert next_producer_id == str(image.next_producer_id)
    assert version == "Optional[4.3-IV0]"
    registered = image.cluster.brokers[0]
    assert f"id=0, epoch={registered.epoch}, " in broker
    assert f"incarnationId={as_java_prints(registered.incarnation_id)}" in broker
    assert f"fenced={str(registered.fenced).lower()}" in broker
    assert f"id={CONTROLLER}, " in controller
    assert f"port={written.address(CONTROLLER).rpartition(':')[2]}" in controller


def test_metadata_shell_runs_single_commands(written: Cluster) -> None:
    for snapshot in snapshots_in(written.metadata(CONTROLLER)):
        assert shell(written, snapshot.path, "ls", "/").split() == ["image", "local"]


def test_dumping_our_log_shows_our_records(written: Cluster) -> None:
    partition = written.metadata(CONTROLLER)
    segments = sorted(partition.glob("*.log"))
    printed = dump(written, segments, "--cluster-metadata-decoder", "--skip-record-metadata")
    kinds = assert_same_records(printed, batches_in(partition))
    assert kinds >= {
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
        "FEATURE_LEVEL_RECORD",
        "PARTITION_CHANGE_RECORD",
        "BEGIN_TRANSACTION_RECORD",
        "NO_OP_RECORD",
    }


def test_dumping_our_snapshots_shows_our_records(written: Cluster) -> None:
    """Java decodes our snapshots as we do, and they hold what the log says."""
    partition = written.metadata(CONTROLLER)
    snapshots = snapshots_in(partition)
    offsets = [snapshot.end_offset for snapshot in snapshots]
    for snapshot, image in zip(snapshots, images_of(partition, offsets), strict=True):
        printed = dump(written, [snapshot.path], "--cluster-metadata-decoder")
        assert f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}" in printed
        assert_same_records(printed, decode_batches(snapshot.path.read_bytes()))
        assert snapshot.image().same_as(image)


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_our_indexes_are_sound(written: Cluster, check: str) -> None:
    partition = written.metadata(CONTROLLER)
    indexes = sorted(path for path in partition.iterdir() if path.suffix in (".index", ".timeindex"))
    assert len(indexes) >= 2 * SEGMENTS_MIN
    assert any(path.stat().st_size for path in indexes), "all indexes are empty"
    printed = dump(written, indexes, check)
    assert all(str(path) in printed for path in indexes)
