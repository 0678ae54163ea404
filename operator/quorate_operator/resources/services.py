"""Services, Ingresses and Routes: by which addresses clients and other nodes reach the nodes of a cluster.

The ingress controller or router finds a node by the server name of the TLS handshake, which is passed through. The
form is that of Strimzi's `KafkaCluster`: an Ingress has a rule for each host, a Route has one host.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from quorate_operator.models.exposures import BY_HOST, OUTSIDE, PASSTHROUGH_PORT, Exposure, Services
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.models.object_names import dns_label, short_name
from quorate_operator.models.security import TLS_AUTHORITIES
from quorate_operator.models.status import AUTHORITIES_LENGTH_MAX, ListenerStatus
from quorate_operator.models.v1alpha1 import KafkaBroker
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Publication, Role
from quorate_operator.resources.facts import Context, IngressHosts, ListenerOf, Object, digest
from quorate_operator.resources.ingress_hosts import current_hosts
from quorate_operator.resources.names import (
    ANNOTATION_PUBLISHED,
    LABEL_NODE_ID,
    LABEL_PURPOSE,
    bootstrap_name,
    descriptive_labels,
    exposure_bootstrap_name,
    exposure_name,
    labels_of,
    metadata,
    pods_of_node,
    pods_with_controllers,
    pool_labels,
    pool_names,
)
from quorate_operator.resources.pod_addresses import (
    HTTP_PORT,
    bootstrap_addresses,
    http_port,
    listener_port,
    pool_port,
    published_name,
)

PURPOSE_PUBLISHED_NAME = "published-name"
_PASSTHROUGH = {
    "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
}


class _Stored(BaseModel):
    """A publication in the annotation of its Service."""

    model_config = ConfigDict(strict=True)

    host: str
    port: int
    listener: str
    since_ms: int = Field(alias="sinceMs")
    retired_at_ms: int | None = Field(default=None, alias="retiredAtMs")


_STORED = TypeAdapter(list[_Stored])


def headless_service(context: Context, desired: DesiredCluster, pool: str, role: Role) -> Object:
    """Return the Service that gives a pool's pods their host names, also before they are ready."""
    nodes = [node for node in desired.nodes_with_settings if node.pool == pool]
    ports = _ports(context, pool, role) if nodes else []
    if role is Role.CONTROLLER:
        ports.append({"name": "http", "port": http_port(nodes[0]) if nodes else HTTP_PORT})
    labels = pool_labels(context, pool, role)
    selected = pods_with_controllers(context, desired) if role is Role.CONTROLLER else labels
    spec: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selected}
    if ports:
        spec["ports"] = ports
    spec |= ip_families(context.pool(pool).spec.services)
    return service(context, pool, pool, descriptive_labels(context) | labels, spec, annotations={})


def _ports(context: Context, pool: str, role: Role) -> list[Object]:
    """Return the ports of a pool's listeners, in the order of its manifest."""
    listeners = context.pool(pool).spec.listeners
    return [
        {"name": dns_label(listener.name), "port": pool_port(role, listeners, listener)}
        for listener in listeners
    ]


def ip_families(*settings: Services | Exposure | None) -> Object:
    """Return ipFamilyPolicy and ipFamilies of a Service: both are those of the first settings with one of them."""
    for own in settings:
        if own is None or (own.ip_family_policy is None and own.ip_families is None):
            continue
        found: Object = {}
        if own.ip_family_policy is not None:
            found["ipFamilyPolicy"] = own.ip_family_policy
        if own.ip_families is not None:
            found["ipFamilies"] = list(own.ip_families)
        return found
    return {}


def published_service(context: Context, node: DesiredNode, publications: Sequence[Publication]) -> Object:
    """Return the Service of one name with all its published ports, which belong to this node.

    An annotation stores when each was published and retired: `publications_of` reads it.
    """
    (name,) = {published_name(context, publication.address.host) for publication in publications}
    assert name is not None, "only controlled names are published"
    assert {publication.node_id for publication in publications} == {node.node_id}
    targets = {listener.name: listener_port(node, listener) for listener in node.listeners}
    # Grouped by port, because a name can be written with and without the cluster's domain. A listener that was
    # removed is served no more.
    ports = {
        publication.address.port: targets.get(publication.listener, publication.address.port)
        for publication in publications
    }
    spec = {
        "selector": pods_of_node(context, node),
        "publishNotReadyAddresses": True,
        "ports": [
            {"name": f"port-{port}", "port": port, "targetPort": target}
            for port, target in sorted(ports.items())
        ],
        **ip_families(context.pool(node.pool).spec.services),
    }
    labels = labels_of(context, node) | {LABEL_PURPOSE: PURPOSE_PUBLISHED_NAME}
    annotations = {ANNOTATION_PUBLISHED: _published_text(publications)}
    return service(context, name, node.pool, labels, spec, annotations=annotations)


