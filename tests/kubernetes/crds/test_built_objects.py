"""What the builders build is accepted by a real API server, in a namespace that enforces restricted pods."""

import json
from typing import Any

import pytest
from kit.affinity import EVERY_FIELD
from kit.api_requests import APPLY, Api, Object, resource
from quorate_operator.models.manifests import load_manifests, load_object
from quorate_operator.planning.cluster import Address, Formation, Lifecycle, Publication, Role
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.certificates import certificates
from quorate_operator.resources.completion import complete
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.data_volumes import volume_claim
from quorate_operator.resources.exposures import exposed_bootstraps, exposures
from quorate_operator.resources.facts import Context, Facts, Images
from quorate_operator.resources.pods import node_pod, rebuild_quorum_arguments, task_pod
from quorate_operator.resources.protection import (
    brokers_budget,
    brokers_policies,
    controllers_budget,
    controllers_policy,
)
from quorate_operator.resources.services import (
    bootstrap_service,
    headless_service,
    ingresses,
    published_service,
)
from quorate_operator.resources.shipping import history_claim, history_of, ingest_cron_job

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Certificate": "/apis/cert-manager.io/v1/namespaces/{}/certificates",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}
FORMATION = Formation(
    cluster_id="4L6g3nShT-eMCtK--X86sw", initial_voters={3000: "A" * 22, 3001: "B" * 22}, is_formed=False
)
FULL_TEMPLATE = (
    "template: {resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}}, labels: {team: a}, "
    "annotations: {x: y}, nodeSelector: {disk: fast}, tolerations: [{key: k, operator: Exists}], "
    f"affinity: {json.dumps(EVERY_FIELD)}, "
    "imagePullPolicy: Never, imagePullSecrets: [{name: registry}], "
    "env: [{name: KAFKA_HEAP_OPTS, value: -Xmx1g}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}], "
    "volumes: [{name: agent, configMap: {name: jmx}}], volumeMounts: [{name: agent, mountPath: /agent}], "
    "sidecars: [{name: agent, image: 'a:1', volumeMounts: [{name: agent, mountPath: /agent}], securityContext: "
    "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}], "
    "probes: {startup: {failureThreshold: 9}, liveness: {periodSeconds: 5}, readiness: {initialDelaySeconds: 1}}, "
    "serviceAccountName: default, securityContext: {runAsUser: 1234, fsGroup: 1234}}"
)
FULL_HISTORY = (
    "history: {storage: {size: 1Gi, className: fast}, segmentInterval: 5m, schedule: '*/5 * * * *', suspend: true, "
    "lake: lakes/quorum, image: 'lake:1', resources: {requests: {cpu: 2, memory: 4Gi}, limits: {memory: 8Gi}}}"
)
ISSUED = (
    "listeners: [{name: CONTROLLER, protocol: SSL, "
    "tls: {issuerRef: {name: ca}, duration: 48h, renewBefore: 90m}}]"
)
OF_SMALL = {"Certificate", "Ingress"}
"""The kinds that only the first of these cases has."""
MANIFESTS = {
    "small": (
        f"history: {{storage: {{size: 1Gi}}}}, {ISSUED}",
        (
            "listeners: [{name: IN}, {name: OUT, protocol: SSL, tls: {secretName: cert}, "
            "advertisedHost: 'b{nodeId}.example.com', exposure: {type: Ingress, annotations: {a: b}, "
            "ingressClassName: nginx, bootstrapHost: k.example.com}}]"
        ),
    ),
    "static": (
        "quorum: static, nodes: [{nodeId: 3001, implementation: java}], history: {claimName: archive}",
        "replicas: 0",
    ),
    "large": (
        f"replicas: 5, metadataVersion: '4.3', storage: {{className: fast}}, {FULL_TEMPLATE}, {FULL_HISTORY}",
        (
            f"{FULL_TEMPLATE}, nodes: [{{nodeId: 0, rack: east}}], networkPolicy: {{enabled: true}}, "
            "listeners: [{name: IN, networkPolicyPeers: "
            "[{podSelector: {matchLabels: {a: b}}, namespaceSelector: {}}, "
            "{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}, "
            "{name: OUT_SIDE, protocol: SSL, tls: {secretName: cert}, advertisedPort: 443, "
            "exposure: {type: LoadBalancer, annotations: {a: b}, loadBalancerClass: a/b, "
            "sourceRanges: [10.0.0.0/8]}}, "
            "{name: HOSTNAME, port: 9999, exposure: {type: NodePort}}]"
        ),
    ),
    "outside": (
        "history: {claimName: archive}, services: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}",
        (
            "services: {ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]}, listeners: [{name: IN}, "
            "{name: NODES, exposure: {type: NodePort, externalTrafficPolicy: Cluster, "
            "ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], nodes: [{nodeId: 0, nodePort: 30010, "
            "externalIPs: [198.51.100.7]}], bootstrap: {nodePort: 30011}}}, "
            "{name: BALANCERS, exposure: {type: LoadBalancer, externalTrafficPolicy: Local, "
            "nodes: [{nodeId: 0, loadBalancerIP: 203.0.113.7}], bootstrap: {annotations: {a: b}}}}]"
        ),
    ),
    "racks": (
        "history: {claimName: archive}, template: {securityContext: {}}",
        "rack: {topologyKey: topology.kubernetes.io/zone}",
    ),
    "longest": (
        "history: {storage: {size: 1Gi}}",
        "listeners: [{name: " + "L" * 63 + ", exposure: {type: NodePort}}]",
    ),
}


