"""The chart under a real API server: every object is taken, the operator may do what it does, and no more."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml
from kit.cluster import DIE_WITH_PARENT, free_ports
from kit.local_kubernetes.api_server import ApiServer
from kit.waiting import eventually
from kubernetes.client import ApiException
from quorate_operator.web.snapshots import ClusterKey
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

PAGE_TOKEN = "a-token-of-the-page"
TIMEOUT_S = 150  # it looks after the clusters of other tests as well
OPERATOR = "quorate"
# The kinds of the Prometheus operator, as far as an API server has to know them to take objects.
FOREIGN = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
ALLOWED = [
    *(
        (verb, "quorate.dev", kind, "")
        for kind in ("kafkacontrollers", "kafkabrokers", "kafkatopics", "kafkausers", "kafkarebalances")
        for verb in ("list", "watch", "patch")
    ),
    ("patch", "quorate.dev", "kafkatopics", "status"),
    ("patch", "quorate.dev", "kafkausers", "status"),
    ("patch", "quorate.dev", "kafkarebalances", "status"),
    *((verb, "quorate.dev", "kafkacontrollers", "status") for verb in ("patch", "update")),
    ("update", "quorate.dev", "kafkabrokers", "finalizers"),
    *((verb, "", "pods", "") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("patch", "", "pods", "status"),
    *((verb, "", "persistentvolumeclaims", "") for verb in ("list", "watch", "create", "patch", "delete")),
    *((verb, "", "services", "") for verb in ("list", "watch", "create", "patch", "delete")),
    *((verb, "", "configmaps", "") for verb in ("list", "watch", "create", "patch", "delete")),
    *(
        (verb, "policy", "poddisruptionbudgets", "")
        for verb in ("list", "watch", "create", "patch", "delete")
    ),
    *(
        (verb, group, kind, "")
        for group, kind in (
            ("networking.k8s.io", "networkpolicies"),
            ("networking.k8s.io", "ingresses"),
            ("route.openshift.io", "routes"),
        )
        for verb in ("list", "watch", "create", "patch", "delete")
    ),
    *((verb, "batch", "cronjobs", "") for verb in ("list", "watch", "create", "patch", "delete")),
    *(
        (verb, "cert-manager.io", "certificates", "")
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *((verb, "coordination.k8s.io", "leases", "") for verb in ("get", "create", "update")),
    ("create", "route.openshift.io", "routes", "custom-host"),
    ("get", "", "secrets", ""),
    ("create", "", "secrets", ""),
    ("create", "events.k8s.io", "events", ""),
]
NEVER = [
    *((verb, "", "secrets", "") for verb in ("list", "watch", "patch", "update", "delete")),
    *(("create", "", "pods", part) for part in ("exec", "attach", "portforward", "eviction")),
    *(
        (verb, "quorate.dev", "kafkacontrollers", "")
        for verb in ("create", "update", "delete", "deletecollection")
    ),
    ("get", "", "pods", "log"),
    *(("deletecollection", "", kind, "") for kind in ("pods", "persistentvolumeclaims")),
    ("delete", "coordination.k8s.io", "leases", ""),
    ("create", "rbac.authorization.k8s.io", "roles", ""),
    ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
    ("impersonate", "", "serviceaccounts", ""),
    ("create", "", "serviceaccounts", "token"),
    ("create", "apps", "deployments", ""),
    ("create", "batch", "jobs", ""),
]
EVERYWHERE = [
    ("get", "", "nodes", ""),
    ("list", "", "namespaces", ""),
    ("watch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
]
NEVER_EVERYWHERE = [
    ("patch", "", "nodes", ""),
    ("delete", "", "namespaces", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("delete", "", "persistentvolumes", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
]

Right = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A release: where its operator runs, and whose clusters it looks after."""

    own: str
    clusters: str
    is_wide: bool


