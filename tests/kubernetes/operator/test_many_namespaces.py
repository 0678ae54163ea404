"""An operator for many namespaces, on a real API server: each is watched, and none stops another."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import kubernetes.client
import psutil
import pytest
from kit.api_requests import resource
from kit.local_kubernetes.api_server import ApiServer
from kit.operators.operated import GROUP, QUORUM, VERSION, OperatorProcess, condition_of
from kit.waiting import eventually

SETTLE_TIMEOUT_S = 120
SMALL, LARGE = 12, 100
MEMORY_BYTES_MAX = 400 * 2**20
"""Less than the limit of the chart, which is 512Mi."""


class _Watching:
    """An operator of some namespaces, and hibernated clusters in them."""

    def __init__(self, server: ApiServer, client: kubernetes.client.ApiClient, log: Path) -> None:
        self._server = server
        self._core = kubernetes.client.CoreV1Api(client)
        self._custom = kubernetes.client.CustomObjectsApi(client)
        self._log = log
        self.operators: list[OperatorProcess] = []

    def create_namespaces(self, number: int) -> list[str]:
        prefix = f"many-{secrets.token_hex(4)}"
        names = [f"{prefix}-{place}" for place in range(number)]
        for name in names:
            self._core.create_namespace({"metadata": {"name": name}})
        return names

    def start(self, namespaces: Sequence[str]) -> OperatorProcess:
        first, *others = namespaces
        options = [f"--namespace={name}" for name in others]
        operator = OperatorProcess(self._server, first, self._log, "--no-leader-election", *options)
        self.operators.append(operator)
        return operator

    def create(self, namespace: str) -> None:
        spec = {
            "replicas": 1,
            "nodeIds": {"first": 3000},
            "metadataVersion": "4.3",
            "state": "Hibernated",
        }
        body = resource("KafkaController", QUORUM, spec)
        self._custom.create_namespaced_custom_object(GROUP, VERSION, namespace, "kafkacontrollers", body)

    def reason(self, namespace: str) -> str | None:
        found = self._custom.get_namespaced_custom_object(
            GROUP, VERSION, namespace, "kafkacontrollers", QUORUM
        )
        return condition_of(found, "Ready").get("reason")

    def wait_reconciled(self, namespace: str) -> None:
        def seen() -> str:
            return "\n".join(self._log.read_text().splitlines()[-20:])

        what = f"the cluster in {namespace} to be reconciled"
        eventually(lambda: self.reason(namespace) == "Hibernated", SETTLE_TIMEOUT_S, what, seen)


@pytest.fixture
def watching(
    api_server: ApiServer,
    api_client: kubernetes.client.ApiClient,
    definitions: None,  # noqa: ARG001 - they are there
    tmp_path: Path,
) -> Iterator[_Watching]:
    found = _Watching(api_server, api_client, tmp_path / "operator.log")
    yield found
    for operator in found.operators:
        operator.kill()


@pytest.mark.parametrize("number", [SMALL, LARGE])
def test_clusters_in_many_namespaces_are_reconciled(number: int, watching: _Watching) -> None:
    """A cluster in each namespace: every kind is watched in each, and requests are answered all the same."""
    chosen = watching.create_namespaces(number)
    operator = watching.start(chosen)
    for namespace in chosen:
        watching.create(namespace)
    for namespace in chosen:
        watching.wait_reconciled(namespace)
    assert operator.serves("/readyz") == (200, "ok\n")
    assert operator.metric("quorate_unlisted_kinds") == 0
    assert operator.errors() == []
    memory_bytes = psutil.Process(operator.process.pid).memory_info().rss
    assert memory_bytes < MEMORY_BYTES_MAX, f"{memory_bytes / 2**20:.0f} MiB with {number} namespaces"
