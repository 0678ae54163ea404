"""What one operator costs that looks after many topics and users of one cluster: memory, requests, time to settle.

The API server and etcd are real, and so is the cluster: `quorate play` with three controllers and a stock broker.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from benchmarks.operators import (
    GROUP,
    NAMESPACE,
    VERSION,
    Rates,
    control_plane,
    cpu_seconds,
    resident_bytes,
    wait_until,
)
from benchmarks.quorum import quorate_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.operators import ControlPlane

SETTLE_SECONDS: Final = 1_800.0
IDLE_SECONDS: Final = 120.0
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 2.0
PLAY_TIME: Final = "300s"
KINDS: Final = {"kafkatopics": "KafkaTopic", "kafkausers": "KafkaUser"}
PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityMeasurements:
    """Figures of one operator with topics and users of one cluster. Shares of processor time are of one core."""

    topics: int
    users: int
    settle_seconds: float
    """From the operator's start until every resource is Ready."""
    settle_cpu_seconds: float
    settle_requests: float
    """To the API server, until every resource is Ready."""
    resident_bytes: int
    idle_requests_per_minute: float
    idle_cpu_share: float
    idle_broker_cpu_share: float
    start_requests_per_minute: float
    """In the first minute of an operator that finds nothing to change."""
    start_cpu_share: float
    """The same."""
    change_seconds: float
    """From a change of one topic's resource until Kafka has it."""


def measure_entities(
    python: str, scratch: Path, topics: int, users: int, *, progress: Callable[[str], None]
) -> EntityMeasurements:
    """Measure an operator with this number of topics and users, and end all processes.

    Raises RuntimeError when the control plane or the cluster does not start, TimeoutError when the operator does not
    keep up.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with _cluster(python, scratch, progress) as cluster, control_plane(scratch, progress) as plane:
        progress(f"{topics:,} topics and {users:,} users")
        _create(plane, cluster.servers, topics, users)
        policy = f"--policy={json.dumps({'servers': cluster.servers})}"
        before, began = plane.requests(), time.perf_counter()
        with plane.operator(python, scratch / "operator.log", policy) as process:
            progress("the first pass over each")
            wait_until(lambda: _unready(plane) == 0, SETTLE_SECONDS, POLL_SECONDS)
            settle_seconds = time.perf_counter() - began
            settle_requests = plane.requests() - before
            settle_cpu_seconds = cpu_seconds(process.pid)
            progress(f"{IDLE_SECONDS:.0f} s without a change")
            idle = Rates(plane, (process.pid, cluster.broker_pid), IDLE_SECONDS)
            resident = resident_bytes(process.pid)
            progress("a change of one topic")
            change_seconds = _change(plane)
        progress("another operator")
        with plane.operator(python, scratch / "operator-2.log", policy) as process:
            start = Rates(plane, (process.pid,), START_SECONDS)
    return EntityMeasurements(
        topics=topics,
        users=users,
        settle_seconds=settle_seconds,
        settle_cpu_seconds=settle_cpu_seconds,
        settle_requests=settle_requests,
        resident_bytes=resident,
        idle_requests_per_minute=idle.requests_per_minute,
        idle_cpu_share=idle.cpu_shares[0],
        idle_broker_cpu_share=idle.cpu_shares[1],
        start_requests_per_minute=start.requests_per_minute,
        start_cpu_share=start.cpu_shares[0],
        change_seconds=change_seconds,
    )


@dataclass(frozen=True, slots=True)
class _Played:
    servers: list[str]
    broker_pid: int


@contextmanager
def _cluster(python: str, scratch: Path, progress: Callable[[str], None]) -> Iterator[_Played]:
    """Play three controllers and a broker, with ACLs; the operator, without a login, is a super user."""
    progress("start of the cluster")
    manifest = scratch / "cluster.yaml"
    controller = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaController",
        "metadata": {"name": "quorum"},
        "spec": {"version": DEFAULT_RELEASE, "authorization": {"superUsers": ["User:ANONYMOUS"]}},
    }
    broker = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaBroker",
        "metadata": {"name": "brokers"},
        "spec": {"controllers": "quorum", "replicas": 1, "version": DEFAULT_RELEASE},
    }
    manifest.write_text(yaml.safe_dump_all([controller, broker]))
    play = [*quorate_command(python), "play"]
    where = f"--dir={scratch / 'play'}"
    result = subprocess.run(
        [*play, f"--file={manifest}", where, "--detach", f"--wait={PLAY_TIME}", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"the cluster does not start: {result.stderr.strip()}")
    try:
        status = json.loads(result.stdout)
        broker_pid = next(node["pid"] for node in status["nodes"] if node["role"] == "broker")
        yield _Played(status["bootstrapServers"].split(","), broker_pid)
    finally:
        subprocess.run([*play, "stop", where], capture_output=True, check=True)


def _create(plane: ControlPlane, servers: list[str], topics: int, users: int) -> None:
    for number in range(topics):
        spec = {"partitions": 1, "replicationFactor": 1, "config": {"retention.ms": 3_600_000}}
        _create_one(plane, "kafkatopics", f"topic-{number}", {"bootstrapServers": servers, **spec})
    for number in range(users):
        spec = {
            "authentication": {"type": "scram-sha-512"},
            "acls": [
                {"resource": {"type": "Topic", "name": f"topic-{number}"}, "operations": ["Read", "Write"]},
                {
                    "resource": {"type": "Group", "name": f"user-{number}-", "pattern": "Prefixed"},
                    "operations": ["Read"],
                },
            ],
            "quotas": {"producerByteRate": 10_485_760},
        }
        _create_one(plane, "kafkausers", f"user-{number}", {"bootstrapServers": servers, **spec})


def _create_one(plane: ControlPlane, plural: str, name: str, spec: dict[str, object]) -> None:
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KINDS[plural],
        "metadata": {"name": name},
        "spec": spec,
    }
    plane.custom.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, body)


def _unready(plane: ControlPlane) -> int:
    """Return the number of resources that are not Ready. Pages keep the API server's responses small."""
    count = 0
    for plural in KINDS:
        token = ""
        while True:
            page = plane.custom.list_namespaced_custom_object(
                GROUP, VERSION, NAMESPACE, plural, limit=PAGE, _continue=token
            )
            count += sum(not _is_ready(resource) for resource in page["items"])
            token = page["metadata"].get("continue", "")
            if not token:
                break
    return count


def _is_ready(resource: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = (resource.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _change(plane: ControlPlane) -> float:
    """Change a topic; the seconds until its status says that Kafka has it."""
    began = time.perf_counter()
    changed = plane.custom.patch_namespaced_custom_object(
        *(GROUP, VERSION, NAMESPACE, "kafkatopics", "topic-0"),
        {"spec": {"config": {"retention.ms": 7_200_000}}},
    )
    generation = changed["metadata"]["generation"]

    def has_it() -> bool:
        topic = plane.custom.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "kafkatopics", "topic-0")
        return topic["status"].get("observedGeneration") == generation and _is_ready(topic)

    wait_until(has_it)
    return time.perf_counter() - began
