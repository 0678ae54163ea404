"""Pods in a namespace with a quota of what containers request and may use: an API server admits each of them."""

import json

import pytest
from kit.api_requests import MERGE, Api, Object
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Formation, Lifecycle
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.completion import complete
from quorate_operator.resources.facts import Context, Facts, Images
from quorate_operator.resources.pods import node_pod, rebuild_quorum_arguments, task_pod
from quorate_operator.resources.shipping import history_of, ingest_cron_job

FORMATION = Formation(
    cluster_id="4L6g3nShT-eMCtK--X86sw", initial_voters={3000: "A" * 22, 3001: "B" * 22}, is_formed=False
)
LIMITS = {"limits": {"cpu": "1", "memory": "2Gi"}}
QUOTA = {"requests.cpu": "100", "requests.memory": "1Ti", "limits.cpu": "100", "limits.memory": "1Ti"}


def pods_of(namespace: str, template: Object) -> list[Object]:
    """A pod of each kind that the operator creates, with all its containers."""
    own = json.dumps(template)
    history = f"{{claimName: archive, resources: {json.dumps(LIMITS)}}}"
    text = (
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum, uid: u}\n"
        "spec: {replicas: 2, nodes: [{nodeId: 3001, implementation: java}], metrics: {enabled: true}, "
        f"history: {history}, template: {own}}}\n---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\n"
        "metadata: {name: brokers, uid: u}\nspec: {controllers: quorum, replicas: 1, metrics: {enabled: true}, "
        f"rack: {{topologyKey: topology.kubernetes.io/zone}}, template: {own}}}\n"
    )
    manifests = load_manifests(text, "m.yaml")
    facts = Facts(namespace=namespace, images=Images(quorate="quorate:1"), formation=FORMATION)
    desired = complete(desired_cluster(manifests), manifests, facts)
    context = Context(manifests=manifests, facts=facts)
    history_spec = history_of(context)
    assert history_spec is not None
    job = ingest_cron_job(context, history_spec, Lifecycle.RUNNING)["spec"]["jobTemplate"]["spec"]["template"]
    ingest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ingest"}, "spec": job["spec"]}
    return [
        *(node_pod(context, desired, node, node.advertised, is_initial=True) for node in desired.nodes),
        *(task_pod(context, node, "rebuild", rebuild_quorum_arguments()) for node in desired.nodes[:1]),
        ingest,
    ]


@pytest.fixture
def quota(api: Api, namespace: str) -> str:
    """The namespace with a quota, whose status the test writes: nothing else counts what is used."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "all"},
        "spec": {"hard": QUOTA},
    }
    assert api.send("POST", path, body).status == 201
    status = {"hard": QUOTA, "used": dict.fromkeys(QUOTA, "0")}
    assert api.send("PATCH", f"{path}/all/status", {"status": status}, MERGE).status == 200
    return namespace


def refusals(api: Api, namespace: str, pods: list[Object]) -> dict[str, str]:
    """What is said about the pods that are not admitted, by name."""
    found = {}
    for pod in pods:
        response = api.send("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        if response.status != 201:
            found[pod["metadata"]["name"]] = response.message
    return found


def test_every_container_can_have_what_a_quota_needs(api: Api, quota: str) -> None:
    pods = pods_of(quota, {"resources": LIMITS, "helperResources": {"limits": {"cpu": "200m"}}})
    containers = {
        container["name"]
        for pod in pods
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    }
    assert containers == {"await-rack", "format", "ingest", "metrics-agent", "node", "ship", "task"}
    assert refusals(api, quota, pods) == {}


def test_a_quota_names_the_containers_that_have_no_limit(api: Api, quota: str) -> None:
    """The quota is in force: without the field, only the ingest, which has its own, is admitted."""
    said = refusals(api, quota, pods_of(quota, {"resources": LIMITS}))
    assert len(said) == 4
    for message in said.values():
        assert "must specify limits.cpu for: " in message
