"""Where nodes listen in Kubernetes, and the addresses that they advertise.

Quorate controls a host `<name>.<namespace>.svc`: it creates that Service and points it at a node. A pod's own name
leads to the pod as long as it exists. Other names are managed elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from quorate_operator.models.exposures import PASSTHROUGH_PORT, WITH_SERVICES
from quorate_operator.models.hosts import fill_host, is_in_namespace, template_values, without_domain
from quorate_operator.models.listeners import BrokerListener, Listener
from quorate_operator.models.manifests import Manifests
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Role, Unassigned
from quorate_operator.resources.facts import BootstrapOf, Context, ListenerOf
from quorate_operator.resources.names import (
    bootstrap_name,
    exposure_bootstrap_name,
    exposure_name,
    is_service_name,
    named_by,
    node_host,
    pod_name,
    pool_names,
)

_Pool = TypeVar("_Pool", KafkaController, KafkaBroker)
CONTROLLER_PORT = 9093
BROKER_PORT_FIRST = 9092
HTTP_PORT = 9404
"""The port where Python controllers serve metrics and health."""
HTTP_PORT_BESIDE = 9405
"""The same port of a controller in the pod of a broker, which may serve metrics of its own."""


def http_port(node: DesiredNode) -> int:
    """Return the port where a node serves metrics; a Python controller serves its health there, too."""
    return HTTP_PORT_BESIDE if node.role is Role.CONTROLLER and node.pod_mate is not None else HTTP_PORT


def listener_port(node: DesiredNode, listener: Listener) -> int:
    """Return the port of a listener in its pod: the manifest's, or the next free one."""
    return pool_port(node.role, node.listeners, listener)


def pool_port(role: Role, listeners: Sequence[Listener], listener: Listener) -> int:
    """Return the port of one of a pool's listeners in each pod, as `listener_port`."""
    if listener.port is not None:
        return listener.port
    taken = {other.port for other in listeners} | {HTTP_PORT, HTTP_PORT_BESIDE}
    first = CONTROLLER_PORT
    if role is Role.BROKER:
        taken |= {CONTROLLER_PORT}
        first = BROKER_PORT_FIRST
    without = [other.name for other in listeners if other.port is None]
    free = [port for port in range(first, first + 100) if port not in taken]
    return free[without.index(listener.name)]


def with_ports(manifests: Manifests) -> Manifests:
    """Return the manifests with the port of each listener, so that it does not depend on their order any more."""

    def filled(pool: _Pool, role: Role) -> _Pool:
        listeners = pool.spec.listeners
        chosen = [pool_port(role, listeners, listener) for listener in listeners]
        if all(listener.port == port for listener, port in zip(listeners, chosen, strict=True)):
            return pool
        ported = tuple(
            listener.model_copy(update={"port": port})
            for listener, port in zip(listeners, chosen, strict=True)
        )
        return pool.model_copy(update={"spec": pool.spec.model_copy(update={"listeners": ported})})

    return replace(
        manifests,
        controllers=filled(manifests.controllers, Role.CONTROLLER),
        brokers=tuple(filled(pool, Role.BROKER) for pool in manifests.brokers),
    )


def contact(context: Context, node: DesiredNode, listener: Listener) -> Address:
    """Return the address that other nodes use: the pod's own name, and the port of the listener."""
    return Address(node_host(context, node), listener_port(node, listener))


def advertised(context: Context, node: DesiredNode) -> dict[str, Address]:
    """Return what the node advertises, by listener name. Raises TemplateError."""
    return {listener.name: _advertised(context, node, listener) for listener in node.listeners}


def unassigned(context: Context, node: DesiredNode) -> dict[str, Unassigned]:
    """Return what Kubernetes has not assigned to the node's listeners yet, by listener name. Raises TemplateError.

    The Kubernetes node of a pod is no part of it: it is known once the pod is there.
    """
    missing = {}
    for listener in node.listeners:
        if not isinstance(listener, BrokerListener) or listener.exposure.type not in _ASSIGNED:
            continue
        key = ListenerOf(node.node_id, listener.name)
        is_balancer = listener.exposure.type == "LoadBalancer"
        has_port = listener.advertised_port is not None or key in context.facts.node_ports
        if _assigned(context, node, listener) is None and (is_balancer or not has_port):
            what = _ASSIGNED[listener.exposure.type]
            name = exposure_name(node.pool, node.node_id, listener.name)
            missing[listener.name] = Unassigned(f"{what} {name}", context.facts.requested_ms.get(key))
    return missing


def bootstrap_addresses(context: Context, node: DesiredNode, listener: BrokerListener) -> tuple[Address, ...]:
    """Return the addresses that lead clients outside of Kubernetes to any broker of the node's pool.

    Empty without a bootstrap Service, and while Kubernetes has not assigned its address.
    """
    exposure, facts = listener.exposure, context.facts
    name = exposure_bootstrap_name(node.pool, listener.name)
    if not exposure.has_bootstrap_service or name in pool_names(context):
        return ()
    key = BootstrapOf(node.pool, listener.name)
    if exposure.type == "LoadBalancer":
        host = exposure.bootstrap_host or facts.bootstrap_balancers.get(key)
        port: int | None = listener.advertised_port or listener_port(node, listener)
        hosts = [] if host is None else [host]
    else:
        port = facts.bootstrap_node_ports.get(key)
        pool = context.pool(node.pool).spec
        known = (
            facts.node_hosts.get(ListenerOf(node_id, listener.name)) or facts.host_ips.get(node_id)
            for node_id in pool.all_node_ids()
        )
        hosts = [exposure.bootstrap_host] if exposure.bootstrap_host else sorted({*filter(None, known)})
    return tuple(Address(host, port) for host in hosts) if port is not None else ()