def kubectl(server: ApiServer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run kubectl with all rights."""
    assert server.programs.kubectl is not None
    command = [str(server.programs.kubectl), f"--kubeconfig={server.kubeconfig}", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def applied(server: ApiServer, objects: list[dict[str, Any]], *options: str) -> None:
    """Apply objects; every one has to be taken."""
    ran = kubectl(
        server, "apply", "--server-side", *options, "--filename", "-", stdin=yaml.safe_dump_all(objects)
    )
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr


@pytest.fixture(scope="module")
def prepared(api_server: ApiServer, render: Callable[..., list[dict[str, Any]]]) -> ApiServer:
    """An API server with the definitions of the chart, and those of the Prometheus operator in outline."""
    open_schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    foreign = [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.monitoring.coreos.com"},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": open_schema}],
            },
        }
        for plural, kind in FOREIGN.items()
    ]
    ours = [item for item in render() if item["kind"] == "CustomResourceDefinition"]
    applied(api_server, [*foreign, *ours], "--force-conflicts")
    names = [f"crd/{definition['metadata']['name']}" for definition in (*foreign, *ours)]
    waited = kubectl(api_server, "wait", "--for=condition=Established", "--timeout=60s", *names)
    assert waited.returncode == 0, waited.stderr
    return api_server


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("is_wide", [True, False], ids=["cluster-wide", "namespaced"])
def test_every_object_is_taken(
    prepared: ApiServer,
    render: Callable[..., list[dict[str, Any]]],
    namespace: str,
    is_wide: bool,
    replicas: int,
) -> None:
    """`helm install` works, also where pods are restricted."""
    values = {
        "replicas": replicas,
        "watchNamespaces": [] if is_wide else [namespace],
        "metrics": {name: {"create": True} for name in ("podMonitor", "prometheusRule", "dashboards")},
        "web": {"tokenSecret": {"name": "page-token"}},
    }
    objects = render(values, namespace=namespace)
    assert len(objects) > 12
    applied(prepared, objects, "--dry-run=server", "--force-conflicts", "--validate=strict")


@pytest.fixture(params=[True, False], ids=["cluster-wide", "namespaced"])
def installed(
    request: pytest.FixtureRequest,
    prepared: ApiServer,
    api_client: kubernetes.client.ApiClient,
    render: Callable[..., list[dict[str, Any]]],
    namespace: str,
) -> Iterator[Installed]:
    """The rights of a release, in force; and taken back in the end."""
    clusters = f"{namespace}-clusters"
    kubernetes.client.CoreV1Api(api_client).create_namespace({"metadata": {"name": clusters}})
    values = {"watchNamespaces": [] if request.param else [clusters]}
    objects = [
        item
        for item in render(values, namespace=namespace)
        if item["apiVersion"].startswith("rbac.") or item["kind"] == "ServiceAccount"
    ]
    applied(prepared, objects)
    yield Installed(own=namespace, clusters=clusters, is_wide=request.param)
    ran = kubectl(prepared, "delete", "--wait=false", "--filename", "-", stdin=yaml.safe_dump_all(objects))
    assert ran.returncode == 0, ran.stderr


def may(
    client: kubernetes.client.ApiClient, installed: Installed, right: Right, namespace: str | None
) -> bool:
    """Whether the operator's service account may."""
    verb, group, resource, subresource = right
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    if namespace is not None:
        attributes["namespace"] = namespace
    user = f"system:serviceaccount:{installed.own}:{OPERATOR}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{installed.own}", "system:authenticated"]
    body = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    review = kubernetes.client.AuthorizationV1Api(client).create_subject_access_review(body)
    return bool(review.status.allowed)


