"""The chart's policy against misspelt fields, on a real API server: who may write how, and what is still dropped."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import kubernetes.client
import pytest
import yaml
from kit.api_requests import resource, run_kubectl
from kit.kubernetes_parts import Render, kubectl_quorate
from kit.operators.operated import CONTROLLERS_FIRST, GROUP, QUORUM, VERSION, Operated
from kit.waiting import eventually
from kubernetes.client import ApiException

OWN, OPERATOR = "strict-operator", "quorate"
TIMEOUT_S = 60
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}
Object = dict[str, Any]


@pytest.fixture
def strict(
    render: Render,
    api_client: kubernetes.client.ApiClient,
    operated: Operated,
) -> Iterator[Operated]:
    """A namespace in which requests must be strict."""
    values = {"strictFields": {"create": True}, "watchNamespaces": [operated.namespace]}
    kinds = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    api = kubernetes.client.CustomObjectsApi(api_client)
    group = ("admissionregistration.k8s.io", "v1")
    installed = [body for body in render(values, namespace=OWN) if body["kind"] in kinds]
    assert len(installed) == len(kinds)
    for body in installed:
        api.create_cluster_custom_object(*group, kinds[body["kind"]], body)
    eventually(lambda: refusal(operated, "POST", body_of("tried")), TIMEOUT_S, "the policy to be in force")
    yield operated
    for body in installed:
        api.delete_cluster_custom_object(*group, kinds[body["kind"]], body["metadata"]["name"])


def body_of(name: str, **spec: Any) -> Object:
    """A hibernated quorum."""
    usual = {"replicas": 1, "nodeIds": {"first": CONTROLLERS_FIRST}, "state": "Hibernated"}
    return resource("KafkaController", name, {**usual, **spec})


def refusal(
    operated: Operated,
    method: str,
    body: Object,
    content: str = MERGE,
    *,
    query: Mapping[str, str] = MappingProxyType({}),
    client: kubernetes.client.ApiClient | None = None,
) -> str:
    """Why a request is refused; empty if it is not. Nothing stays of one that creates."""
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{operated.namespace}/kafkacontrollers"
    if method != "POST":
        path += f"/{body['metadata']['name']}"
    client = client or operated.core.api_client
    given = "&".join(f"{key}={value}" for key, value in query.items())
    response = client.call_api(
        *client.param_serialize(
            method,
            f"{path}?{given}",
            header_params={
                "Content-Type": "application/json" if method == "POST" else content,
                "Accept": "application/json",
            },
            body=body,
            auth_settings=["BearerToken"],
        )
    )
    text = str(response.read().decode())
    if response.status >= 400:
        return text
    if method == "POST":
        operated.custom.delete_namespaced_custom_object(
            GROUP, VERSION, operated.namespace, "kafkacontrollers", body["metadata"]["name"]
        )
    return ""


def test_a_policy_asks_for_requests_that_refuse_misspelt_fields(strict: Operated) -> None:
    """A policy never sees a dropped field, so it refuses requests that would have it dropped."""
    assert "fieldValidation=Strict" in refusal(strict, "POST", body_of("one"))
    assert refusal(strict, "POST", body_of("one"), query=STRICT) == ""
    misspelt = body_of("one", replcias=3)
    assert 'unknown field \\"spec.replcias\\"' in refusal(strict, "POST", misspelt, query=STRICT)
    applied = {"fieldManager": "test", "force": "true"}
    assert refusal(strict, "PATCH", body_of("one"), APPLY, query=applied) == ""
    assert refusal(strict, "PATCH", body_of("one"), APPLY, query=applied) == "", "again, without a change"
    eventually(
        lambda: not refusal(strict, "PATCH", body_of("one", replicas=3), APPLY, query=applied),
        TIMEOUT_S,
        "an apply to be told from the one before, by its time in seconds",
    )
    assert "replcias" in refusal(strict, "PATCH", misspelt, APPLY, query=applied)
    created = strict.custom.create_namespaced_custom_object
    created(GROUP, VERSION, strict.namespace, "kafkacontrollers", body_of("two"), field_validation="Strict")
    changed = {"metadata": {"name": "one"}, "spec": {"replicas": 5}}
    assert "fieldValidation=Strict" in refusal(strict, "PATCH", changed), "of an applied object, too"

    misspelt = {"metadata": {"name": "two"}, "spec": {"replcias": 3}}
    assert "fieldValidation=Strict" in refusal(strict, "PATCH", misspelt), "it would change nothing"
    labelled = {"metadata": {"name": "two", "labels": {"a": "b"}}}
    assert refusal(strict, "PATCH", labelled) == "", "as kubectl label does"
    assert "fieldValidation=Strict" in refusal(strict, "PATCH", labelled), "it changes nothing any more"


def test_the_commands_and_kubectl_are_strict(strict: Operated) -> None:
    apply = ("apply", f"--namespace={strict.namespace}", "--filename=-")
    applied = run_kubectl(strict.server, *apply, stdin=yaml.safe_dump(body_of(QUORUM)))
    assert applied.returncode == 0, applied.stderr
    paused = kubectl_quorate(strict.server, strict.namespace, "pause", QUORUM)
    assert paused.returncode == 0, paused.stderr
    misspelt = run_kubectl(strict.server, *apply, stdin=yaml.safe_dump(body_of(QUORUM, replcias=3)))
    assert 'unknown field "spec.replcias"' in misspelt.stderr


def test_the_operator_is_exempt(strict: Operated) -> None:
    """kopf and the operator do not ask for validation: beside older definitions, fields have to be dropped."""
    core = strict.core
    with suppress(ApiException):
        core.create_namespace({"metadata": {"name": OWN}})
    binding = {
        "metadata": {"name": f"{OWN}-{strict.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": OWN}],
    }
    kubernetes.client.RbacAuthorizationV1Api(core.api_client).create_cluster_role_binding(binding)
    with strict.server.client(strict.server.kubeconfig_of(OWN, OPERATOR)) as client:
        assert refusal(strict, "POST", body_of("one"), client=client) == ""
