"""The cluster of a soak: nodes in namespaces, controllers on small disks and with clocks that can be set."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kit.cluster import DIE_WITH_PARENT, STOP_TIMEOUT_S, manifests, processes_below
from kit.membership import Membership
from kit.soak.network import Network, SmallDisk
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_operator.planning.cluster import DesiredNode, Implementation
from quorate_operator.runtime.local.layout import QUORATE, Layout

CONTROLLERS, JAVA_CONTROLLERS, BROKERS = 5, (3004,), 3
DISK_SIZE_MB = 48
HTTP_PORT = 8080
TESTS = Path(__file__).parents[2]
LIBFAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
"""The library of Debian's package faketime; None where it is missing."""
CONTROLLER_CONFIG = {
    "internal.metadata.log.segment.bytes": 1_000_000,
    "metadata.log.max.record.bytes.between.snapshots": 400_000,
    "metadata.max.retention.bytes": 4_000_000,
    "broker.session.timeout.ms": 9_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
}
"""Snapshots and removed segments every few minutes, so that those who lost their disk begin with a snapshot."""
BROKER_CONFIG = {
    "broker.heartbeat.interval.ms": 2_000,
    "log.segment.bytes": 16_777_216,
}


@dataclass(frozen=True, slots=True)
class NamespacedLayout(Layout):
    """A layout whose nodes are in the namespaces of a network."""

    network: Network
    scratch: Path
    """Where clocks and the output of strace are."""
    mistake: str = ""
    """The one of `mistakes.MISTAKES` that Python controllers make; none if empty."""

    def address(self, node: DesiredNode) -> str:
        """`host:port` of a node in its namespace."""
        return self.network.translate(Layout.address(self, node))

    def write_config(self, node: DesiredNode) -> None:
        """Write the configuration, with addresses in namespaces."""
        # Of a dataclass with slots, a class of its own without its zero-argument super().
        Layout.write_config(self, node)
        file = self.config_file(node)
        self.directory.write(file, self.network.translate(file.read_text()))

    def format_command(self, node: DesiredNode, *, is_initial: bool = True) -> list[str]:
        """The command that formats a node, with addresses in namespaces."""
        command = Layout.format_command(self, node, is_initial=is_initial)
        return [self.network.translate(word) for word in command]

    def run_command(self, node: DesiredNode, environment: Mapping[str, str]) -> list[str]:
        """The command that runs a node in its namespace, with its own clock if it is a Python controller."""
        command = Layout.run_command(self, node, environment)
        if node.implementation is Implementation.PYTHON:
            clock = ["env", *self._clock(node.node_id)]
            command = [*clock, *(self._mistaken(command) if self.mistake else command)]
        return [*self.network.enter(node.node_id), *command]

    def _mistaken(self, command: Sequence[str]) -> list[str]:
        """The command that runs a controller with the mistake."""
        arguments = command[len(QUORATE) :]
        return [f"PYTHONPATH={TESTS}", sys.executable, "-m", "kit.soak.mistakes", self.mistake, *arguments]

    def clock_file(self, node_id: int) -> Path:
        """Where a node's offset from this machine's clock is."""
        return self.scratch / str(node_id)

    def _clock(self, node_id: int) -> Iterator[str]:
        if LIBFAKETIME is not None:
            yield f"LD_PRELOAD={LIBFAKETIME}"
            yield f"FAKETIME_TIMESTAMP_FILE={self.clock_file(node_id)}"
            # A clock that is set moves CLOCK_REALTIME alone.
            yield "FAKETIME_DONT_FAKE_MONOTONIC=1"
            yield "FAKETIME_CACHE_DURATION=1"


