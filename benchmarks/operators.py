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
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import yaml
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from benchmarks.quorum import quorate_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import kubernetes.client

CLUSTERS: Final = 200
WOKEN: Final = 10
IDLE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.05
GROUP, VERSION, PLURAL = "quorate.dev", "v1alpha1", "kafkacontrollers"
NAMESPACE: Final = "default"
PORT_RANGE: Final = (20_000, 32_000)
RESOURCES: Final = (
    "kafkacontrollers",
    "kafkabrokers",
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
    first_step_seconds: float
    """From a change of a spec until the first thing that it asks for is there."""


def measure_operator(python: str, scratch: Path, *, progress: Callable[[str], None]) -> OperatorMeasurements:
    """Measure an operator on an API server of its own, and end both.

    Raises RuntimeError when the control plane is missing, TimeoutError when the operator does not keep up.
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
        custom = kubernetes.client.CustomObjectsApi(client)
        definitions = kubernetes.client.ApiextensionsV1Api(client)
        for path in sorted(CRDS.glob("*.yaml")):
            definitions.create_custom_resource_definition(yaml.safe_load(path.read_text()))
        progress(f"{CLUSTERS} clusters")
        _retry(lambda: custom.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL))
        for number in range(CLUSTERS):
            custom.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, _cluster(number))
        started = time.perf_counter()
        with _operator(python, server.kubeconfig, port + PORTS, scratch / "operator.log") as process:
            progress("the first look at each")
            _wait(lambda: _settled(custom) == CLUSTERS)
            settle_seconds = time.perf_counter() - started
            time.sleep(10)  # the last writes come back as events
            progress(f"{IDLE_SECONDS:.0f} s of doing nothing")
            before, began = _requests(client), time.perf_counter()
            time.sleep(IDLE_SECONDS)
            rate = (_requests(client) - before) * 60 / (time.perf_counter() - began)
            resident = psutil.Process(process.pid).memory_info().rss
            progress("the first step after a change")
            seconds = [_wake(custom, number) for number in range(WOKEN)]
    return OperatorMeasurements(
        clusters=CLUSTERS,
        resident_bytes=resident,
        settle_seconds=settle_seconds,
        idle_requests_per_minute=rate,
        first_step_seconds=statistics.median(seconds),
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

    _wait(has_begun)
    return time.perf_counter() - started


def _requests(client: kubernetes.client.ApiClient) -> float:
    """The requests that the API server has answered about kinds that an operator asks for."""
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
def _operator(python: str, kubeconfig: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ("operator", "run", f"--namespace={NAMESPACE}", f"--listen=127.0.0.1:{port}")
    environment = {**os.environ, "KUBECONFIG": f"{kubeconfig}"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*quorate_command(python), *options], stdout=output, stderr=output, env=environment
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


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


def _wait(look: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + SETTLE_SECONDS
    while not look():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"the operator took more than {SETTLE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _retry(request: Callable[[], object]) -> None:
    """Until a new kind is served."""

    def is_served() -> bool:
        try:
            request()
        except Exception as error:
            return getattr(error, "status", None) != 404
        return True

    _wait(is_served)
