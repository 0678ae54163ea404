"""The reconcile of topics of one cluster, on a model of the cluster and of the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.kafka_model import TopicModel, kafka_of
from kit.reconciles import EventLog, shared_parts
from kit.waiting import HANG_S
from prometheus_client import generate_latest
from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import ErrorCode, ServerError, UnreachableError
from quorate_operator.entities.plan import EntityPlan
from quorate_operator.entities.topics import CreateTopic
from quorate_operator.handlers.dropped_statuses import DroppedStatuses
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.group import EntityGroup
from quorate_operator.handlers.entities.kind_handlers import ResourceChange, Seen, TopicHandler, uid_of
from quorate_operator.handlers.entities.registry import requeue_policy_of
from quorate_operator.handlers.entities.statuses import Failure
from quorate_operator.handlers.entities.targets import Target, TargetKey, Targets
from quorate_operator.models.manifests import Entity
from quorate_operator.runtime.kubernetes.api import USERS, ApiError, Kind

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


class FaultyModel(TopicModel):
    """A topic whose change meets a mistake of the operator."""

    def __init__(self, fault: Exception) -> None:
        super().__init__(KAFKA)
        self._fault = fault

    def apply(self, change: object) -> None:  # noqa: ARG002
        raise self._fault


class OtherHandler(ModelHandler):
    """Resources of another kind."""

    kind = USERS


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

    async def reconcile(self, *, later_ms: int = 120_000) -> None:
        """One pass, when everything is due."""
        self.now_ms += later_ms
        await self.group.reconcile()

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
        if not self.is_reachable:
            raise UnreachableError({"broker:9092": "refused"})
        nodes = [
            SimpleNamespace(node_id=broker.broker_id, rack=broker.rack, fenced=False, host="broker", port=1)
            for broker in KAFKA.brokers
        ]
        return SimpleNamespace(cluster_id="c", nodes=nodes)

    async def _close(self) -> None:
        pass


async def test_a_topic_is_made_and_then_left_alone() -> None:
    """The status that the next pass needs is stored before the change, and a settled topic costs no write."""
    bench = Bench()
    stored: list[tuple[object, bool]] = []
    bench.server.on_write = lambda body: stored.append(
        (body["status"].get("managedConfig"), bench.handler.of("orders").topic is not None)
    )
    bench.seen(bench.server.create("orders", partitions=2, config={"retention.ms": "1"}))
    await bench.reconcile()
    assert stored == [(["retention.ms"], False)]
    assert bench.condition("orders", "Ready") == ("False", "Changing")
    assert bench.condition("orders", "Reconciling") == ("True", "Changing")
    await bench.reconcile()
    assert bench.condition("orders", "Ready") == ("True", "AsDesired")
    assert bench.server.bodies["orders"]["status"]["partitions"] == 2
    writes = bench.server.writes
    await bench.reconcile()
    assert (bench.server.writes, bench.handler.done) == (writes, ["CreateTopic"])
    assert 'quorate_resource_state{kind="KafkaTopic",name="orders"' in bench.metrics()


async def test_topics_that_are_due_together_are_changed_together() -> None:
    """The first change of each, then the second one; a topic that fails does not keep the others."""
    bench = Bench()
    names = [f"t-{number}" for number in range(40)]
    for name in names:
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    assert bench.handler.batches == [40]
    bench.handler.batches.clear()
    for name in names:
        bench.seen(bench.server.change(name, partitions=2, config={"retention.ms": "1"}))
    refused = ServerError(ErrorCode.invalid_partitions)
    bench.handler.errors = [None, refused, *[None] * 38]
    await bench.reconcile()
    assert bench.handler.batches == [40, 39]
    assert bench.condition("t-0", "Reconciling") == ("True", "Changing")
    assert bench.condition("t-1", "Reconciling") == ("True", "InvalidPartitions")
    await bench.reconcile()
    bench.handler.batches.clear()
    for name in names:
        bench.seen(bench.server.delete(name))
    await bench.reconcile()
    assert bench.handler.batches == [40]
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await asyncio.gather(*map(bench.group.wait_cleared, names))


async def test_it_is_due_soon_after_a_change_and_later_when_settled() -> None:
    bench = Bench()
    bench.seen(bench.server.create("orders"))
    await bench.reconcile(later_ms=0)
    await bench.reconcile(later_ms=500)
    assert bench.condition("orders", "Ready") == ("False", "Changing")
    await bench.reconcile(later_ms=500)
    assert bench.condition("orders", "Ready") == ("True", "AsDesired")
    bench.handler.of("orders").topic = None
    await bench.reconcile(later_ms=40_000)
    assert bench.handler.of("orders").topic is None
    await bench.reconcile(later_ms=20_000)
    assert bench.handler.of("orders").topic is not None
    assert (
        "Drifted",
        "changed outside the operator: create the topic orders with default numbers",
    ) in bench.events.recorded


async def test_a_refused_change_is_retried_once_before_it_stalls() -> None:
    """A single refusal may come from a broker that is behind."""
    bench = Bench()
    bench.handler.errors = [ServerError(ErrorCode.invalid_partitions, "has 3 already") for _ in range(2)]
    bench.seen(bench.server.create("orders"))
    await bench.reconcile()
    assert bench.condition("orders", "Stalled") == ("False", "NothingRefused")
    assert bench.condition("orders", "Reconciling") == ("True", "InvalidPartitions")
    await bench.reconcile()
    assert bench.condition("orders", "Stalled") == ("True", "InvalidPartitions")
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("orders", "Ready") == ("True", "AsDesired")
    assert bench.condition("orders", "Stalled") == ("False", "NothingRefused")


async def test_a_deletion_waits_for_the_cluster_unless_it_is_to_be_retained() -> None:
    bench = Bench()
    for name in ("one", "two"):
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    bench.is_reachable = False
    bench.seen(bench.server.delete("one"))
    await bench.reconcile()
    waiting = asyncio.create_task(bench.group.wait_cleared("one"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert bench.condition("one", "Reconciling") == ("True", "Unreachable")
    bench.is_reachable = True
    await bench.reconcile()
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await waiting
    assert bench.handler.done[-1] == "DeleteTopic"
    bench.server.change("two", deletionPolicy="Retain")
    bench.seen(bench.server.delete("two"))
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("two")
    assert bench.handler.of("two").topic is not None


async def test_what_never_was_in_kafka_goes_without_its_cluster() -> None:
    """As with a typo in bootstrapServers: no cluster ever answered."""
    bench = Bench()
    bench.is_reachable = False
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    assert bench.condition("orders", "Reconciling") == ("True", "Unreachable")
    bench.seen(bench.server.delete("orders"))
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("orders")


async def test_a_deletion_that_waits_for_its_cluster_names_the_way_out() -> None:
    """After a minute, it is Stalled."""
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    bench.is_reachable = False
    bench.seen(bench.server.delete("orders"))
    await bench.reconcile()
    conditions = bench.server.bodies["orders"]["status"]["conditions"]
    (message,) = {condition["message"] for condition in conditions if condition["type"] == "Ready"}
    assert "set spec.deletionPolicy to Retain to remove the resource and leave the topic" in message
    assert bench.condition("orders", "Stalled")[0] == "False"
    await bench.reconcile(later_ms=60_000)
    assert bench.condition("orders", "Stalled") == ("True", "Unreachable")
    bench.server.change("orders", deletionPolicy="Retain")
    bench.seen(bench.server.bodies["orders"])
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("orders")


async def test_a_deletion_needs_no_secret_that_went_before_it() -> None:
    """A namespace that is deleted loses its Secrets first."""
    bench = Bench()
    for name in ("one", "two"):
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    await bench.reconcile()
    failure = Failure(code="SecretMissing", message="no such Secret", is_retried=False)
    bench.target = Target(failure=failure)  # the Secret is there, and can't be used any more
    bench.seen(bench.server.delete("one"))
    await bench.reconcile()
    assert bench.handler.of("one").topic is not None
    bench.target = Target(failure=failure, is_secret_gone=True)
    await bench.reconcile()
    assert bench.handler.of("one").topic is None
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("one")
    assert bench.condition("two", "Stalled") == ("True", "SecretMissing")


async def test_a_namespace_that_terminates_is_not_asked_again_and_again() -> None:
    bench = Bench()
    message = (
        "it is forbidden: unable to create new content in namespace kafka because it is being terminated"
    )
    bench.handler.errors = [ApiError(403, "Forbidden", message, ("NamespaceTerminating",))]
    bench.seen(bench.server.create("orders"))
    await bench.reconcile()
    assert bench.condition("orders", "Reconciling") == ("False", "NamespaceTerminating")
    await bench.reconcile(later_ms=20_000)
    assert bench.handler.done == []


async def test_topics_of_other_namespaces_need_the_consent_of_the_cluster() -> None:
    """Without it they do not learn whether there is such a cluster, and their deletion deletes nothing."""
    bench = Bench()
    for name, namespace in (("own", "kafka"), ("listed", "friends"), ("refused", "strangers")):
        body = bench.server.create(name, deletionPolicy="Delete")
        body["metadata"]["namespace"] = namespace
        bench.seen(body)
    bench.target = replace(REACHED, namespaces=frozenset({"friends"}))
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("own", "Ready") == bench.condition("listed", "Ready") == ("True", "AsDesired")
    refused = bench.server.bodies["refused"]["status"]["conditions"]
    assert bench.condition("refused", "Stalled") == ("True", "NamespaceNotAllowed")
    missing = Failure(code="ClusterMissing", message="no such KafkaController", is_retried=False)
    bench.target = Target(failure=missing, is_gone=True)
    await bench.reconcile()
    assert bench.server.bodies["refused"]["status"]["conditions"] == refused
    # The consent is withdrawn.
    bench.target = REACHED
    bench.seen(bench.server.delete("listed"))
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("listed")
    assert bench.handler.of("listed").topic is not None
    assert "NothingDeleted" in {reason for reason, _ in bench.events.recorded}


async def test_a_deletion_does_not_wait_for_a_cluster_that_is_gone() -> None:
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    failure = Failure(code="ClusterMissing", message="no such KafkaController", is_retried=False)
    bench.target = Target(failure=failure, is_gone=True)
    await bench.reconcile()
    assert bench.condition("orders", "Stalled") == ("True", "ClusterMissing")
    bench.seen(bench.server.delete("orders"))
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("orders")
    assert ("NothingDeleted", "the cluster is gone: nothing was deleted in it") in bench.events.recorded


async def test_the_oldest_resource_has_the_name() -> None:
    bench = Bench()
    bench.seen(bench.server.create("b-young", "2026-01-02T00:00:00Z", topicName="t", deletionPolicy="Delete"))
    bench.seen(bench.server.create("z-old", "2026-01-01T00:00:00Z", topicName="t", partitions=2))
    bench.seen(bench.server.create("c-third", "2026-01-03T00:00:00Z", topicName="t", partitions=3))
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("z-old", "Ready")[0] == "True"
    assert bench.condition("b-young", "Stalled") == ("True", "NameTaken")
    assert "topicId" not in bench.server.bodies["b-young"]["status"]
    bench.seen(bench.server.delete("b-young"))
    await bench.reconcile()
    await bench.group.wait_cleared("b-young")
    assert bench.handler.of("t").topic is not None
    assert bench.group.remove("b-young")
    assert bench.group.remove("z-old")
    await bench.group.reconcile()
    assert bench.handler.done == ["CreateTopic", "AddPartitions"]
    assert not bench.group.remove("c-third")


async def test_a_pause_shows_what_would_be_done() -> None:
    bench = Bench()
    bench.target = Target(config=CONFIG, is_paused=True)
    bench.seen(bench.server.create("orders"))
    await bench.reconcile()
    status = bench.server.bodies["orders"]["status"]
    assert status["changes"] == ["create the topic orders with default numbers"]
    assert bench.condition("orders", "Reconciling") == ("False", "Paused")
    assert bench.condition("orders", "Stalled")[0] == "False"
    bench.target = REACHED
    body = bench.server.bodies["orders"]
    body["metadata"]["annotations"] = {"quorate.dev/pause": "true"}
    bench.seen(body)
    await bench.reconcile()
    assert bench.handler.done == []
    del body["metadata"]["annotations"]
    bench.seen(body)
    await bench.reconcile()
    assert bench.handler.done == ["CreateTopic"]


async def test_an_event_from_before_our_write_does_not_bring_back_the_old_status() -> None:
    bench = Bench()
    bench.seen(bench.server.create("orders", partitions=1))
    await bench.reconcile()
    older = bench.server.change("orders", partitions=2)
    older = {**older, "status": {}}
    await bench.reconcile()
    bench.seen(older)
    await bench.reconcile()
    assert bench.handler.done == ["CreateTopic", "AddPartitions"]
    assert not [note for reason, note in bench.events.recorded if reason == "Found"]


async def test_an_invalid_resource_stalls_alone() -> None:
    bench = Bench()
    bench.seen(bench.server.create("bad", partitions="many"))
    bench.seen(bench.server.create("good"))
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("bad", "Stalled") == ("True", "InvalidManifest")
    assert bench.condition("good", "Ready")[0] == "True"


async def test_a_resource_that_the_policy_refuses_is_neither_connected_nor_kept() -> None:
    bench = Bench()
    bench.seen(bench.server.create("orders"))
    bench.refusal = "spec.bootstrapServers[0]: not here"
    bench.faults = [AssertionError("no server may be looked for")]
    await bench.reconcile()
    assert bench.condition("orders", "Stalled") == ("True", "NotAllowed")
    assert bench.condition("orders", "Ready") == ("False", "NotAllowed")
    assert ("NotAllowed", bench.refusal) in bench.events.recorded
    assert bench.handler.done == []
    bench.seen(bench.server.delete("orders"))
    async with asyncio.timeout(HANG_S):
        await bench.reconcile()
        await bench.group.wait_cleared("orders")
    assert bench.events.recorded[-1] == ("NothingDeleted", f"nothing was deleted: {bench.refusal}")
    bench.refusal, bench.faults = None, []
    bench.seen(bench.server.create("later"))
    await bench.reconcile()
    assert bench.handler.done == ["CreateTopic"]


async def test_a_fault_of_the_operator_does_not_end_the_group(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.faults = [ValueError("no such field")]
    made = asyncio.Event()
    bench.server.on_write = lambda _: made.set()
    bench.seen(bench.server.create("orders"))
    task = asyncio.create_task(bench.group.run())
    async with asyncio.timeout(HANG_S):
        await made.wait()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["no such field"]
    metrics = bench.metrics()
    assert 'quorate_reconcile_faults_total{kind="KafkaTopic",namespace="kafka"} 1.0' in metrics
    task.cancel()
    await asyncio.wait([task])


FAULT = "a fault of the operator, see its log: ValueError"


@pytest.mark.parametrize("where", ["plan", "apply"])
async def test_a_fault_of_one_resource_is_reported_there_and_affects_no_other(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in the plan of one topic is reported in its conditions alone."""
    bench = Bench()
    for name in ("one", "two", "three"):
        bench.seen(bench.server.create(name))
    fault = ValueError("hunter2")
    if where == "plan":
        bench.handler.faults_of_plans["two"] = fault
    else:
        bench.handler.topics["two"] = FaultyModel(fault)
    for is_stalled in (False, True):
        await bench.reconcile()
        assert bench.condition("two", "Ready") == ("False", "OperatorFault")
        assert bench.condition("two", "Stalled")[0] == str(is_stalled)
    assert bench.condition("one", "Ready") == bench.condition("three", "Ready") == ("True", "AsDesired")
    assert ("OperatorFault", FAULT) in bench.events.recorded
    assert "hunter2" not in f"{bench.events.recorded}{bench.server.bodies}"
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [fault, fault]
    metrics = bench.metrics()
    assert 'quorate_reconcile_faults_total{kind="KafkaTopic",namespace="kafka"} 2.0' in metrics
    bench.group._report_liveness()
    (note,) = bench.shared.liveness.notes()
    assert f"kafka/two: {FAULT}" in note
    bench.handler.faults_of_plans.clear()
    bench.handler.topics.pop("two", None)
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("two", "Ready") == ("True", "AsDesired")
    bench.group._report_liveness()
    assert bench.shared.liveness.notes() == []


