"""What a command costs, from its start to its end: ours beside Kafka's tool, in turn, on the same stock node."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quorate_protocol.properties import format_properties

from benchmarks.client import describe_cluster
from benchmarks.quorum import JAVA_PERFORMANCE_OPTIONS, free_ports, quorate_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from quorate_operator.runtime.local.stock_kafka import Kafka

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
STORAGE: Final = "kafka.tools.StorageTool"
TOPIC: Final = "org.apache.kafka.tools.TopicCommand"


@dataclass(frozen=True, slots=True)
class Tool:
    """A command of ours and the class of Kafka that does the same, with the same arguments."""

    command: str
    main_class: str
    arguments: tuple[str, ...]

    @property
    def label(self) -> str:
        return " ".join((self.command, *self.arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRuns:
    """Seconds of each run."""

    ours: list[float]
    theirs: list[float]


TOOLS: Final = (
    Tool("metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand", ("describe", "--status")),
    Tool("topics", TOPIC, ("--list",)),
    Tool("configs", "kafka.admin.ConfigCommand", ("--describe", "--entity-type", "topics")),
    Tool("features", "org.apache.kafka.tools.FeatureCommand", ("describe",)),
)


def measure_tools(
    python: str, kafka: Kafka, directory: Path, *, pairs: int, progress: Callable[[str], None]
) -> dict[str, ToolRuns]:
    """Measure the seconds of each run, ours and Kafka's. No process is left.

    Raises RuntimeError when a command fails, TimeoutError when the node does not come up.
    """
    directory.mkdir(parents=True)
    options = (*JAVA_TOOL_OPTIONS, f"-Dkafka.logs.dir={directory}")
    progress("start of a node")
    measured = {}
    with _node(kafka, options, directory, free_ports(2)) as address:
        where = ("--bootstrap-server", address)
        for topic in TOPICS:
            _run(*kafka.command(TOPIC, *where, "--create", "--topic", topic, jvm=options))
        for tool in TOOLS:
            progress(tool.label)
            arguments = (*where, *tool.arguments)
            ours = (*quorate_command(python), tool.command, *arguments)
            theirs = tuple(kafka.command(tool.main_class, *arguments, jvm=options))
            measured[tool.label] = _in_turn(ours, theirs, pairs)
    return measured


def _in_turn(ours: tuple[str, ...], theirs: tuple[str, ...], pairs: int) -> ToolRuns:
    """The seconds of two commands that are run one after the other."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(WARM_UP_PAIRS + pairs):
        for command, times in zip((ours, theirs), seconds, strict=True):
            started = time.perf_counter()
            _run(*command)
            times.append(time.perf_counter() - started)
    our_seconds, their_seconds = (times[WARM_UP_PAIRS:] for times in seconds)
    return ToolRuns(ours=our_seconds, theirs=their_seconds)


@contextmanager
def _node(kafka: Kafka, options: tuple[str, ...], directory: Path, ports: tuple[int, ...]) -> Iterator[str]:
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
    cluster_id = _run(*kafka.command(STORAGE, "random-uuid", jvm=options)).strip()
    storage = ("format", "--standalone", "--config", str(config), "--cluster-id", cluster_id)
    _run(*kafka.command(STORAGE, *storage, jvm=options))
    with (directory / "node.out").open("wb") as output:
        process = subprocess.Popen(
            kafka.command("kafka.Kafka", str(config), jvm=options),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
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
