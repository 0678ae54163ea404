"""The bootstrap addresses of clients: a Service for each pool of brokers, and its listeners in the status."""

from collections.abc import Mapping, Sequence

from quorate_operator.models.listeners import PASSTHROUGH_PORT, BrokerListener
from quorate_operator.models.object_names import dns_label
from quorate_operator.models.security import TLS_AUTHORITIES
from quorate_operator.models.status import AUTHORITIES_LENGTH_MAX, ListenerStatus
from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Role
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import (
    bootstrap_name,
    descriptive_labels,
    metadata,
    pool_labels,
    pool_names,
)
from quorate_operator.resources.pod_addresses import listener_port


def bootstrap_service(context: Context, desired: DesiredCluster, pool: str) -> Object | None:
    """Returns the Service that leads to any broker of a pool; None without brokers, or if a pool has its name.

    The Service includes brokers that are not ready: a client that connects to one tries again, and without them no
    client could bootstrap while the replicas of all brokers catch up.
    """
    node = _any_node(desired, pool)
    if node is None or bootstrap_name(pool) in pool_names(context):
        return None
    selected = pool_labels(context, pool, Role.BROKER)
    ports = [
        {"name": dns_label(listener.name), "port": listener_port(node, listener)}
        for listener in node.listeners
    ]
    labels = descriptive_labels(context) | selected
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, bootstrap_name(pool), labels, owner=context.pool(pool), annotations={}),
        "spec": {
            "type": "ClusterIP",
            "publishNotReadyAddresses": True,
            "selector": selected,
            "ports": ports,
        },
    }


def listener_statuses(
    context: Context, desired: DesiredCluster, pool: str, registered: Mapping[int, Mapping[str, Address]]
) -> tuple[ListenerStatus, ...]:
    """Returns what clients of each listener need to know; nothing for a pool without brokers, as a refused one.

    `registered` has the addresses that brokers have registered.
    """
    node = _any_node(desired, pool)
    if node is None:
        return ()
    resource = context.pool(pool)
    assert isinstance(resource, KafkaBroker)
    statuses = []
    for listener in resource.spec.listeners:
        addresses = [
            str(reported[listener.name])
            for _, reported in sorted(registered.items())
            if listener.name in reported
        ]
        statuses.append(
            ListenerStatus(
                name=listener.name,
                protocol=listener.protocol,
                type=listener.exposure.type,
                bootstrap_servers=_bootstrap_servers(context, node, listener, addresses),
                addresses=tuple(addresses),
                authorities=_authorities(context, listener),
            )
        )
    return tuple(statuses)


def _any_node(desired: DesiredCluster, pool: str) -> DesiredNode | None:
    return next((node for node in desired.nodes_with_settings if node.pool == pool), None)


def _bootstrap_servers(
    context: Context, node: DesiredNode, listener: BrokerListener, addresses: Sequence[str]
) -> str | None:
    """Returns the Service for clients in Kubernetes; for others, the bootstrap host or the brokers' addresses."""
    name = bootstrap_name(node.pool)
    if listener.exposure.type == "Internal" and name not in pool_names(context):
        return f"{name}.{context.namespace}.svc:{listener_port(node, listener)}"
    if listener.exposure.bootstrap_host is not None and name not in pool_names(context):
        return f"{listener.exposure.bootstrap_host}:{listener.advertised_port or PASSTHROUGH_PORT}"
    return ",".join(addresses) or None


def _authorities(context: Context, listener: BrokerListener) -> str | None:
    secret = context.facts.secrets.get(listener.tls.secret) if listener.tls is not None else None
    found = secret.values.get(TLS_AUTHORITIES) if secret is not None else None
    return found if found is not None and len(found) <= AUTHORITIES_LENGTH_MAX else None
