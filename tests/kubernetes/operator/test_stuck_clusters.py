"""What a cluster costs that waits for a person, on a real API server."""

from collections.abc import Iterator
from pathlib import Path

import kubernetes.client
import pytest
from kit.local_kubernetes.api_server import ApiServer
from kit.operators.operated import Operated
from kit.operators.requests_sent import requests_during
from kit.waiting import eventually

WINDOW_S = 20
PASSES_MAX = 4
REQUESTS_MAX = 20
"""In the window, for everything in the API server. With a pass in each second there were more."""
PATIENCE_S = 240


@pytest.fixture
def without_machine(
    api_server: ApiServer,
    api_client: kubernetes.client.ApiClient,
    definitions: None,  # noqa: ARG001 - they are there
    namespace: str,
    tmp_path: Path,
) -> Iterator[Operated]:
    """A namespace without a node agent, about which only the operator sends requests."""
    place = Operated(api_server, api_client, namespace, tmp_path)
    yield place
    for operator in place.operators:
        operator.kill()


@pytest.mark.timeout(400)
def test_a_stuck_cluster_is_observed_less_and_less_often(without_machine: Operated) -> None:
    operated = without_machine
    operated.create()
    operator = operated.start_operator()
    operated.wait(lambda: len(operated.pods()) == 3, "pods that stay Pending")
    seen: list[str] = []

    def is_quiet() -> bool:
        before = operator.metric("quorate_reconciliations_total", kind="KafkaController")
        sent = requests_during(operated.server, WINDOW_S)
        passes = operator.metric("quorate_reconciliations_total", kind="KafkaController") - before
        seen.append(f"{passes:.0f} passes and {sent.total()} requests in {WINDOW_S} s: {dict(sent)}")
        return passes <= PASSES_MAX and sent.total() <= REQUESTS_MAX

    eventually(is_quiet, PATIENCE_S, "few passes and requests", lambda: "\n".join(seen))
