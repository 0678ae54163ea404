"""Writes the Secrets of a cluster's own authority: reads those that exist, decides, and replaces what was read.

A Secret is created or replaced at the version that was read, so that no operator overwrites what another one wrote,
and only if it was made for this cluster. Keys are in no log and in no status.
"""

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from quorate_operator import clock
from quorate_operator.models.object_names import authority_name
from quorate_operator.planning.cluster import DesiredCluster
from quorate_operator.resources.cluster_authority import (
    ROUNDS_MAX,
    Carried,
    CertificateRequest,
    CertificateTimes,
    Decision,
    StoredSecret,
    decide,
)
from quorate_operator.resources.facts import Context, IngressHosts
from quorate_operator.resources.issued_certificates import (
    authority_secret,
    carrying,
    certificate_requests,
    is_made_for,
    listener_secret,
    owners_of_secrets,
)
from quorate_operator.resources.secrets import described_secret
from quorate_operator.runtime.kubernetes.api import SECRET, ApiError, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import revision_of

AGE_S_MAX = 30.0
"""How long the Secrets that were read are taken to be the same, unless other ones are needed."""
REFUSED_AGE_S_MAX = 5.0
"""The same while a certificate can't be issued."""
_MAY_NOT = (
    "the operator may not read, create and update Secrets in {namespace}: its chart needs rbac.updateSecrets and "
    "rbac.createSecrets, and this namespace in rbac.secretNamespaces if that is set"
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Found:
    """The Secrets as the API server has them."""

    authority: Object | None
    listeners: dict[str, Object] = field(default_factory=dict)


class IssuedCertificates:
    """The certificates of one cluster. `unissued`: why one is missing, by the name of the Secret."""

    def __init__(self, api: KubernetesApi, objects: ClusterObjects) -> None:
        self._api = api
        self._objects = objects
        self._done: tuple[float, tuple[CertificateRequest, ...], tuple[Carried, ...]] | None = None
        self.unissued: dict[str, str] = {}
        self.trusted: str | None = None
        """The certificates that clients have to trust; None until they are known, and without such listeners."""
        self.times: dict[str, CertificateTimes] = {}
        """Those of the authority and of listeners' certificates, by the name of the Secret."""

    async def apply(self, context: Context, desired: DesiredCluster, hosts: IngressHosts) -> frozenset[str]:
        """Write what is missing or due; returns the names of the listeners' Secrets that were written.

        Raises ApiError, except for a missing right, which `unissued` has.
        """
        requests = certificate_requests(context, desired, hosts)
        if not requests:
            self._done, self.unissued, self.trusted, self.times = None, {}, None, {}
            return frozenset()
        pods = {
            node_id: (found.pool, found.role, revision_of(found.pod))
            for node_id, found in self._objects.nodes().items()
            if found.pod is not None
        }
        nodes = carrying(context, desired, pods)
        if self._is_done(requests, nodes):
            return frozenset()
        try:
            written = await self._write(context, requests, nodes)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            reason = _MAY_NOT.format(namespace=self._objects.namespace)
            self.unissued, written = {request.secret: reason for request in requests}, frozenset()
        self._done = time.monotonic(), requests, nodes
        return written

    def _is_done(self, requests: tuple[CertificateRequest, ...], nodes: tuple[Carried, ...]) -> bool:
        if self._done is None:
            return False
        at, *done = self._done
        age_s_max = REFUSED_AGE_S_MAX if self.unissued else AGE_S_MAX
        return done == [requests, nodes] and time.monotonic() - at < age_s_max

    async def _write(
        self, context: Context, requests: tuple[CertificateRequest, ...], nodes: tuple[Carried, ...]
    ) -> frozenset[str]:
        written: set[str] = set()
        for _ in range(ROUNDS_MAX):
            found = await self._read(context)
            decision = _decision(context, found, requests, nodes)
            try:
                if decision.authorities is not None:
                    await self._put(found.authority, authority_secret(context, decision.authorities))
                    stage = decision.authorities.stage.value
                    log.info("wrote the authority of %s, which is %s", context.cluster, stage)
                    continue
                await self._write_listeners(context, found, decision, written)
            except ApiError as error:
                if not error.is_conflict:
                    raise
                continue  # written meanwhile: decided again
            self.unissued, self.trusted = dict(decision.unissued), decision.trusted or self.trusted
            if decision.authority_times is not None:
                self.times = {**decision.times, authority_name(context.cluster): decision.authority_times}
            break
        return frozenset(written)

    async def _read(self, context: Context) -> _Found:
        namespace = self._objects.namespace
        found = _Found(await self._api.get(SECRET, namespace, authority_name(context.cluster)))
        for name, _ in owners_of_secrets(context.manifests.resources):
            secret = await self._api.get(SECRET, namespace, name)
            if secret is not None:
                found.listeners[name] = secret
        return found

    async def _write_listeners(
        self, context: Context, found: _Found, decision: Decision, written: set[str]
    ) -> None:
        if found.authority is not None and any(
            issued.request.secret not in found.listeners for issued in decision.issued
        ):
            # An operator that may create Secrets and not replace them could not renew a certificate.
            await self._api.replace(SECRET, self._objects.namespace, found.authority)
        for issued in decision.issued:
            name = issued.request.secret
            await self._put(found.listeners.get(name), listener_secret(context, issued))
            log.info("issued the certificate %s: %s", name, issued.reason)
            written.add(name)

    async def _put(self, former: Object | None, secret: Object) -> None:
        """Create a Secret, or replace its values as it was read. Raises ApiError, also if it has changed since."""
        if former is None:
            await self._api.create(SECRET, self._objects.namespace, secret)
        else:
            await self._api.replace(SECRET, self._objects.namespace, {**former, "data": secret["data"]})


def _decision(
    context: Context,
    found: _Found,
    requests: tuple[CertificateRequest, ...],
    nodes: tuple[Carried, ...],
) -> Decision:
    owners = dict(owners_of_secrets(context.manifests.resources))
    controllers = context.manifests.controllers

    def stored(secret: Object, *, is_own: bool) -> StoredSecret:
        # Values of a Secret that was not made for the cluster are not read.
        return StoredSecret(values=described_secret(secret).values if is_own else {}, is_own=is_own)

    authority = found.authority
    return decide(
        context.cluster,
        None
        if authority is None
        else stored(authority, is_own=is_made_for(authority, context.cluster, controllers)),
        requests,
        secrets={
            name: stored(secret, is_own=is_made_for(secret, context.cluster, owners[name]))
            for name, secret in found.listeners.items()
        },
        nodes=nodes,
        now=datetime.fromtimestamp(clock.now_ms() / 1000, UTC),
        lead_time=timedelta(milliseconds=controllers.spec.authority.lead_time_ms),
    )