async def test_a_fault_of_one_kind_is_reported_at_each_of_its_resources() -> None:
    bench = Bench()
    other = OtherHandler()
    bench.seen(bench.server.create("topic"))
    bench.group.put(bench.server.create("other"), other, is_changed=True)
    bench.handler.fault = ValueError("no such field")
    await bench.reconcile()
    assert bench.condition("topic", "Ready") == ("False", "OperatorFault")
    assert other.done == ["CreateTopic"]
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("topic", "Ready") == ("True", "AsDesired")


@pytest.mark.parametrize("spec", [{}, {"partitions": "many"}], ids=["valid", "invalid"])
async def test_a_status_that_is_refused_concerns_no_other_resource(
    spec: Object, caplog: pytest.LogCaptureFixture
) -> None:
    """A rejected status is logged."""
    bench = Bench()
    bench.server.refused = {"two"}
    for name in ("one", "two", "three"):
        bench.seen(bench.server.create(name, **(spec if name == "two" else {})))
    for _ in range(2):
        await bench.reconcile()
    assert bench.condition("one", "Ready") == bench.condition("three", "Ready") == ("True", "AsDesired")
    assert "status" not in bench.server.bodies["two"]
    assert "kafka/two" in caplog.text
    assert "its status was not written: two is invalid" in caplog.text
    bench.server.refused = set()
    for _ in range(2):
        await bench.reconcile()
    assert bench.condition("two", "Ready") == (
        ("False", "InvalidManifest") if spec else ("True", "AsDesired")
    )


