"""Three controllers as processes, ours or stock Kafka's, from the same configuration and formatted alike."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
from quorate_protocol.kafka.releases import DEFAULT_RELEASE, release_line
from quorate_protocol.properties import format_properties

from benchmarks.client import CONTROLLER_ENDPOINTS, describe_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quorate_operator.runtime.local.stock_kafka import Kafka

OURS, KAFKA = "Quorate", "Kafka"
"""Names of what is compared."""
POLL_SECONDS: Final = 0.005
NODE_IDS: Final = (3000, 3001, 3002)
QUORATE_CONTROLLER: Final = (sys.executable, "-m", "quorate", "controller")

JAVA_PERFORMANCE_OPTIONS: Final = (
    # What kafka-run-class gives to every JVM when nothing is configured.
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
JAVA_HEAP: Final = "1G"
"""What kafka-server-start gives: -Xmx1G -Xms1G."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """What runs a controller: `command` gets the properties file as its last argument.

    A quorum of it begins with the feature levels of `release`, and has `properties` beside those that all have.
    """

    name: str
    command: tuple[str, ...]
    release: str
    properties: Mapping[str, str] = field(default_factory=dict)


def quorate_command(interpreter: str) -> tuple[str, ...]:
    """What starts Quorate as its users do: the script beside the interpreter, or the module without one."""
    script = Path(interpreter).with_name("quorate")
    return (str(script),) if script.exists() else (interpreter, "-m", "quorate")


def python_implementation(interpreter: str, release: str = DEFAULT_RELEASE) -> Implementation:
    """Quorate's controllers at the levels of a release, run by an interpreter that has the core installed."""
    command = (interpreter, "-m", "quorate", "controller", "run", "--config")
    return Implementation(name=OURS, command=command, release=release)


def java_implementation(
    kafka: Kafka, *, heap: str = JAVA_HEAP, linger_ms: int | None = None, name: str = KAFKA
) -> Implementation:
    """Stock Kafka's controllers, with its default linger if no other is given."""
    options = (*JAVA_PERFORMANCE_OPTIONS, f"-Xmx{heap}", f"-Xms{heap}")
    lingers = {} if linger_ms is None else {"controller.quorum.append.linger.ms": str(linger_ms)}
    return Implementation(
        name=name,
        command=tuple(kafka.command("kafka.Kafka", jvm=options)),
        release=kafka.version,
        properties=lingers,
    )


def free_ports(count: int) -> tuple[int, ...]:
    """Free ports; all are held until the last is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports


class Quorum:
    """Three formatted directories and the processes on them, with `properties` beside those that all have."""

    def __init__(
        self,
        implementation: Implementation,
        directory: Path,
        ports: tuple[int, ...],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.implementation = implementation
        self._properties = {**implementation.properties, **(properties or {})}
        self.addresses = {node_id: ("127.0.0.1", port) for node_id, port in zip(NODE_IDS, ports, strict=True)}
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.cluster_id = _output(*QUORATE_CONTROLLER, "random-uuid")
        self._format()

    def _properties_file(self, node_id: int) -> Path:
        return self._directory / f"{node_id}.properties"

    def _format(self) -> None:
        self._directory.mkdir(parents=True)
        voters = ",".join(
            f"{node_id}@127.0.0.1:{port}:{_output(*QUORATE_CONTROLLER, 'random-uuid')}"
            for node_id, (_, port) in self.addresses.items()
        )
        for node_id in self.addresses:
            self._properties_file(node_id).write_text(format_properties(self.properties_of(node_id)))
            _output(
                *QUORATE_CONTROLLER,
                "format",
                "--config",
                str(self._properties_file(node_id)),
                "--cluster-id",
                self.cluster_id,
                "--initial-controllers",
                voters,
                "--release-version",
                release_line(self.implementation.release),
            )

    def properties_of(self, node_id: int) -> dict[str, str]:
        """What is in the file of one controller."""
        host, port = self.addresses[node_id]
        return {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{host}:{port}",
            "advertised.listeners": f"CONTROLLER://{host}:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{host}:{port}" for host, port in self.addresses.values()
            ),
            "log.dirs": str(self._directory / str(node_id)),
            **self._properties,
        }

    def start(self) -> None:
        """Start all three at once."""
        for node_id in self.addresses:
            self.start_one(node_id)

    def start_one(self, node_id: int) -> None:
        """Start one that does not run."""
        with (self._directory / f"{node_id}.out").open("ab") as output:
            self._processes[node_id] = subprocess.Popen(
                [*self.implementation.command, str(self._properties_file(node_id))],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
            )

    def wait_until_registered(
        self, timeout_seconds: float = 120.0, asked: Sequence[int] | None = None
    ) -> float:
        """Seconds until one of `asked`, by default of all, lists all three as registered."""
        started = time.perf_counter()
        fault = f"not registered; see {self._directory}"
        for _, registered in self._descriptions(fault, timeout_seconds, asked):
            if len(registered) == len(self.addresses):
                break
        return time.perf_counter() - started

    def active(self, timeout_seconds: float = 60.0) -> int:
        """Id of the active controller."""
        found = self._descriptions("no active controller", timeout_seconds)
        return next(active_id for active_id, _ in found if active_id in self._processes)

    def _descriptions(
        self, fault: str, timeout_seconds: float, asked: Sequence[int] | None = None
    ) -> Iterator[tuple[int, set[int]]]:
        """Yield the active and the registered controllers, as each process in turn has them. Raises TimeoutError."""
        started = time.perf_counter()
        while time.perf_counter() - started < timeout_seconds:
            for node_id in asked or tuple(self._processes):
                yield self._described(node_id)
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"{self.implementation.name}: {fault} after {timeout_seconds} s")

    def _described(self, node_id: int) -> tuple[int, set[int]]:
        try:
            response = describe_cluster(self.addresses[node_id], CONTROLLER_ENDPOINTS)
        except OSError:
            return -1, set()
        return response.controller_id, {node.broker_id for node in response.brokers}

    def resident_bytes(self) -> int:
        """Resident memory of the processes together."""
        return sum(psutil.Process(process.pid).memory_info().rss for process in self._processes.values())

    def processor_seconds(self, node_id: int) -> float:
        """Processor time, user and system, that one process has used so far."""
        times = psutil.Process(self._processes[node_id].pid).cpu_times()
        return times.user + times.system

    def all_processor_seconds(self) -> float:
        """The same of all that run, together."""
        return sum(map(self.processor_seconds, self._processes))

    def log_directory(self, node_id: int) -> Path:
        """Where one process keeps the metadata log and its snapshots."""
        return self._directory / str(node_id) / "__cluster_metadata-0"

    def living_addresses(self) -> list[tuple[str, int]]:
        """Those of the processes that run."""
        return [self.addresses[node_id] for node_id in self._processes]

    def kill(self, node_id: int) -> None:
        """kill -9."""
        process = self._processes.pop(node_id)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End whatever still runs."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
