"""A cluster of real processes that a test controls: it starts, kills and replaces each node.

Directories, configurations and commands are those of `quorate play`; there is no supervisor, so that a node
that was killed stays dead until the test starts it again.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psutil
import yaml
from kit.java.class_archive import archive_options
from kit.releases import LEVEL, RELEASE
from kit.temporary import jvm_temporary
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.cluster import ClusterDescription, QuorumDescription
from quorate_operator.planning.cluster import DesiredNode, Implementation, Role
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.identity import ClusterIdentity
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.loopback import is_free
from quorate_operator.runtime.local.server_properties import HTTP

if TYPE_CHECKING:
    from quorate_admin.security.config import SecurityConfig

CONTROLLERS_FIRST = 3000
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40
TOOL_TIMEOUT_S = 60
REQUEST_TIMEOUT_MS = 5_000
LINES_SHOWN, COLUMNS_SHOWN = 8, 150  # of both ends of each log: what prints the result of a run may cut it
TELLING = re.compile(
    r"Recorded new KRaft controller|BrokerLifecycleManager|Disconnecting from node|Latest set of voters"
    r"|RaftManager.*(?:ransition to|runcat)"
)
"""What a Java node says of its controller at the level INFO."""
QUIET = re.compile(r"\] INFO |ReplicaFetcher |^\s+at |^java\.")
PORTS = range(20_000, 32_700)
_given_ports: set[int] = set()
# The index files of a new log are written to their full size, 10 MiB each by default.
SMALL_FILES = {"log.index.size.max.bytes": 16_384}
# A node may not survive a test run that is killed; the tests have threads, so that there can be no preexec_fn.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
# JVMs that live for a test: no second compiler, and little memory for each.
HEAP = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
UNHURRIED = {"controller.quorum.fetch.timeout.ms": 10_000}
"""For tests that may lose no leader: a node that a busy machine stops for seconds is no reason for an election.
Followers that can't reach their leader still elect another one."""

_Result = TypeVar("_Result")


def manifests(
    *,
    controllers: int = 3,
    java: Collection[int] = (),
    brokers: int = 1,
    quorum: str = "dynamic",
    metadata_version: str | None = LEVEL,
    config: Mapping[str, object] | None = None,
    broker_config: Mapping[str, object] | None = None,
) -> str:
    """Manifests of a cluster; `java` lists the ids of the controllers that stock Kafka runs."""
    ports = free_ports(controllers + brokers)
    spec: dict[str, Any] = {
        "replicas": controllers,
        "version": RELEASE,
        "listeners": [{"name": "CONTROLLER", "port": ports}],
        "nodeIds": {"first": CONTROLLERS_FIRST},
        "quorum": quorum,
        "nodes": [{"nodeId": node_id, "implementation": "java"} for node_id in java],
        "config": dict(config or {}),
    }
    if metadata_version is not None:
        spec["metadataVersion"] = metadata_version
    resources = [_resource("KafkaController", "quorum", spec)]
    if brokers:
        pool = {
            "controllers": "quorum",
            "replicas": brokers,
            "version": RELEASE,
            "listeners": [{"name": "PLAINTEXT", "port": ports + controllers}],
            "config": {**SMALL_FILES, **(broker_config or {})},
        }
        resources.append(_resource("KafkaBroker", "brokers", pool))
    return yaml.safe_dump_all(resources)


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports which are free, and which the system does not assign.

    They are chosen by chance, so that clusters of other test runs leave them alone while a node is down.
    What was given once is not given again: its owner may not listen yet, or be down for a while. Processes that
    share a run have ports of their own.
    """
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{name}") for name in ("", "_COUNT"))
    share = len(PORTS) // int(workers or 1)
    first = PORTS.start + share * int((worker or "gw0").removeprefix("gw"))
    while True:
        start = random.randrange(first, first + share - count)
        ports = range(start, start + count)
        if _given_ports.isdisjoint(ports) and all(is_free(port) for port in ports):
            _given_ports.update(ports)
            return start


def environment_for(jars: Path, scratch: Path) -> dict[str, str]:
    """The environment in which these jars are found."""
    home = scratch / "kafka"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "libs").symlink_to(jars)
    options = " ".join((*HEAP, jvm_temporary(), *archive_options(jars)))
    return {**os.environ, "KAFKA_HOME": str(home), "KAFKA_HEAP_OPTS": options}


def without_http(identity: ClusterIdentity) -> ClusterIdentity:
    """The identity of a cluster whose controllers serve no metrics."""
    nodes = {
        node_id: replace(node, ports={name: port for name, port in node.ports.items() if name != HTTP})
        for node_id, node in identity.nodes.items()
    }
    return replace(identity, nodes=nodes)


class Cluster:
    """A cluster below `directory`, formatted and not started. Close it."""

    def __init__(self, layout: Layout, environment: Mapping[str, str]) -> None:
        self.layout = layout
        self.environment = environment
        self._nodes = {node.node_id: node for node in layout.desired.nodes}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started_at_ms: dict[int, int] = {}
        self._removed_keys: dict[int, frozenset[str]] = {}
        self.controller_security: SecurityConfig | None = None
        """How to ask controllers, if not in plain text."""
        self.broker_security: SecurityConfig | None = None
        """How to ask brokers, if not in plain text."""

    @classmethod
    def create(cls, directory: Path, jars: Path, manifest: str) -> Self:
        """Settle ids and ports, and format every node."""
        cluster = cls.settle(directory, jars, manifest)
        cluster.format(*cluster.nodes(Role.CONTROLLER), *cluster.nodes(Role.BROKER))
        return cluster

    @classmethod
    def settle(cls, directory: Path, jars: Path | None, manifest: str) -> Self:
        """Settle ids and ports; nothing is formatted yet. A cluster without Java nodes needs no jars."""
        environment = environment_for(jars, directory.parent) if jars else os.environ
        layout = play_session.prepare(manifest, "test", directory, environment, lambda _: None).layout
        return cls(replace(layout, identity=without_http(layout.identity)), environment)

    # Nodes

    def nodes(self, role: Role) -> tuple[int, ...]:
        """The ids of all nodes of a role."""
        return tuple(node_id for node_id, node in self._nodes.items() if node.role is role)

    @property
    def controllers(self) -> tuple[int, ...]:
        """The ids of all controllers."""
        return self.nodes(Role.CONTROLLER)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of all brokers."""
        return self.nodes(Role.BROKER)

    def implementation(self, node_id: int) -> str:
        """`python` or `java`."""
        return str(self._nodes[node_id].implementation)

    def controllers_in(self, implementation: str) -> tuple[int, ...]:
        """The ids of the controllers of one implementation."""
        return tuple(
            controller for controller in self.controllers if self.implementation(controller) == implementation
        )

    def run_with(self, node_id: int, implementation: str) -> None:
        """From its next start on, have a controller run by `python` or by `java`."""
        self._nodes[node_id] = replace(
            self._nodes[node_id], implementation=Implementation(implementation), kafka_version=self._version
        )

    def configure(self, node_id: int, properties: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        """From its next start on, add these properties to a node's configuration, and leave out the removed keys."""
        node = self._nodes[node_id]
        self._nodes[node_id] = replace(node, config={**node.config, **properties})
        self._removed_keys[node_id] = frozenset(removed)

    def write_config(self, node_id: int) -> None:
        """Write the node's server.properties, as formatting and starting it do."""
        self.layout.write_config(self._nodes[node_id])
        removed = self._removed_keys.get(node_id)
        if removed:
            file = self.config_file(node_id)
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(line for line in lines if line.partition("=")[0] not in removed))

    def config_file(self, node_id: int) -> Path:
        """The node's server.properties, as it was written when the node was formatted or started."""
        return self.layout.config_file(self._nodes[node_id])

    def data(self, node_id: int) -> Path:
        """The node's log directory."""
        return self.layout.directory.node_data(self._nodes[node_id].label)

    def metadata(self, node_id: int) -> Path:
        """The node's metadata partition."""
        return self.data(node_id) / "__cluster_metadata-0"

    def directory_id(self, node_id: int) -> str:
        """The id that the node's directory was given when it was formatted."""
        lines = (self.data(node_id) / "meta.properties").read_text().splitlines()
        return next(line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id="))

    def log_of(self, node_id: int) -> str:
        """The output of the node's process."""
        return self.layout.directory.node_log(self._nodes[node_id].label).read_text(errors="replace")

    def address(self, node_id: int) -> str:
        """`host:port` of a node."""
        return self.layout.address(self._nodes[node_id])

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return self.layout.bootstrap(Role.BROKER)

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers."""
        return self.layout.bootstrap(Role.CONTROLLER)

    # Processes

    def format(self, *node_ids: int) -> None:
        """Format nodes, all at the same time."""
        running = {}
        for node_id in node_ids:
            node = self._nodes[node_id]
            self.data(node_id).mkdir(parents=True, exist_ok=True)
            self.write_config(node_id)
            running[node_id] = subprocess.Popen(
                self._format_command(node), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        for node_id, process in running.items():
            output, _ = process.communicate(timeout=TOOL_TIMEOUT_S)
            assert process.returncode == 0, f"node {node_id} could not be formatted: {output}"

    def start(self, *node_ids: int) -> None:
        """Start the processes of nodes; those that run are left alone."""
        for node_id in node_ids:
            if self.runs(node_id):
                continue
            node = self._nodes[node_id]
            self.write_config(node_id)
            self._started_at_ms[node_id] = time.time_ns() // 1_000_000
            with self.layout.directory.node_log(node.label).open("ab") as log:
                self._processes[node_id] = subprocess.Popen(
                    [*DIE_WITH_PARENT, *self.layout.run_command(node, self.environment)],
                    cwd=self.layout.directory.node(node.label),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )

    def start_all(self) -> Self:
        """Start every node and wait until the cluster serves."""
        return self.start_with(*self.controllers)

    def start_with(self, *controllers: int) -> Self:
        """Start these controllers and all brokers, and wait until the cluster serves.

        A broker that truncates the first voters of a stock leader finds no controller from then on (ADR 29).
        """
        self.start(*controllers)
        if any(self.implementation(controller) == "java" for controller in controllers):
            self.await_quorum(*controllers)
        self.start(*self.brokers)
        self.await_quorum(*controllers)
        if self.brokers:
            self.await_unfenced(*self.brokers)
        return self

    def runs(self, node_id: int) -> bool:
        """Whether the node has a process."""
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def pid(self, node_id: int) -> int:
        """The process of a node that runs."""
        return self._processes[node_id].pid

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a node's process a signal."""
        self._processes[node_id].send_signal(number)

    def kill(self, *node_ids: int) -> None:
        """Kill nodes with SIGKILL, all at once."""
        for node_id in node_ids:
            assert self.runs(node_id), self.describe(f"node {node_id} had ended before it was killed")
            self._processes[node_id].kill()
        for node_id in node_ids:
            self._processes[node_id].wait(timeout=STOP_TIMEOUT_S)

    def terminate(self, *node_ids: int) -> None:
        """Ask nodes to leave, with SIGTERM, and wait until they have."""
        for node_id in node_ids:
            assert self.runs(node_id), self.describe(f"node {node_id} had ended before it was terminated")
            self._processes[node_id].terminate()
        for node_id in node_ids:
            self.await_exit(node_id)

    def await_exit(self, node_id: int) -> None:
        """Wait until a node that was terminated has left; ours have to do so with success.

        Java's exit status says nothing: it is 1 when the signal comes while it still loads its log.
        """
        code = self._processes[node_id].wait(timeout=STOP_TIMEOUT_S)
        if self.implementation(node_id) == "python":
            assert code == 0, self.describe(f"node {node_id} ended with {code}")

    def suspend(self, *node_ids: int) -> None:
        """Suspend nodes until they are sent SIGCONT. Returns when they are suspended."""
        for node_id in node_ids:
            self.signal(node_id, signal.SIGSTOP)
        for node_id in node_ids:
            eventually(partial(self._is_suspended, node_id), STOP_TIMEOUT_S, f"{node_id} to be suspended")

    @contextmanager
    def frozen(self, node_ids: Iterable[int] | None = None) -> Iterator[None]:
        """Suspend these controllers, by default all, as far as they run: nothing of them changes in the context."""
        chosen = self.controllers if node_ids is None else node_ids
        frozen = [node_id for node_id in chosen if self.runs(node_id)]
        self.suspend(*frozen)
        try:
            yield
        finally:
            for node_id in frozen:
                self.signal(node_id, signal.SIGCONT)

    def stop(self) -> None:
        """Stop everything in order: brokers, then controllers."""
        for node_ids in (self.brokers, self.controllers):
            self.terminate(*(node_id for node_id in node_ids if self.runs(node_id)))

    def close(self) -> None:
        """Kill what still runs, and assert that nothing stays behind."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=STOP_TIMEOUT_S)
        self.layout.directory.release()
        assert processes_below(self.layout.directory.path) == []

    def _format_command(self, node: DesiredNode) -> list[str]:
        return self.layout.format_command(node)

    def _is_suspended(self, node_id: int) -> bool:
        return psutil.Process(self._processes[node_id].pid).status() == psutil.STATUS_STOPPED

    # Questions

    def quorum(self, *node_ids: int) -> QuorumDescription | None:
        """The quorum as its leader describes it, asked at these or all controllers; None without a response."""
        asked = [node_id for node_id in node_ids or self.controllers if self.runs(node_id)]

        async def describe(client: AdminClient) -> QuorumDescription:
            return await client.describe_metadata_quorum()

        return self.ask(describe, controllers=asked) if asked else None

    def describe_brokers(self, via: int | None = None) -> ClusterDescription | None:
        """The brokers, as one that runs knows them."""
        asked = [via] if via is not None else [broker for broker in self.brokers if self.runs(broker)]

        async def describe(client: AdminClient) -> ClusterDescription:
            return await client.describe_cluster()

        return self.ask(describe, brokers=asked) if asked else None

    def ask(
        self,
        question: Callable[[AdminClient], Awaitable[_Result]],
        *,
        controllers: Iterable[int] = (),
        brokers: Iterable[int] = (),
    ) -> _Result | None:
        """The answer of the first of some nodes; None when none of them gives one."""

        controller_addresses = [self.address(controller) for controller in controllers]
        broker_addresses = [self.address(broker) for broker in brokers]

        async def ask() -> _Result:
            client = AdminClient(
                bootstrap_controllers=controller_addresses,
                bootstrap_servers=broker_addresses,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                security=self.controller_security if controller_addresses else self.broker_security,
                # These nodes and no others, each of them once.
                follow_advertised=False,
                retries=len(controller_addresses) + len(broker_addresses) - 1,
            )
            async with client:
                return await question(client)

        try:
            return asyncio.run(ask())
        except AdminError:
            return None

    def await_quorum(self, *voters: int, other_than: int | None = None) -> QuorumDescription:
        """Wait for a leader whose epoch has a committed record, with these (or all) voters caught up.

        What the leader remembers of a voter from before its start does not count.
        """
        wanted = set(voters) or set(self.controllers)

        def caught_up() -> QuorumDescription | None:
            ended = [node_id for node_id in wanted if not self.runs(node_id)]
            assert not ended, self.describe(f"{ended} ended")
            quorum = self.quorum()
            if quorum is None or quorum.high_watermark < 0 or quorum.leader_id == other_than:
                return None
            ends = {
                voter.node_id: voter.log_end_offset
                for voter in quorum.voters
                if (voter.last_fetch_ms or 0) > self._started_at_ms[voter.node_id]
            }
            behind = [node_id for node_id in wanted if ends.get(node_id, -1) < quorum.high_watermark]
            return None if behind else quorum

        who = ", ".join(map(str, sorted(wanted)))
        return eventually(
            caught_up, START_TIMEOUT_S, f"a leader with {who}", lambda: self.describe(self.quorum())
        )

    def await_leader(self, other_than: int | None = None, timeout_s: float = START_TIMEOUT_S) -> int:
        """Wait for a leader that has committed a record of its epoch; its id."""

        def leader() -> int | None:
            quorum = self.quorum()
            known = quorum is not None and quorum.high_watermark >= 0 and quorum.leader_id != other_than
            return quorum.leader_id if quorum is not None and known else None

        return eventually(leader, timeout_s, "a leader", lambda: self.describe(self.quorum()))

    def await_unfenced(self, *node_ids: int, via: int | None = None) -> None:
        """Wait until brokers (asked: all that run, or one) know that these are in service."""
        wanted = set(node_ids)
        ask = [via] if via is not None else [broker for broker in self.brokers if self.runs(broker)]

        def are_unfenced() -> bool:
            seen = [self.describe_brokers(node_id) for node_id in ask]
            return all(description is not None and wanted <= unfenced(description) for description in seen)

        eventually(
            are_unfenced, START_TIMEOUT_S, f"brokers {node_ids} in service", lambda: self.describe("fenced")
        )

    def describe(self, observation: object) -> str:
        """An observation, with the ends of all logs."""
        logs = []
        for node_id, node in self._nodes.items():
            state = "runs" if self.runs(node_id) else "does not run"
            log = self.layout.directory.node_log(node.label)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            if node.implementation is Implementation.JAVA:
                lines = [line for line in lines if TELLING.search(line) or not QUIET.search(line)]
            if len(lines) > 2 * LINES_SHOWN:
                lines = [*lines[:LINES_SHOWN], "...", *lines[-LINES_SHOWN:]]
            shown = [line[:COLUMNS_SHOWN] for line in lines]
            logs.append("\n".join([f"{node.label} ({node.implementation}) {state}:", *shown]))
        return "\n\n".join([str(observation), *logs])

    # Tools

    def tool(self, name: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools to its end, against the brokers unless an argument says otherwise."""
        return subprocess.run(
            [str(self.layout.directory.tools / name), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )

    @property
    def _version(self) -> str:
        return next(iter(self.layout.identity.kafka_versions))


def unfenced(cluster: ClusterDescription) -> set[int]:
    """The ids of the brokers in service."""
    return {node.node_id for node in cluster.nodes if not node.fenced}


def processes_below(directory: Path) -> list[str]:
    """The command lines that name a path below a directory, of processes that run."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(f"{directory}/" in word for word in line):
            found.append(f"{process.info['pid']}: {' '.join(line)}")
    return found


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": dict(spec),
    }
