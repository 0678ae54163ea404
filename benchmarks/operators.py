"""What one operator costs that looks after many clusters: memory, requests when nothing happens, time to act.

The API server and etcd are real; there are no machines, so that pods stay Pending. Most clusters are hibernated, and
are woken for the last figure.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import yaml
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from benchmarks.quorum import quorate_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import kubernetes.client

CLUSTERS: Final = 200
WOKEN: Final = 10
IDLE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.05
GROUP, VERSION, PLURAL = "quorate.dev", "v1alpha1", "kafkacontrollers"
PLURALS: Final = (PLURAL, "kafkabrokers", "kafkatopics", "kafkausers")
NAMESPACE: Final = "default"
PORT_RANGE: Final = (20_000, 32_000)
RESOURCES: Final = (
    *PLURALS,
    "pods",
    "persistentvolumeclaims",
    "services",
    "configmaps",
    "events",
    "leases",
    "poddisruptionbudgets",
    "networkpolicies",
    "secrets",
    "nodes",
)
TESTS: Final = Path(__file__).parents[1] / "tests"
CRDS: Final = Path(__file__).parents[1] / "crds"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMeasurements:
    """Figures of one operator with `clusters` clusters; times are medians."""

    clusters: int
    resident_bytes: int
    settle_seconds: float
    """From the operator's start until every cluster's status is written."""
    idle_requests_per_minute: float
    """Requests that end within the minute; watches last for five."""
    idle_cpu_share: float
    """Processor time of the operator meanwhile, of one core."""
    first_step_seconds: float
    """From a change of a spec until the first thing that it asks for is there."""
    waiting_requests_per_minute: float
    """While the pods of all clusters wait for a machine, which they never get."""
    waiting_cpu_share: float
    waiting_resident_bytes: int


class ControlPlane:
    """An API server with the definitions, and its operators."""

    def __init__(self, client: kubernetes.client.ApiClient, kubeconfig: Path, port: int) -> None:
        import kubernetes.client  # noqa: PLC0415 - what only this part of the benchmarks needs

        self.custom = kubernetes.client.CustomObjectsApi(client)
        self._client = client
        self._kubeconfig = kubeconfig
        self._port = port

    def requests(self) -> float:
        """The requests that the API server has answered about kinds that an operator asks for."""
        client = self._client
        result = client.call_api(
            *client.param_serialize("GET", "/metrics", header_params={}, auth_settings=["BearerToken"])
        )
        result.read()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in result.data.decode().splitlines()
            if line.startswith("apiserver_request_total{")
            and any(f'resource="{resource}"' in line for resource in RESOURCES)
        )

    @contextmanager
    def operator(self, python: str, log: Path, *further: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run an operator with further options, and kill it at the end."""
        options = (
            "operator",
            "run",
            f"--namespace={NAMESPACE}",
            f"--listen=127.0.0.1:{self._port}",
            *further,
        )
        environment = {**os.environ, "KUBECONFIG": f"{self._kubeconfig}"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*quorate_command(python), *options], stdout=output, stderr=output, env=environment
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


class Rates:
    """Requests to the API server and processor time of processes, over some seconds."""

    def __init__(self, plane: ControlPlane, pids: Sequence[int], seconds: float) -> None:
        before, began = plane.requests(), time.perf_counter()
        cpu_before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        elapsed = time.perf_counter() - began
        self.cpu_shares = [
            (cpu_seconds(pid) - used) / elapsed for pid, used in zip(pids, cpu_before, strict=True)
        ]
        """Of one core, in the order of the pids."""
        self.requests_per_minute = (plane.requests() - before) * 60 / elapsed


