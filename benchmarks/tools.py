"""What a command costs, from its start to its end: ours beside Kafka's tool, in turn, on the same stock node."""

from __future__ import annotations

import statistics
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quorate_protocol.properties import format_properties

from benchmarks.client import describe_cluster
from benchmarks.quorum import JAVA_PERFORMANCE_OPTIONS, quorate_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BROKER_ENDPOINTS: Final = 1
"""DescribeClusterRequest.EndpointType."""

POLL_SECONDS: Final = 0.1
READY_SECONDS: Final = 120.0
COMMAND_SECONDS: Final = 60.0
WARM_UP_PAIRS: Final = 1
TOPICS: Final = ("first", "second", "third")

JAVA_TOOL_OPTIONS: Final = (
    # What kafka-run-class gives to the JVM of a tool when nothing is configured.
    "-Xmx256M",
    *JAVA_PERFORMANCE_OPTIONS,
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
TOPIC: Final = "org.apache.kafka.tools.TopicCommand"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMeasurements:
    """Seconds of one command, the median of some runs."""

    metadata_quorum_seconds: float
    topics_list_seconds: float


def measure_tools(
    python: str,
    jars: Path,
    directory: Path,
    ports: tuple[int, int],
    *,
    pairs: int,
    progress: Callable[[str], None],
) -> tuple[ToolMeasurements, ToolMeasurements]:
    """Ours and Kafka's; leaves no process behind.

    Raises RuntimeError when a command fails, TimeoutError when the node does not come up.
    """
    directory.mkdir(parents=True)
    java = ("java", *JAVA_TOOL_OPTIONS, f"-Dkafka.logs.dir={directory}", "-cp", f"{jars}/*")
    progress("start of a node")
    with _node(java, directory, ports) as address:
        where = ("--bootstrap-server", address)
        for topic in TOPICS:
            _run(*java, TOPIC, *where, "--create", "--topic", topic)
        medians = []
        for command, main_class, arguments in (
            ("metadata-quorum", QUORUM, (*where, "describe", "--status")),
            ("topics", TOPIC, (*where, "--list")),
        ):
            progress(command)
            medians.append(
                _in_turn(
                    (*quorate_command(python), command, *arguments), (*java, main_class, *arguments), pairs
                )
            )
    (our_quorum, their_quorum), (our_topics, their_topics) = medians
    return (
        ToolMeasurements(metadata_quorum_seconds=our_quorum, topics_list_seconds=our_topics),
        ToolMeasurements(metadata_quorum_seconds=their_quorum, topics_list_seconds=their_topics),
    )


def _in_turn(ours: tuple[str, ...], theirs: tuple[str, ...], pairs: int) -> tuple[float, float]:
    """The medians of two commands that are run one after the other."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(WARM_UP_PAIRS + pairs):
        for command, times in zip((ours, theirs), seconds, strict=True):
            started = time.perf_counter()
            _run(*command)
            times.append(time.perf_counter() - started)
    ours_median, theirs_median = (statistics.median(times[WARM_UP_PAIRS:]) for times in seconds)
    return ours_median, theirs_median


@contextmanager
def _node(java: tuple[str, ...], directory: Path, ports: tuple[int, int]) -> Iterator[str]:
    """A stock node that is controller and broker; the address of the broker."""
    broker, controller = (f"127.0.0.1:{port}" for port in ports)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
    }
    config = directory / "server.properties"
    config.write_text(format_properties(properties))
    cluster_id = _run(*java, "kafka.tools.StorageTool", "random-uuid").strip()
    storage = ("format", "--standalone", "--config", str(config), "--cluster-id", cluster_id)
    _run(*java, "kafka.tools.StorageTool", *storage)
    with (directory / "node.out").open("wb") as output:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(config)], stdout=output, stderr=subprocess.STDOUT, cwd=directory
        )
    try:
        started = time.perf_counter()
        while not _serves(("127.0.0.1", ports[0])):
            if process.poll() is not None or time.perf_counter() - started > READY_SECONDS:
                raise TimeoutError(f"the node did not start in {READY_SECONDS} s; see {directory}/node.out")
            time.sleep(POLL_SECONDS)
        yield broker
    finally:
        process.kill()
        process.wait()


def _serves(address: tuple[str, int]) -> bool:
    try:
        return len(describe_cluster(address, BROKER_ENDPOINTS).brokers) > 0
    except OSError:
        return False


def _run(*command: str) -> str:
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout
