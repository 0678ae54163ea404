"""A tenant who may create Quorate's resources in one namespace, and nothing else, tries to reach further.

The operator has the rights and the policy of the chart's defaults, with one allowed server. The namespace enforces no
Pod Security Standard: only the operator and the API server refuse something here.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes.client
import pytest
from kit.local_kubernetes.api_server import ApiServer
from kit.operators.operated import GROUP, VERSION, OperatorProcess
from kit.operators.tenancy import (
    ADMIN,
    CLAIM,
    PASSWORD,
    VICTIM,
    Tenancy,
    add_victims,
    grant,
    role_of_tenant,
    roles_in,
)
from kubernetes.client import ApiException
from quorate_operator.models.secrets import FOR_LISTENERS
from quorate_operator.models.tenant_policy import allows

Object = dict[str, Any]
OPERATOR = "quorate"
FAIR, SLEEPING = "fair", "sleeping"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


TAKEN = "taken"
"""A quorum whose name gives that of a Secret of another team."""
OWN = {"name": "CONTROLLER", "protocol": "SSL"}
"""A listener whose certificate the operator issues."""


@pytest.fixture(scope="module")
def tenancy(
    api_server: ApiServer,
    definitions: None,  # noqa: ARG001 - they are there
    render: Callable[..., list[Object]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tenancy]:
    namespace = f"tenant-{secrets.token_hex(4)}"
    place = Tenancy(api_server, namespace, tmp_path_factory.mktemp("tenancy"))
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    place.core.create_namespace({"metadata": {"name": namespace, "labels": labels}})
    values = {"policy": {"servers": [place.allowed.address]}, "rbac": {"updateSecrets": True}}
    objects = render(values, namespace=namespace)
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item.get("value") for item in container["env"]}
    grant(place, [*roles_in(objects), *role_of_tenant(namespace)])
    add_victims(place)
    place.sign_in()
    operator = OperatorProcess(
        api_server,
        namespace,
        place.log,
        "--no-leader-election",
        KUBECONFIG=f"{api_server.kubeconfig_of(namespace, OPERATOR)}",
        QUORATE_POLICY=variables["QUORATE_POLICY"],
    )
    try:
        place.create("KafkaController", {"replicas": 1}, FAIR)
        place.create(
            "KafkaController", {"replicas": 1, "nodeIds": {"first": 3100}, "state": "Hibernated"}, SLEEPING
        )
        place.wait(lambda: f"{FAIR}-3000" in place.pods(), "a fair cluster to be built")
        yield place
    finally:
        operator.kill()
        place.close()


def test_the_tenant_may_do_nothing_by_itself(tenancy: Tenancy) -> None:
    """Each attempt below would be in vain if the tenant had the right anyway."""
    api = kubernetes.client.AuthorizationV1Api(tenancy.as_tenant().api_client)
    for verb, group, resource in (
        ("create", "", "pods"),
        ("get", "", "secrets"),
        ("create", "", "services"),
        ("get", "", "persistentvolumeclaims"),
        ("create", "", "serviceaccounts/token"),
        ("patch", GROUP, "kafkacontrollers/status"),
    ):
        name, _, part = resource.partition("/")
        wanted = {
            "namespace": tenancy.namespace,
            "verb": verb,
            "group": group,
            "resource": name,
            "subresource": part,
        }
        review = api.create_self_subject_access_review({"spec": {"resourceAttributes": wanted}})
        assert not review.status.allowed, wanted
    with pytest.raises(ApiException) as caught:
        tenancy.as_tenant().list_namespaced_custom_object(GROUP, VERSION, "kube-system", "kafkatopics")
    assert caught.value.status == 403


def _volume(**source: Any) -> Object:
    return {
        "template": {"volumes": [{"name": "v", **source}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    }


def _sidecar(**parts: Any) -> Object:
    sidecar = {"name": "s", "image": "quorate:test", "securityContext": RESTRICTED, **parts}
    return {"template": {"sidecars": [sidecar]}}


def _token() -> Object:
    spec = _volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})
    return {"template": {**spec["template"], "serviceAccountName": ADMIN}}


def _affinity(**terms: Object) -> Object:
    affinity = {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, **term}
            ]
        }
        for kind, term in terms.items()
    }
    return {"template": {"affinity": affinity}}


PODS: dict[str, tuple[Object, str]] = {
    "a path of the Kubernetes node": (_volume(hostPath={"path": "/"}), "hostPath"),
    "the token of another service account": (_token(), "serviceAccountToken"),
    "another service account": ({"template": {"serviceAccountName": ADMIN}}, "serviceAccountName"),
    "a privileged container": (
        _sidecar(securityContext={**RESTRICTED, "privileged": True}),
        "securityContext.privileged",
    ),
    "a container that runs anything": (_sidecar(image="evil.example.com/shell"), "sidecars[0].image"),
    "an image that runs anything": ({"image": "evil.example.com/kafka"}, "spec.image"),
    "root": ({"template": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}}}, "runAsUser"),
    "a port of the Kubernetes node": (
        _sidecar(ports=[{"containerPort": 9, "hostPort": 9}]),
        "hostPort",
    ),
    "a request from the network of the node": (
        _sidecar(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "livenessProbe.httpGet.host",
    ),
    "a Secret in a volume": (_volume(secret={"secretName": VICTIM}), "secret.secretName: 'payments'"),
    "a Secret in the environment": (
        {
            "template": {
                "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": VICTIM, "key": "password"}}}]
            }
        },
        "secretKeyRef.name: 'payments'",
    ),
    "the volume of another team": (
        _volume(persistentVolumeClaim={"claimName": CLAIM}),
        "claimName",
    ),
    "a copy of the volume of another team": (
        _volume(
            ephemeral={"volumeClaimTemplate": {"spec": {"dataSource": {"kind": "PersistentVolumeClaim"}}}}
        ),
        "'ephemeral'",
    ),
    "the volume of another team as a history": (
        {"history": {"claimName": CLAIM}},
        "spec.history.claimName",
    ),
    "the traffic of a Service by labels": (
        {"template": {"labels": {"app": VICTIM}}},
        "spec.template.labels: 'app'",
    ),
    "another network by annotation": (
        {"template": {"annotations": {"k8s.v1.cni.cncf.io/networks": "storage"}}},
        "spec.template.annotations",
    ),
    "a node of the control plane": (
        {
            "template": {
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
            }
        },
        "tolerations[0].key",
    ),
    "nodes of another team": ({"template": {"nodeSelector": {"team": VICTIM}}}, "nodeSelector: 'team'"),
    "the place of other pods": (
        {"template": {"priorityClassName": "system-node-critical"}},
        "priorityClassName",
    ),
    "a place beside pods of another team": (
        _affinity(podAffinity={"namespaces": [VICTIM]}),
        "podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaces[0]: 'payments'",
    ),
    "the nodes of pods of all teams": (
        _affinity(podAntiAffinity={"namespaceSelector": {}}),
        "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaceSelector",
    ),
    "the images that another team may pull": (
        {"template": {"imagePullSecrets": [{"name": VICTIM}]}},
        "imagePullSecrets[0].name: 'payments'",
    ),
}


@pytest.mark.parametrize("attempt", PODS)
def test_a_pod_reaches_no_further(tenancy: Tenancy, attempt: str) -> None:
    spec, field = PODS[attempt]
    name = tenancy.create("KafkaController", {"replicas": 1, **spec})
    message = tenancy.wait_stalled("KafkaController", name, "NotAllowed")
    assert field in message
    assert "the administrator of the operator can allow it in policy." in message
    assert tenancy.objects_of(name) == []


def _exposed(name: str = "OUTSIDE", **exposure: Any) -> Object:
    return {"name": name, "port": 9094, "exposure": exposure}


def _tls(**parts: Any) -> Object:
    return {"protocol": "SSL", "tls": {"secretName": VICTIM}, **parts}


LISTENERS: dict[str, tuple[Object, str]] = {
    "the DNS name of another team": (
        _exposed(
            type="LoadBalancer",
            annotations={"external-dns.alpha.kubernetes.io/hostname": "payments.example.com"},
        ),
        "exposure.annotations",
    ),
    "the address of another Service": (
        _exposed(type="NodePort", nodes=[{"nodeId": 0, "externalIPs": ["10.0.0.1"]}]),
        "exposure.nodes[0].externalIPs: '10.0.0.1'",
    ),
    "the address of another load balancer": (
        _exposed(type="LoadBalancer", bootstrap={"loadBalancerIP": "192.0.2.1"}),
        "exposure.bootstrap.loadBalancerIP: '192.0.2.1'",
    ),
    "another DNS name for a single broker": (
        _exposed(
            type="LoadBalancer",
            nodes=[
                {"nodeId": 0, "annotations": {"external-dns.alpha.kubernetes.io/hostname": "a.example.com"}}
            ],
        ),
        "exposure.nodes[0].annotations",
    ),
    "code in the ingress controller": (
        _exposed(
            type="Ingress", annotations={"nginx.ingress.kubernetes.io/configuration-snippet": "return 200;"}
        )
        | _tls(advertisedHost="b{nodeId}.example.com"),
        "exposure.annotations",
    ),
    "the host of another cluster": (
        _exposed(type="Ingress", bootstrapHost="payments.example.com")
        | _tls(advertisedHost="b{nodeId}.payments.example.com"),
        "bootstrapHost: 'payments.example.com'",
    ),
    "a certificate for any name": (
        _exposed()
        | _tls(
            tls={"issuerRef": {"name": "all", "kind": "ClusterIssuer"}},
            advertisedHost="b{nodeId}.example.com",
        ),
        "issuerRef: 'ClusterIssuer/all'",
    ),
    "a certificate for the host of another team": (
        _exposed()
        | _tls(tls={"issuerRef": {"name": "ours"}}, advertisedHost="b{nodeId}.payments.example.com"),
        "advertisedHost: 'b{nodeId}.payments.example.com'",
    ),
    "a certificate for a Service of another namespace": (
        _exposed() | _tls(tls={"issuerRef": {"name": "ours"}}, advertisedHost="api.payments.svc"),
        "advertisedHost: 'api.payments.svc'",
    ),
    "a load balancer of another class": (
        _exposed(type="LoadBalancer", loadBalancerClass="example.com/public"),
        "exposure.loadBalancerClass: 'example.com/public'",
    ),
    "the ingress controller of another team": (
        _exposed(type="Ingress", ingressClassName=VICTIM) | _tls(advertisedHost="b{nodeId}.example.com"),
        "exposure.ingressClassName: 'payments'",
    ),
}


@pytest.mark.parametrize("attempt", LISTENERS)
def test_a_listener_takes_no_traffic_of_others(tenancy: Tenancy, attempt: str) -> None:
    listener, field = LISTENERS[attempt]
    name = tenancy.create(
        "KafkaBroker",
        {
            "controllers": SLEEPING,
            "replicas": 1,
            "listeners": [{"name": "PLAINTEXT", "port": 9092}, listener],
        },
    )
    message = tenancy.wait_stalled("KafkaBroker", name, "NotAllowed")
    assert field in message
    assert tenancy.objects_of(name) == []


def test_labels_of_kubernetes_nodes_are_not_read(tenancy: Tenancy) -> None:
    spec = {"controllers": SLEEPING, "replicas": 1, "rack": {"topologyKey": "example.com/secret"}}
    name = tenancy.create("KafkaBroker", spec)
    assert "spec.rack.topologyKey" in tenancy.wait_stalled("KafkaBroker", name, "NotAllowed")


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID"])
def test_fields_of_pods_that_quorate_lacks_are_not_stored(tenancy: Tenancy, field: str) -> None:
    """The network and processes of the Kubernetes node. `kubectl` refuses the fields."""
    spec: Object = {"controllers": SLEEPING, "replicas": 0, "template": {field: True}}
    name = tenancy.create("KafkaBroker", spec)
    assert field not in json.dumps(tenancy.read("KafkaBroker", name)["spec"])
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "KafkaBroker", "metadata": {"name": f"{name}-strict"}}
    with pytest.raises(ApiException) as caught:
        tenancy.as_tenant().create_namespaced_custom_object(
            GROUP,
            VERSION,
            tenancy.namespace,
            "kafkabrokers",
            {**body, "spec": spec},
            field_validation="Strict",
        )
    assert f'unknown field "spec.template.{field}"' in str(caught.value.body).replace("\\", "")


SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "secretName": VICTIM}


@pytest.mark.parametrize("kind", ["KafkaTopic", "KafkaUser", "KafkaRebalance"])
def test_no_login_is_sent_to_a_server_of_the_tenant(tenancy: Tenancy, kind: str) -> None:
    """Not even of a Secret that its owner has labelled for other servers."""
    spec = {"bootstrapServers": [tenancy.other.address], "security": {**SASL, "secretName": "for-servers"}}
    name = tenancy.create(kind, spec)
    assert "spec.bootstrapServers[0]" in tenancy.wait_stalled(kind, name, "NotAllowed")
    assert not tenancy.other.was_reached()


def test_a_secret_of_another_team_is_not_sent_to_an_allowed_server(tenancy: Tenancy) -> None:
    spec = {"bootstrapServers": [tenancy.allowed.address], "security": SASL}
    name = tenancy.create("KafkaTopic", spec)
    assert "no such Secret with the label" in tenancy.wait_stalled("KafkaTopic", name, "SecretMissing")
    assert not tenancy.allowed.was_reached()


def test_no_password_is_sent_in_the_clear(tenancy: Tenancy) -> None:
    security = {**SASL, "protocol": "SASL_PLAINTEXT", "secretName": "for-servers"}
    name = tenancy.create("KafkaTopic", {"bootstrapServers": [tenancy.allowed.address], "security": security})
    assert "needs protocol SASL_SSL" in tenancy.wait_stalled("KafkaTopic", name, "NotAllowed")
    assert not tenancy.allowed.was_reached()


def test_the_name_of_a_secret_leads_to_no_other_namespace(tenancy: Tenancy) -> None:
    for name in ("kube-system/admin", "../kube-system/secrets/admin"):
        with pytest.raises(ApiException) as caught:
            tenancy.create(
                "KafkaTopic",
                {"bootstrapServers": [tenancy.allowed.address], "security": {**SASL, "secretName": name}},
            )
        assert caught.value.status == 422


@pytest.mark.parametrize("secret", [VICTIM, "for-servers"])
def test_a_secret_of_another_team_is_not_mounted_for_a_listener(tenancy: Tenancy, secret: str) -> None:
    """Neither its certificate nor its password."""
    assert FOR_LISTENERS not in (
        tenancy.core.read_namespaced_secret(secret, tenancy.namespace).metadata.labels or {}
    )
    listener = {
        "name": "CONTROLLER",
        "protocol": "SASL_SSL",
        "tls": {"secretName": secret},
        "sasl": {"username": "password", "secretName": secret},
    }
    name = tenancy.create("KafkaController", {"replicas": 1, "listeners": [listener]})

    def refusals() -> list[str]:
        status = tenancy.read("KafkaController", name).get("status") or {}
        return [refusal["message"] for refusal in status.get("refusals") or ()]

    tenancy.wait(refusals, "the Secret to be refused")
    assert all(f"no such Secret with the label {FOR_LISTENERS}" in message for message in refusals())
    assert f"{name}-3000" not in tenancy.pods()
    assert PASSWORD not in json.dumps(tenancy.read("KafkaController", name))


def test_the_operator_replaces_no_secret_of_another_team(tenancy: Tenancy) -> None:
    """A Secret of the name that it would give to the certificate of a listener, which nodes may even read."""
    metadata = {"name": f"{TAKEN}-controller-tls", "labels": {FOR_LISTENERS: "true"}}
    before = tenancy.core.create_namespaced_secret(
        tenancy.namespace, {"metadata": metadata, "stringData": {"tls.crt": PASSWORD}}
    )
    tenancy.create("KafkaController", {"replicas": 1, "listeners": [OWN]}, TAKEN)
    tenancy.wait_reported(TAKEN, "exists and was not made for it")
    after = tenancy.core.read_namespaced_secret(metadata["name"], tenancy.namespace)
    assert after.metadata.resource_version == before.metadata.resource_version
    assert f"{TAKEN}-3000" not in tenancy.pods()


def test_the_authority_of_a_cluster_is_mounted_by_no_other(tenancy: Tenancy) -> None:
    first = tenancy.create("KafkaController", {"replicas": 1, "listeners": [OWN]})
    tenancy.wait(lambda: f"{first}-3000" in tenancy.pods(), "a cluster with certificates of its own")
    for secret in (f"{first}-ca", f"{first}-controller-tls"):
        assert tenancy.core.read_namespaced_secret(secret, tenancy.namespace).data
        listener = {**OWN, "tls": {"secretName": secret}}
        name = tenancy.create("KafkaController", {"replicas": 1, "listeners": [listener]})
        tenancy.wait_reported(name, f"no such Secret with the label {FOR_LISTENERS}")
        assert f"{name}-3000" not in tenancy.pods()


def test_the_name_of_a_service_does_not_take_it_over(tenancy: Tenancy) -> None:
    before = tenancy.core.read_namespaced_service(VICTIM, tenancy.namespace)
    tenancy.create("KafkaController", {"replicas": 1, "nodeIds": {"first": 3200}}, VICTIM)
    tenancy.wait_reported(VICTIM, "the Service payments exists and belongs to another owner")
    after = tenancy.core.read_namespaced_service(VICTIM, tenancy.namespace)
    assert after.metadata.resource_version == before.metadata.resource_version
    assert after.spec.selector == {"app": VICTIM}


def test_the_name_of_a_claim_does_not_take_it_over(tenancy: Tenancy) -> None:
    """A StatefulSet `ledger` has a claim of the same name as a quorum `ledger`, whose deletion deletes its claims."""
    name = CLAIM
    before = tenancy.core.read_namespaced_persistent_volume_claim(name, tenancy.namespace)
    tenancy.create("KafkaController", {"replicas": 1, "storage": {"onDeletion": "Delete"}}, "ledger")
    tenancy.wait_reported("ledger", f"the PersistentVolumeClaim {name} exists and belongs to another owner")
    tenancy.as_tenant().delete_namespaced_custom_object(
        GROUP, VERSION, tenancy.namespace, "kafkacontrollers", "ledger"
    )

    def is_gone() -> bool:
        try:
            tenancy.read("KafkaController", "ledger")
        except ApiException as error:
            return bool(error.status == 404)
        return False

    tenancy.wait(is_gone, "the quorum to go")
    after = tenancy.core.read_namespaced_persistent_volume_claim(name, tenancy.namespace)
    assert (after.metadata.uid, after.metadata.labels) == (before.metadata.uid, None)
    assert after.metadata.deletion_timestamp is None


def test_a_status_does_not_bring_a_spec_past_the_policy(tenancy: Tenancy) -> None:
    """`status.acceptedSpec` is used while the present spec is refused."""
    spec = {"replicas": 1, **_volume(hostPath={"path": "/"})}
    name = tenancy.create("KafkaController", spec, status={"acceptedSpec": spec})
    with pytest.raises(ApiException) as caught:
        tenancy.as_tenant().patch_namespaced_custom_object_status(
            GROUP, VERSION, tenancy.namespace, "kafkacontrollers", name, {"status": {"acceptedSpec": spec}}
        )
    assert caught.value.status == 403
    # Not even an administrator's mistake does.
    kubernetes.client.CustomObjectsApi(tenancy.admin).patch_namespaced_custom_object_status(
        GROUP, VERSION, tenancy.namespace, "kafkacontrollers", name, {"status": {"acceptedSpec": spec}}
    )
    tenancy.wait_stalled("KafkaController", name, "NotAllowed")
    assert tenancy.objects_of(name) == []


def test_an_allowed_spec_does_not_become_another_one_later(tenancy: Tenancy) -> None:
    """A change of a running cluster is refused like a new one, and its pod stays as it is."""
    before = tenancy.core.read_namespaced_pod(f"{FAIR}-3000", tenancy.namespace)
    place = (GROUP, VERSION, tenancy.namespace, "kafkacontrollers", FAIR)
    tenancy.as_tenant().patch_namespaced_custom_object(*place, {"spec": _volume(hostPath={"path": "/"})})
    tenancy.wait_stalled("KafkaController", FAIR, "NotAllowed")
    after = tenancy.core.read_namespaced_pod(f"{FAIR}-3000", tenancy.namespace)
    assert after.metadata.uid == before.metadata.uid
    assert not any(volume.host_path for volume in after.spec.volumes)
    assert all(allows(["quorate:test"], container.image) for container in after.spec.containers)
