"""Raw requests to an API server in which the definitions are installed."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kit.local_kubernetes.api_server import ApiServer
from kit.requirements import missing
from kit.waiting import eventually
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

CRDS = Path(__file__).parents[2] / "crds"
CERT_MANAGER = Path(__file__).parent / "local_kubernetes" / "manifests" / "cert-manager-certificates.yaml"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
TIMEOUT_S = 60

Object = dict[str, Any]


class ApiResponse(NamedTuple):
    """The response of the API server; `message` is the text of a refusal."""

    status: int
    body: Object

    @property
    def message(self) -> str:
        """The text of a refusal."""
        return str(self.body.get("message", ""))


class Api:
    """Sends requests and returns answers, refusals too."""

    def __init__(self, server: ApiServer) -> None:
        config = yaml.safe_load(server.kubeconfig.read_text())
        self._token = config["users"][0]["user"]["token"]
        self._context = ssl.create_default_context(cafile=f"{server.ca_file}")
        self._url = server.url

    def send(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> ApiResponse:
        """One request; `path` begins with a slash and has the query."""
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context) as response:
                return ApiResponse(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                return ApiResponse(error.code, json.load(error))

    def create(self, namespace: str, item: Object) -> ApiResponse:
        """Create a resource; unknown fields are refused, as kubectl asks for."""
        return self.send("POST", f"{path_of(namespace, item['kind'])}?fieldValidation=Strict", item)

    def change(self, namespace: str, kind: str, name: str, spec: Object) -> ApiResponse:
        """Merge into a resource's spec."""
        return self.send("PATCH", f"{path_of(namespace, kind)}/{name}", {"spec": spec}, MERGE)

    def change_status(self, namespace: str, kind: str, name: str, status: Object) -> ApiResponse:
        """Merge into a resource's status."""
        return self.send("PATCH", f"{path_of(namespace, kind)}/{name}/status", {"status": status}, MERGE)


def path_of(namespace: str, kind: str) -> str:
    """Where the resources of a kind are."""
    return f"/apis/quorate.dev/v1alpha1/namespaces/{namespace}/{kind.lower()}s"


Kubectl = Callable[..., str]


def run_kubectl(server: ApiServer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run kubectl with all rights. The test is skipped where it is missing."""
    program = server.programs.kubectl
    if program is None:
        missing("kubernetes", "kubectl is missing: run `make control-plane`, which builds it")
    command = [f"{program}", f"--kubeconfig={server.kubeconfig}", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer) -> Kubectl:
    """Run kubectl with all rights and return what it prints."""

    def run(*arguments: str) -> str:
        done = run_kubectl(api_server, *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def api(api_server: ApiServer, kubectl: Kubectl) -> Api:
    """The API server with the definitions, as kubectl applies them."""
    files = [f"--filename={file}" for file in (*sorted(CRDS.glob("*.yaml")), CERT_MANAGER)]
    kubectl("apply", "--server-side", "--force-conflicts", *files)
    # `kubectl wait` fails on a definition that has no conditions yet.
    established = "--output=jsonpath={.items[*].status.conditions[?(@.type=='Established')].status}"
    eventually(
        lambda: kubectl("get", *files, established).split() == ["True"] * len(files),
        TIMEOUT_S,
        "the definitions to be served",
    )
    return Api(api_server)


def resource(kind: str, name: str = "one", spec: Object | None = None) -> Object:
    """A resource with this spec; all but a KafkaController belong to `quorum`."""
    release = {"version": DEFAULT_RELEASE}
    owner = {"KafkaController": release, "KafkaBroker": {"controllers": "quorum", **release}}.get(
        kind, {"cluster": "quorum"}
    )
    given = {**owner, **(spec or {})}
    return {"apiVersion": "quorate.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": given}


def secured(**sasl: object) -> Object:
    """A listener with SASL_SSL."""
    login = {"username": "node", "secretName": "login", **sasl}
    return {"name": "CONTROLLER", "protocol": "SASL_SSL", "tls": {"secretName": "s"}, "sasl": login}


def with_tokens(mechanisms: Sequence[str] = ("PLAIN", "OAUTHBEARER"), **oauth: object) -> Object:
    """A spec with a listener that accepts tokens."""
    oauth = {"jwksUrl": "https://sso/keys", "issuer": "https://sso", "audiences": ["kafka"], **oauth}
    given = {key: value for key, value in oauth.items() if value is not None}
    return {"listeners": [secured(mechanisms=[*mechanisms], oauth=given)]}


def tokens_alone() -> Object:
    """A listener that accepts tokens and no password."""
    (listener,) = with_tokens(["OAUTHBEARER"])["listeners"]
    sasl = {key: value for key, value in listener["sasl"].items() if key in ("mechanisms", "oauth")}
    return {**listener, "name": "TOKENS", "sasl": sasl}
