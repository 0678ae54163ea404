"""An `EntityGroup` of topics, on a model of its cluster and of the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from kit.kafka_model import TopicModel, kafka_of
from kit.reconciles import EventLog, shared_parts
from kit.waiting import HANG_S
from prometheus_client import generate_latest
from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import UnreachableError
from quorate_operator.entities.plan import EntityPlan
from quorate_operator.entities.topics import CreateTopic
from quorate_operator.handlers.dropped_statuses import DroppedStatuses
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.group import EntityGroup
from quorate_operator.handlers.entities.kind_handlers import ResourceChange, Seen, TopicHandler, uid_of
from quorate_operator.handlers.entities.registry import requeue_policy_of
from quorate_operator.handlers.entities.targets import Target, TargetKey, Targets
from quorate_operator.models.manifests import Entity
from quorate_operator.runtime.kubernetes.api import ApiError, Kind

Object = dict[str, Any]
CONFIG = AdminConfig(bootstrap_servers=(Address("broker", 9092),))
REACHED = Target(config=CONFIG)
KAFKA = kafka_of(["a", "b"])


class ModelHandler(TopicHandler):
    """Topics of a model instead of a cluster's."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicModel] = {}
        self.errors: list[Exception | None] = []
        self.batches: list[int] = []
        """The number of changes that were made together."""
        self.done: list[str] = []
        self.fault: Exception | None = None
        self.faults_of_plans: dict[str, Exception] = {}

    def of(self, name: str) -> TopicModel:
        """The topic of this name, which may not exist."""
        return self.topics.setdefault(name, TopicModel(KAFKA))

    async def observe(self, client: object, seen: Sequence[Seen], kafka: object) -> Mapping[str, Any]:  # noqa: ARG002
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return {uid_of(item.resource): self.of(self.name_of(item.resource)).topic for item in seen}

    def plan(self, resource: Entity, *args: Any, **kwargs: Any) -> EntityPlan:
        if fault := self.faults_of_plans.get(self.name_of(resource)):
            raise fault
        return super().plan(resource, *args, **kwargs)

    async def apply(
        self,
        client: object,  # noqa: ARG002
        changes: Sequence[ResourceChange],
    ) -> Sequence[Exception | None]:
        self.batches.append(len(changes))
        return [self._apply(cast("Any", item.change)) for item in changes]

    def _apply(self, change: Any) -> Exception | None:
        if self.errors and (error := self.errors.pop(0)) is not None:
            return error
        if isinstance(change, CreateTopic) and self.of(change.topic).topic is not None:
            return None  # a second attempt
        self.of(change.topic).apply(change)
        self.done.append(type(change).__name__)
        return None


class ModelServer:
    """The API server, as far as statuses go."""

    def __init__(self) -> None:
        self.bodies: dict[str, Object] = {}
        self.writes = 0
        self.refused: set[str] = set()
        """Resources whose status is rejected."""
        self.on_write: Callable[[Object], None] = lambda _: None

    def create(self, name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Object:
        """A KafkaTopic."""
        self.bodies[name] = {
            "apiVersion": "quorate.dev/v1alpha1",
            "kind": "KafkaTopic",
            "metadata": {
                "name": name,
                "namespace": "kafka",
                "uid": name,
                "generation": 1,
                "resourceVersion": "1",
                "creationTimestamp": created,
            },
            "spec": {"cluster": "quorum", **spec},
        }
        return self.bodies[name]

    def change(self, name: str, **spec: Any) -> Object:
        """Another spec."""
        return self._store(name, spec={**self.bodies[name]["spec"], **spec}, generation=1)

    def delete(self, name: str) -> Object:
        """The deletion is asked for."""
        return self._store(name, deletionTimestamp="2026-01-02T00:00:00Z")

    async def merge(self, _: Kind, __: str, name: str, patch: Object, subresource: str) -> Object:
        assert subresource == "status"
        if name not in self.bodies:
            raise ApiError(404, "NotFound", name)
        if name in self.refused:
            raise ApiError(422, "Invalid", f"{name} is invalid")
        self.writes += 1
        before = self.bodies[name].get("status") or {}
        status = {key: value for key, value in {**before, **patch["status"]}.items() if value is not None}
        written = self._store(name, status=status)
        self.on_write(written)
        return written

    def _store(self, name: str, *, generation: int = 0, **parts: Any) -> Object:
        body = self.bodies[name]
        metadata = dict(body["metadata"])
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        metadata["generation"] += generation
        if "deletionTimestamp" in parts:
            metadata["deletionTimestamp"] = parts.pop("deletionTimestamp")
        self.bodies[name] = {**body, "metadata": metadata, **parts}
        return self.bodies[name]


class Bench:
    """A group whose cluster and API server are models; time is what the test says."""

    def __init__(self) -> None:
        self.server, self.handler, self.events = ModelServer(), ModelHandler(), EventLog()
        self.shared = shared_parts(dropped=DroppedStatuses(retry_s=0), api=self.server, events=self.events)
        self.target = REACHED
        self.now_ms = 0
        self.is_reachable = True
        self.described = 0
        """How often the cluster was connected to and described."""
        self.faults: list[Exception] = []
        self.refusal: str | None = None
        targets = SimpleNamespace(find=self._find, refusal_of=lambda _: self.refusal)
        key = TargetKey("kafka", "quorum", "")
        client = SimpleNamespace(describe_cluster=self._describe, close=self._close)
        self.group = EntityGroup(
            key,
            self.shared,
            cast("Targets", targets),
            Claims(),
            requeue_policy_of(60),
            make_client=lambda _: cast("Any", client),
            now_ms=lambda: self.now_ms,
        )

    def seen(self, body: Object, *, is_changed: bool = True) -> None:
        self.group.put(body, self.handler, is_changed=is_changed)

    def metrics(self) -> str:
        return generate_latest(self.shared.metrics.registry).decode()

    def failed_passes(self) -> float:
        """The number of passes over topics that are counted as failed."""
        labels = {"kind": "KafkaTopic", "namespace": "kafka"}
        name = "quorate_reconciliations_failed_total"
        value = self.shared.metrics.registry.get_sample_value(name, labels)
        assert value is not None
        return value

    async def reconcile(self, *, later_ms: int = 120_000) -> None:
        """One pass, when everything is due."""
        self.now_ms += later_ms
        await self.group.reconcile()

    async def cleared(self, name: str) -> None:
        """Wait until a deleted resource may go."""
        async with asyncio.timeout(HANG_S):
            await self.group.wait_cleared(name)

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason."""
        conditions = self.server.bodies[name]["status"]["conditions"]
        found = next(condition for condition in conditions if condition["type"] == kind)
        return found["status"], found["reason"]

    async def _find(self, *_: object) -> Target:
        if self.faults:
            raise self.faults.pop()
        return self.target

    async def _describe(self) -> Any:
        self.described += 1
        if not self.is_reachable:
            raise UnreachableError({"broker:9092": "refused"})
        nodes = [
            SimpleNamespace(node_id=broker.broker_id, rack=broker.rack, fenced=False, host="broker", port=1)
            for broker in KAFKA.brokers
        ]
        return SimpleNamespace(cluster_id="c", nodes=nodes)

    async def _close(self) -> None:
        pass