def check_hosts(context: Context, desired: DesiredCluster) -> None:
    """Check that each template of a host gives one for each node. Raises TemplateError."""
    for node in desired.nodes_with_settings:
        interim(context, node)  # checks the advertised hosts, too


def interim(context: Context, node: DesiredNode) -> dict[str, Address]:
    """Return an address that always belongs to the node, by listener name; none if it is the advertised one.

    Raises TemplateError.
    """
    pool = context.pool(node.pool)
    addresses = {}
    for listener in node.listeners:
        template = pool.spec.interim_template(listener.name) if isinstance(pool, KafkaBroker) else None
        reported = _advertised(context, node, listener)
        if template is not None:
            host = _filled(context, node, template, f"{_field(pool, listener)}.interimHost")
            addresses[listener.name] = Address(host, reported.port)
        elif is_inside(context, reported.host) and reported.host != node_host(context, node):
            addresses[listener.name] = Address(node_host(context, node), listener_port(node, listener))
    return addresses


def published_name(context: Context, host: str) -> str | None:
    """Return the name of the Service for a host `<name>.<namespace>.svc`; None if Quorate can't create it."""
    if not is_inside(context, host):
        return None
    name = without_domain(host).removesuffix(f".{context.namespace}.svc")
    return name if is_service_name(name) and name not in _own_services(context) else None


def is_inside(context: Context, host: str) -> bool:
    """Whether a host is a name of this namespace, which has no meaning outside of Kubernetes."""
    return is_in_namespace(host, context.namespace)


def controlled(context: Context, addresses: Mapping[str, Address]) -> frozenset[Address]:
    """Return the addresses that Quorate can point at nodes."""
    return frozenset(
        address for address in addresses.values() if published_name(context, address.host) is not None
    )


def _own_services(context: Context) -> frozenset[str]:
    """Return the names of other Services of the cluster, which a published name must not replace."""
    names = set(pool_names(context))
    for pool in context.manifests.brokers:
        names.add(bootstrap_name(pool.metadata.name))
        names |= {
            exposure_name(pool.metadata.name, node_id, listener.name)
            for node_id in pool.spec.claimed_node_ids()
            for listener in pool.spec.listeners
            if listener.exposure.type in WITH_SERVICES
        }
        names |= {
            exposure_bootstrap_name(pool.metadata.name, listener.name)
            for listener in pool.spec.listeners
            if listener.exposure.has_bootstrap_service
        }
    return frozenset(names)


_ASSIGNED = {"LoadBalancer": "an address of the load balancer", "NodePort": "a node port of the Service"}
"""By type of exposure, what Kubernetes assigns to each listener's Service."""


def _advertised(context: Context, node: DesiredNode, listener: Listener) -> Address:
    known = context.facts.configured.get(node.node_id, {})
    if listener.name in node.withdrawn and listener.name in known:
        return known[listener.name]  # until it goes, it has the host that was removed with it
    found = _assigned(context, node, listener)
    if found is not None:
        return found
    # An address that Kubernetes has not assigned yet, or does not report at the moment, must not restart a node.
    own = Address(node_host(context, node), listener_port(node, listener))
    return known.get(listener.name, own)


def _assigned(context: Context, node: DesiredNode, listener: Listener) -> Address | None:
    """Return the address of a listener; None while Kubernetes has not assigned all of it."""
    pool = context.pool(node.pool)
    own = Address(node_host(context, node), listener_port(node, listener))
    template = pool.spec.host_template(node.node_id, listener.name)
    host = _filled(context, node, template, f"{_field(pool, listener)}.advertisedHost") if template else None
    if not isinstance(listener, BrokerListener):
        return Address(host or own.host, own.port)
    port = listener.advertised_port or own.port
    key = ListenerOf(node.node_id, listener.name)
    facts = context.facts
    match listener.exposure.type:
        case "LoadBalancer":
            host = host or facts.load_balancers.get(key)
            return Address(host, port) if host else None
        case "NodePort":
            host = host or facts.node_hosts.get(key) or facts.host_ips.get(node.node_id)
            node_port = listener.advertised_port or facts.node_ports.get(key)
            return Address(host, node_port) if host and node_port else None
        case "Ingress" | "Route":
            return Address(host or own.host, listener.advertised_port or PASSTHROUGH_PORT)
        case _:
            return Address(host or own.host, port)


def _filled(context: Context, node: DesiredNode, template: str, field: str) -> str:
    values = template_values(
        cluster=context.cluster,
        pool=node.pool,
        node_id=node.node_id,
        first=node.node_id - node.place,
        namespace=context.namespace,
    )
    pool, node_id = named_by(context, node)
    values = {**values, "pod": pod_name(pool, node_id), "service": pool}
    return fill_host(template, values, field).lower()


def _field(pool: KafkaController | KafkaBroker, listener: Listener) -> str:
    if isinstance(pool, KafkaController):
        return f"KafkaController {pool.metadata.name}: spec"
    return f"KafkaBroker {pool.metadata.name}: spec.listeners[{listener.name}]"
