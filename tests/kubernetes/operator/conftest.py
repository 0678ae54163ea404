"""Namespaces in which operators are tried."""

from collections.abc import Iterator
from pathlib import Path

import kubernetes.client
import pytest
import yaml
from kit.cluster import environment_for
from kit.local_kubernetes.api_server import ApiServer
from kit.operators.operated import Operated
from kit.waiting import eventually
from kubernetes.client import ApiException

CRDS = Path(__file__).parents[3] / "crds"
CRDS_TIMEOUT_S = 30


@pytest.fixture(scope="session")
def definitions(api_server: ApiServer) -> None:
    """The CustomResourceDefinitions are installed."""
    with api_server.client() as client:
        api = kubernetes.client.ApiextensionsV1Api(client)
        for path in sorted(CRDS.glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            try:
                api.create_custom_resource_definition(body)
            except ApiException as error:
                if error.status != 409:  # another test brought it
                    raise
            name = body["metadata"]["name"]
            eventually(lambda name=name: _is_established(api, name), CRDS_TIMEOUT_S, f"{name} to be served")


@pytest.fixture
def operated(
    api_server: ApiServer,
    api_client: kubernetes.client.ApiClient,
    definitions: None,  # noqa: ARG001 - they are there
    namespace: str,
    tmp_path: Path,
) -> Iterator[Operated]:
    """A namespace with a machine, and without a cluster or an operator yet."""
    with Operated(api_server, api_client, namespace, tmp_path).running() as place:
        yield place


@pytest.fixture
def brokered(operated: Operated, kafka_jars: Path, tmp_path: Path) -> Operated:
    """The same, and its machine can run stock brokers."""
    operated.agent.environment = environment_for(kafka_jars, tmp_path)
    return operated


def _is_established(api: kubernetes.client.ApiextensionsV1Api, name: str) -> bool:
    conditions = api.read_custom_resource_definition(name).status.conditions or []
    return any(one.type == "Established" and one.status == "True" for one in conditions)