async def test_a_deletion_is_not_forgotten_for_a_fault() -> None:
    """No resource is removed while its topic stays, because of a fault."""
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    bench.handler.faults_of_plans["orders"] = ValueError("no such field")
    bench.seen(bench.server.delete("orders"))
    await bench.reconcile()
    assert bench.handler.of("orders").topic is not None
    assert bench.condition("orders", "Ready") == ("False", "OperatorFault")
    waiting = asyncio.create_task(bench.group.wait_cleared("orders"))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.handler.faults_of_plans.clear()
    await bench.reconcile()
    await bench.reconcile()
    await waiting
    assert bench.handler.of("orders").topic is None


async def test_a_resource_that_may_go_costs_nothing_while_it_is_still_there() -> None:
    """No busy loop between the last pass and the removal of the object."""
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    bench.seen(bench.server.delete("orders"))
    await bench.reconcile()
    await bench.group.wait_cleared("orders")
    waiting = asyncio.create_task(bench.group._wait_due())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_servers_that_do_not_answer_hold_up_no_cluster() -> None:
    """A KafkaTopic may name any servers: waiting for these takes no place of a cluster."""
    bench = Bench()
    reconciling, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reconciling.set()
        await ended.wait()

    bench.group.reconcile = wait  # type: ignore[method-assign]
    bench.seen(bench.server.create("orders"))
    running = asyncio.create_task(bench.group.run())
    try:
        async with asyncio.timeout(HANG_S):
            await reconciling.wait()
        assert not bench.shared.observations.locked()
    finally:
        ended.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
