"""Services: a headless one for each pool, one for each exposed listener of a node, one for each published name."""

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from quorate_operator.models.listeners import BY_HOST, BrokerListener
from quorate_operator.models.object_names import dns_label
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Publication, Role
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import (
    ANNOTATION_PUBLISHED,
    LABEL_NODE_ID,
    LABEL_PURPOSE,
    descriptive_labels,
    exposure_name,
    labels_of,
    metadata,
    node_labels,
    pool_labels,
)
from quorate_operator.resources.pod_addresses import (
    HTTP_PORT,
    WITH_SERVICES,
    listener_port,
    published_name,
)

PURPOSE_PUBLISHED_NAME = "published-name"
PURPOSE_EXPOSURE = "exposure"


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
    """Returns the Service that gives a pool's pods their host names, also before they are ready."""
    nodes = [node for node in desired.nodes_with_settings if node.pool == pool]
    ports = [
        {"name": dns_label(listener.name), "port": listener_port(nodes[0], listener)}
        for listener in (nodes[0].listeners if nodes else ())
    ]
    if role is Role.CONTROLLER:
        ports.append({"name": "http", "port": HTTP_PORT})
    selected = pool_labels(context, pool, role)
    spec: Object = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selected}
    if ports:
        spec["ports"] = ports
    return _service(context, pool, pool, descriptive_labels(context) | selected, spec, annotations={})


def exposures(context: Context, node: DesiredNode) -> tuple[Object, ...]:
    """Returns the node's Services for clients outside of Kubernetes, one for each listener that is exposed by one.

    Those of Ingresses and Routes are of type ClusterIP.
    """
    services = []
    for listener in node.listeners:
        if not isinstance(listener, BrokerListener):
            continue
        kind = listener.exposure.type
        if kind not in WITH_SERVICES:
            continue
        is_by_host = kind in BY_HOST
        target = listener_port(node, listener)
        outside = (listener.advertised_port or target) if kind == "LoadBalancer" else target
        spec: Object = {
            "type": "ClusterIP" if is_by_host else kind,
            "selector": node_labels(context, node.pool, node.role, node.node_id),
            # Clients of one node must not be refused while the node starts, nor be sent to another node.
            "publishNotReadyAddresses": True,
            "ports": [{"name": dns_label(listener.name), "port": outside, "targetPort": target}],
        }
        if listener.exposure.load_balancer_class is not None:
            spec["loadBalancerClass"] = listener.exposure.load_balancer_class
        if listener.exposure.source_ranges is not None:
            spec["loadBalancerSourceRanges"] = list(listener.exposure.source_ranges)
        if kind == "NodePort":
            spec["externalTrafficPolicy"] = "Local"  # clients get the address of the pod's machine
        name = exposure_name(node.pool, node.node_id, listener.name)
        labels = labels_of(context, node) | {LABEL_PURPOSE: PURPOSE_EXPOSURE}
        annotations = {} if is_by_host else dict(listener.exposure.annotations)
        annotations |= {"quorate.dev/listener": listener.name}
        services.append(_service(context, name, node.pool, labels, spec, annotations=annotations))
    return tuple(services)


def published_service(context: Context, node: DesiredNode, publications: Sequence[Publication]) -> Object:
    """Returns the Service of one name with all its published ports, which belong to this node.

    An annotation stores when each was published and retired: `publications_of` reads it.
    """
    (name,) = {published_name(context, publication.address.host) for publication in publications}
    assert name is not None, "only controlled names are published"
    assert {publication.node_id for publication in publications} == {node.node_id}
    targets = {listener.name: listener_port(node, listener) for listener in node.listeners}
    # Grouped by port, because a name can be written with and without the cluster's domain.
    ports = {publication.address.port: targets[publication.listener] for publication in publications}
    spec = {
        "selector": node_labels(context, node.pool, node.role, node.node_id),
        "publishNotReadyAddresses": True,
        "ports": [
            {"name": f"port-{port}", "port": port, "targetPort": target}
            for port, target in sorted(ports.items())
        ],
    }
    labels = labels_of(context, node) | {LABEL_PURPOSE: PURPOSE_PUBLISHED_NAME}
    annotations = {ANNOTATION_PUBLISHED: _published_text(publications)}
    return _service(context, name, node.pool, labels, spec, annotations=annotations)


def publications_of(service: Mapping[str, object]) -> tuple[Publication, ...]:
    """Returns the publications that `published_service` stored; none for other Services. Raises ValueError."""
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
    for publication in sorted(publications, key=lambda one: one.address):
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


def _service(
    context: Context,
    name: str,
    pool: str,
    labels: Mapping[str, str],
    spec: Object,
    *,
    annotations: Mapping[str, str],
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, name, labels, owner=context.pool(pool), annotations=annotations),
        "spec": spec,
    }
