"""Issues certificates of a played cluster's own authority, decided as on Kubernetes. Needs the package cryptography.

They are issued when a manifest is played or edited, and not while a cluster runs: they are valid as long as their
authority, unless the manifest says otherwise.
"""

from collections.abc import Collection
from datetime import datetime

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import Secret
from quorate_operator.models.started_listeners import started_of
from quorate_operator.planning.cluster import DesiredCluster
from quorate_operator.resources.authority import AUTHORITY_VALIDITY
from quorate_operator.resources.cluster_authority import (
    ROUNDS_MAX,
    Carried,
    StoredSecret,
    authority_values,
    carried_of,
    carried_text,
    decide,
)
from quorate_operator.resources.issued_certificates import (
    Pool,
    owners_of_secrets,
    requests_of,
    unused_by,
)
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.identity import ClusterIdentity, started_nodes
from quorate_operator.runtime.local.loopback import LOOPBACK
from quorate_operator.runtime.local.machine_addresses import advertised_address
from quorate_operator.runtime.local.own_certificates import OwnCertificates, own_uses, stored_certificates

_WAY_OUT = "run `quorate play stop` first"


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
    requests = requests_of(
        manifests.resources,
        lambda pool, listener: _hosts(cluster, desired, identity, pool, listener.name),
        AUTHORITY_VALIDITY,
        started=[node.listeners for node in started_nodes(identity, running)],
    )
    nodes = _carrying(manifests, identity, stored, running)
    authority, secrets = stored.authority, dict(stored.secrets)
    for _ in range(ROUNDS_MAX):
        decision = decide(
            cluster,
            StoredSecret(values=authority, is_own=True) if authority is not None else None,
            requests,
            secrets={
                name: StoredSecret(values=secret.values, is_own=True) for name, secret in secrets.items()
            },
            nodes=nodes,
            now=now,
            way_out=_WAY_OUT,
        )
        if decision.authorities is None:
            break
        authority = authority_values(decision.authorities)
    for name, reason in decision.unissued.items():
        raise PlayError(f"{names[name]}: {reason}")
    secrets |= {issued.request.secret: Secret(values=issued.values) for issued in decision.issued}
    return OwnCertificates(authority=authority, secrets=secrets)


def _hosts(
    cluster: str, desired: DesiredCluster, identity: ClusterIdentity, pool: Pool, listener: str
) -> tuple[str, ...]:
    """Return the hosts by which a listener is reached, on this machine and as it is advertised."""
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
    using = {owner.metadata.name for _, owner in owners_of_secrets(manifests.resources)}
    if manifests.controllers.metadata.name in using:  # all nodes connect to controllers
        using = {pool.metadata.name for pool in manifests.resources}
    text = carried_text(tuple(stored.secrets.values()))
    return tuple(
        carried_of(
            text,
            f"{identity.nodes[node_id].role}-{node_id}",
            identity.nodes[node_id].role,
            unused_by(manifests.resources, started_of(identity.nodes[node_id].listeners_last)),
        )
        for node_id in sorted(running)
        if identity.nodes[node_id].pool in using
    )
