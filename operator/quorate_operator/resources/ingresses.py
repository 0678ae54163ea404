"""Ingresses and Routes that pass TLS through to brokers: each node has its own hosts. Pure.

The ingress controller or router finds the node by the server name of the TLS handshake. The form is that of Strimzi's
`KafkaCluster`: an Ingress has a rule for each host, a Route has one host.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quorate_operator.models.listeners import BY_HOST, BrokerListener, Exposure
from quorate_operator.models.object_names import dns_label, short_name
from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.resources.facts import Context, Object, digest
from quorate_operator.resources.names import (
    bootstrap_name,
    descriptive_labels,
    exposure_name,
    labels_of,
    metadata,
    pool_labels,
    pool_names,
)
from quorate_operator.resources.pod_addresses import is_inside

_PASSTHROUGH = {
    "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entrance:
    """Hosts that lead to a port of a Service."""

    name: str
    hosts: tuple[str, ...]
    service: str
    port: str
    labels: Mapping[str, str]


def ingresses(context: Context, desired: DesiredCluster) -> tuple[Object, ...]:
    """Returns the Ingresses and Routes of all brokers, and those of the bootstrap hosts."""
    found: list[Object] = []
    for pool in context.manifests.brokers:
        nodes = [node for node in desired.nodes_with_settings if node.pool == pool.metadata.name]
        for listener in pool.spec.listeners:
            if listener.exposure.type in BY_HOST:
                for entrance in _entrances(context, nodes, listener):
                    found += _objects(context, pool, listener.exposure, entrance)
    return tuple(found)


def _entrances(context: Context, nodes: list[DesiredNode], listener: BrokerListener) -> Iterator[_Entrance]:
    port = dns_label(listener.name)
    for node in nodes:
        name = exposure_name(node.pool, node.node_id, listener.name)
        yield _Entrance(
            name=name,
            hosts=tuple(sorted({*_hosts(context, node, listener)})),
            service=name,
            port=port,
            labels=labels_of(context, node),
        )
    host = listener.exposure.bootstrap_host
    if host is None or not nodes or bootstrap_name(nodes[0].pool) in pool_names(context):
        return
    pool = nodes[0].pool
    yield _Entrance(
        name=short_name(f"{pool}-bootstrap-{port}"),
        hosts=(host.lower(),),
        service=bootstrap_name(pool),
        port=port,
        labels=descriptive_labels(context) | pool_labels(context, pool, Role.BROKER),
    )


def _hosts(context: Context, node: DesiredNode, listener: BrokerListener) -> Iterator[str]:
    """Yields the hosts that lead to a node: while it is renamed also the one that it still advertises."""
    configured = context.facts.configured.get(node.node_id, {})
    for reported in (node.advertised, node.interim, configured):
        if listener.name in reported and not is_inside(context, reported[listener.name].host):
            yield reported[listener.name].host


def _objects(
    context: Context, pool: KafkaBroker, exposure: Exposure, entrance: _Entrance
) -> Iterator[Object]:
    if exposure.type == "Route":
        for host in entrance.hosts:  # changing the host of a Route needs a separate permission
            name = short_name(f"{entrance.name}-{digest(host)[:8]}")
            yield {
                "apiVersion": "route.openshift.io/v1",
                "kind": "Route",
                "metadata": metadata(
                    context, name, entrance.labels, owner=pool, annotations=exposure.annotations
                ),
                "spec": {
                    "host": host,
                    "to": {"kind": "Service", "name": entrance.service},
                    "port": {"targetPort": entrance.port},
                    "tls": {"termination": "passthrough"},
                },
            }
    elif entrance.hosts:
        backend = {"service": {"name": entrance.service, "port": {"name": entrance.port}}}
        paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
        spec: Object = {
            "rules": [{"host": host, "http": paths} for host in entrance.hosts],
            "tls": [{"hosts": list(entrance.hosts)}],
        }
        if exposure.ingress_class_name is not None:
            spec["ingressClassName"] = exposure.ingress_class_name
        annotations = _PASSTHROUGH | exposure.annotations
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": metadata(
                context, entrance.name, entrance.labels, owner=pool, annotations=annotations
            ),
            "spec": spec,
        }
