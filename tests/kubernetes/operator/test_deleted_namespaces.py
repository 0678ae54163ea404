"""A namespace that is deleted with a running cluster in it, on a real API server."""

from contextlib import suppress

import kubernetes.client
from kit.operators.operated import CONTROLLERS_FIRST, GROUP, VERSION, Operated
from kit.waiting import eventually
from kubernetes.client import ApiException

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
LETS_GO_S = 60
REFUSALS_MAX = 6
"""Creations that were under way when the first was refused: one for each node, and Events about them."""


def test_nothing_is_created_in_a_namespace_that_is_being_deleted(operated: Operated) -> None:
    """The operator does not start its controllers again, and lets its resources go as soon as their pods ended."""
    operated.create()
    operated.create_brokers(replicas=0)
    operator = operated.start_operator()
    operated.wait_settled(*NODES)
    begun, errors = len(operator.events()), operator.errors()
    operated.core.delete_namespace(operated.namespace)

    def is_gone() -> bool:
        _delete_all(operated)
        return operated.resource() is None and operated.brokers() is None and not operated.pods()

    eventually(is_gone, LETS_GO_S, "the namespace to be empty", lambda: operator.log.read_text()[-4000:])
    events = operator.events()[begun:]
    assert len([event for event in events if "because it is being terminated" in event]) <= REFUSALS_MAX
    assert not [event for event in events if "done: StartNode" in event]
    assert operator.errors() == errors


def _delete_all(operated: Operated) -> None:
    """Delete the objects of a namespace, as Kubernetes' controller of namespaces does: all at once, in no order."""
    core, namespace, client = operated.core, operated.namespace, operated.core.api_client
    policies = kubernetes.client.PolicyV1Api(client)
    leases = kubernetes.client.CoordinationV1Api(client)
    with suppress(ApiException):
        for service in core.list_namespaced_service(namespace).items:
            core.delete_namespaced_service(service.metadata.name, namespace)
        for delete in (
            core.delete_collection_namespaced_pod,
            core.delete_collection_namespaced_config_map,
            core.delete_collection_namespaced_persistent_volume_claim,
            policies.delete_collection_namespaced_pod_disruption_budget,
            leases.delete_collection_namespaced_lease,
        ):
            delete(namespace)
        for plural in ("kafkabrokers", "kafkacontrollers"):
            operated.custom.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, plural)