def test_the_operator_may_do_what_it_does_and_no_more(
    api_client: kubernetes.client.ApiClient, installed: Installed
) -> None:
    def granted(rights: list[Right], namespace: str | None) -> list[Right]:
        return [right for right in rights if may(api_client, installed, right, namespace)]

    assert granted(ALLOWED, installed.clusters) == ALLOWED
    assert granted(NEVER, installed.clusters) == []
    assert granted(NEVER, installed.own) == []
    assert granted(NEVER_EVERYWHERE, None) == []
    assert granted(EVERYWHERE, None) == (EVERYWHERE if installed.is_wide else [])
    own: list[Right] = [("update", "coordination.k8s.io", "leases", ""), ("patch", "", "pods", "")]
    assert granted(own, installed.own) == own
    if not installed.is_wide:
        assert granted(ALLOWED, "kube-system") == []
        assert granted([("get", "", "secrets", ""), ("create", "", "pods", "")], installed.own) == []


@pytest.mark.parametrize("is_wide", [True, False], ids=["cluster-wide", "namespaced"])
def test_secrets_can_be_limited_to_some_namespaces(
    prepared: ApiServer,
    api_client: kubernetes.client.ApiClient,
    render: Callable[..., list[dict[str, Any]]],
    namespace: str,
    is_wide: bool,
) -> None:
    secured, other = f"{namespace}-secured", f"{namespace}-other"
    for name in (secured, other):
        kubernetes.client.CoreV1Api(api_client).create_namespace({"metadata": {"name": name}})
    values = {
        "watchNamespaces": [] if is_wide else [secured, other],
        "rbac": {"secretNamespaces": [secured]},
    }
    objects = [
        item
        for item in render(values, namespace=namespace)
        if item["apiVersion"].startswith("rbac.") or item["kind"] == "ServiceAccount"
    ]
    applied(prepared, objects)
    try:
        installed = Installed(own=namespace, clusters=secured, is_wide=is_wide)
        for right in (("get", "", "secrets", ""), ("create", "", "secrets", "")):
            places = (secured, other, namespace, None)
            assert [may(api_client, installed, right, place) for place in places] == [
                True,
                False,
                False,
                False,
            ]
        assert may(api_client, installed, ("create", "", "pods", ""), other)
    finally:
        ran = kubectl(
            prepared, "delete", "--wait=false", "--filename", "-", stdin=yaml.safe_dump_all(objects)
        )
        assert ran.returncode == 0, ran.stderr


def test_those_who_may_edit_may_edit_clusters(
    prepared: ApiServer,
    api_client: kubernetes.client.ApiClient,
    render: Callable[..., list[dict[str, Any]]],
) -> None:
    """People with Kubernetes' own roles need no further ones."""
    roles = [
        item for item in render(namespace="people") if "aggregate" in str(item["metadata"].get("labels", {}))
    ]
    applied(prepared, roles)
    api = kubernetes.client.RbacAuthorizationV1Api(api_client)
    assert len(roles) == 2
    for role in roles:
        made = api.read_cluster_role(role["metadata"]["name"])
        verbs = {verb for rule in made.rules for verb in rule.verbs}
        is_edit = "rbac.authorization.k8s.io/aggregate-to-edit" in made.metadata.labels
        assert ("delete" in verbs) == is_edit
        assert ("get" in verbs) != is_edit
        assert {group for rule in made.rules for group in rule.api_groups} == {"quorate.dev"}


