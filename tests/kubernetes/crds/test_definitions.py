"""The definitions in use: defaults, scale, columns, names, explanations, appliers of one list."""

import json

import pytest
import yaml
from kit.affinity import EVERY_FIELD
from kit.api_requests import APPLY, Api, Kubectl, Object, path_of, resource, secured
from quorate_operator.models.manifests import ENTITIES, load_entity, load_object


def test_the_smallest_resource_gets_the_defaults(api: Api, namespace: str) -> None:
    """A short manifest is enough, and what is stored is whole."""
    stored = api.create(namespace, resource("KafkaController"))
    assert stored.status == 201
    spec = stored.body["spec"]
    assert (spec["replicas"], spec["nodeIds"], spec["quorum"]) == (3, {"first": 3000}, "dynamic")
    assert spec["listeners"] == [{"name": "CONTROLLER"}]
    assert spec["storage"] == {"size": "10Gi", "onDecommission": "Retain", "onDeletion": "Retain"}
    assert spec["rollout"] == {"overlap": "10m", "maxUnavailable": 1, "windows": []}
    pool = api.create(namespace, resource("KafkaBroker", spec={"storage": {"className": "fast"}}))
    # A default of size would contradict volumes that are listed later.
    assert pool.body["spec"]["storage"] == {
        "className": "fast",
        "onDecommission": "Retain",
        "onDeletion": "Retain",
    }
    assert pool.body["spec"]["listeners"] == [{"name": "PLAINTEXT"}]


SMALLEST_ITEMS: dict[str, Object] = {
    "KafkaController": {
        "listeners": [secured()],
        "nodes": [{"nodeId": 3000}],
        "rollout": {"windows": [{"start": "22:00", "duration": "1h"}]},
    },
    "KafkaBroker": {
        "listeners": [{"name": "A"}, {**secured(), "name": "B"}, {"name": "C", "exposure": {}}],
        "nodes": [{"nodeId": 1}],
        "storage": {"volumes": [{"id": 0}]},
    },
    "KafkaUser": {
        "acls": [{"resource": {"type": "Cluster", "name": "kafka-cluster"}, "operations": ["Alter"]}]
    },
}


@pytest.mark.parametrize("kind", SMALLEST_ITEMS)
def test_items_of_lists_are_stored_as_they_were_written(api: Api, namespace: str, kind: str) -> None:
    """The rules hold without the defaults, and for a change too."""
    spec = SMALLEST_ITEMS[kind]
    created = api.create(namespace, resource(kind, spec=spec))
    assert created.status == 201, created.message
    changed = api.change(namespace, kind, "one", spec)
    assert changed.status == 200, changed.message
    assert {name: changed.body["spec"][name] for name in spec if name not in ("rollout", "storage")} == {
        name: value for name, value in spec.items() if name not in ("rollout", "storage")
    }
    for field, items in (("rollout", "windows"), ("storage", "volumes")):
        if field in spec:
            assert changed.body["spec"][field][items] == spec[field][items]
    (load_entity if kind in ENTITIES else load_object)(changed.body, "here")


def test_an_affinity_is_stored_as_it_was_written(api: Api, namespace: str) -> None:
    """No field of Kubernetes is refused, left out or filled in."""
    for affinity in (EVERY_FIELD, {}, {"podAntiAffinity": {}}):
        spec = {"template": {"affinity": affinity}}
        stored = api.create(namespace, resource("KafkaBroker", f"pool-{len(affinity)}", spec))
        assert stored.status == 201, stored.message
        assert stored.body["spec"]["template"]["affinity"] == affinity


def test_both_scale(api: Api, namespace: str, kubectl: Kubectl) -> None:
    for kind in ("KafkaController", "KafkaBroker"):
        assert api.create(namespace, resource(kind)).status == 201
        kubectl("scale", f"--namespace={namespace}", f"{kind.lower()}/one", "--replicas=5")
        status = {"replicas": 3, "selector": "quorate.dev/pool=one"}
        assert api.change_status(namespace, kind, "one", status).status == 200
        scale = api.send("GET", f"{path_of(namespace, kind)}/one/scale").body
        assert scale["spec"] == {"replicas": 5}
        assert scale["status"] == status


def test_a_status_changes_nothing_but_the_status(api: Api, namespace: str) -> None:
    assert api.create(namespace, resource("KafkaController")).body["metadata"]["generation"] == 1
    reported = api.change_status(namespace, "KafkaController", "one", {"observedGeneration": 1})
    assert reported.body["metadata"]["generation"] == 1
    changed = api.change(namespace, "KafkaController", "one", {"replicas": 5})
    assert changed.body["metadata"]["generation"] == 2
    assert changed.body["status"] == {"observedGeneration": 1}


