"""The resources of a group, and each of them in one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.handlers.entities.kind_handlers import KindHandler
from quorate_operator.handlers.entities.statuses import (
    API_SERVER,
    UNREACHABLE,
    EntityResult,
    Failure,
    is_ready,
)
from quorate_operator.handlers.resources import is_deleted
from quorate_operator.models.manifests import Entity
from quorate_operator.runtime.kubernetes.api import Object

DELETION_STALLED_AFTER_MS = 60_000
"""After this time, a deleted resource whose cluster can't be reached is Stalled. It is still tried again."""


@dataclass(slots=True)
class Member:
    """A resource, and its state between passes."""

    body: Object
    handler: KindHandler
    due_ms: int = 0
    """When it is reconciled; 0 if it has changed."""
    early_ms: int = 0
    """From when on it may be reconciled together with others that are due."""
    failures_in_a_row: int = 0
    blocked_since_ms: int | None = None
    """When it was deleted and its cluster could not be reached, first since its cluster was last observed."""
    is_admitted: bool = False
    """Whether its cluster admits its namespace, as far as this pass has found out."""
    is_cleared: bool = False
    fault: str = ""
    """The fault of the operator in its last pass; empty without one."""
    pending_status: dict[str, Any] = field(default_factory=dict)
    """Fields of the status that changes have brought about, until the status has them."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What its handler keeps between two passes."""
    passes: int = 0
    """How often it was observed."""
    unknown: tuple[str, ...] = ()
    """The paths of fields that this release does not know."""

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def metric_labels(self) -> tuple[str, str]:
        """Its kind and namespace, by which passes and faults are counted."""
        return self.handler.kind.name, self.namespace

    @property
    def label(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def changed(self) -> None:
        """Make it due at once."""
        self.due_ms = self.early_ms = 0

    def is_thorough(self, every: int) -> bool:
        """Count a pass, and return whether it is thorough: one in `every`, and each while it is not ready."""
        self.passes += 1
        status, generation = self.body.get("status") or {}, self.body["metadata"]["generation"]
        # Resources that are observed together differ in which of their passes are thorough.
        is_turn = (self.passes + crc32(self.uid.encode())) % every == 0
        return is_turn or not is_ready(status, generation) or is_deleted(self.body)

    def blocked(self, failure: Failure, now_ms: int) -> Failure:
        """Return why it was not observed: of a deleted one with the way out, and as Stalled after some time."""
        if not is_deleted(self.body) or failure.code == API_SERVER:
            return failure
        if self.blocked_since_ms is None:
            self.blocked_since_ms = now_ms
        is_stalled = (
            failure.code == UNREACHABLE and now_ms - self.blocked_since_ms >= DELETION_STALLED_AFTER_MS
        )
        message = f"{failure.message}; it is deleted, and waits for the cluster: {self.handler.way_out}"
        return replace(failure, message=message, is_retried=failure.is_retried and not is_stalled)

    def reached(self, kafka: ObservedKafka) -> None:
        """Note that its cluster was observed."""
        self.blocked_since_ms = None
        if not self._is_about(kafka):
            self.pending_status = {}

    def status_in(self, kafka: ObservedKafka) -> Mapping[str, Any]:
        """Return the status with what the last changes have brought about; an empty one if about another cluster."""
        return {**(self.body.get("status") or {}), **self.pending_status} if self._is_about(kafka) else {}

    def _is_about(self, kafka: ObservedKafka) -> bool:
        return (self.body.get("status") or {}).get("clusterId") in (None, kafka.cluster_id)

    def take_status(self, written: Object) -> None:
        """Take over the status of the resource as it was written.

        A spec that has changed meanwhile comes with an event of its own.
        """
        version = {"resourceVersion": written["metadata"]["resourceVersion"]}
        status = written.get("status") or {}
        self.body = {**self.body, "metadata": {**self.body["metadata"], **version}, "status": status}
        self.pending_status = {
            key: value for key, value in self.pending_status.items() if status.get(key) != value
        }


@dataclass(slots=True)
class Work:
    """A resource in one pass."""

    member: Member
    resource: Entity
    name: str
    """The name in Kafka."""
    plan: EntityPlan | None = None
    failure: Failure | None = None
    result: EntityResult = field(default_factory=EntityResult)
    changed: list[Change] = field(default_factory=list)
    is_finished: bool = False
    """Whether its result is reported, and the time of the next pass is set."""

    @property
    def changes(self) -> Sequence[Change]:
        return self.plan.changes if self.plan is not None else ()
