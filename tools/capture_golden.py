"""Capture golden bytes from stock Kafka for tests/golden.

Starts Java controllers and a broker from Kafka's jars on loopback, behind small proxies that record each
request and response, lets Kafka's own tools work on them, and keeps a few samples of each API and version,
the metadata log, a checkpoint and the other files of a directory.

    python tools/capture_golden.py --version 4.3.1 --out tests/golden/data
    python tools/capture_golden.py --version 4.4.0 --out tests/golden/data/4.4.0

Two scenarios: "current" (three controllers with a dynamic quorum at the newest metadata.version, one broker)
and "oldest" (a combined node with a static quorum at metadata.version 3.3-IV3, for old record versions).
"""

import argparse
import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from kafka_jars import kafka_here
from quorate_operator.runtime.local import stock_kafka

CREDENTIAL = (
    "SCRAM-SHA-256=[name=admin,iterations=4096,salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2x0NWQ=,password=secret]"
)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
JAVA_OPTIONS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# A controller deletes what its snapshots make superfluous once a minute; a joining one then fetches a
# snapshot.
LOG_CLEANING_AFTER_S = 75
SAMPLE_SIZE_BYTES_MAX = 8_192
SAMPLES_PER_VERSION = 3
ENVELOPE = 58
BROKER_ID = 1
INITIAL_VOTERS = (3000, 3001)
JOINING = 3002
DIRECTORY_IDS = {
    3000: "J8aAPcfLQt2bqs1JT_rMgQ",
    3001: "5Ox3n9zHTVa9C2Zzk1cU0g",
    JOINING: "chosen by the format",
}
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its response, without their frame lengths."""

    request: bytes
    response: bytes

    @property
    def key_and_version(self) -> tuple[int, int]:
        """API key and version, the first two fields of the header."""
        return int.from_bytes(self.request[:2], "big"), int.from_bytes(self.request[2:4], "big")

    @property
    def forwarded_key_and_version(self) -> tuple[int, int] | None:
        """Those of the request inside an Envelope: its first field, bytes with a compact length."""
        if self.key_and_version[0] != ENVELOPE:
            return None
        client_id_size_bytes = int.from_bytes(self.request[8:10], "big")
        offset = 10 + client_id_size_bytes + 1
        while self.request[offset] >= 0x80:
            offset += 1
        inner = self.request[offset + 1 : offset + 5]
        return int.from_bytes(inner[:2], "big"), int.from_bytes(inner[2:], "big")


@dataclass(slots=True)
class RecordingProxy:
    """Forwards connections to a target port and keeps what passes."""

    target_port: int
    exchanges: list[Exchange] = field(default_factory=list)
    port: int = 0

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.close()
            return
        waiting: deque[bytes] = deque()
        requests = self._pump(reader, target_writer, waiting, is_request=True)
        responses = self._pump(target_reader, writer, waiting, is_request=False)
        await asyncio.gather(requests, responses, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: deque[bytes],
        *,
        is_request: bool,
    ) -> None:
        try:
            while True:
                length = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(length, "big"))
                if is_request:
                    waiting.append(frame)
                else:
                    self.exchanges.append(Exchange(request=waiting.popleft(), response=frame))
                writer.write(length + frame)
                await writer.drain()
        finally:
            writer.close()


class ProxyLoop:
    """Runs proxies in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxies: list[RecordingProxy] = []
        Thread(target=self._loop.run_forever, daemon=True).start()

    def start(self, target_port: int) -> RecordingProxy:
        """Start a proxy in front of a port."""
        proxy = RecordingProxy(target_port)
        asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result()
        self._proxies.append(proxy)
        return proxy

    @property
    def exchanges(self) -> list[Exchange]:
        """All that passed through any proxy."""
        return [exchange for proxy in self._proxies for exchange in list(proxy.exchanges)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Starts Java programs of a release in a directory."""

    stock: stock_kafka.Kafka
    work: Path

    def command(self, main: str, *arguments: str) -> list[str]:
        """The command line of a Java main class."""
        return self.stock.command(main, *arguments, jvm=JAVA_OPTIONS)

    def tool(self, main: str, *arguments: str, may_fail: bool = False) -> None:
        """Run a tool to its end."""
        done = subprocess.run(
            self.command(main, *arguments),
            capture_output=True,
            text=True,
            cwd=self.work,
            check=False,
            timeout=120,
        )
        print(f"{main.rpartition('.')[2]} {' '.join(arguments)}: {done.returncode}", flush=True)
        if done.returncode and not may_fail:
            sys.exit(done.stdout + done.stderr)

    @contextmanager
    def node(self, properties: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run a controller or broker; end it as an operator would."""
        log = properties.with_suffix(".out").open("wb")
        process = subprocess.Popen(
            self.command("kafka.Kafka", str(properties)), stdout=log, stderr=subprocess.STDOUT, cwd=self.work
        )
        try:
            yield process
        finally:
            stop(process)
            log.close()


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    """Wait until the port accepts connections."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"nothing listens on {port}")


def write_properties(path: Path, **values: object) -> Path:
    """Write a properties file; underscores in keys stand for dots."""
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return path


@dataclass(slots=True)
class CurrentCluster:
    """Two controllers, a third that joins later, and a broker; each controller behind a recording proxy."""

    kafka: Kafka
    proxies: ProxyLoop
    ports: dict[int, int]
    fronts: dict[int, int]
    """Node id -> port of the proxy, the one that everybody knows."""
    broker_port: int

    @classmethod
    def create(cls, kafka: Kafka) -> "CurrentCluster":
        """Choose ports and start the proxies."""
        proxies = ProxyLoop()
        ports = {node_id: free_port() for node_id in DIRECTORY_IDS}
        fronts = {node_id: proxies.start(port).port for node_id, port in ports.items()}
        return cls(kafka, proxies, ports, fronts, free_port())

    def address(self, node_id: int) -> str:
        """Where a controller is reached, through its proxy."""
        return f"{HOST}:{self.fronts[node_id]}"

    @property
    def common_properties(self) -> dict[str, object]:
        """What controllers and brokers share."""
        return {
            "controller_listener_names": "CONTROLLER",
            "controller_quorum_bootstrap_servers": ",".join(self.address(node_id) for node_id in self.ports),
            "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super_users": "User:ANONYMOUS",
            "metadata_log_max_record_bytes_between_snapshots": 4_000,
            "metadata_max_retention_bytes": 8_000,
            "controller_quorum_election_timeout_ms": 2_000,
        }

    def controller_properties(self, node_id: int) -> Path:
        """Write the properties of a controller, as it is known now."""
        return write_properties(
            self.kafka.work / f"controller-{node_id}.properties",
            process_roles="controller",
            node_id=node_id,
            listeners=f"CONTROLLER://{HOST}:{self.ports[node_id]}",
            advertised_listeners=f"CONTROLLER://{self.address(node_id)}",
            log_dirs=self.kafka.work / f"controller-{node_id}",
            **self.common_properties,
        )

    def broker_properties(self) -> Path:
        """Write the properties of the broker."""
        return write_properties(
            self.kafka.work / "broker.properties",
            process_roles="broker",
            node_id=BROKER_ID,
            broker_rack="rack-a",
            listeners=f"PLAINTEXT://{HOST}:{self.broker_port}",
            log_dirs=f"{self.kafka.work}/broker-a,{self.kafka.work}/broker-b",
            offsets_topic_replication_factor=1,
            offsets_topic_num_partitions=2,
            transaction_state_log_replication_factor=1,
            transaction_state_log_num_partitions=2,
            transaction_state_log_min_isr=1,
            **self.common_properties,
        )

    def format(self) -> None:
        """Format all directories: two initial voters, an observer, the broker."""
        voters = ",".join(f"{node}@{self.address(node)}:{DIRECTORY_IDS[node]}" for node in INITIAL_VOTERS)
        formatting = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c")
        for node_id in INITIAL_VOTERS:
            properties = str(self.controller_properties(node_id))
            self.kafka.tool(
                *formatting, properties, "--initial-controllers", voters, "--add-scram", CREDENTIAL
            )
        self.kafka.tool(*formatting, str(self.controller_properties(JOINING)), "--no-initial-controllers")
        self.kafka.tool(*formatting, str(self.broker_properties()))

    @contextmanager
    def controller(self, node_id: int) -> Iterator[subprocess.Popen[bytes]]:
        """Run a controller; wait until it listens."""
        with self.kafka.node(self.controller_properties(node_id)) as process:
            wait_for_port(self.ports[node_id])
            yield process


def capture_current(kafka: Kafka, out: Path) -> list[Exchange]:
    """Three controllers and a broker at the newest metadata.version."""
    cluster = CurrentCluster.create(kafka)
    cluster.format()
    first, second = INITIAL_VOTERS
    directory = kafka.work / f"controller-{first}"
    keep_files(directory, out / "formatted", ("bootstrap.checkpoint", "meta.properties"))
    keep_files(directory / "__cluster_metadata-0", out / "formatted", ("*.checkpoint",))
    started = time.monotonic()
    with ExitStack() as running:
        # Both must run before either listens: one alone is no majority.
        properties = cluster.controller_properties(second)
        second_process = running.enter_context(kafka.node(properties))
        running.enter_context(cluster.controller(first))
        broker = running.enter_context(kafka.node(cluster.broker_properties()))
        wait_for_port(cluster.broker_port)
        brokers, controllers = f"{HOST}:{cluster.broker_port}", cluster.address(first)
        alter_topics_and_configs(kafka, ("--bootstrap-server", brokers))
        use_other_tools(kafka, ("--bootstrap-server", brokers), ("--bootstrap-controller", controllers))
        time.sleep(max(0.0, started + LOG_CLEANING_AFTER_S - time.monotonic()))
        running.enter_context(cluster.controller(JOINING))
        change_membership(kafka, controllers, cluster.controller_properties(JOINING))
        stop(second_process)
        cluster.fronts[second] = cluster.proxies.start(cluster.ports[second]).port
        running.enter_context(cluster.controller(second))
        stop(broker)
        time.sleep(5)
        unregister = ("unregister", "--bootstrap-controller", controllers, "--id", str(BROKER_ID))
        kafka.tool("org.apache.kafka.tools.ClusterTool", *unregister)
    keep_directory(directory, out / "current")
    return cluster.proxies.exchanges


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a node as an operator would."""
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def alter_topics_and_configs(kafka: Kafka, by_broker: tuple[str, str]) -> None:
    """Topics, configurations, quotas and credentials: each leaves records of its own."""
    topic = ("org.apache.kafka.tools.TopicCommand", *by_broker)
    kafka.tool(
        *topic, "--create", "--topic", "first", "--partitions", "3", "--config", "retention.ms=1000000"
    )
    kafka.tool(*topic, "--create", "--topic", "doomed")
    kafka.tool(*topic, "--create", "--topic", "first", may_fail=True)
    kafka.tool(*topic, "--alter", "--topic", "first", "--partitions", "5")
    kafka.tool(*topic, "--describe")
    kafka.tool(*topic, "--delete", "--topic", "doomed")
    alterations = (
        ("topics", ("--entity-name", "first"), "max.message.bytes=2000000"),
        ("brokers", ("--entity-default",), "log.cleaner.threads=2"),
        ("clients", ("--entity-name", "c"), "producer_byte_rate=1024"),
        ("users", ("--entity-default",), "request_percentage=50"),
        ("users", ("--entity-name", "alice"), "SCRAM-SHA-512=[iterations=4096,password=alice-secret]"),
    )
    configs = ("kafka.admin.ConfigCommand", *by_broker, "--alter", "--entity-type")
    for entity_type, entity, addition in alterations:
        kafka.tool(*configs, entity_type, *entity, "--add-config", addition)
    kafka.tool(*configs, "users", "--entity-name", "admin", "--delete-config", "SCRAM-SHA-256")


def use_other_tools(kafka: Kafka, by_broker: tuple[str, str], by_controller: tuple[str, str]) -> None:
    """Access control, features, the quorum, elections, reassignments, a transaction."""
    tools = "org.apache.kafka.tools"
    describe = ("kafka.admin.ConfigCommand", *by_controller, "--describe", "--all")
    kafka.tool(*describe, "--entity-type", "brokers", "--entity-name", str(INITIAL_VOTERS[0]))
    acl = (f"{tools}.AclCommand", *by_broker, "--force")
    reading = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "first")
    kafka.tool(*acl, "--add", *reading)
    prefixed = ("--operation", "All", "--topic", "x", "--resource-pattern-type", "prefixed")
    kafka.tool(*acl, "--add", "--deny-principal", "User:bob", *prefixed)
    kafka.tool(*acl, "--remove", *reading)
    kafka.tool(f"{tools}.AclCommand", *by_controller, "--list")
    feature = f"{tools}.FeatureCommand"
    kafka.tool(feature, *by_controller, "describe")
    kafka.tool(feature, *by_broker, "upgrade", "--feature", "transaction.version=2")
    kafka.tool(feature, *by_controller, "downgrade", "--feature", "group.version=0")
    kafka.tool(f"{tools}.MetadataQuorumCommand", *by_controller, "describe", "--status")
    kafka.tool(f"{tools}.MetadataQuorumCommand", *by_broker, "describe", "--replication")
    kafka.tool(f"{tools}.ClusterTool", "cluster-id", *by_controller)
    kafka.tool(f"{tools}.ClusterTool", "list-endpoints", *by_controller)
    kafka.tool(f"{tools}.ClusterTool", "unregister", *by_broker, "--id", "77", may_fail=True)
    election = ("--election-type", "preferred", "--all-topic-partitions")
    kafka.tool(f"{tools}.LeaderElectionCommand", *by_broker, *election)
    plan = kafka.work / "plan.json"
    moves = {"version": 1, "partitions": [{"topic": "first", "partition": 0, "replicas": [BROKER_ID]}]}
    plan.write_text(json.dumps(moves))
    reassign = f"{tools}.reassign.ReassignPartitionsCommand"
    kafka.tool(reassign, *by_broker, "--reassignment-json-file", str(plan), "--execute")
    kafka.tool(reassign, *by_controller, "--list")
    performance = ("--num-records", "10", "--record-size", "10", "--throughput", "-1", "--topic", "first")
    producer = ("--producer-props", f"bootstrap.servers={by_broker[1]}", "transactional.id=t")
    kafka.tool(f"{tools}.ProducerPerformance", *performance, *producer, "--transaction-duration-ms", "100")


