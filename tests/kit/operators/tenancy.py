"""The namespace of a tenant: an account that may create Quorate's resources only, and what another team has there."""

import json
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes.client
from kit.local_kubernetes.api_server import ApiServer
from kit.operators.operated import GROUP, VERSION, condition_of
from kit.waiting import eventually
from quorate_operator.models.secrets import FOR_SERVERS
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

Object = dict[str, Any]
TIMEOUT_S = 90
TENANT, ADMIN = "tenant", "payments-admin"
VICTIM = "payments"
"""The name of the Secret and of the Service of another team."""
CLAIM = "data-ledger-3000"
"""The name of its claim."""
PASSWORD = "the-password-of-payments"
PLURALS = {
    kind: f"{kind.lower()}s"
    for kind in ("KafkaController", "KafkaBroker", "KafkaTopic", "KafkaUser", "KafkaRebalance")
}
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]


class Listening:
    """A server of the tenant, which notes whether it is connected to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def was_reached(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


class Tenancy:
    """The namespace of a tenant, with an operator and with what others have in it."""

    def __init__(self, server: ApiServer, namespace: str, directory: Path) -> None:
        self.server, self.namespace = server, namespace
        self.allowed, self.other = Listening(), Listening()
        self.admin = server.client()
        self._tenant: kubernetes.client.ApiClient | None = None
        self.core = kubernetes.client.CoreV1Api(self.admin)
        self.log = directory / "operator.log"

    def close(self) -> None:
        """Close the clients and the listeners."""
        for client in (self.admin, self._tenant):
            if client is not None:
                client.close()
        self.allowed.close()
        self.other.close()

    def as_tenant(self) -> kubernetes.client.CustomObjectsApi:
        return kubernetes.client.CustomObjectsApi(self._tenant)

    def sign_in(self) -> None:
        self._tenant = self.server.client(self.server.kubeconfig_of(self.namespace, TENANT))

    def create(self, kind: str, spec: Object, name: str = "", **parts: Any) -> str:
        """Create a resource as the tenant; its name."""
        name = name or f"t{secrets.token_hex(4)}"
        release = {"version": DEFAULT_RELEASE} if kind in ("KafkaController", "KafkaBroker") else {}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**release, **spec},
            **parts,
        }
        self.as_tenant().create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURALS[kind], body)
        return name

    def read(self, kind: str, name: str) -> Object:
        api = kubernetes.client.CustomObjectsApi(self.admin)
        return dict(api.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURALS[kind], name))

    def wait_stalled(self, kind: str, name: str, reason: str) -> str:
        """Wait until a resource is stalled for a reason; its message."""
        self.wait(
            lambda: condition_of(self.read(kind, name), "Stalled").get("reason") == reason,
            f"{kind} {name} to be refused as {reason}",
            lambda: json.dumps(self.read(kind, name).get("status")),
        )
        stalled = condition_of(self.read(kind, name), "Stalled")
        assert stalled["status"] == "True"
        assert condition_of(self.read(kind, name), "Ready")["status"] == "False"
        return str(stalled["message"])

    def wait_reported(self, name: str, text: str) -> None:
        """Wait until the status of a KafkaController has a text."""

        def status() -> str:
            return json.dumps(self.read("KafkaController", name).get("status") or {})

        self.wait(lambda: text in status(), f"{name} to report {text!r}", status)

    def wait(self, look: Callable[[], object], what: str, seen: Callable[[], str] = lambda: "") -> None:
        eventually(look, TIMEOUT_S, what, lambda: f"{seen()}\n{self.log.read_text()[-3000:]}")

    def pods(self) -> list[str]:
        """The names of the pods that are there."""
        return [pod.metadata.name for pod in self.core.list_namespaced_pod(self.namespace).items]

    def objects_of(self, name: str) -> list[str]:
        """What the operator has made for a cluster or pool."""
        found = []
        for label in ("cluster", "pool"):
            selector = f"app.kubernetes.io/managed-by=quorate,quorate.dev/{label}={name}"
            for listed in (
                self.core.list_namespaced_pod,
                self.core.list_namespaced_service,
                self.core.list_namespaced_config_map,
                self.core.list_namespaced_persistent_volume_claim,
            ):
                found += [
                    item.metadata.name for item in listed(self.namespace, label_selector=selector).items
                ]
        return found


def roles_in(objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] in ("Role", "RoleBinding")]


def role_of_tenant(namespace: str) -> list[Object]:
    """Return the Role and RoleBinding of an account that may create Quorate's resources, and nothing else."""
    rule = {"apiGroups": [GROUP], "resources": list(PLURALS.values()), "verbs": VERBS}
    metadata = {"name": TENANT, "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": TENANT, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    return [
        {"kind": "Role", "metadata": metadata, "rules": [rule]},
        {"kind": "RoleBinding", "metadata": metadata, "roleRef": reference, "subjects": [subject]},
    ]


def grant(place: Tenancy, objects: list[Object]) -> None:
    api = kubernetes.client.RbacAuthorizationV1Api(place.admin)
    for item in objects:
        create = {"Role": api.create_namespaced_role, "RoleBinding": api.create_namespaced_role_binding}
        create[item["kind"]](item["metadata"]["namespace"], item)


def add_victims(place: Tenancy) -> None:
    """What another team has in the namespace."""
    core, namespace = place.core, place.namespace
    core.create_namespaced_service_account(namespace, {"metadata": {"name": ADMIN}})
    texts = {"username": VICTIM, "password": PASSWORD, "tls.crt": "x", "tls.key": "x", "ca.crt": "x"}
    for name, labels in ((VICTIM, {}), ("for-servers", {FOR_SERVERS: "true"})):
        metadata = {"name": name, "labels": labels}
        core.create_namespaced_secret(namespace, {"metadata": metadata, "stringData": texts})
    selector = {"app": VICTIM}
    spec = {"selector": selector, "ports": [{"port": 80}]}
    core.create_namespaced_service(namespace, {"metadata": {"name": VICTIM}, "spec": spec})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": CLAIM}, "spec": spec})
