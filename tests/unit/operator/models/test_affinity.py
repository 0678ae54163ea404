"""The affinity of pods: the fields are Kubernetes', what is written reaches the pods, and mistakes are named."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import kubernetes.client
import pytest
import yaml
from kit.affinity import EVERY_FIELD
from pydantic import BaseModel
from quorate_operator.models.affinity import Affinity
from quorate_operator.models.crds import custom_resource_definitions
from quorate_operator.models.manifests import ManifestError, load_manifests, load_object
from quorate_operator.models.v1alpha1 import API_VERSION, KafkaBroker

THEIR_NAMES = {"PodAntiAffinity": "PodAffinity"}
"""Kubernetes' types that have the fields of another, which our model has in their place."""


def broker(affinity: Any) -> dict[str, Any]:
    """A KafkaBroker whose pods have an affinity."""
    return {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaBroker",
        "metadata": {"name": "brokers"},
        "spec": {"controllers": "quorum", "template": {"affinity": affinity}},
    }


def affinity_of(written: Any) -> Affinity:
    """The affinity as the operator has it."""
    loaded = load_object(broker(written), "here")
    assert isinstance(loaded, KafkaBroker)
    assert loaded.spec.template.affinity is not None
    return loaded.spec.template.affinity


@pytest.mark.parametrize("written", [EVERY_FIELD, {}, {"nodeAffinity": {}}, {"podAntiAffinity": {}}])
def test_pods_get_what_was_written(written: dict[str, Any]) -> None:
    """No pod restarts because the operator knows the fields."""
    assert affinity_of(written).rendered() == written


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def test_fields_are_those_of_kubernetes() -> None:
    compared: set[str] = set()
    left: list[tuple[str, type[BaseModel]]] = [("Affinity", Affinity)]
    while left:
        name, model = left.pop()
        theirs = getattr(kubernetes.client, f"V1{name}")
        fields = {field.alias or "": field for field in model.model_fields.values()}
        assert fields.keys() == set(theirs.attribute_map.values()), name
        compared.add(name)
        for attribute, kind in theirs.openapi_types.items():
            inner = kind.removeprefix("List[").removesuffix("]").removeprefix("V1")
            for used in models(fields[theirs.attribute_map[attribute]].annotation):
                assert used.__name__ == THEIR_NAMES.get(inner, inner)
                left.append((inner, used))
    assert len(compared) == 12


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("podAntiAffinity", "podAntiAfinity", "affinity.podAntiAfinity: unknown field"),
        ("topologyKey", "topologykey", "[0].topologykey: unknown field"),
        ("topologyKey", "topologykey", "[0].topologyKey: missing"),
        ("matchFields", "matchfields", "nodeSelectorTerms[0].matchfields: unknown field"),
        ("podAffinityTerm", "term", "[0].podAffinityTerm: missing; it must be given"),
        (
            '"Gt"',
            '"gt"',
            "matchExpressions[1].operator: 'gt': must be 'In', 'NotIn', 'Exists', 'DoesNotExist', 'Gt' or",
        ),
        ('"weight": 100', '"weight": 101', "weight: 101: must be less than or equal to 100"),
        (
            '"NotIn"',
            '"Gt"',
            "labelSelector.matchExpressions[0].operator: 'Gt': must be 'In', 'NotIn', 'Exists' or",
        ),
    ],
)
def test_a_mistake_names_its_field(old: str, new: str, expected: str) -> None:
    written = json.dumps(EVERY_FIELD)
    assert old in written
    quorum = {
        "apiVersion": API_VERSION,
        "kind": "KafkaController",
        "metadata": {"name": "quorum"},
        "spec": {"replicas": 1},
    }
    file = yaml.safe_dump_all([quorum, broker(json.loads(written.replace(old, new)))])
    with pytest.raises(ManifestError) as raised:
        load_manifests(file, "here")
    assert expected in str(raised.value)


def test_the_api_server_knows_the_fields() -> None:
    def inside(schema: Any) -> Iterator[Any]:
        yield schema
        for part in (
            schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        ):
            yield from inside(part)

    for definition in custom_resource_definitions()[:2]:
        spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        affinity = spec["properties"]["template"]["properties"]["affinity"]
        assert affinity["properties"].keys() == {"nodeAffinity", "podAffinity", "podAntiAffinity"}
        parts = [part for part in inside(affinity) if isinstance(part, dict)]
        assert not [part for part in parts if "x-kubernetes-preserve-unknown-fields" in part]
        assert not [part for part in parts if "default" in part]