NODE_PORTS_AGAIN = {"30010": "30020", "30011": "30021"}
"""Ports of the test that stores Services, which no test beside it can have, not even in a dry run.

All are in the part of the range that the API server allocates from last (ServiceNodePortStaticSubrange).
"""


def objects_of(namespace: str, controllers: str, brokers: str, name: str, uid: str) -> list[Object]:
    """Everything that is ever applied for a cluster of these specs."""
    text = (
        f"apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {{name: {name}, uid: {uid}}}\n"
        f"spec: {{{controllers}}}\n---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\n"
        f"metadata: {{name: {name[:-1]}b, uid: {uid}}}\nspec: {{controllers: {name}, {brokers}}}\n"
    )
    manifests = load_manifests(text, "m.yaml")
    facts = Facts(namespace=namespace, images=Images(quorate="quorate:1"), formation=FORMATION)
    desired = complete(desired_cluster(manifests), manifests, facts)
    context = Context(manifests=manifests, facts=facts)
    (pool,) = manifests.brokers
    found = [
        headless_service(context, desired, name, Role.CONTROLLER),
        headless_service(context, desired, pool.metadata.name, Role.BROKER),
        controllers_budget(context, voters=3, pods=3),
        brokers_budget(context, pods=3, spare=1, may_unready_go=True),
        controllers_policy(context, desired),
        *brokers_policies(context),
    ]
    bootstrap = bootstrap_service(context, desired, pool.metadata.name)
    found += [*([bootstrap] if bootstrap else []), *certificates(context, desired)]
    found += ingresses(context, desired)
    history = history_of(context)
    assert history is not None
    claim = history_claim(context, history)
    found += [ingest_cron_job(context, history, Lifecycle.RUNNING), *([claim] if claim else [])]
    for node in desired.nodes:
        listener = node.listeners[-1].name
        alias = Publication(
            address=Address(f"alias-{node.node_id}.{namespace}.svc", 443),
            node_id=node.node_id,
            listener=listener,
            since_ms=1,
        )
        found += [
            volume_claim(context, node),
            config_map(context, desired, node, node.advertised),
            node_pod(context, desired, node, node.advertised, is_initial=True, is_placed=False),
            node_pod(context, desired, node, node.advertised, is_initial=False),
            task_pod(context, node, "rebuild-quorum", rebuild_quorum_arguments()),
            published_service(context, node, [alias]),
            *exposures(context, node),
        ]
    found += exposed_bootstraps(context, desired)
    return found


def apply(api: Api, namespace: str, item: Object, *, dry_run: bool) -> Any:
    """Apply an object as the operator does; unknown fields are refused."""
    query = f"fieldManager=quorate&fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
    path = PATHS[item["kind"]].format(namespace)
    return api.send("PATCH", f"{path}/{item['metadata']['name']}?{query}", item, APPLY)


@pytest.mark.parametrize("case", MANIFESTS)
def test_everything_that_is_built_is_accepted(api: Api, namespace: str, case: str) -> None:
    name = "q" * 52 if case == "longest" else "quorum"
    items = objects_of(namespace, *MANIFESTS[case], name, "8b3b1e9e-3d0c-4b59-8d0c-2f8f9a3d9f10")
    assert {item["kind"] for item in items} == set(PATHS) - (set() if case == "small" else OF_SMALL)
    for item in items:
        response = apply(api, namespace, item, dry_run=True)
        assert response.status in (200, 201), f"{item['kind']} {item['metadata']['name']}: {response.message}"
        assert "warnings" not in response.body


@pytest.mark.parametrize("case", ["large", "outside"])
def test_applying_again_changes_nothing(api: Api, namespace: str, case: str) -> None:
    controllers, brokers = MANIFESTS[case]
    for port, other in NODE_PORTS_AGAIN.items():
        brokers = brokers.replace(port, other)
    items = objects_of(namespace, controllers, brokers, "quorum", "8b3b1e9e-3d0c-4b59-8d0c-2f8f9a3d9f10")
    for item in items:
        if item["kind"] == "Pod":
            continue
        responses = [apply(api, namespace, item, dry_run=False) for _ in range(3)]
        assert all(response.status in (200, 201) for response in responses), responses[0].message
        _, second, third = (response.body["metadata"]["resourceVersion"] for response in responses)
        assert second == third, item["kind"]


def test_what_the_api_server_stores_is_what_the_models_read(api: Api, namespace: str) -> None:
    full = {"nodes": [{"nodeId": 3000}], "storage": {"size": 1000}, "config": {"num.io.threads": 3}}
    stored = api.create(namespace, resource("KafkaController", spec=full)).body
    read = load_object(stored, "stored")
    assert read.metadata.uid == stored["metadata"]["uid"]
    assert read.spec.model_dump(by_alias=True, exclude_none=True, mode="json") == {
        **stored["spec"],
        "listeners": [{"name": "CONTROLLER", "protocol": "PLAINTEXT"}],
        "storage": {"size": "1000", "onDecommission": "Retain", "onDeletion": "Retain"},
        "config": {"num.io.threads": "3"},
        "nodes": [{"nodeId": 3000, "implementation": "python", "advertisedHosts": {}}],
    }
