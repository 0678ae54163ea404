"""Certificates of cert-manager for listeners and users that name an issuer. Pure."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from quorate_operator.models.base import duration_ms
from quorate_operator.models.listeners import BrokerListener, Listener
from quorate_operator.models.security import Tls
from quorate_operator.models.users import Authentication, KafkaUser
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.resources.facts import Context, IngressHosts, ListenerOf, Object
from quorate_operator.resources.names import (
    bootstrap_name,
    descriptive_labels,
    metadata,
    owner_reference,
    pool_labels,
    pool_names,
)
from quorate_operator.resources.pod_addresses import bootstrap_addresses

API_VERSION = "cert-manager.io/v1"
KIND = "Certificate"
NOT_THERE = "cert-manager does not know it yet"
_NOT_PROCESSED = "cert-manager has not processed it yet: is it running?"
_USAGES = ("digital signature", "key encipherment")
ROLES = {"KafkaController": Role.CONTROLLER, "KafkaBroker": Role.BROKER}


def certificates(
    context: Context, desired: DesiredCluster, hosts: IngressHosts | None = None
) -> tuple[Object, ...]:
    """Return the Certificate of each listener that names an issuer; `hosts` lead to brokers through Ingresses."""
    return tuple(
        _certificate(
            context, pool, listener.tls, listener_hosts(context, desired, pool, listener, hosts or {})
        )
        for pool in context.manifests.resources
        for listener in pool.spec.listeners
        if listener.tls is not None and listener.tls.issuer_ref is not None
    )


def why_not_issued(certificate: Mapping[str, Any]) -> str | None:
    """Return why a Certificate, as the API server describes it, is not issued; None if it is.

    A Certificate stays ready while it is renewed in time.
    """
    conditions = {
        condition["type"]: condition for condition in certificate.get("status", {}).get("conditions") or ()
    }
    ready, issuing = conditions.get("Ready"), conditions.get("Issuing")
    if ready is None:
        return _NOT_PROCESSED
    if ready["status"] == "True":
        return None
    # If issuing fails, Issuing has the reason. Ready only reports that there is no certificate.
    reported = issuing if issuing is not None and issuing.get("reason") == "Failed" else ready
    return str(reported.get("message") or reported.get("reason") or "it is not ready")


def _certificate(
    context: Context, pool: KafkaController | KafkaBroker, tls: Tls, hosts: tuple[list[str], list[str]]
) -> Object:
    names, addresses = hosts
    spec: Object = {
        # The principal of nodes that show it. A pool's name has at most 63 characters, a common name 64.
        **_issued(tls.secret, pool.metadata.name, tls),
        "dnsNames": names,
        # Nodes show it to each other.
        "usages": [*_USAGES, "server auth", "client auth"],
    }
    if addresses:
        spec["ipAddresses"] = addresses
    labels = descriptive_labels(context) | pool_labels(context, pool.metadata.name, ROLES[pool.kind])
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata(context, tls.secret, labels, owner=pool),
        "spec": spec,
    }


def certificate_of_user(user: KafkaUser) -> Object:
    """Return the Certificate of a user with an issuer, which is deleted together with its resource."""
    authentication, secret = user.spec.authentication, user.secret_name
    assert authentication is not None
    assert secret is not None
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": secret,
            "labels": {"app.kubernetes.io/managed-by": "quorate"},
            "ownerReferences": [owner_reference(user)],
        },
        "spec": {
            **_issued(secret, user.user_name, authentication),
            "usages": [*_USAGES, "client auth"],
        },
    }


def _issued(secret: str, common_name: str, asked: Tls | Authentication) -> Object:
    """Return what the specs of all Certificates have in common."""
    assert asked.issuer_ref is not None
    spec: Object = {
        "secretName": secret,
        "issuerRef": asked.issuer_ref.model_dump(by_alias=True),
        "commonName": common_name,
        # Kafka reads unencrypted keys in PKCS#8 only (DefaultSslEngineFactory.PemStore).
        "privateKey": {"encoding": "PKCS8", "rotationPolicy": "Always"},
    }
    if asked.duration is not None:
        spec["duration"] = _go_duration(asked.duration)
    if asked.renew_before is not None:
        spec["renewBefore"] = _go_duration(asked.renew_before)
    return spec


def listener_hosts(
    context: Context,
    desired: DesiredCluster,
    pool: KafkaController | KafkaBroker,
    listener: Listener,
    led: IngressHosts,
) -> tuple[list[str], list[str]]:
    """Return the names and the IP addresses that clients of the listener connect to, in order.

    Names of pods are one wildcard. A host is included as long as a node advertises it, or it leads to a node.
    """
    name = pool.metadata.name
    inside = f".{name}.{context.namespace}.svc"
    names, addresses = {f"*{inside}"}, set()
    if isinstance(pool, KafkaBroker) and bootstrap_name(name) not in pool_names(context):
        names.add(f"{bootstrap_name(name)}.{context.namespace}.svc")
    hosts = list(_bootstrap_hosts(context, desired, name, listener))
    for node in desired.nodes_with_settings:
        if node.pool == name:
            hosts += (
                *_client_hosts(context, node, listener),
                *led.get(ListenerOf(node.node_id, listener.name), ()),
            )
    for host in hosts:
        if _is_address(host):
            addresses.add(host)
        elif not (host.endswith(inside) and "." not in host.removesuffix(inside)):
            names.add(host)
    return sorted(names), sorted(addresses)


def _bootstrap_hosts(
    context: Context, desired: DesiredCluster, pool: str, listener: Listener
) -> Iterator[str]:
    """Yield the hosts that lead clients outside of Kubernetes to any broker of the pool."""
    if not isinstance(listener, BrokerListener):
        return
    if listener.exposure.bootstrap_host is not None:
        yield listener.exposure.bootstrap_host
    node = next((node for node in desired.nodes_with_settings if node.pool == pool), None)
    if node is not None:
        yield from (address.host for address in bootstrap_addresses(context, node, listener))


def _client_hosts(context: Context, node: DesiredNode, listener: Listener) -> Iterator[str]:
    """Yield the present and desired hosts of a node for clients."""
    configured = context.facts.configured.get(node.node_id, {})
    for reported in (node.advertised, node.interim, configured):
        if listener.name in reported:
            yield reported[listener.name].host.removesuffix(".")
    for host in context.facts.published.get(ListenerOf(node.node_id, listener.name), ()):
        yield host.removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _go_duration(text: str) -> str:
    """Return a duration as cert-manager writes it: `90d` as `2160h0m0s`."""
    minutes, seconds = divmod(duration_ms(text) // 1000, 60)
    return f"{minutes // 60}h{minutes % 60}m{seconds}s"