def publications_of(service: Mapping[str, object]) -> tuple[Publication, ...]:
    """Return the publications that `published_service` stored; none for other Services. Raises ValueError."""
    found = service["metadata"]
    assert isinstance(found, Mapping)
    text = (found.get("annotations") or {}).get(ANNOTATION_PUBLISHED)
    if text is None:
        return ()
    try:
        node_id = int(found["labels"][LABEL_NODE_ID])
        entries = _STORED.validate_json(text)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"Service {found.get('name')}: {ANNOTATION_PUBLISHED}: can't be read: {error}"
        ) from error
    return tuple(
        Publication(
            address=Address(entry.host, entry.port),
            node_id=node_id,
            listener=entry.listener,
            since_ms=entry.since_ms,
            retired_at_ms=entry.retired_at_ms,
        )
        for entry in entries
    )


def _published_text(publications: Sequence[Publication]) -> str:
    entries = []
    for publication in sorted(publications, key=lambda publication: publication.address):
        entry = {
            "host": publication.address.host,
            "port": publication.address.port,
            "listener": publication.listener,
            "sinceMs": publication.since_ms,
        }
        if publication.retired_at_ms is not None:
            entry["retiredAtMs"] = publication.retired_at_ms
        entries.append(entry)
    return json.dumps(entries)


def service(
    context: Context,
    name: str,
    pool: str,
    labels: Mapping[str, str],
    spec: Object,
    *,
    annotations: Mapping[str, str],
) -> Object:
    """Return a Service that is deleted together with its pool."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, name, labels, owner=context.pool(pool), annotations=annotations),
        "spec": spec,
    }


def bootstrap_service(context: Context, desired: DesiredCluster, pool: str) -> Object | None:
    """Return the Service that leads to any broker of a pool; None without brokers, or if a pool has its name.

    The Service includes brokers that are not ready: a client that connects to one tries again, and without them no
    client could bootstrap while the replicas of all brokers catch up.
    """
    node = _any_node(desired, pool)
    if node is None or bootstrap_name(pool) in pool_names(context):
        return None
    selected = pool_labels(context, pool, Role.BROKER)
    spec: Object = {
        "type": "ClusterIP",
        "publishNotReadyAddresses": True,
        "selector": selected,
        "ports": _ports(context, pool, Role.BROKER),
        **ip_families(context.pool(pool).spec.services),
    }
    labels = descriptive_labels(context) | selected
    return service(context, bootstrap_name(pool), pool, labels, spec, annotations={})


def listener_statuses(
    context: Context, desired: DesiredCluster, pool: str, registered: Mapping[int, Mapping[str, Address]]
) -> tuple[ListenerStatus, ...]:
    """Return what clients of each listener need to know; nothing for a pool without brokers, as a refused one.

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
    """Return the Service for clients in Kubernetes; for others, the bootstrap address or those of the brokers."""
    name = bootstrap_name(node.pool)
    if listener.exposure.type in OUTSIDE:
        known = (str(address) for address in bootstrap_addresses(context, node, listener))
        return ",".join(known) or ",".join(addresses) or None
    if listener.exposure.type == "Internal" and name not in pool_names(context):
        return f"{name}.{context.namespace}.svc:{listener_port(node, listener)}"
    if listener.exposure.bootstrap_host is not None and name not in pool_names(context):
        return f"{listener.exposure.bootstrap_host}:{listener.advertised_port or PASSTHROUGH_PORT}"
    return ",".join(addresses) or None


def _authorities(context: Context, listener: BrokerListener) -> str | None:
    secret = context.facts.secrets.get(listener.tls.secret) if listener.tls is not None else None
    found = secret.values.get(TLS_AUTHORITIES) if secret is not None else None
    return found if found is not None and len(found) <= AUTHORITIES_LENGTH_MAX else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entrance:
    """Hosts that lead to a port of a Service."""

    name: str
    hosts: tuple[str, ...]
    service: str
    port: str
    labels: Mapping[str, str]


def ingresses(
    context: Context, desired: DesiredCluster, hosts: IngressHosts | None = None
) -> tuple[Object, ...]:
    """Return the Ingresses and Routes of all brokers, and those of the bootstrap hosts.

    `hosts` lead to the brokers; without it those that they have and are to have.
    """
    found: list[Object] = []
    for pool in context.manifests.brokers:
        nodes = [node for node in desired.nodes_with_settings if node.pool == pool.metadata.name]
        for listener in pool.spec.listeners:
            if listener.exposure.type in BY_HOST:
                for entrance in _entrances(context, nodes, listener, hosts or {}):
                    found += _objects(context, pool, listener.exposure, entrance)
    return tuple(found)


def _entrances(
    context: Context, nodes: list[DesiredNode], listener: BrokerListener, hosts: IngressHosts
) -> Iterator[_Entrance]:
    port = dns_label(listener.name)
    for node in nodes:
        name = exposure_name(node.pool, node.node_id, listener.name)
        led = hosts.get(ListenerOf(node.node_id, listener.name)) or current_hosts(context, node, listener)
        yield _Entrance(
            name=name,
            hosts=tuple(sorted({*led})),
            service=name,
            port=port,
            labels=labels_of(context, node),
        )
    host = listener.exposure.bootstrap_host
    if host is None or not nodes or bootstrap_name(nodes[0].pool) in pool_names(context):
        return
    pool = nodes[0].pool
    yield _Entrance(
        name=exposure_bootstrap_name(pool, listener.name),
        hosts=(host.lower(),),
        service=bootstrap_name(pool),
        port=port,
        labels=descriptive_labels(context) | pool_labels(context, pool, Role.BROKER),
    )


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
