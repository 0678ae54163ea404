"""Listeners whose certificates the cluster's own authority issues, and the objects that have these. Pure."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

from quorate_operator.models.base import duration_ms
from quorate_operator.models.listeners import Listener
from quorate_operator.models.object_names import authority_certificate_name, authority_name
from quorate_operator.models.security import TLS_AUTHORITIES, Tls
from quorate_operator.models.started_listeners import StartedListeners
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
Pool = KafkaController | KafkaBroker


def certificate_requests(
    context: Context, desired: DesiredCluster, hosts: IngressHosts | None = None
) -> tuple[CertificateRequest, ...]:
    """Return the certificates that the cluster's authority has to issue on Kubernetes."""

    def hosts_of(pool: Pool, listener: Listener) -> Iterable[str]:
        return chain(*listener_hosts(context, desired, pool, listener, hosts or {}))

    return requests_of(context.manifests.resources, hosts_of, started=context.facts.listeners.values())


def requests_of(
    pools: Iterable[Pool],
    hosts_of: Callable[[Pool, Listener], Iterable[str]],
    validity: timedelta = CERTIFICATE_VALIDITY,
    *,
    started: Iterable[StartedListeners] = (),
) -> tuple[CertificateRequest, ...]:
    """Return the certificates that the cluster's authority has to issue for the listeners of pools.

    `hosts_of` are the hosts by which a listener is reached. Without a duration in the manifest, `validity` is that of
    its certificate. `started` are the listeners of the nodes that were started.
    """
    in_use = frozenset(name for listeners in started for name in listeners.in_use)
    return tuple(
        CertificateRequest(
            secret=tls.secret,
            pool=pool.metadata.name,
            # The common name is the principal of nodes that show the certificate, as with cert-manager.
            names=Names(common_name=pool.metadata.name, hosts=tuple(hosts_of(pool, listener))),
            validity=_validity_of(tls, validity),
            clients=_clients_of(pool, is_between_nodes=place == 0 or listener.name in in_use),
        )
        for pool in pools
        for place, listener in enumerate(pool.spec.listeners)
        if (tls := listener.tls) is not None and tls.is_own
    )


def _validity_of(tls: Tls, default: timedelta) -> Validity:
    duration, renew_before = (
        None if text is None else timedelta(milliseconds=duration_ms(text))
        for text in (tls.duration, tls.renew_before)
    )
    return Validity(duration=duration or default, renew_before=renew_before)


def _clients_of(pool: Pool, *, is_between_nodes: bool) -> frozenset[Role]:
    """Return which nodes may connect to a listener of others: all to those of controllers, brokers to their first."""
    if isinstance(pool, KafkaController):
        return frozenset(Role)
    return frozenset({Role.BROKER} if is_between_nodes else ())


def unused_by(pools: Iterable[Pool], started: StartedListeners | None) -> frozenset[str]:
    """Return the Secrets of listeners by which a node does not connect to others; none if that is unknown."""
    if started is None:
        return frozenset()
    return frozenset(
        listener.tls.secret
        for pool in pools
        for listener in pool.spec.listeners
        if listener.tls is not None and listener.name not in started.in_use
    )


def carried_by(context: Context, node: DesiredNode) -> str | None:
    """Return the record of the authorities that a node's next pod carries; None if it uses no own certificate."""
    used = _used(context, node)
    secrets = context.facts.secrets
    return carried_text([secrets[name] for name in used if name in secrets]) if used else None


def _used(context: Context, node: DesiredNode) -> list[str]:
    """Return the Secrets of the cluster's authority that a node reads."""
    own = {name for name, _ in owners_of_secrets(context.manifests.resources)}
    return sorted(own & secret_names(context, node)) if own else []


def carrying(
    context: Context, desired: DesiredCluster, pods: Mapping[int, tuple[str, Role, Mapping[str, str]]]
) -> tuple[Carried, ...]:
    """Return what the running nodes carry that use certificates of the authority, or are to use them.

    `pods` has pool, role and revision of each existing pod by node id.
    """
    using = {node.node_id for node in desired.nodes_with_settings if _used(context, node)}
    return tuple(
        carried_of(
            revision.get(AUTHORITIES),
            pod_name(pool, node_id),
            role,
            unused_by(context.manifests.resources, context.facts.listeners.get(node_id)),
        )
        for node_id, (pool, role, revision) in sorted(pods.items())
        if node_id in using or AUTHORITIES in revision
    )


def is_made_for(secret: Mapping[str, Any], cluster: str, owner: Pool) -> bool:
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
    pools: Sequence[Pool],
) -> Iterator[tuple[str, Pool]]:
    """Yield the name of each listener's Secret that the operator writes, and its owner."""
    for pool in pools:
        for listener in pool.spec.listeners:
            if (tls := listener.tls) is not None and tls.is_own:
                yield tls.secret, pool


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
