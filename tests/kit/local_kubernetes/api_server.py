"""A control plane for the tests of an operator: etcd and kube-apiserver on loopback ports, and nothing else.

There are no controllers and no nodes: pods stay Pending, claims stay unbound, a deleted namespace stays Terminating,
and objects of a deleted owner stay. Tests that need these imitate them, or use kind. RBAC and Pod Security admission
are on; pods need no ServiceAccount, because nothing creates the default one.
"""

import gc
import os
import secrets
import signal
import ssl
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import kubernetes.client
import kubernetes.config
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import cache
from kit.local_kubernetes.processes import Service

HOST = "127.0.0.1"
PORTS = 3  # of the API server, and of etcd for clients and peers
READY_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 5
TOKEN_LIFE_S = 24 * 3_600
ISSUER = "https://kubernetes.default.svc.cluster.local"
_RESET = r"unclosed <ssl\.SSLSocket [^>]*laddr=\([^)]*\)>$"
"""A socket without a peer. Python before 3.11.8 and 3.12.2 leaves it open if the peer resets it before the handshake
(https://github.com/python/cpython/issues/113280)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Where the programs of a control plane are; `kubectl` is None where it is missing."""

    etcd: Path
    api_server: Path
    kubectl: Path | None

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> Self | None:
        """Those of KUBEBUILDER_ASSETS, else those of the cache, else None."""
        assets = environment.get("KUBEBUILDER_ASSETS")
        directory = Path(assets) if assets else cache(environment) / "bin"
        etcd, api_server, kubectl = (directory / name for name in ("etcd", "kube-apiserver", "kubectl"))
        if not (etcd.is_file() and api_server.is_file()):
            return None
        return cls(etcd=etcd, api_server=api_server, kubectl=kubectl if kubectl.is_file() else None)


class ApiServer:
    """A running control plane that keeps everything below `directory`. Close it.

    `ports` are the first of PORTS consecutive ones that are free. Raises LocalKubernetesError.
    """

    def __init__(self, programs: Programs, directory: Path, ports: int) -> None:
        self.programs = programs
        self.directory = directory
        self.url = f"https://{HOST}:{ports}"
        self.ca_file = (
            directory / "pki" / "apiserver.crt"
        )  # its own certificate, with the authority's behind it
        self.kubeconfig = directory / "kubeconfig"
        self._token = secrets.token_hex(16)
        self._ports = ports
        self._services: list[Service] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._write_credentials()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of kube-apiserver, for what measures it."""
        return self._services[-1].pid

    def client(self, kubeconfig: Path | None = None) -> kubernetes.client.ApiClient:
        """A client that blocks, with all rights, or those of a kubeconfig. Close it."""
        return kubernetes.config.new_client_from_config(config_file=f"{kubeconfig or self.kubeconfig}")

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """The kubeconfig of a ServiceAccount, which is created if it is missing; RBAC decides what it may do."""
        with self.client() as client:
            core = kubernetes.client.CoreV1Api(client)
            with suppress(kubernetes.client.ApiException):
                core.create_namespaced_service_account(namespace, {"metadata": {"name": service_account}})
            request = {"spec": {"audiences": [ISSUER], "expirationSeconds": TOKEN_LIFE_S}}
            token = core.create_namespaced_service_account_token(service_account, namespace, request)
        path = self.directory / f"{namespace}-{service_account}.kubeconfig"
        self._write_kubeconfig(path, token.status.token)
        return path

    @contextmanager
    def away(self) -> Iterator[None]:
        """The API server is gone while the context is open, at once and without a word. All objects are kept."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _RESET, ResourceWarning)
            self._services.pop().stop(signal.SIGKILL)
            try:
                yield
            finally:
                self._start_api_server()
                gc.collect()  # a later test is not to be blamed for what clients left open here

    def close(self) -> None:
        """End it, the API server first; its directory stays."""
        for service in reversed(self._services):
            # Nothing here is needed again, and an orderly end takes a minute while watches are open.
            service.stop(signal.SIGKILL)
        self._services.clear()

    def _write_credentials(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        _write_secret(self.directory / "service-accounts.key", private)
        _write_secret(self.directory / "tokens.csv", f"{self._token},admin,admin,system:masters\n".encode())
        self._write_kubeconfig(self.kubeconfig, self._token)

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "local",
                    "cluster": {"server": self.url, "certificate-authority": f"{self.ca_file}"},
                }
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
            "current-context": "local",
        }
        _write_secret(path, yaml.safe_dump(content).encode())

    @property
    def _etcd_url(self) -> str:
        return f"http://{HOST}:{self._ports + 1}"

    def _start(self) -> None:
        clients, peers = self._etcd_url, f"http://{HOST}:{self._ports + 2}"
        etcd = Service(
            "etcd",
            [
                *(f"{self.programs.etcd}", "--name=test", f"--data-dir={self.directory}/etcd"),
                *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
                *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
                *(f"--initial-cluster=test={peers}", "--unsafe-no-fsync", "--log-level=warn"),
            ],
            self.directory / "etcd.log",
            os.environ,
        )
        self._services.append(etcd)
        etcd.wait_until(lambda: _is_up(f"{clients}/health"), READY_TIMEOUT_S)
        self._start_api_server()

    def _start_api_server(self) -> None:
        key = self.directory / "service-accounts.key"
        api_server = Service(
            "kube-apiserver",
            [
                *(f"{self.programs.api_server}", f"--etcd-servers={self._etcd_url}"),
                *(
                    f"--bind-address={HOST}",
                    f"--secure-port={self._ports}",
                    f"--cert-dir={self.ca_file.parent}",
                ),
                *(f"--token-auth-file={self.directory}/tokens.csv", "--authorization-mode=RBAC"),
                *(f"--service-account-issuer={ISSUER}", f"--service-account-key-file={key}"),
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
                *("--disable-admission-plugins=ServiceAccount", "--allow-privileged=true"),
                *("--endpoint-reconciler-type=none", "--profiling=false", "--shutdown-delay-duration=0s"),
            ],
            self.directory / "kube-apiserver.log",
            os.environ,
        )
        self._services.append(api_server)
        api_server.wait_until(self._is_ready, READY_TIMEOUT_S)

    def _is_ready(self) -> bool:
        return self.ca_file.is_file() and _is_up(f"{self.url}/readyz", self.ca_file, self._token)


def find_programs(environment: Mapping[str, str]) -> Programs:
    """The programs of a control plane. Raises LocalKubernetesError, saying how to get them."""
    if found := Programs.find(environment):
        return found
    if assets := environment.get("KUBEBUILDER_ASSETS"):
        raise LocalKubernetesError(f"KUBEBUILDER_ASSETS is {assets}, where etcd or kube-apiserver is missing")
    raise LocalKubernetesError(
        "etcd and kube-apiserver are missing: run `make control-plane`, which builds them "
        "from Go modules, or set KUBEBUILDER_ASSETS to a directory that has them"
    )


def _write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _is_up(url: str, ca_file: Path | None = None, token: str = "") -> bool:
    """Whether a GET of this address succeeds."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        context = ssl.create_default_context(cafile=f"{ca_file}") if ca_file else None
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S, context=context) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False
