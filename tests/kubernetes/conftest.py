"""A real API server for the tests that need one, and a namespace of its own for each of them."""

import os
import secrets
from collections.abc import Iterator

import kubernetes.client
import pytest
from kit.cluster import free_ports
from kit.local_kubernetes.api_server import PORTS, ApiServer, find_programs
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.requirements import missing


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """etcd and kube-apiserver, shared by all tests of a run: use names of your own. Skips without them."""
    try:
        programs = find_programs(os.environ)
    except LocalKubernetesError as error:
        missing("kubernetes", f"{error}")
    with ApiServer(programs, tmp_path_factory.mktemp("control-plane"), free_ports(PORTS)) as server:
        yield server


@pytest.fixture
def api_client(api_server: ApiServer) -> Iterator[kubernetes.client.ApiClient]:
    """A client of the API server that blocks and may do everything."""
    with api_server.client() as client:
        yield client


@pytest.fixture
def namespace(api_client: kubernetes.client.ApiClient) -> str:
    """A new namespace that enforces restricted pods; nobody deletes it, the control plane is thrown away."""
    name = f"test-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"metadata": {"name": name, "labels": labels}}
    kubernetes.client.CoreV1Api(api_client).create_namespace(body)
    return name
