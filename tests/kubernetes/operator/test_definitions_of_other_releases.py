"""An operator beside definitions that are newer or older than its models, on a real API server."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes.client
import pytest
from kit.api_requests import resource
from kit.kubernetes_parts import is_served
from kit.operators.operated import CONTROLLERS_FIRST, GROUP, QUORUM, VERSION, Operated
from kit.operators.requests_sent import Request, requests_during, requests_sent
from kit.operators.resources import InClusters
from kit.waiting import eventually
from kubernetes.client import ApiException

Schema = dict[str, Any]
KINDS = ("KafkaController", "KafkaBroker", "KafkaTopic")
MARK = "redefined"
"""A field of the specs that only changed definitions have."""
STATUS_WRITES = Request("PATCH", "kafkacontrollers", "status")
TIMEOUT_S = 60
STILL_S = 10
FIRST = CONTROLLERS_FIRST


@pytest.fixture
def redefine(
    api_client: kubernetes.client.ApiClient,
    definitions: None,  # noqa: ARG001 - they are changed
) -> Iterator[Callable[[Callable[[Schema], None]], None]]:
    """Changes the schemas of the definitions for the time of a test, and waits until they are served."""
    api = kubernetes.client.CustomObjectsApi(api_client)
    where = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    names = {kind: f"{kind.lower()}s.{GROUP}" for kind in KINDS}
    before = {name: api.get_cluster_custom_object(*where, name)["spec"] for name in names.values()}

    def put(specs: dict[str, Schema]) -> None:
        for name, spec in specs.items():
            body = api.get_cluster_custom_object(*where, name)
            api.replace_cluster_custom_object(*where, name, {**body, "spec": spec})

    def knows_mark(kind: str) -> bool:
        place = (GROUP, VERSION, "default", f"{kind.lower()}s")
        tried = resource(kind, "tried", {MARK: "yes"})
        try:
            api.create_namespaced_custom_object(*place, tried, dry_run="All", field_validation="Strict")
        except ApiException:
            return False
        return True

    def await_mark(*, is_known: bool) -> None:
        for kind, name in names.items():
            eventually(
                lambda kind=kind: knows_mark(kind) == is_known,
                TIMEOUT_S,
                f"the schema of {kind} to be served",
            )
            eventually(
                lambda name=name: is_served(api_client, before[name]), TIMEOUT_S, f"{name} to be listed"
            )

    def change(edit: Callable[[Schema], None]) -> None:
        edited = copy.deepcopy(before)
        for spec in edited.values():
            properties = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            properties["spec"]["properties"][MARK] = {"type": "string"}
            edit(properties)
        put(edited)
        await_mark(is_known=True)

    yield change
    put(before)
    await_mark(is_known=False)


def newer(properties: Schema) -> None:
    """Add a field that the API server fills in, and one inside an object."""
    spec = properties["spec"]["properties"]
    spec["newer"] = {"type": "string", "default": "on"}
    if "rollout" in spec:
        spec["rollout"]["properties"]["newer"] = {"type": "string"}


def older(properties: Schema) -> None:
    """Remove fields of the status, and a type of condition."""
    status = properties["status"]["properties"]
    status.pop("refusals", None)
    status.pop("selector", None)
    conditions = status["conditions"]["items"]["properties"]
    conditions["type"]["enum"] = ["Ready", "Progressing", "Reconciling", "Stalled", "Degraded"]


def without_fields(properties: Schema) -> None:
    """Remove fields of the status."""
    for field in ("selector", "voters", "metadataVersion", "changes"):
        properties["status"]["properties"].pop(field, None)


def test_newer_definitions_make_no_resource_invalid(
    operated: Operated, redefine: Callable[[Callable[[Schema], None]], None]
) -> None:
    """Definitions are upgraded before operators: what these do not know is not used, and is reported."""
    redefine(newer)
    operated.create(replicas=1, rollout={"newer": "on", "overlap": "1s"})
    operated.start_operator()
    topics = InClusters(operated, "KafkaTopic")
    topics.create("orders", partitions=1)
    operated.wait_settled(FIRST)
    message = operated.condition("Ready")["message"]
    assert message.startswith("1 of 1 nodes are ready")
    assert "spec.rollout.newer" in message
    assert "spec.newer" in message
    operated.wait(lambda: len(operated.events("UnknownFields")) == 2, "an Event about each resource")
    operated.wait(
        lambda: topics.condition("orders", "Ready").get("reason") == "NoBroker", "the topic to be reconciled"
    )
    assert "spec.newer" in topics.condition("orders", "Ready")["message"]


@pytest.mark.parametrize("edit", [older, without_fields])
def test_older_definitions_stop_no_cluster(
    operated: Operated,
    redefine: Callable[[Callable[[Schema], None]], None],
    edit: Callable[[Schema], None],
) -> None:
    """Operators are upgraded alone, and definitions rolled back: clusters are reconciled as far as is stored."""
    redefine(edit)
    operated.create(replicas=1)
    operated.start_operator()
    pod = f"{QUORUM}-{FIRST}"
    operated.wait(lambda: pod in operated.pods(), "the controller to be started")
    operated.wait(lambda: operated.events("CreateNode"), "the steps to be reported")
    operated.wait(lambda: "done: StartNode" in "\n".join(operated.operators[-1].events()), "its start")
    assert requests_sent(operated.server)[STATUS_WRITES] > 0

    def is_quiet() -> bool:
        return requests_during(operated.server, STILL_S)[STATUS_WRITES] <= 1

    operated.wait(is_quiet, "the status not to be written again and again")
    assert operated.operators[-1].errors() == []
