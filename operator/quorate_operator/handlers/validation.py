"""Validates the resources of a cluster: each is used with its present spec or, if invalid, its last valid one. Pure.

A mistake affects only its own resource, whose nodes keep running as they are. Where resources contradict each other,
for instance two pools that claim the same node id, an accepted spec wins over a changed one, and the older pool over
the newer one. A spec that the tenants' policy does not allow is refused like an invalid one, also if it was accepted
before the policy changed.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from quorate_operator.handlers.resources import ClusterResources
from quorate_operator.models.hosts import TemplateError
from quorate_operator.models.manifests import ManifestError, Manifests, joined, read_object
from quorate_operator.models.status import INVALID_MANIFEST
from quorate_operator.models.tenant_checks import pool_refusals
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, NOT_ALLOWED, TenantPolicy
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController, Resource
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.facts import Context, Facts, Images
from quorate_operator.resources.pod_addresses import check_hosts
from quorate_operator.runtime.kubernetes.api import Object


class Named(NamedTuple):
    """A resource of one cluster: a pool may have the name of a KafkaController."""

    kind: str
    name: str


Spec = Mapping[str, Any]
Accepted = Mapping[str, Spec]
"""The specs that were accepted last, by uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """Which resources are used, with which specs, and which are refused."""

    manifests: Manifests | None
    """None if the KafkaController can't be used, and never could."""
    accepted: Accepted
    refused: Mapping[Named, str]
    """The messages of refused resources. A refused resource is used as it was last accepted, if it ever was."""
    unknown: Mapping[Named, tuple[str, ...]] = field(default_factory=dict)
    """The paths of fields that this release does not know, and does not use."""
    not_allowed: frozenset[Named] = frozenset()
    """The refused resources whose present spec is valid, and not allowed by the tenants' policy."""

    def reason_of(self, named: Named) -> str:
        """Return the reason for conditions and Events of a refused resource."""
        return NOT_ALLOWED if named in self.not_allowed else INVALID_MANIFEST

    def refusal_of(self, body: Object) -> str | None:
        return self.refused.get(named(body))

    def unknown_of(self, body: Object) -> tuple[str, ...]:
        return self.unknown.get(named(body), ())

    def spec_of(self, body: Object) -> Spec | None:
        """Return the spec with which the resource is used, which is an earlier one if it is refused, or None."""
        return self.accepted.get(_uid(body))


def validate(
    resources: ClusterResources,
    before: Accepted,
    policy: TenantPolicy = DEFAULT_POLICY,
) -> ValidationResult:
    """Validate the resources of a cluster whose KafkaController exists.

    `before` has the specs that were accepted in the last pass. It is empty when the operator starts; then the
    statuses of refused resources have them.
    """
    assert resources.quorum is not None
    return _Validator(resources, before, policy).judged()


class _NotAllowedError(ManifestError):
    """A manifest that the tenants' policy does not allow."""


