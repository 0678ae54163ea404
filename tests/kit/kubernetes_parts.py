"""Fixtures of Kubernetes without machines: an API server, namespaces for operators, helm and the chart."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml
from kit.cluster import environment_for, free_ports
from kit.local_kubernetes.api_server import PORTS, ApiServer, find_programs
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import cache
from kit.local_kubernetes.versions import KUBERNETES
from kit.operators.cert_manager import remove_definition
from kit.operators.operated import Operated
from kit.requirements import missing
from kit.waiting import eventually
from kubernetes.client import ApiException

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "quorate"
CRDS = ROOT / "crds"
CRDS_TIMEOUT_S = 30
HOW_TO_GET = "helm is missing: run `make control-plane`, which builds it, or install it"

Object = dict[str, Any]
Render = Callable[..., list[Object]]


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
def without_cert_manager(api_client: kubernetes.client.ApiClient) -> None:
    """An API server without the definition of Certificates."""
    remove_definition(api_client)


def kubectl_quorate(server: ApiServer, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `kubectl quorate` against the API server."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "quorate.kubectl", *arguments),
            *("--kubeconfig", str(server.kubeconfig), "--namespace", namespace),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def namespace(api_client: kubernetes.client.ApiClient) -> str:
    """A new namespace that enforces restricted pods; it is not deleted, because the control plane is temporary."""
    name = f"test-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"metadata": {"name": name, "labels": labels}}
    kubernetes.client.CoreV1Api(api_client).create_namespace(body)
    return name


@pytest.fixture(scope="session")
def definitions(api_server: ApiServer) -> None:
    """The CustomResourceDefinitions are installed, and their resources served."""
    with api_server.client() as client:
        install_definitions(client, sorted(CRDS.glob("*.yaml")))


def install_definitions(client: kubernetes.client.ApiClient, paths: Iterable[Path]) -> None:
    """Install CustomResourceDefinitions, unless they are there, and wait until their resources are served."""
    api = kubernetes.client.ApiextensionsV1Api(client)
    bodies = [yaml.safe_load(path.read_text()) for path in paths]
    for body in bodies:
        try:
            api.create_custom_resource_definition(body)
        except ApiException as error:
            if error.status != HTTPStatus.CONFLICT:  # another test brought it
                raise
        name = body["metadata"]["name"]
        eventually(lambda name=name: _is_established(api, name), CRDS_TIMEOUT_S, f"{name} to be established")
    for body in bodies:
        what = f"{body['metadata']['name']} to be served"
        eventually(lambda spec=body["spec"]: is_served(client, spec), CRDS_TIMEOUT_S, what)


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
    return any(condition.type == "Established" and condition.status == "True" for condition in conditions)


def is_served(client: kubernetes.client.ApiClient, spec: Object) -> bool:
    """Whether a list is answered. An API server that takes in a new kind first says that its storage initializes."""
    api = kubernetes.client.CustomObjectsApi(client)
    try:
        api.list_cluster_custom_object(spec["group"], spec["versions"][0]["name"], spec["names"]["plural"])
    except ApiException as error:
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS):
            raise
        return False
    return True


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run helm with a home of its own; skips without helm."""
    built = cache(os.environ) / "bin" / "helm"
    program = str(built) if built.is_file() else shutil.which("helm")
    if program is None:
        missing("kubernetes", HOW_TO_GET)
    home = tmp_path_factory.mktemp("helm")
    environment = {**os.environ, "HOME": str(home), "HELM_CACHE_HOME": str(home / "cache")}

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Render:
    """What the chart becomes with some values, as objects."""

    def make(
        values: Object | None = None, *, release: str = "quorate", namespace: str = "quorate-system"
    ) -> list[Object]:
        arguments = ("template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES)
        ran = helm(*arguments, "--values", "-", stdin=yaml.safe_dump(values or {}))
        assert ran.returncode == 0, ran.stderr
        return [document for document in yaml.safe_load_all(ran.stdout) if document]

    return make
