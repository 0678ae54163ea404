"""Services for clients outside of Kubernetes, and which of their addresses brokers advertise. Pure."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from quorate_operator.models.exposures import (
    BY_HOST,
    WITH_SERVICES,
    ExposedService,
    Exposure,
    TrafficPolicy,
)
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.models.object_names import dns_label
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.resources.facts import Context, IngressHosts, ListenerOf, Object
from quorate_operator.resources.ingress_hosts import hosts_annotation
from quorate_operator.resources.names import (
    LABEL_PURPOSE,
    descriptive_labels,
    exposure_bootstrap_name,
    exposure_name,
    labels_of,
    node_labels,
    pool_labels,
    pool_names,
)
from quorate_operator.resources.pod_addresses import listener_port
from quorate_operator.resources.services import ip_families, service

PURPOSE_EXPOSURE = "exposure"


def exposures(context: Context, node: DesiredNode, hosts: IngressHosts | None = None) -> tuple[Object, ...]:
    """Return the node's Services for clients outside of Kubernetes, one for each listener that is exposed by one.

    Those of Ingresses and Routes are of type ClusterIP, and store the `hosts` that lead to them.
    """
    services = []
    for listener in node.listeners:
        if not isinstance(listener, BrokerListener) or listener.exposure.type not in WITH_SERVICES:
            continue
        led = (hosts or {}).get(ListenerOf(node.node_id, listener.name))
        services.append(
            _exposed(
                context,
                node,
                listener,
                name=exposure_name(node.pool, node.node_id, listener.name),
                annotations={} if led is None else hosts_annotation(led),
                labels=labels_of(context, node),
                selected=node_labels(context, node.pool, node.role, node.node_id),
                own=listener.exposure.service_of(node.node_id),
                # Clients get the address of the Kubernetes node where the pod is.
                traffic_policy="Local" if listener.exposure.type == "NodePort" else None,
            )
        )
    return tuple(services)


def exposed_bootstraps(context: Context, desired: DesiredCluster) -> tuple[Object, ...]:
    """Return the Services that lead clients outside of Kubernetes to any broker of a pool.

    They include brokers that are not ready, as `services.bootstrap_service`.
    """
    services = []
    for pool in context.manifests.brokers:
        name = pool.metadata.name
        node = next((node for node in desired.nodes_with_settings if node.pool == name), None)
        for listener in pool.spec.listeners:
            bootstrap = exposure_bootstrap_name(name, listener.name)
            if (
                node is None
                or not listener.exposure.has_bootstrap_service
                or bootstrap in pool_names(context)
            ):
                continue
            selected = pool_labels(context, name, Role.BROKER)
            services.append(
                _exposed(
                    context,
                    node,
                    listener,
                    name=bootstrap,
                    annotations={},
                    labels=descriptive_labels(context) | selected,
                    selected=selected,
                    own=listener.exposure.bootstrap or ExposedService(),
                    traffic_policy=None,
                )
            )
    return tuple(services)


def _exposed(
    context: Context,
    node: DesiredNode,
    listener: BrokerListener,
    *,
    name: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    selected: Mapping[str, str],
    own: ExposedService,
    traffic_policy: TrafficPolicy | None,
) -> Object:
    exposure = listener.exposure
    is_by_host = exposure.type in BY_HOST
    target = listener_port(node, listener)
    outside = (listener.advertised_port or target) if exposure.type == "LoadBalancer" else target
    port: Object = {"name": dns_label(listener.name), "port": outside, "targetPort": target}
    if own.node_port is not None:
        port["nodePort"] = own.node_port
    spec: Object = {
        "type": "ClusterIP" if is_by_host else exposure.type,
        "selector": dict(selected),
        # Clients of one node must not be refused while the node starts, nor be sent to another node.
        "publishNotReadyAddresses": True,
        "ports": [port],
        **ip_families(exposure, context.pool(node.pool).spec.services),
        **_settings(exposure, own, traffic_policy),
    }
    # Ingresses and Routes have the annotations themselves.
    of_user = {} if is_by_host else exposure.annotations | (own.annotations or {})
    return service(
        context,
        name,
        node.pool,
        {**labels, LABEL_PURPOSE: PURPOSE_EXPOSURE},
        spec,
        annotations={**of_user, "quorate.dev/listener": listener.name, **annotations},
    )


def _settings(exposure: Exposure, own: ExposedService, traffic_policy: TrafficPolicy | None) -> Object:
    """Return the fields of a Service's spec that the manifest sets; `traffic_policy` is a default."""
    fields: Object = {
        "loadBalancerClass": exposure.load_balancer_class,
        "loadBalancerSourceRanges": None if exposure.source_ranges is None else list(exposure.source_ranges),
        "externalTrafficPolicy": exposure.external_traffic_policy or traffic_policy,
        "loadBalancerIP": own.load_balancer_ip,
        "externalIPs": None if own.external_ips is None else list(own.external_ips),
    }
    return {name: value for name, value in fields.items() if value is not None}


def balancer_host(found: Mapping[str, Any], advertised: Iterable[str] = ()) -> str | None:
    """Return which host of its load balancer a Service stands for; None while it has none.

    Kubernetes does not order the entries. A host that is advertised stays while the balancer has it, because another
    one would restart the broker. Otherwise names come first, then addresses of the Service's first IP family.
    """
    entries = found.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    hosts = {entry.get("hostname") or entry.get("ip") for entry in entries} - {None, ""}
    kept = next((host for host in advertised if host in hosts), None)
    return kept or min(hosts, key=lambda host: _preference(host, found), default=None)


def host_address(addresses: Iterable[str], found: Mapping[str, Any]) -> str | None:
    """Return the address of a Kubernetes node by which clients reach a Service of type NodePort; None without one."""
    known = list(addresses)
    return min(known, key=lambda address: _preference(address, found)[1], default=None)


def node_port(found: Mapping[str, Any], listener: str) -> int | None:
    """Return the node port of a listener's Service; None if it has none yet."""
    ports = found.get("spec", {}).get("ports") or ()
    return next((port.get("nodePort") for port in ports if port.get("name") == dns_label(listener)), None)


def _preference(host: str, found: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return the sort key of a host: names first, then the families in the order of the Service."""
    try:
        family = f"IPv{ip_address(host).version}"
    except ValueError:
        return (False, 0, host)
    families = found.get("spec", {}).get("ipFamilies") or ()
    return (True, families.index(family) if family in families else len(families), host)