class _Validator:
    def __init__(self, resources: ClusterResources, before: Accepted, policy: TenantPolicy) -> None:
        assert resources.quorum is not None
        self._source = f"namespace {resources.quorum['metadata']['namespace']}"
        self._resources = resources
        self._quorum = resources.quorum
        self._before = before
        self._policy = policy
        self._unknown: dict[Named, tuple[str, ...]] = {}
        leaving = frozenset() if resources.is_deleted else resources.ended_pools
        carries = (self._quorum["spec"].get("placement") or {}).get("pool")
        # Without the pool whose pods have controllers in them, no other one can be judged.
        first = sorted(
            resources.pools.items(),
            key=lambda item: (item[1]["metadata"]["name"] != carries, *_precedence(item[1])),
        )
        self._bodies = [body for _, body in first if body["metadata"]["name"] not in leaving]

    def judged(self) -> ValidationResult:
        try:
            manifests = self._joined(self._load_quorum(), [self._load_pool(body) for body in self._bodies])
        except ManifestError:
            return self._judged_one_by_one()
        accepted = {body["metadata"]["uid"]: body["spec"] for body in (self._quorum, *self._bodies)}
        return ValidationResult(
            manifests=manifests, accepted=accepted, refused={}, unknown=self._unknown_fields()
        )

    def _judged_one_by_one(self) -> ValidationResult:
        refused: dict[Named, str] = {}
        not_allowed: set[Named] = set()
        accepted: dict[str, Spec] = {}

        def refuse(body: Object, error: ManifestError) -> None:
            refused[named(body)] = str(error)
            if isinstance(error, _NotAllowedError):
                not_allowed.add(named(body))

        quorum, used = self._as_before()
        try:
            changed = self._load_quorum()
            self._joined(changed, [*used.values(), *self._carrying(changed, used.values())])
        except ManifestError as error:
            refuse(self._quorum, error)
            if quorum is None:
                return ValidationResult(
                    manifests=None, accepted={}, refused=refused, not_allowed=frozenset(not_allowed)
                )
            accepted[_uid(self._quorum)] = self._spec_before(self._quorum) or {}
        else:
            quorum = changed
            accepted[_uid(self._quorum)] = self._quorum["spec"]
        for body in self._bodies:
            others = [pool for uid, pool in used.items() if uid != _uid(body)]
            try:
                pool = self._load_pool(body)
                self._joined(quorum, [*others, pool])
            except ManifestError as error:
                refuse(body, error)
                if _uid(body) in used:
                    accepted[_uid(body)] = self._spec_before(body) or {}
            else:
                used[_uid(body)] = pool
                accepted[_uid(body)] = body["spec"]
        manifests = None
        try:
            manifests = self._joined(quorum, sorted(used.values(), key=lambda pool: pool.metadata.name))
        except ManifestError as error:  # the pool whose pods have controllers in them is gone
            refuse(self._quorum, error)
        return ValidationResult(
            manifests=manifests,
            accepted=accepted,
            refused=refused,
            unknown=self._unknown_fields(),
            not_allowed=frozenset(not_allowed),
        )

    def _carrying(self, quorum: KafkaController, used: Collection[KafkaBroker]) -> list[KafkaBroker]:
        """Return the pool whose pods have controllers in them if it is valid by itself, and not used yet."""
        name = quorum.spec.placement.pool
        bodies = [body for body in self._bodies if body["metadata"]["name"] == name]
        if not bodies or name in {pool.metadata.name for pool in used}:
            return []
        with suppress(ManifestError):
            return [self._load_pool(bodies[0])]
        return []

    def _as_before(self) -> tuple[KafkaController | None, dict[str, KafkaBroker]]:
        """Return the quorum and, by uid, the pools as they were accepted, without those that no longer fit."""
        quorum = self._kept(self._quorum)
        assert quorum is None or isinstance(quorum, KafkaController)
        used: dict[str, KafkaBroker] = {}
        for body in self._bodies:
            pool = self._kept(body)
            if not isinstance(pool, KafkaBroker):
                continue
            with suppress(ManifestError):  # it no longer fits, and is left out
                if quorum is not None:
                    self._joined(quorum, [*used.values(), pool])
                used[_uid(body)] = pool
        return quorum, used

    def _joined(self, quorum: KafkaController, pools: list[KafkaBroker]) -> Manifests:
        """Return quorum and pools as one cluster. Raises ManifestError, also for a template without a valid host."""
        drained = frozenset(pool.metadata.name for pool in pools) & self._resources.drained_pools
        manifests = replace(joined(quorum, pools, self._source), drained_pools=drained)
        facts = Facts(namespace=self._quorum["metadata"]["namespace"], images=Images(quorate=""))
        try:
            check_hosts(Context(manifests=manifests, facts=facts), desired_cluster(manifests))
        except TemplateError as error:
            raise ManifestError(f"{self._source}: {error}") from error
        return manifests

    def _load_quorum(self) -> KafkaController:
        quorum = self._loaded(self._quorum)
        assert isinstance(quorum, KafkaController)
        return quorum

    def _load_pool(self, body: Object) -> KafkaBroker:
        pool = self._loaded(body)
        assert isinstance(pool, KafkaBroker)
        if pool.spec.node_ids is None:
            name = pool.metadata.name
            raise ManifestError(f"{self._source}: KafkaBroker {name}: spec.nodeIds: none were chosen yet")
        return pool

    def _unknown_fields(self) -> Mapping[Named, tuple[str, ...]]:
        return {named: fields for named, fields in self._unknown.items() if fields}

    def _loaded(self, body: Object) -> Resource:
        name = body["metadata"]["name"]
        if body is not self._quorum and name in self._resources.namesakes:
            raise ManifestError(
                f"{self._source}: KafkaBroker {name}: metadata.name: {name!r}: is the name of a KafkaController, "
                "whose Services and pods are called like this; a pool needs another name"
            )
        served = read_object(body, self._source)
        self._unknown[named(body)] = served.unknown
        found = pool_refusals(body.get("spec") or {}, self._policy, body["metadata"]["namespace"])
        if found:
            label = f"{self._source}: {body['kind']} {name}"
            raise _NotAllowedError("\n".join(f"{label}: {refused}" for refused in found))
        return served.resource

    def _kept(self, body: Object) -> Resource | None:
        """Return a resource with the spec that was accepted before and its present metadata; None without one."""
        spec = self._spec_before(body)
        if spec is None:
            return None
        try:
            return self._loaded({**body, "spec": spec})
        except ManifestError:  # accepted by another release of the operator
            return None

    def _spec_before(self, body: Object) -> Spec | None:
        known = self._before.get(body["metadata"]["uid"])
        return known if known is not None else (body.get("status") or {}).get("acceptedSpec")


def _uid(body: Object) -> str:
    return str(body["metadata"]["uid"])


def named(body: Object) -> Named:
    """Return how refusals name a resource."""
    return Named(body["kind"], body["metadata"]["name"])


def _precedence(body: Object) -> tuple[bool, str, str]:
    """Return the sort key of a resource: those that were refused come last, the others are ordered by age."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    is_refused = any(
        condition["type"] == "Stalled" and condition["reason"] in (INVALID_MANIFEST, NOT_ALLOWED)
        for condition in conditions
    )
    return is_refused, body["metadata"].get("creationTimestamp", ""), body["metadata"]["name"]