def change_membership(kafka: Kafka, controllers: str, joining: Path) -> None:
    """Let the third controller, which observes so far, join and leave."""
    quorum = ("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller", controllers)
    time.sleep(4)
    kafka.tool(*quorum[:1], "--command-config", str(joining), *quorum[1:], "add-controller")
    kafka.tool(*quorum, "describe", "--status")
    directory = (joining.parent / f"controller-{JOINING}" / "meta.properties").read_text()
    directory_id = next(
        line.partition("=")[2] for line in directory.splitlines() if line.startswith("directory.id")
    )
    leaving = ("--controller-id", str(JOINING), "--controller-directory-id", directory_id)
    kafka.tool(*quorum, "remove-controller", *leaving)


def capture_oldest(kafka: Kafka, out: Path) -> list[Exchange]:
    """A combined node at metadata.version 3.3-IV3 with a static quorum."""
    proxies = ProxyLoop()
    controller_port, broker_port = free_port(), free_port()
    front = proxies.start(controller_port)
    properties = write_properties(
        kafka.work / "combined.properties",
        process_roles="broker,controller",
        node_id=1,
        controller_listener_names="CONTROLLER",
        controller_quorum_voters=f"1@{HOST}:{front.port}",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        listeners=f"PLAINTEXT://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        advertised_listeners=f"PLAINTEXT://{HOST}:{broker_port},CONTROLLER://{HOST}:{front.port}",
        log_dirs=kafka.work / "combined",
    )
    formatting = ("format", "-t", CLUSTER_ID, "-c", str(properties), "--release-version", "3.3-IV3")
    kafka.tool("kafka.tools.StorageTool", *formatting)
    with kafka.node(properties):
        wait_for_port(broker_port)
        topic = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"{HOST}:{broker_port}")
        kafka.tool(*topic, "--create", "--topic", "first", "--partitions", "2")
        feature = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", f"{HOST}:{broker_port}")
        kafka.tool(*feature, "upgrade", "--release-version", "3.7-IV4")
        kafka.tool(*topic, "--create", "--topic", "second", "--partitions", "2")
    keep_directory(kafka.work / "combined", out / "oldest")
    return proxies.exchanges


