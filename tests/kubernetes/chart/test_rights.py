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
from kit.api_requests import run_kubectl
from kit.cluster import DIE_WITH_PARENT, free_ports
from kit.local_kubernetes.api_server import ApiServer
from kit.waiting import HANG_S, eventually
from kubernetes.client import ApiException
from quorate_operator.web.snapshots import ClusterKey
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

PAGE_TOKEN = "a-token-of-the-page"
TIMEOUT_S = 150  # it looks after the clusters of other tests as well
OPERATOR = "quorate"
# The kinds of the Prometheus operator, as far as an API server has to know them to take objects.
FOREIGN = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
KINDS = ("kafkacontrollers", "kafkabrokers", "kafkatopics", "kafkausers", "kafkarebalances")
MANAGED = ("get", "list", "watch", "create", "patch", "delete")
ALLOWED = [
    *((verb, "quorate.dev", kind, "") for kind in KINDS for verb in ("get", "list", "watch", "patch")),
    *(("patch", "quorate.dev", kind, "status") for kind in KINDS),
    ("update", "quorate.dev", "kafkacontrollers", "status"),
    *(("update", "quorate.dev", kind, "finalizers") for kind in ("kafkacontrollers", "kafkabrokers")),
    *(
        (verb, "", kind, "")
        for kind in ("pods", "persistentvolumeclaims", "services", "configmaps")
        for verb in MANAGED
    ),
    ("patch", "", "pods", "status"),
    *(
        (verb, group, kind, "")
        for group, kind in (
            ("policy", "poddisruptionbudgets"),
            ("networking.k8s.io", "networkpolicies"),
            ("networking.k8s.io", "ingresses"),
            ("batch", "cronjobs"),
        )
        for verb in MANAGED
    ),
    *((verb, "coordination.k8s.io", "leases", "") for verb in ("get", "create", "update")),
    ("get", "", "secrets", ""),
    ("create", "", "secrets", ""),
    ("create", "events.k8s.io", "events", ""),
]
"""What an install with the chart's defaults may do in the namespace of its clusters."""
ASKED_FOR: dict[str, list[tuple[str, str, str, str]]] = {
    "routes": [
        *((verb, "route.openshift.io", "routes", "") for verb in MANAGED),
        ("create", "route.openshift.io", "routes", "custom-host"),
    ],
    "certificates": [(verb, "cert-manager.io", "certificates", "") for verb in MANAGED],
    "updateSecrets": [("update", "", "secrets", "")],
}
"""What a value below rbac adds to it."""
OF_MACHINES = [
    ("get", "", "nodes", ""),
    ("list", "", "nodes", ""),
    ("get", "", "persistentvolumes", ""),
]
"""What `readNodes` adds, in all of Kubernetes: racks, pods on lost machines, local volumes of lost machines."""
OPTIONS = {**dict.fromkeys(ASKED_FOR, True), "readNodes": True}
NEVER = [
    *((verb, "", "secrets", "") for verb in ("list", "watch", "patch", "delete")),
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
    ("list", "", "namespaces", ""),
    ("watch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
]
NEVER_EVERYWHERE = [
    ("patch", "", "nodes", ""),
    ("delete", "", "namespaces", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("list", "", "persistentvolumes", ""),
    ("delete", "", "persistentvolumes", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
]

Right = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A release: where its operator runs, and whose clusters it manages; `has_options`: with all optional rights."""

    own: str
    clusters: str
    is_wide: bool
    has_options: bool


def applied(server: ApiServer, objects: list[dict[str, Any]], *options: str) -> None:
    """Apply objects; every one has to be taken."""
    ran = run_kubectl(
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
    waited = run_kubectl(api_server, "wait", "--for=condition=Established", "--timeout=60s", *names)
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
        "watchNamespaces": ["*"] if is_wide else [],
        "rbac": OPTIONS,
        "metrics": {name: {"create": True} for name in ("podMonitor", "prometheusRule", "dashboards")},
        "web": {"tokenSecret": {"name": "page-token"}},
    }
    objects = render(values, namespace=namespace)
    assert len(objects) > 12
    applied(prepared, objects, "--dry-run=server", "--force-conflicts", "--validate=strict")


def rights_in(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The service account and its rights."""
    return [
        item for item in objects if item["apiVersion"].startswith("rbac.") or item["kind"] == "ServiceAccount"
    ]


def rights_of(rules: list[dict[str, Any]]) -> set[Right]:
    """The rights that rules of a Role give."""
    return {
        (verb, group, *resource.partition("/")[::2])
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture(params=["cluster-wide", "namespaced", "own-namespace"])
def installed(
    request: pytest.FixtureRequest,
    prepared: ApiServer,
    api_client: kubernetes.client.ApiClient,
    render: Callable[..., list[dict[str, Any]]],
    namespace: str,
) -> Iterator[Installed]:
    """The rights of a release, in force; and taken back in the end."""
    is_wide, is_own = request.param == "cluster-wide", request.param == "own-namespace"
    clusters = namespace if is_own else f"{namespace}-clusters"
    if not is_own:
        kubernetes.client.CoreV1Api(api_client).create_namespace({"metadata": {"name": clusters}})
    values = {"watchNamespaces": ["*"] if is_wide else [clusters], "rbac": OPTIONS}
    objects = rights_in(render({} if is_own else values, namespace=namespace))
    applied(prepared, objects)
    yield Installed(own=namespace, clusters=clusters, is_wide=is_wide, has_options=not is_own)
    ran = run_kubectl(
        prepared, "delete", "--wait=false", "--filename", "-", stdin=yaml.safe_dump_all(objects)
    )
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


@pytest.mark.parametrize(
    "asked",
    [(), ("routes",), ("certificates",), ("readNodes",), ("createSecrets",), ("updateSecrets",)],
)
def test_rules_are_those_for_what_is_asked_for_and_no_others(
    render: Callable[..., list[dict[str, Any]]], asked: tuple[str, ...]
) -> None:
    """By default in the namespace of the release alone."""
    values = {"rbac": {name: name != "createSecrets" for name in asked}}
    roles = [item for item in rights_in(render(values)) if item["kind"].endswith("Role")]
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in roles}
    own = by_name.pop(("Role", "quorate"))
    clusters = by_name.pop(("Role", "quorate-system-quorate-clusters"))
    assert {item["metadata"]["namespace"] for item in (own, clusters)} == {"quorate-system"}
    expected = {right for name in asked for right in ASKED_FOR.get(name, ())} | {*ALLOWED}
    assert rights_of(clusters["rules"]) == expected - (
        {("create", "", "secrets", "")} if "createSecrets" in asked else set()
    )
    machines = [item["rules"] for item in by_name.values()]
    assert [rights_of(rules) for rules in machines] == ([{*OF_MACHINES}] if "readNodes" in asked else [])


def granted_of(
    api_client: kubernetes.client.ApiClient,
    installed: Installed,
    rights: list[Right],
    namespace: str | None,
) -> list[Right]:
    """Return those of the rights that the operator has."""
    return [right for right in rights if may(api_client, installed, right, namespace)]


def wait_granted(
    api_client: kubernetes.client.ApiClient,
    installed: Installed,
    rights: list[Right],
    namespace: str | None,
) -> None:
    """Wait until the operator has rights: the API server takes new roles and bindings over a moment later."""
    granted = partial(granted_of, api_client, installed, rights, namespace)
    eventually(lambda: granted() == rights, HANG_S, f"{rights} in {namespace}", granted)


def test_the_operator_may_do_what_it_does_and_no_more(
    api_client: kubernetes.client.ApiClient, installed: Installed
) -> None:
    granted = partial(granted_of, api_client, installed)
    wait = partial(wait_granted, api_client, installed)
    optional = [right for rights in ASKED_FOR.values() for right in rights]
    own: list[Right] = [("update", "coordination.k8s.io", "leases", ""), ("patch", "", "pods", "")]
    wait([*ALLOWED, *(optional if installed.has_options else [])], installed.clusters)
    wait([*(EVERYWHERE if installed.is_wide else []), *(OF_MACHINES if installed.has_options else [])], None)
    wait(own, installed.own)
    assert granted(optional, installed.clusters) == (optional if installed.has_options else [])
    assert granted(NEVER, installed.clusters) == []
    assert granted(NEVER, installed.own) == []
    assert granted(NEVER_EVERYWHERE, None) == []
    assert granted(EVERYWHERE, None) == (EVERYWHERE if installed.is_wide else [])
    assert granted(OF_MACHINES, None) == (OF_MACHINES if installed.has_options else [])
    if not installed.is_wide:
        assert granted(ALLOWED, "kube-system") == []
    if installed.own != installed.clusters and not installed.is_wide:
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
        "watchNamespaces": ["*"] if is_wide else [secured, other],
        "rbac": {"secretNamespaces": [secured]},
    }
    objects = rights_in(render(values, namespace=namespace))
    applied(prepared, objects)
    try:
        installed = Installed(own=namespace, clusters=secured, is_wide=is_wide, has_options=False)
        wait_granted(api_client, installed, [("create", "", "pods", "")], other)
        wait_granted(
            api_client, installed, [("get", "", "secrets", ""), ("create", "", "secrets", "")], secured
        )
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
        ran = run_kubectl(
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
        item
        for item in render({"watchNamespaces": ["*"]}, namespace="people")
        if "aggregate" in str(item["metadata"].get("labels", {}))
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
        gone = run_kubectl(
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
        "--all-namespaces" if installed.is_wide else f"--namespace={installed.clusters}",
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
