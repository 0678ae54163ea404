"""Listeners whose certificates the cluster's own authority issues, and the objects that have these. Pure."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from quorate_operator.models.base import duration_ms
from quorate_operator.models.object_names import authority_certificate_name, authority_name
from quorate_operator.models.secrets import secret_uses
from quorate_operator.models.security import TLS_AUTHORITIES, Tls
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.planning.rollout import AUTHORITIES
from quorate_operator.resources.authority import CERTIFICATE_VALIDITY, Authorities, Names, Validity
from quorate_operator.resources.certificates import ROLES, listener_hosts
from quorate_operator.resources.cluster_authority import (
    Carried,
    CertificateRequest,
    Issued,
    authority_values,
    carried_of,
    carried_text,
)
from quorate_operator.resources.facts import Context, IngressHosts, Object
from quorate_operator.resources.names import (
    LABEL_CLUSTER,
    LABEL_PURPOSE,
    cluster_labels,
    descriptive_labels,
    metadata,
    pod_name,
    pool_labels,
)
from quorate_operator.resources.secrets import secret_names

PURPOSE_AUTHORITY = "authority"


def certificate_requests(
    context: Context, desired: DesiredCluster, hosts: IngressHosts | None = None
) -> tuple[CertificateRequest, ...]:
    """Return the certificate of each listener that names no Secret and no issuer, as it should be."""
    return tuple(
        CertificateRequest(
            secret=listener.tls.secret,
            pool=pool.metadata.name,
            names=_names(pool, listener_hosts(context, desired, pool, listener, hosts or {})),
            validity=validity_of(listener.tls),
            clients=clients_of(pool, place),
        )
        for pool in context.manifests.resources
        for place, listener in enumerate(pool.spec.listeners)
        if listener.tls is not None and listener.tls.is_own
    )


def _names(pool: KafkaController | KafkaBroker, hosts: tuple[Sequence[str], Sequence[str]]) -> Names:
    names, addresses = hosts
    # The common name is the principal of nodes that show the certificate, as with cert-manager.
    return Names(common_name=pool.metadata.name, hosts=(*names, *addresses))


def validity_of(tls: Tls, default: timedelta = CERTIFICATE_VALIDITY) -> Validity:
    """Return how long certificates of a listener are valid."""
    duration, renew_before = (
        None if text is None else timedelta(milliseconds=duration_ms(text))
        for text in (tls.duration, tls.renew_before)
    )
    return Validity(duration=duration or default, renew_before=renew_before)


def clients_of(pool: KafkaController | KafkaBroker, place: int) -> frozenset[Role]:
    """Return which nodes connect to a listener of other nodes: all to that of controllers, brokers to their first."""
    if isinstance(pool, KafkaController):
        return frozenset(Role)
    return frozenset({Role.BROKER} if place == 0 else ())


def carried_by(context: Context, node: DesiredNode) -> str | None:
    """Return the record of the authorities that a node's next pod carries; None if it uses no own certificate."""
    used = _used(context, node)
    secrets = context.facts.secrets
    return carried_text([secrets[name] for name in used if name in secrets]) if used else None


def _used(context: Context, node: DesiredNode) -> list[str]:
    """Return the Secrets of the cluster's authority that a node reads."""
    manifests = context.manifests
    own = {use.name for use in secret_uses(manifests.controllers, manifests.brokers) if use.is_own}
    return sorted(own & secret_names(context, node)) if own else []


def carrying(
    context: Context, desired: DesiredCluster, pods: Mapping[int, tuple[str, Role, Mapping[str, str]]]
) -> tuple[Carried, ...]:
    """Return what the running nodes carry that use certificates of the authority, or are to use them.

    `pods` has pool, role and revision of each existing pod by node id.
    """
    using = {node.node_id for node in desired.nodes_with_settings if _used(context, node)}
    return tuple(
        carried_of(revision.get(AUTHORITIES), pod_name(pool, node_id), role)
        for node_id, (pool, role, revision) in sorted(pods.items())
        if node_id in using or AUTHORITIES in revision
    )


def is_made_for(secret: Mapping[str, Any], cluster: str, owner: KafkaController | KafkaBroker) -> bool:
    """Whether the operator made a Secret, as the API server describes it, for this cluster and this resource.

    The API server does not let users choose the uid of a resource.
    """
    found, uid = secret["metadata"], owner.metadata.uid
    return (
        uid is not None
        and (found.get("labels") or {}).get(LABEL_CLUSTER) == cluster
        and any(
            reference.get("uid") == uid and reference.get("controller") is True
            for reference in found.get("ownerReferences") or ()
        )
    )


def owners_of_secrets(
    pools: Sequence[KafkaController | KafkaBroker],
) -> Iterator[tuple[str, KafkaController | KafkaBroker]]:
    """Yield the name of each listener's Secret that the operator writes, and its owner."""
    for pool in pools:
        for listener in pool.spec.listeners:
            if listener.tls is not None and listener.tls.is_own:
                yield listener.tls.secret, pool


def authority_secret(context: Context, authorities: Authorities) -> Object:
    """Return the Secret of the authority, with its key. No pod may mount it."""
    owner = context.manifests.controllers
    name = authority_name(context.cluster)
    labels = descriptive_labels(context) | cluster_labels(context, Role.CONTROLLER)
    return _secret(metadata(context, name, labels, owner=owner), "Opaque", authority_values(authorities))


def listener_secret(context: Context, issued: Issued) -> Object:
    """Return the Secret of a listener, in the form of those of cert-manager."""
    pool = context.pool(issued.request.pool)
    labels = descriptive_labels(context) | pool_labels(context, pool.metadata.name, ROLES[pool.kind])
    described = metadata(context, issued.request.secret, labels, owner=pool)
    return _secret(described, "kubernetes.io/tls", issued.values)


def _secret(described: Object, kind: str, values: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": described,
        "type": kind,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()},
    }


def authority_config_map(context: Context, trusted: str) -> Object:
    """Return the ConfigMap with the certificates that clients have to trust."""
    labels = {
        **descriptive_labels(context),
        **cluster_labels(context, Role.CONTROLLER),
        LABEL_PURPOSE: PURPOSE_AUTHORITY,
    }
    name = authority_certificate_name(context.cluster)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(context, name, labels, owner=context.manifests.controllers),
        "data": {TLS_AUTHORITIES: trusted},
    }