def keep_files(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    """Copy files of a directory."""
    target.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)


def keep_directory(source: Path, target: Path) -> None:
    """Copy what a node left: its metadata partition, the two newest checkpoints of it at most."""
    keep_files(source, target, ("meta.properties", "bootstrap.checkpoint"))
    partition = source / "__cluster_metadata-0"
    keep_files(partition, target, ("*.log", "quorum-state", "leader-epoch-checkpoint", "partition.metadata"))
    for path in sorted(partition.glob("*.checkpoint"))[-2:]:
        shutil.copyfile(path, target / path.name)


def choose_samples(exchanges: list[Exchange]) -> list[Exchange]:
    """The smallest, the median and the largest exchange of bounded size for each API and version.

    What an Envelope forwards counts as an API of its own.
    """
    by_version = defaultdict(set)
    for exchange in exchanges:
        by_version[exchange.key_and_version, exchange.forwarded_key_and_version or (0, 0)].add(exchange)
    chosen = []
    for _, found in sorted(by_version.items()):
        by_size = sorted(
            found, key=lambda exchange: (len(exchange.request) + len(exchange.response), exchange.request)
        )
        bounded = [
            e for e in by_size if len(e.request) + len(e.response) <= SAMPLE_SIZE_BYTES_MAX
        ] or by_size[:1]
        indexes = sorted({0, len(bounded) // 2, len(bounded) - 1})[:SAMPLES_PER_VERSION]
        chosen += [bounded[index] for index in indexes]
    return chosen


def write_exchanges(exchanges: list[Exchange], path: Path) -> None:
    """One exchange per line: API key, version, request and response in base 64."""
    lines = []
    for exchange in choose_samples(exchanges):
        key, version = exchange.key_and_version
        request, response = (
            base64.b64encode(data).decode() for data in (exchange.request, exchange.response)
        )
        lines.append(json.dumps({"key": key, "version": version, "request": request, "response": response}))
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} of {len(exchanges)} exchanges, {path.stat().st_size} bytes")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", required=True, help="the release of Kafka")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    options = parser.parse_args()
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    stock = kafka_here(options.version)
    for name, capture in (("current", capture_current), ("oldest", capture_oldest)):
        work = Path(tempfile.mkdtemp(prefix=f"quorate-golden-{name}-"))
        exchanges = capture(Kafka(stock=stock, work=work), out)
        write_exchanges(exchanges, out / f"{name}.jsonl")
        shutil.rmtree(work)
    sizes = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{sizes} bytes in {out}; node processes of {os.getpid()} have ended")


if __name__ == "__main__":
    main()
