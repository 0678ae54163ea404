"""The tenants' policy: what a spec may ask for by default, what a list allows, and what refusals say."""

from typing import Any

import pytest
from quorate_operator.models.tenant_checks import entity_refusals, pool_refusals
from quorate_operator.models.tenant_policy import (
    PolicyError,
    TenantPolicy,
    allows,
    allows_host,
    parse_policy,
)

OWN = ("ghcr.io/quorate/quorate:1", "apache/kafka:{version}")
DEFAULT = TenantPolicy().with_images(OWN)
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SIDECAR = {"name": "s", "image": OWN[0], "securityContext": RESTRICTED}
DURING = "DuringSchedulingIgnoredDuringExecution"
SECURED = {"name": "L", "protocol": "SSL"}
NAMESPACE = "kafka"
ISSUED = {"issuerRef": {"name": "ours"}}


def fields(spec: dict[str, Any], policy: TenantPolicy = DEFAULT) -> list[str]:
    return [refused.field for refused in pool_refusals(spec, policy, NAMESPACE)]


def sidecar(**parts: Any) -> dict[str, Any]:
    return {"template": {"sidecars": [{**SIDECAR, **parts}]}}


def listener(**parts: Any) -> dict[str, Any]:
    return {"listeners": [{**SECURED, **parts}]}


