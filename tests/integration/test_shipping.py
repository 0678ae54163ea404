"""`quorate controller ship` beside running controllers, ours and Java's, whose segments close all the time."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kit.cluster import DIE_WITH_PARENT, SMALL_FILES, Cluster, manifests
from kit.metadata import snapshots_in
from kit.waiting import eventually
from quorate_protocol.records.batch import scan_batches

pytestmark = pytest.mark.integration

PYTHON, JAVA, OTHER = 3000, 3001, 3002
TOPIC = "changed"
PARTITION = "__cluster_metadata-0"
SEGMENTS_MIN = 4
SHIPPED_BEFORE_KILL = 2
WAIT_S = 90
STOP_TIMEOUT_S = 20
CONFIG = {
    **SMALL_FILES,
    "internal.metadata.log.segment.bytes": 8000,
    "metadata.log.max.record.bytes.between.snapshots": 10_000,
    # What a snapshot has is deleted soon, while it is shipped.
    "metadata.max.retention.bytes": 40_000,
}


@contextmanager
def shipping(cluster: Cluster, node_id: int, history: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command with --follow, killed at the end if it still runs."""
    command = [*DIE_WITH_PARENT, sys.executable, "-m", "quorate", "controller", "ship", "--follow"]
    command += ["--interval", "1s", "--log-dir", str(cluster.data(node_id)), "--to", str(history)]
    log = history.with_name(f"ship-{node_id}.log")
    with log.open("ab") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def test_a_history_has_no_hole(tmp_path: Path, kafka_jars: Path) -> None:
    """What was once closed is in the history, whole, whatever controllers delete and however ships end."""
    manifest = manifests(controllers=3, java=[JAVA], brokers=1, config=CONFIG)
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    history = tmp_path / "history"
    try:
        cluster.start_all()
        with shipping(cluster, PYTHON, history) as ours, shipping(cluster, JAVA, history) as java:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
            change_config(cluster, history, range(20))
            assert len(shipped(history, PYTHON)) >= SHIPPED_BEFORE_KILL
            ours.kill()
            java.kill()
        with shipping(cluster, PYTHON, history) as ours, shipping(cluster, JAVA, history) as java:
            change_config(cluster, history, range(20, 60))
            for node_id in (PYTHON, JAVA):
                source = cluster.metadata(node_id)
                eventually(
                    lambda source=source: not (source / f"{0:020d}.log").exists(),
                    WAIT_S,
                    f"{node_id} to delete its first segment",
                    lambda source=source: sorted(path.name for path in source.iterdir()),
                )
            # First the nodes: a segment that closes after its shipper has ended is not in the history.
            cluster.stop()
            for node_id in (PYTHON, JAVA):
                eventually(
                    lambda node_id=node_id: all_is_shipped(cluster, node_id, history),
                    WAIT_S,
                    f"all that {node_id} closed to be shipped",
                    lambda node_id=node_id: sorted(shipped(history, node_id)),
                )
            for process in (ours, java):
                assert psutil.Process(process.pid).memory_info().rss < 150 * 2**20
                process.send_signal(signal.SIGTERM)
            for process in (ours, java):
                assert process.wait(STOP_TIMEOUT_S) == 0
        for node_id in (PYTHON, JAVA):
            assert_whole(cluster, node_id, history)
    finally:
        cluster.close()


def all_is_shipped(cluster: Cluster, node_id: int, history: Path) -> bool:
    """Whether the history has each closed segment and each snapshot of the source."""
    there = {snapshot.path.name for snapshot in snapshots_in(home(history, node_id) / PARTITION)}
    snapshots = {snapshot.path.name for snapshot in snapshots_in(cluster.metadata(node_id))}
    return closed(cluster, node_id) <= shipped(history, node_id).keys() and snapshots <= there


def assert_whole(cluster: Cluster, node_id: int, history: Path) -> None:
    """The history of a stopped node is one run of batches from 0 on, and equals the source where that has it."""
    before = shipped(history, node_id)
    assert len(before) >= SEGMENTS_MIN
    expected = 0
    for name, path in sorted(before.items()):
        assert int(name.removesuffix(".log")) == expected, sorted(before)
        content = path.read_bytes()
        for header in scan_batches(content):
            assert header.base_offset == expected
            expected = header.last_offset + 1
        source = cluster.metadata(node_id) / name
        if source.exists() and name in closed(cluster, node_id):
            assert source.read_bytes() == content
    target = home(history, node_id) / PARTITION
    assert all_is_shipped(cluster, node_id, history)
    assert not list(target.glob("*.part"))
    assert not (home(history, node_id) / "superseded").exists()
    command = [sys.executable, "-m", "quorate", "controller", "ship", "-o", "json"]
    command += ["--log-dir", str(cluster.data(node_id)), "--to", str(history)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ)
    assert json.loads(done.stdout)["shipped"] == []


def home(history: Path, node_id: int) -> Path:
    """Where one node's log is shipped to."""
    (cluster_id,) = history.iterdir()
    return cluster_id / str(node_id)


def shipped(history: Path, node_id: int) -> dict[str, Path]:
    """The segments that were."""
    if not history.exists():
        return {}
    return {path.name: path for path in (home(history, node_id) / PARTITION).glob("*.log")}


def closed(cluster: Cluster, node_id: int) -> set[str]:
    """The names of the closed segments that the source has."""
    names = sorted(path.name for path in cluster.metadata(node_id).glob("*.log"))
    return set(names[:-1])


def change_config(cluster: Cluster, history: Path, numbers: range) -> None:
    """Write records for several segments and little state, no faster than they are shipped."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for number in numbers:
        value = ",".join(f"{partition}:{number}" for partition in range(300))
        entry = ConfigEntry(
            "follower.replication.throttled.replicas",
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        for node_id in (PYTHON, JAVA):
            eventually(
                lambda node_id=node_id: closed(cluster, node_id) <= set(shipped(history, node_id)),
                WAIT_S,
                f"every closed segment of {node_id} to be shipped",
                lambda node_id=node_id: (closed(cluster, node_id), sorted(shipped(history, node_id))),
            )
