"""The resources of a group, and each of them in one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.handlers.entities.kind_handlers import KindHandler
from quorate_operator.handlers.entities.statuses import EntityResult, Failure
from quorate_operator.models.manifests import Entity
from quorate_operator.runtime.kubernetes.api import Object


@dataclass(slots=True)
class Member:
    """A resource, and its state between passes."""

    body: Object
    handler: KindHandler
    due_ms: int = 0
    failures_in_a_row: int = 0
    is_cleared: bool = False
    fault: str = ""
    """The fault of the operator in its last pass; empty without one."""

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def label(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def status_in(self, kafka: ObservedKafka) -> Mapping[str, Any]:
        """The status; an empty one if it is about another cluster."""
        status = self.body.get("status") or {}
        return status if status.get("clusterId") in (None, kafka.cluster_id) else {}


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

    @property
    def changes(self) -> Sequence[Change]:
        return self.plan.changes if self.plan is not None else ()
