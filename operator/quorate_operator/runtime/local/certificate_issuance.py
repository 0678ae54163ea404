"""Issues certificates of a played cluster's own authority, decided as on Kubernetes. Needs the package cryptography.

They are issued when a manifest is played or edited, and not while a cluster runs: they are valid as long as their
authority, unless the manifest says otherwise.
"""

from collections.abc import Collection
from datetime import datetime

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import Secret
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import DesiredCluster
from quorate_operator.resources.authority import AUTHORITY_VALIDITY, Names
from quorate_operator.resources.cluster_authority import (
    WAY_OUT,
    Carried,
    CertificateRequest,
    StoredSecret,
    authority_values,
    carried_of,
    carried_text,
    decide,
)
from quorate_operator.resources.issued_certificates import clients_of, validity_of
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.identity import ClusterIdentity
from quorate_operator.runtime.local.loopback import LOOPBACK
from quorate_operator.runtime.local.machine_addresses import advertised_address
from quorate_operator.runtime.local.own_certificates import OwnCertificates, own_uses, stored_certificates

_ROUNDS_MAX = 5
"""An authority has at most three stages to go through at once, and certificates follow."""


def issue_certificates(
    manifests: Manifests,
    desired: DesiredCluster,
    identity: ClusterIdentity,
    directory: PlayDirectory,
    *,
    running: Collection[int],
    now: datetime,
) -> OwnCertificates:
    """Return what the directory has, with what is missing or due. Raises PlayError.

    Nodes in `running` are taken to trust what the directory has.
    """
    names = own_uses(manifests)
    stored = stored_certificates(manifests, directory)
    cluster = manifests.controllers.metadata.name
    requests = _requests(manifests, desired, identity)
    nodes = _carrying(manifests, identity, stored, running)
    authority, secrets = stored.authority, dict(stored.secrets)
    for _ in range(_ROUNDS_MAX):
        decision = decide(
            cluster,
            StoredSecret(values=authority, is_own=True) if authority is not None else None,
            requests,
            secrets={
                name: StoredSecret(values=secret.values, is_own=True) for name, secret in secrets.items()
            },
            nodes=nodes,
            now=now,
        )
        if decision.authorities is None:
            break
        authority = authority_values(decision.authorities)
    for name, reason in decision.unissued.items():
        raise PlayError(f"{names[name]}: {reason.replace(WAY_OUT, 'run `quorate play stop` first')}")
    secrets |= {issued.request.secret: Secret(values=issued.values) for issued in decision.issued}
    return OwnCertificates(authority=authority, secrets=secrets)


def _requests(
    manifests: Manifests, desired: DesiredCluster, identity: ClusterIdentity
) -> tuple[CertificateRequest, ...]:
    return tuple(
        CertificateRequest(
            secret=listener.tls.secret,
            pool=pool.metadata.name,
            names=Names(
                common_name=pool.metadata.name,
                hosts=_hosts(manifests, desired, identity, pool, listener.name),
            ),
            validity=validity_of(listener.tls, AUTHORITY_VALIDITY),
            clients=clients_of(pool, place),
        )
        for pool in manifests.resources
        for place, listener in enumerate(pool.spec.listeners)
        if listener.tls is not None and listener.tls.is_own
    )


def _hosts(
    manifests: Manifests,
    desired: DesiredCluster,
    identity: ClusterIdentity,
    pool: KafkaController | KafkaBroker,
    listener: str,
) -> tuple[str, ...]:
    """Return the hosts by which a listener is reached, on this machine and as it is advertised."""
    cluster = manifests.controllers.metadata.name
    advertised = {
        advertised_address(
            node, listener, pool, cluster, identity.nodes[node.node_id].own_address(listener)
        ).host
        for node in desired.nodes_with_settings
        if node.pool == pool.metadata.name
    }
    return ("localhost", LOOPBACK, *sorted(advertised - {"localhost", LOOPBACK}))


def _carrying(
    manifests: Manifests, identity: ClusterIdentity, stored: OwnCertificates, running: Collection[int]
) -> tuple[Carried, ...]:
    """Return what running nodes trust and show, of those that use certificates of the authority."""
    using = {
        pool.metadata.name
        for pool in manifests.resources
        if any(
            listener.tls is not None and listener.tls.is_own
            for listener in (manifests.controllers.spec.listeners[0], *pool.spec.listeners)
        )
    }
    text = carried_text(tuple(stored.secrets.values()))
    return tuple(
        carried_of(text, f"{identity.nodes[node_id].role}-{node_id}", identity.nodes[node_id].role)
        for node_id in sorted(running)
        if identity.nodes[node_id].pool in using
    )