def cpu_seconds(pid: int) -> float:
    """Return the processor time, user and system, that a process has used so far."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return psutil.Process(pid).memory_info().rss


@contextmanager
def control_plane(scratch: Path, progress: Callable[[str], None]) -> Iterator[ControlPlane]:
    """Start an API server with the definitions.

    Raises RuntimeError when the control plane is missing.
    """
    sys.path.insert(0, str(TESTS))
    import kubernetes.client  # noqa: PLC0415 - what only this part of the benchmarks needs
    from kit.local_kubernetes.api_server import PORTS, ApiServer, find_programs  # noqa: PLC0415
    from kit.local_kubernetes.errors import LocalKubernetesError  # noqa: PLC0415

    try:
        programs = find_programs(os.environ)
    except LocalKubernetesError as error:
        raise RuntimeError(str(error)) from error
    progress("start of the API server")
    port = _free_ports(PORTS + 1)
    with ApiServer(programs, scratch / "control-plane", port) as server, server.client() as client:
        definitions = kubernetes.client.ApiextensionsV1Api(client)
        for path in sorted(CRDS.glob("*.yaml")):
            definitions.create_custom_resource_definition(yaml.safe_load(path.read_text()))
        plane = ControlPlane(client, server.kubeconfig, port + PORTS)
        for plural in PLURALS:
            _retry(partial(plane.custom.list_namespaced_custom_object, GROUP, VERSION, NAMESPACE, plural))
        yield plane


def measure_operator(python: str, scratch: Path, *, progress: Callable[[str], None]) -> OperatorMeasurements:
    """Measure an operator on an API server of its own, and end both.

    Raises RuntimeError when the control plane is missing, TimeoutError when the operator does not keep up.
    """
    with control_plane(scratch, progress) as plane:
        custom = plane.custom
        progress(f"{CLUSTERS} clusters")
        for number in range(CLUSTERS):
            custom.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, _cluster(number))
        started = time.perf_counter()
        with plane.operator(python, scratch / "operator.log") as process:
            progress("the first look at each")
            wait_until(lambda: _settled(custom) == CLUSTERS)
            settle_seconds = time.perf_counter() - started
            time.sleep(10)  # the last writes come back as events
            progress(f"{IDLE_SECONDS:.0f} s of doing nothing")
            idle = Rates(plane, (process.pid,), IDLE_SECONDS)
            resident = resident_bytes(process.pid)
            progress("the first step after a change")
            seconds = [_wake(custom, number) for number in range(WOKEN)]
            progress("pods that wait for a machine")
            for number in range(WOKEN, CLUSTERS):
                _wake(custom, number)
            wait_until(lambda: _waiting(custom) == CLUSTERS)
            waiting = Rates(plane, (process.pid,), IDLE_SECONDS)
            waiting_resident = resident_bytes(process.pid)
    return OperatorMeasurements(
        clusters=CLUSTERS,
        resident_bytes=resident,
        settle_seconds=settle_seconds,
        idle_requests_per_minute=idle.requests_per_minute,
        idle_cpu_share=idle.cpu_shares[0],
        first_step_seconds=statistics.median(seconds),
        waiting_requests_per_minute=waiting.requests_per_minute,
        waiting_cpu_share=waiting.cpu_shares[0],
        waiting_resident_bytes=waiting_resident,
    )


def _cluster(number: int) -> dict[str, object]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KafkaController",
        "metadata": {"name": f"quorum-{number}"},
        "spec": {"state": "Hibernated", "version": DEFAULT_RELEASE},
    }


def _settled(custom: kubernetes.client.CustomObjectsApi) -> int:
    found = custom.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)
    return sum("conditions" in (cluster.get("status") or {}) for cluster in found["items"])


def _waiting(custom: kubernetes.client.CustomObjectsApi) -> int:
    """Return the number of clusters whose status names a plan, that is, whose pods were created."""
    found = custom.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)
    return sum(bool((cluster.get("status") or {}).get("formation")) for cluster in found["items"])


def _wake(custom: kubernetes.client.CustomObjectsApi, number: int) -> float:
    """Wake a cluster; the seconds until its identity is settled, which is the first step of a new one."""
    name = f"quorum-{number}"
    started = time.perf_counter()
    custom.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, PLURAL, name, {"spec": {"state": "Running"}}
    )

    def has_begun() -> bool:
        cluster = custom.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, name)
        return "formation" in (cluster.get("status") or {})

    wait_until(has_begun)
    return time.perf_counter() - started


def _free_ports(count: int) -> int:
    """The first of `count` consecutive free ports, below those that the system gives to clients."""
    while True:
        first = random.randrange(*PORT_RANGE)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        return first


def wait_until(
    look: Callable[[], bool], seconds: float = SETTLE_SECONDS, poll_seconds: float = POLL_SECONDS
) -> None:
    """Wait until `look` is true. Raises TimeoutError."""
    deadline = time.perf_counter() + seconds
    while not look():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"the operator took more than {seconds:.0f} s")
        time.sleep(poll_seconds)


def _retry(request: Callable[[], object]) -> None:
    """Until a new kind is served."""

    def is_served() -> bool:
        try:
            request()
        except Exception as error:
            return getattr(error, "status", None) != 404
        return True

    wait_until(is_served)