REFUSED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "another image",
        {"image": "evil.example.com/kafka:1"},
        "spec.image",
        {"images": ["*.example.com/kafka:*"]},
    ),
    ("its prefix", {"image": "evil/apache/kafka:1"}, "spec.image", {"images": ["evil/*"]}),
    (
        "an image of the ingest",
        {"history": {"image": "a/b"}},
        "spec.history.image",
        {"images": ["a/b"]},
    ),
    (
        "a claim of the ingest",
        {"history": {"claimName": "theirs"}},
        "spec.history.claimName",
        {"claims": ["theirs"]},
    ),
    (
        "a label of machines",
        {"rack": {"topologyKey": "secret-label"}},
        "spec.rack.topologyKey",
        {"nodeLabels": ["secret-*"]},
    ),
    (
        "an issuer of everybody",
        listener(tls={"issuerRef": {"name": "all", "kind": "ClusterIssuer"}}),
        "spec.listeners[0].tls.issuerRef",
        {"issuers": ["ClusterIssuer/all"]},
    ),
    (
        "an issuer of another group",
        listener(tls={"issuerRef": {"name": "all", "group": "x.io"}}),
        "spec.listeners[0].tls.issuerRef",
        {"issuers": ["Issuer.x.io/all"]},
    ),
    (
        "the host of an Ingress",
        listener(exposure={"type": "Ingress"}, advertisedHost="b{nodeId}.Pay.example.com"),
        "spec.listeners[0].advertisedHost",
        {"hosts": ["*.pay.example.com"]},
    ),
    (
        "the interim host of a Route",
        listener(exposure={"type": "Route"}, interimHost="pay.example.com"),
        "spec.listeners[0].interimHost",
        {"hosts": ["pay.example.com"]},
    ),
    (
        "the common host",
        listener(exposure={"type": "Ingress", "bootstrapHost": "pay.example.com"}),
        "spec.listeners[0].exposure.bootstrapHost",
        {"hosts": ["*.example.com"]},
    ),
    (
        "the host of one node",
        listener(exposure={"type": "Ingress"}) | {"nodes": [{"nodeId": 1, "advertisedHosts": {"L": "a.b"}}]},
        "spec.nodes[0].advertisedHosts.L",
        {"hosts": ["a.b"]},
    ),
    (
        "a host in a certificate",
        listener(tls=ISSUED, advertisedHost="b{nodeId}.pay.example.com"),
        "spec.listeners[0].advertisedHost",
        {"hosts": ["*.pay.example.com"]},
    ),
    (
        "a name of another namespace in a certificate",
        listener(tls=ISSUED, interimHost="{pod}.{pool}.svc"),
        "spec.listeners[0].interimHost",
        {"hosts": ["{pod}.{pool}.svc"]},
    ),
    (
        "a common host in a certificate",
        listener(tls=ISSUED, exposure={"type": "LoadBalancer", "bootstrapHost": "pay.payments.svc"}),
        "spec.listeners[0].exposure.bootstrapHost",
        {"hosts": ["pay.payments.svc"]},
    ),
    (
        "an address in a certificate",
        listener(tls=ISSUED) | {"nodes": [{"nodeId": 1, "advertisedHosts": {"L": "10.0.0.7"}}]},
        "spec.nodes[0].advertisedHosts.L",
        {"hosts": ["10.0.0.7"]},
    ),
    (
        "a host of controllers in a certificate",
        listener(tls=ISSUED) | {"advertisedHost": "c{nodeId}.pay.example.com"},
        "spec.advertisedHost",
        {"hosts": ["*.pay.example.com"]},
    ),
    (
        "a name of the namespace as the host of an Ingress",
        listener(exposure={"type": "Ingress"}, tls=ISSUED, advertisedHost="b.{namespace}.svc"),
        "spec.listeners[0].advertisedHost",
        {"hosts": ["b.{namespace}.svc"]},
    ),
    (
        "load balancers of another class",
        listener(exposure={"type": "LoadBalancer", "loadBalancerClass": "example.com/public"}),
        "spec.listeners[0].exposure.loadBalancerClass",
        {"exposureClasses": ["example.com/*"]},
    ),
    (
        "an ingress controller of others",
        listener(exposure={"type": "Ingress", "ingressClassName": "nginx-public"}),
        "spec.listeners[0].exposure.ingressClassName",
        {"exposureClasses": ["nginx-public"]},
    ),
    (
        "an annotation for DNS",
        listener(exposure={"type": "LoadBalancer", "annotations": {"external-dns/hostname": "a"}}),
        "spec.listeners[0].exposure.annotations",
        {"exposureAnnotations": ["external-dns/*"]},
    ),
    (
        "an address of others",
        listener(exposure={"type": "NodePort", "nodes": [{"nodeId": 0, "externalIPs": ["10.0.0.7"]}]}),
        "spec.listeners[0].exposure.nodes[0].externalIPs",
        {"addresses": ["10.0.0.0/29"]},
    ),
    (
        "an address of another balancer",
        listener(exposure={"type": "LoadBalancer", "bootstrap": {"loadBalancerIP": "10.0.0.7"}}),
        "spec.listeners[0].exposure.bootstrap.loadBalancerIP",
        {"addresses": ["10.0.0.0/29"]},
    ),
    (
        "a label of another's Service",
        {"template": {"labels": {"app": "payments"}}},
        "spec.template.labels",
        {"podLabels": ["app"]},
    ),
    (
        "a network by annotation",
        {"template": {"annotations": {"k8s.v1.cni.cncf.io/networks": "x"}}},
        "spec.template.annotations",
        {"podAnnotations": ["k8s.*"]},
    ),
    (
        "a service account",
        {"template": {"serviceAccountName": "admin"}},
        "spec.template.serviceAccountName",
        {"serviceAccounts": ["admin"]},
    ),
    (
        "a priority",
        {"template": {"priorityClassName": "system-node-critical"}},
        "spec.template.priorityClassName",
        {"priorityClasses": ["system-*"]},
    ),
    (
        "nodes of others",
        {"template": {"nodeSelector": {"team": "payments"}}},
        "spec.template.nodeSelector",
        {"nodeLabels": ["team"]},
    ),
    (
        "nodes of others by affinity",
        {
            "template": {
                "affinity": {
                    "nodeAffinity": {
                        f"required{DURING}": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "team"}]}]}
                    }
                }
            }
        },
        "spec.template.affinity.nodeAffinity: matchExpressions: key",
        {"nodeLabels": ["team"]},
    ),
    *(
        (
            f"{kind} to pods of another team",
            {
                "template": {
                    "affinity": {kind: {f"required{DURING}": [{"namespaces": ["kafka", "payments"]}]}}
                }
            },
            f"spec.template.affinity.{kind}.required{DURING}[0].namespaces[1]",
            {"affinityNamespaces": ["pay*"]},
        )
        for kind in ("podAffinity", "podAntiAffinity")
    ),
    *(
        (
            f"{kind} to pods of all teams",
            {
                "template": {
                    "affinity": {
                        kind: {
                            f"preferred{DURING}": [
                                {"weight": 1, "podAffinityTerm": {"namespaceSelector": selector}}
                            ]
                        }
                    }
                }
            },
            f"spec.template.affinity.{kind}.preferred{DURING}[0].podAffinityTerm.namespaceSelector",
            {"affinityNamespaces": ["*"]},
        )
        for kind, selector in (("podAffinity", {}), ("podAntiAffinity", {"matchLabels": {"a": "b"}}))
    ),
    (
        "all taints",
        {"template": {"tolerations": [{"operator": "Exists"}]}},
        "spec.template.tolerations[0].key",
        {"taints": ["*"]},
    ),
    (
        "a path of the host",
        {"template": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
        "spec.template.volumes[0]",
        {"volumeTypes": ["hostPath"]},
    ),
    (
        "a token of another account",
        {
            "template": {
                "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
            }
        },
        "spec.template.volumes[0].projected.sources[0]",
        {"volumeTypes": ["serviceAccountToken"]},
    ),
    (
        "a projected Secret",
        {"template": {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}},
        "spec.template.volumes[0].projected.sources[0].secret.name",
        {"secrets": ["s"]},
    ),
    (
        "a Secret as volume",
        {"template": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}},
        "spec.template.volumes[0].secret.secretName",
        {"secrets": ["*"]},
    ),
    (
        "a clone of another's volume",
        {"template": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}},
        "spec.template.volumes[0]",
        {"volumeTypes": ["ephemeral"]},
    ),
    (
        "another's claim",
        {"template": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "theirs"}}]}},
        "spec.template.volumes[0].persistentVolumeClaim.claimName",
        {"claims": ["theirs"]},
    ),
    (
        "an image as volume",
        {"template": {"volumes": [{"name": "v", "image": {"reference": "a/b:1"}}]}},
        "spec.template.volumes[0].image.reference",
        {"images": ["a/*"]},
    ),
    (
        "a Secret in the environment",
        {"template": {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}},
        "spec.template.env[0].valueFrom.secretKeyRef.name",
        {"secrets": ["s"]},
    ),
    (
        "a login at a registry",
        {"template": {"imagePullSecrets": [{"name": "a"}]}},
        "spec.template.imagePullSecrets[0].name",
        {"secrets": ["a"]},
    ),
    (
        "root",
        {"template": {"securityContext": {"runAsUser": 0}}},
        "spec.template.securityContext.runAsUser",
        {},
    ),
    (
        "a root that may be",
        {"template": {"securityContext": {"runAsNonRoot": False}}},
        "spec.template.securityContext.runAsNonRoot",
        {},
    ),
    (
        "no seccomp",
        {"template": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
        "spec.template.securityContext.seccompProfile.type",
        {},
    ),
    (
        "a sysctl",
        {"template": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}},
        "spec.template.securityContext.sysctls[0].name",
        {},
    ),
    (
        "a field of a later Kubernetes",
        {"template": {"securityContext": {"hostUsers": True}}},
        "spec.template.securityContext.hostUsers",
        {},
    ),
    (
        "a process of the host",
        {"template": {"securityContext": {"windowsOptions": {"hostProcess": True}}}},
        "spec.template.securityContext.windowsOptions",
        {},
    ),
    (
        "another image in a sidecar",
        sidecar(image="evil"),
        "spec.template.sidecars[0].image",
        {"images": ["evil"]},
    ),
    (
        "a sidecar that may gain rights",
        sidecar(securityContext={"capabilities": {"drop": ["ALL"]}}),
        "spec.template.sidecars[0].securityContext.allowPrivilegeEscalation",
        {},
    ),
    (
        "a privileged sidecar",
        sidecar(securityContext=RESTRICTED | {"privileged": True}),
        "spec.template.sidecars[0].securityContext.privileged",
        {},
    ),
    (
        "a capability",
        sidecar(securityContext=RESTRICTED | {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
        "spec.template.sidecars[0].securityContext.capabilities.add",
        {},
    ),
    (
        "a port of the host",
        sidecar(ports=[{"containerPort": 1, "hostPort": 1}]),
        "spec.template.sidecars[0].ports[0].hostPort",
        {},
    ),
    (
        "a request by the kubelet",
        sidecar(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "spec.template.sidecars[0].livenessProbe.httpGet.host",
        {},
    ),
    (
        "a request by the kubelet at the end",
        sidecar(lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
        "spec.template.sidecars[0].lifecycle.preStop.httpGet.host",
        {},
    ),
    (
        "all keys of a Secret",
        sidecar(envFrom=[{"prefix": "A_", "secretRef": {"name": "s"}}]),
        "spec.template.sidecars[0].envFrom[0].secretRef.name",
        {"secrets": ["s"]},
    ),
]


@pytest.mark.parametrize(
    ("spec", "field", "lists"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
def test_what_reaches_further_is_refused_until_a_list_allows_it(
    spec: dict[str, Any], field: str, lists: dict[str, Any]
) -> None:
    (refused,) = pool_refusals(spec, DEFAULT, NAMESPACE)
    assert refused.field == field
    assert str(refused).startswith(
        f"{field}: {refused.value}: {refused.rule}; the administrator of the operator "
    )
    allowed = TenantPolicy.model_validate(lists or {"podSecurity": "any"}).with_images(OWN)
    assert f"policy.{next(iter(lists), 'podSecurity')} of its chart" in str(refused)
    assert fields(spec, allowed) == []


def test_what_a_cluster_needs_is_allowed() -> None:
    spec = {
        "image": "apache/kafka:4.4.0",
        "rack": {"topologyKey": "topology.kubernetes.io/zone"},
        "listeners": [
            {"name": "A", "tls": {"secretName": "s"}, "exposure": {"type": "LoadBalancer"}},
            {"name": "B", "tls": ISSUED, "advertisedHost": "b{nodeId}.{namespace}.svc"},
            {"name": "C", "tls": ISSUED, "advertisedHost": "{pod}.ours.Kafka.svc.cluster.local."},
            {"name": "D", "tls": {"secretName": "s"}, "advertisedHost": "a.example.com"},
        ],
        "nodes": [{"nodeId": 0, "advertisedHosts": {"B": "b.kafka.svc", "D": "b.example.com"}}],
        "template": {
            "env": [{"name": "KAFKA_HEAP_OPTS", "value": "-Xmx1g"}],
            "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "more"}],
            "sidecars": [{**SIDECAR, "livenessProbe": {"tcpSocket": {"port": 1}}, "env": [{"name": "E"}]}],
            "securityContext": {},
            "nodeSelector": {"kubernetes.io/hostname": "a"},
            "affinity": {
                "podAntiAffinity": {
                    f"required{DURING}": [{"namespaces": [NAMESPACE], "topologyKey": "a"}, {}]
                }
            },
            "tolerations": [{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 1}],
        },
    }
    assert fields(spec) == []
    assert fields({}) == []


@pytest.mark.parametrize("shape", [1, "text", ["x"], [None], {"a": 1}])
def test_another_shape_is_refused_and_no_fault(shape: Any) -> None:
    for part in ("env", "volumes"):
        assert fields({"template": {part: shape}})
    assert fields({"template": {"volumes": [{"name": "v", "projected": {"sources": shape}}]}})
    assert fields({"template": {"volumes": [{"name": "v", "secret": shape}]}})
    assert fields({"template": {"env": [{"name": "E", "valueFrom": shape}]}})
    assert fields(sidecar(env=shape))
    assert fields({"template": {"securityContext": shape}})
    assert fields(sidecar(securityContext=shape))
    assert fields(sidecar(envFrom=shape))


@pytest.mark.parametrize("name", [["net.ipv4.tcp_wmem"], {"a": 1}, 1])
def test_a_sysctl_has_a_name_that_is_text(name: Any) -> None:
    context = {"sysctls": [{"name": name, "value": "1"}]}
    assert fields({"template": {"securityContext": context}}) == [
        "spec.template.securityContext.sysctls[0].name"
    ]


@pytest.mark.parametrize("shape", ["SYS_ADMIN", {"SYS_ADMIN": True}, 1])
def test_capabilities_in_another_shape_are_refused(shape: Any) -> None:
    where = "spec.template.sidecars[0].securityContext.capabilities"
    context = {"capabilities": {"drop": ["ALL"], "add": shape}}
    assert fields(sidecar(securityContext=RESTRICTED | context)) == [f"{where}.add"]
    assert f"{where}.drop" in fields(sidecar(securityContext=RESTRICTED | {"capabilities": {"drop": shape}}))
    (refused,) = fields(sidecar(securityContext=RESTRICTED | {"capabilities": shape}))
    assert refused.startswith(where)


def test_a_template_that_no_stack_has_room_for_is_refused() -> None:
    for levels, found in ((60, []), (70, ["spec.template"]), (100_000, ["spec.template"])):
        part: Any = "a"
        for _ in range(levels):
            part = [part]
        assert fields(sidecar(args=part)) == found


def test_null_is_no_value() -> None:
    """Kubernetes drops it, and so do the pods of nodes."""
    nulls = {"runAsNonRoot": None, "seccompProfile": None, "sysctls": None, "hostUsers": None}
    assert fields({"template": {"securityContext": nulls}}) == []
    assert fields(sidecar(securityContext=RESTRICTED | nulls)) == []
    assert fields(sidecar(securityContext=RESTRICTED | {"allowPrivilegeEscalation": None}))


def test_refusals_are_short_however_long_values_and_lists_are() -> None:
    policy = TenantPolicy.model_validate({"images": [f"a/{place}" for place in range(99)]})
    long = "b" * 1000
    for spec in ({"image": long}, sidecar(image=long)):
        (refused,) = pool_refusals(spec, policy, NAMESPACE)
        assert len(refused.value) == 80
        assert refused.rule == "must be one of a/0, a/1, a/2, a/3, a/4, a/5, a/6, a/7, a/8, a/9, ..."


def test_names_of_a_namespace_that_is_not_given_are_those_of_others() -> None:
    def refused(host: str) -> list[str]:
        spec = listener(tls=ISSUED, advertisedHost=host)
        return [refused.field for refused in pool_refusals(spec, DEFAULT, None)]

    assert refused("{pod}.{namespace}.svc") == []
    assert refused("b.None.svc") == refused("b.kafka.svc") == ["spec.listeners[0].advertisedHost"]


SERVERS = {"bootstrapServers": ["Kafka-1.example.com:9093"]}


@pytest.mark.parametrize(
    ("pattern", "is_allowed"),
    [
        ("kafka-1.example.com:9093", True),
        ("kafka-*.example.com", True),
        ("*.example.com:*", True),
        ("*", True),
        ("*.example.com:9092", False),
        ("*.com", False),
        ("example.com", False),
    ],
)
def test_servers_are_allowed_by_patterns(pattern: str, is_allowed: bool) -> None:
    found = entity_refusals(SERVERS, TenantPolicy(servers=(pattern,)))
    assert not found if is_allowed else found[0].field == "spec.bootstrapServers[0]"
    (refused,) = entity_refusals(SERVERS, DEFAULT)
    assert str(refused) == (
        "spec.bootstrapServers[0]: 'Kafka-1.example.com:9093': is not allowed; the administrator of the operator can "
        "allow it in policy.servers of its chart"
    )


def test_no_policy_lets_a_password_be_sent_in_the_clear() -> None:
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "secretName": "s"}
    (refused,) = entity_refusals(SERVERS | {"security": security}, TenantPolicy(servers=("*",)))
    assert str(refused) == (
        "spec.security.mechanism: 'PLAIN': PLAIN sends the password itself, and needs protocol SASL_SSL"
    )


def test_the_issuer_of_a_user_is_checked() -> None:
    spec = {
        "cluster": "q",
        "authentication": {"type": "tls", "issuerRef": {"name": "a", "kind": "ClusterIssuer"}},
    }
    assert entity_refusals(spec, DEFAULT)[0].list_name == "issuers"
    assert not entity_refusals({"cluster": "q"}, DEFAULT)


def test_wildcards_have_no_other_meaning() -> None:
    assert allows(["a*[0]?"], "abc[0]?")
    assert not allows(["a?c"], "abc")
    assert not allows(["a"], "ab")
    assert allows(["kafka:*"], "kafka:4.4.0@sha256:12")
    assert not allows(["kafka:*"], "kafka:5000/evil:1")
    assert allows(["a:5000/*/kafka:*"], "a:5000/b/c/kafka:1")
    assert not allows_host(["*.b"], "x.y.b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("images: x", "images: "),
        ("image: [x]", "image: Extra inputs are not permitted; allowed are images, podSecurity"),
        ("podSecurity: baseline", "podSecurity: "),
        ("addresses: [10.0.0.1/8]", "addresses.0: "),
        ("[", "can't be read as YAML"),
        ("secrets: [2024-13-01]", "can't be read as YAML: month must be in 1..12"),
        ('secrets: ["\\UFFFFFFFF"]', "can't be read as YAML: "),
        ("secrets: [!!timestamp x]", "can't be read as YAML: "),
        ("secrets: [!!bool x]", "can't be read as YAML: "),
        ("secrets: ['\udcff']", "is not Unicode text"),
        ("- a", "policy: "),
    ],
)
def test_an_unusable_policy_is_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(text)


def test_a_policy_is_read_from_yaml_and_json() -> None:
    assert parse_policy("") == TenantPolicy()
    assert parse_policy('{"serviceAccounts": ["a"]}').service_accounts == ("a",)