def test_conditions_of_a_newer_operator_are_stored(api: Api, namespace: str) -> None:
    assert api.create(namespace, resource("KafkaController")).status == 201
    condition = {
        "type": "example.com/Later",
        "status": "True",
        "reason": "New",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    reported = api.change_status(namespace, "KafkaController", "one", {"conditions": [condition]})
    assert reported.status == 200, reported.message
    assert reported.body["status"]["conditions"] == [condition]


def test_columns_tell_how_it_is(api: Api, namespace: str, kubectl: Kubectl) -> None:
    assert api.create(namespace, resource("KafkaController", "quorum")).status == 201
    condition = {
        "type": "QuorumHealthy",
        "status": "True",
        "reason": "AllThere",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "quorum": {"leaderId": 3001, "epoch": 4, "highWatermark": 8, "kraftVersion": 1},
        "readyReplicas": 2,
    }
    reported = api.change_status(
        namespace,
        "KafkaController",
        "quorum",
        {**status, "conditions": [condition], "metadataVersion": "4.3-IV0"},
    )
    assert reported.status == 200, reported.message
    header, row = kubectl("get", "kctl", f"--namespace={namespace}").splitlines()
    assert header.split() == ["NAME", "DESIRED", "READY", "QUORUM", "LEADER", "METADATA", "HEALTHY", "AGE"]
    assert row.split()[:6] == ["quorum", "3", "2", "True", "3001", "4.3-IV0"]
    assert api.create(namespace, resource("KafkaBroker", "pool")).status == 201
    header, row = kubectl("get", "kbr", f"--namespace={namespace}", "--no-headers=false").splitlines()
    assert header.split() == ["NAME", "CONTROLLERS", "DESIRED", "READY", "VERSION", "HEALTHY", "AGE"]
    assert row.split()[:3] == ["pool", "quorum", "3"]


def test_categories_find_both(api: Api, namespace: str, kubectl: Kubectl) -> None:
    for kind in ("KafkaController", "KafkaBroker"):
        assert api.create(namespace, resource(kind)).status == 201
    for category in ("kafka", "quorate"):
        names = kubectl("get", category, f"--namespace={namespace}", "--output=name").split()
        assert names == ["kafkabroker.quorate.dev/one", "kafkacontroller.quorate.dev/one"]


def test_fields_are_explained(api: Api, kubectl: Kubectl) -> None:
    assert api.send("GET", "/apis/quorate.dev/v1alpha1").status == 200
    for field, words in (
        ("kafkacontroller.spec.decommission", "Node ids that leave the quorum and are not used again"),
        (
            "kafkacontroller.status.registrations.ghost",
            "Whether the registration is a ghost",
        ),
        ("kafkabroker.spec.listeners.exposure.type", "one Service of this type for each node"),
        ("kafkabroker.spec.rollout.overlap", "How long an old address keeps leading to its node"),
    ):
        assert words in " ".join(kubectl("explain", field).split())


def test_two_appliers_share_a_list(api: Api, namespace: str) -> None:
    path = f"{path_of(namespace, 'KafkaBroker')}/one"
    for manager, node_id in (("git", 0), ("person", 1)):
        spec = {"nodes": [{"nodeId": node_id, "rack": manager}]}
        response = api.send(
            "PATCH", f"{path}?fieldManager={manager}", resource("KafkaBroker", spec=spec), APPLY
        )
        assert response.status in (200, 201), response.message
    racks = {node["nodeId"]: node["rack"] for node in response.body["spec"]["nodes"]}
    assert racks == {0: "git", 1: "person"}


def test_the_definitions_are_applied_again_without_a_change(api: Api, kubectl: Kubectl) -> None:
    names = ("kafkacontrollers.quorate.dev", "kafkabrokers.quorate.dev")

    def generations() -> list[int]:
        found = yaml.safe_load(kubectl("get", "crd", *names, "--output=yaml"))["items"]
        return [item["metadata"]["generation"] for item in found]

    before = generations()
    for name in names:
        definition = json.loads(kubectl("get", "crd", name, "--output=json"))
        stored = {key: definition[key] for key in ("apiVersion", "kind", "spec")} | {
            "metadata": {"name": name}
        }
        path = (
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=kubectl&force=true"
        )
        assert api.send("PATCH", path, stored, APPLY).status == 200
    assert generations() == before
