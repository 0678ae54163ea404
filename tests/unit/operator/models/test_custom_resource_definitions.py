"""The CustomResourceDefinitions as they are generated: what an API server would refuse, or people would miss."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.entities.topics import plan_topic
from quorate_operator.entities.users import ObservedUser, plan_user
from quorate_operator.handlers.entities.statuses import EntityResult, entity_status
from quorate_operator.models.crds import CRD_BYTES_MAX, custom_resource_definitions
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.status import (
    Condition,
    KafkaBrokerStatus,
    KafkaControllerStatus,
    VoterStatus,
)
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.models.users import KafkaUser

REPOSITORY = Path(__file__).parents[4]
NAMES = tuple(
    f"{plural}.quorate.dev"
    for plural in ("kafkacontrollers", "kafkabrokers", "kafkatopics", "kafkausers", "kafkarebalances")
)
SIZE_BYTES_WANTED = 150_000


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    """tools/crds.py, which is a script: it imports what is beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(f"{REPOSITORY / 'tools'}")
        yield importlib.import_module("crds")


def walk(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all in it, with their paths."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", field)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(f"{path}[]", schema[key])


def schemas(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a definition, with its path."""
    (version,) = definition["spec"]["versions"]
    yield from walk("", version["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_schemas_are_structural(definition: dict[str, Any]) -> None:
    refused = {"$ref", "$defs", "anyOf", "oneOf", "const", "title", "propertyNames", "prefixItems"}
    for path, schema in schemas(definition):
        assert not refused & schema.keys(), path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert schema.get("additionalProperties") is not False, path
        assert schema.get("default", "") is not None, path


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_every_field_is_described(definition: dict[str, Any]) -> None:
    for path, schema in schemas(definition):
        if path.startswith((".spec", ".status")) and not path.endswith("[]"):
            assert schema.get("description"), path


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_lists_can_be_merged_and_are_bounded(definition: dict[str, Any]) -> None:
    """Two appliers of one list do not overwrite each other; rules stay cheap."""
    opaque = {".spec.template.tolerations"}
    for path, schema in schemas(definition):
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
            assert path in opaque or "x-kubernetes-list-type" in schema, path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], path


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_integers_of_a_spec_are_bounded(definition: dict[str, Any]) -> None:
    """Clients that read numbers as doubles lose none."""
    unbounded = [
        path
        for path, schema in schemas(definition)
        if path.startswith(".spec") and schema.get("type") == "integer" and "maximum" not in schema
    ]
    assert unbounded == []


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_no_default_is_stored_inside_a_list(definition: dict[str, Any]) -> None:
    """An applier replaces a list by what its file has, and would find another list at each apply."""
    for path, schema in schemas(definition):
        if schema.get("type") == "array":
            inner = {"properties": {"x": schema["items"]}}
            found = [where for where, field in walk("", inner) if "default" in field]
            assert found == [], path
            for item in schema.get("default", ()):
                assert not isinstance(item, dict) or item.keys() == set(schema["items"]["required"]), path


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_a_newer_operator_may_write_other_values_into_a_status(definition: dict[str, Any]) -> None:
    (version,) = definition["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    listed = {path: schema["enum"] for path, schema in walk("status", status) if "enum" in schema}
    assert listed == {"status.conditions[].status": ["True", "False", "Unknown"]}


@pytest.mark.parametrize("definition", custom_resource_definitions()[:2], ids=NAMES[:2])
def test_the_release_of_a_cluster_has_no_default_that_could_change(definition: dict[str, Any]) -> None:
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "version" in spec["required"]
    assert "default" not in spec["properties"]["version"]
    assert "default" not in spec


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=NAMES)
def test_rules_say_what_is_allowed(definition: dict[str, Any]) -> None:
    count = 0
    for path, schema in schemas(definition):
        for rule in schema.get("x-kubernetes-validations", ()):
            count += 1
            assert rule["message"], path
            assert "\n" not in rule["message"], path
    assert count >= 6


def test_files_are_up_to_date_and_small(generator: ModuleType) -> None:
    """Crds/ is what the models say, and kubectl apply takes it."""
    for name, text in generator.files().items():
        assert (REPOSITORY / "crds" / name).read_text() == text, "run tools/crds.py"
        assert len(text.encode()) < SIZE_BYTES_WANTED < CRD_BYTES_MAX
        assert yaml.safe_load(text)["metadata"]["name"] == name.removesuffix(".yaml")
        assert "&id" not in text


def test_the_generator_writes_elsewhere_and_checks(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["crds.py", "--to", f"{tmp_path}/copies"])
    assert generator.main() == 0
    monkeypatch.setattr("sys.argv", ["crds.py", "--to", f"{tmp_path}/copies", "--check"])
    assert generator.main() == 0
    spoilt = tmp_path / "copies" / "kafkabrokers.quorate.dev.yaml"
    spoilt.write_text(spoilt.read_text() + "# more\n")
    assert generator.main() == 1
    assert f"{spoilt} is not up to date: run tools/crds.py" in capsys.readouterr().err


def test_names_do_not_clash() -> None:
    taken = {
        "cm",
        "cs",
        "ds",
        "ep",
        "ev",
        "ing",
        "no",
        "ns",
        "po",
        "pv",
        "pvc",
        "rc",
        "rs",
        "sa",
        "svc",
        "crd",
        "k",
        "kc",
        "kt",
        "ku",
    }
    """Of Kubernetes itself, and of Strimzi, which may be installed, too."""
    names = [
        name
        for definition in custom_resource_definitions()
        for name in (
            definition["spec"]["names"]["plural"],
            definition["spec"]["names"]["singular"],
            *definition["spec"]["names"]["shortNames"],
        )
    ]
    assert len(set(names)) == len(names)
    assert not taken & set(names)


def test_a_status_is_written_as_the_schema_has_it() -> None:
    status = KafkaControllerStatus(
        observed_generation=1,
        conditions=(
            Condition(
                type="Ready",
                status="True",
                last_transition_time="2026-01-01T00:00:00Z",
                reason="AllReady",
                message="",
            ),
        ),
        voters=(VoterStatus(node_id=3000, directory_id="d", endpoint="h:1", caught_up=True, lag=0),),
    )
    dumped = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert dumped["voters"] == [
        {"nodeId": 3000, "directoryId": "d", "endpoint": "h:1", "caughtUp": True, "lag": 0}
    ]
    controllers, brokers, topics, users, _ = custom_resource_definitions()
    resource = {"apiVersion": "quorate.dev/v1alpha1", "kind": "KafkaTopic", "metadata": {"name": "t"}}
    topic = load_entity({**resource, "spec": {"cluster": "c"}}, "here")
    assert isinstance(topic, KafkaTopic)
    user = load_entity({**resource, "kind": "KafkaUser", "spec": {"cluster": "c"}}, "here")
    assert isinstance(user, KafkaUser)
    kafka = ObservedKafka(cluster_id="c", brokers=())
    for definition, written in (
        (controllers, dumped),
        (brokers, KafkaBrokerStatus().model_dump(by_alias=True)),
        (topics, entity_status(EntityResult(plan=plan_topic(topic, None)), 1)),
        (users, entity_status(EntityResult(plan=plan_user(user, ObservedUser(), kafka)), 1)),
    ):
        (version,) = definition["spec"]["versions"]
        known = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert written.keys() <= known.keys()


def test_an_older_operator_reads_a_newer_status() -> None:
    status = KafkaControllerStatus.model_validate({"replicas": 3, "later": 1, "quorum": None})
    assert status.replicas == 3