class SoakCluster(Membership):
    """Four Python controllers, a Java controller and three stock brokers. Close it."""

    layout: NamespacedLayout

    def __init__(self, layout: NamespacedLayout, environment: Mapping[str, str]) -> None:
        super().__init__(layout, environment)
        self.disks: dict[int, SmallDisk] = {}
        self.injections: dict[int, subprocess.Popen[bytes]] = {}
        self._started_s: dict[int, float] = {}
        self._starting = threading.Lock()

    @classmethod
    @contextmanager
    def made(cls, directory: Path, jars: Path, *, mistake: str = "") -> Iterator[Self]:
        """A cluster that is formatted and not started, in a network of its own; both are removed at the end.

        `mistake` is the one of `mistakes.MISTAKES` that its Python controllers make.
        """
        manifest = manifests(
            controllers=CONTROLLERS,
            java=JAVA_CONTROLLERS,
            brokers=BROKERS,
            config=CONTROLLER_CONFIG,
            broker_config=BROKER_CONFIG,
        )
        settled = Membership.settle(directory, jars, manifest)
        identities = settled.layout.identity.nodes
        scratch = directory.with_name("scratch")
        scratch.mkdir()
        with Network({name: next(iter(node.ports.values())) for name, node in identities.items()}) as network:
            plain = settled.layout
            layout = NamespacedLayout(
                directory=plain.directory,
                manifests=plain.manifests,
                desired=plain.desired,
                identity=plain.identity,
                kafka=plain.kafka,
                network=network,
                scratch=scratch,
                mistake=mistake,
            )
            cluster = cls(layout, settled.environment)
            cluster.founders = cluster.controllers
            try:
                cluster._prepare()
                yield cluster
            finally:
                cluster.close()

    def _has_ended(self) -> bool:
        """Kill what has a path of this run in its command; a signal may have come before a process was noted."""
        below = [int(line.partition(":")[0]) for line in processes_below(self.layout.directory.path)]
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes.values():
            process.poll()
        return not below

    @property
    def network(self) -> Network:
        """The network that the nodes are in."""
        return self.layout.network

    @property
    def python_controllers(self) -> tuple[int, ...]:
        """The controllers that are ours."""
        return self.controllers_in("python")

    def _prepare(self) -> None:
        for node_id in self.controllers:
            self.disks[node_id] = SmallDisk(self.data(node_id), DISK_SIZE_MB)
            self.set_clock(node_id, 0)
        for node_id in self.python_controllers:
            self.configure(node_id, {"quorate.http.listener": f"{self.network.host(node_id)}:{HTTP_PORT}"})
        self.format(*self.controllers, *self.brokers)
        self._founded = True

    def close(self) -> None:
        """Stop every process, and unmount the disks."""
        try:
            for node_id in list(self.injections):
                self.stop_injecting(node_id)
            eventually(self._has_ended, STOP_TIMEOUT_S, "every process to end")
            super().close()
        finally:
            for disk in self.disks.values():
                disk.close()

    def founding_voters(self) -> str:
        """The argument of --initial-controllers, with addresses in namespaces."""
        return self.network.translate(super().founding_voters())

    # Processes

    def pid(self, node_id: int) -> int:
        """The process of a node."""
        return self._processes[node_id].pid

    def exit_code(self, node_id: int) -> int | None:
        """How a node's process ended; None while it runs, or if it never did."""
        process = self._processes.get(node_id)
        return None if process is None else process.poll()

    def start(self, *node_ids: int) -> None:
        """Start nodes that do not run; threads may start nodes at the same time."""
        with self._starting:
            for node_id in node_ids:
                if not self.runs(node_id):
                    self._started_s[node_id] = time.monotonic()
            super().start(*node_ids)

    def age_s(self, node_id: int) -> float:
        """How long ago a node's process was started."""
        return time.monotonic() - self._started_s[node_id]

    def end(self, node_id: int, number: signal.Signals, timeout_s: float) -> None:
        """Have a node end by a signal if it runs; after the time it is killed."""
        process = self._processes[node_id]
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout_s)

    def client_of(self, node_id: int, timeout_ms: int) -> AdminClient:
        """A client that asks a single controller, once."""
        return AdminClient(
            bootstrap_controllers=[self.address(node_id)],
            follow_advertised=False,
            retries=0,
            request_timeout_ms=timeout_ms,
            default_api_timeout_ms=timeout_ms,
        )

    # Clocks, disks and system calls

    def set_clock(self, node_id: int, offset_s: int) -> None:
        """Set a node's clock ahead of this machine's by `offset_s`; a process notices within a second."""
        file = self.layout.clock_file(node_id)
        new = file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}\n")
        new.replace(file)

    def empty_disk(self, node_id: int) -> None:
        """Remove everything from the disk of a node that does not run."""
        for entry in self.data(node_id).iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def inject(self, node_id: int, action: str) -> None:
        """Make each fsync and fdatasync of a node fail or be late, by an action of strace's `inject`."""
        options = ("-f", "-qq", "-p", str(self.pid(node_id)), "-o", str(self.injection_log(node_id)))
        calls = "fsync,fdatasync"
        self.injection_log(node_id).write_text("")
        self.injections[node_id] = subprocess.Popen(
            [*DIE_WITH_PARENT, "strace", *options, "-e", f"trace={calls}", "-e", f"inject={calls}:{action}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def injection_log(self, node_id: int) -> Path:
        """The file with strace's output for a node."""
        return self.layout.scratch / f"{node_id}.strace"

    def stop_injecting(self, node_id: int) -> None:
        """Leave a node's system calls alone again."""
        strace = self.injections.pop(node_id, None)
        if strace is None:
            return
        strace.terminate()
        try:
            strace.wait(10)
        except subprocess.TimeoutExpired:
            strace.kill()
            strace.wait(10)