def test_the_rights_are_enough_for_a_real_operator(
    prepared: ApiServer,
    api_client: kubernetes.client.ApiClient,
    installed: Installed,
    tmp_path: Path,
) -> None:
    log, web = tmp_path / "operator.log", free_ports(1)

    def said() -> str:
        return log.read_text()[-3000:]

    release = {"version": DEFAULT_RELEASE}
    with running_operator(prepared, installed, log=log, web=web):
        manifests = [
            _resource(
                "KafkaController",
                "quorum",
                {**release, "replicas": 3, "history": {"storage": {"size": "1Gi"}}},
            ),
            _resource("KafkaBroker", "brokers", {**release, "controllers": "quorum", "replicas": 1}),
        ]
        applied(prepared, manifests, "--namespace", installed.clusters)
        for what, objects in objects_of_clusters(api_client, installed.clusters).items():
            eventually(objects, TIMEOUT_S, f"{what} of the cluster", seen=said)
        custom = kubernetes.client.CustomObjectsApi(api_client)

        def resource() -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = custom.get_namespaced_custom_object(
                    "quorate.dev", "v1alpha1", installed.clusters, "kafkacontrollers", "quorum"
                )
            except ApiException as error:
                if error.status != 404:
                    raise
                return None
            return found

        eventually(lambda: "conditions" in (resource() or {}).get("status", {}), TIMEOUT_S, "a status")
        events = kubernetes.client.EventsV1Api(api_client)
        eventually(lambda: events.list_namespaced_event(installed.clusters).items, TIMEOUT_S, "an Event")
        press_pause(f"http://127.0.0.1:{web}", ClusterKey(installed.clusters, "quorum"), PAGE_TOKEN)
        annotations = resource()["metadata"]["annotations"]
        assert annotations["quorate.dev/pause"] == "true"
        gone = kubectl(
            prepared,
            *("delete", "kafkacontrollers,kafkabrokers", "--all", "--wait=false"),
            *("--namespace", installed.clusters),
        )
        assert gone.returncode == 0, gone.stderr
        eventually(lambda: resource() is None, TIMEOUT_S, "the cluster to go", seen=said)
    assert "forbidden" not in log.read_text().lower(), said()


@contextmanager
def running_operator(prepared: ApiServer, installed: Installed, *, log: Path, web: int) -> Iterator[None]:
    """The operator as the chart's service account, with its status page at a port and what it says in a file."""
    token = log.with_name("token")
    token.write_text(f"{PAGE_TOKEN}\n")
    command = [
        *DIE_WITH_PARENT,
        *(f"{Path(sys.executable).with_name('quorate')}", "operator", "run", "--lease-duration=10"),
        *(
            f"--lease-namespace={installed.own}",
            "--image=quorate:test",
            f"--listen=127.0.0.1:{free_ports(1)}",
            f"--web=127.0.0.1:{web}",
            f"--web-token-file={token}",
        ),
        *(() if installed.is_wide else (f"--namespace={installed.clusters}",)),
    ]
    config = prepared.kubeconfig_of(installed.own, OPERATOR)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "KUBECONFIG": str(config)}
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def objects_of_clusters(
    api_client: kubernetes.client.ApiClient, namespace: str
) -> dict[str, Callable[[], list[Any]]]:
    """What lists the objects of each kind that the operator has made for the cluster `quorum`."""
    core = kubernetes.client.CoreV1Api(api_client)
    lists = {
        "pods": core.list_namespaced_pod,
        "volumes": core.list_namespaced_persistent_volume_claim,
        "Services": core.list_namespaced_service,
        "ConfigMaps": core.list_namespaced_config_map,
        "budgets": kubernetes.client.PolicyV1Api(api_client).list_namespaced_pod_disruption_budget,
        "policies": kubernetes.client.NetworkingV1Api(api_client).list_namespaced_network_policy,
        "jobs": kubernetes.client.BatchV1Api(api_client).list_namespaced_cron_job,
    }

    def of_quorum(listed: Callable[[str], Any]) -> list[Any]:
        return [
            item
            for item in listed(namespace).items
            if (item.metadata.labels or {}).get("quorate.dev/cluster") == "quorum"
        ]

    return {what: partial(of_quorum, listed) for what, listed in lists.items()}


def press_pause(site: str, key: ClusterKey, token: str) -> None:
    """Do on the status page what a person does who has the token."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    path = f"{site}/clusters/{key.namespace}/{key.name}"
    browser.open(f"{site}/unlock", f"token={token}".encode(), TIMEOUT_S).close()
    with browser.open(path, timeout=TIMEOUT_S) as response:
        page = response.read().decode()
    assert f"<h1>{key.name}" in page
    (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', page)
    with browser.open(f"{path}/pause", f"csrf={csrf}".encode(), TIMEOUT_S) as response:
        assert "Paused." in response.read().decode()


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "quorate.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
