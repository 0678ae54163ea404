"""The reconcile of topics when a change, a status or the operator fails, and which topics that concerns."""

import asyncio
from dataclasses import replace

import pytest
from kit.entity_group import KAFKA, REACHED, Bench, ModelHandler, Object
from kit.kafka_model import TopicModel
from kit.waiting import HANG_S
from quorate_admin.errors import ErrorCode, ServerError
from quorate_operator.runtime.kubernetes.api import USERS, ApiError


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


async def test_an_invalid_resource_stalls_alone() -> None:
    bench = Bench()
    bench.seen(bench.server.create("bad", partitions="many"))
    bench.seen(bench.server.create("good"))
    await bench.reconcile()
    await bench.reconcile()
    assert bench.condition("bad", "Stalled") == ("True", "InvalidManifest")
    assert bench.condition("good", "Ready")[0] == "True"


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


@pytest.mark.parametrize("where", ["observe", "plan", "apply"])
async def test_a_fault_is_counted_in_the_namespace_of_its_resource(where: str) -> None:
    bench = Bench()
    body = bench.server.create("orders")
    body["metadata"]["namespace"] = "friends"
    bench.seen(body)
    bench.target = replace(REACHED, namespaces=frozenset({"friends"}))
    fault = ValueError("no such field")
    if where == "observe":
        bench.handler.fault = fault
    elif where == "plan":
        bench.handler.faults_of_plans["orders"] = fault
    else:
        bench.handler.topics["orders"] = FaultyModel(fault)
    await bench.reconcile()
    metrics = bench.metrics()
    assert 'quorate_reconcile_faults_total{kind="KafkaTopic",namespace="friends"} 1.0' in metrics
    assert 'quorate_reconcile_faults_total{kind="KafkaTopic",namespace="kafka"}' not in metrics


@pytest.mark.parametrize("where", ["pass", "observe"])
async def test_a_fault_of_several_resources_is_counted_once_in_each_of_their_namespaces(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    made = asyncio.Event()
    bench.server.on_write = lambda _: made.set()
    for name, namespace in (("one", "friends"), ("two", "friends"), ("three", "others")):
        body = bench.server.create(name)
        body["metadata"]["namespace"] = namespace
        bench.seen(body)
    bench.target = replace(REACHED, namespaces=frozenset({"friends", "others"}))
    fault = ValueError("no such field")
    if where == "pass":
        bench.faults = [fault]
    else:
        bench.handler.fault = fault
    task = asyncio.create_task(bench.group.run())
    async with asyncio.timeout(HANG_S):
        await made.wait()
    task.cancel()
    await asyncio.wait([task])
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [fault]
    metrics = bench.metrics()
    for namespace in ("friends", "others"):
        assert f'quorate_reconcile_faults_total{{kind="KafkaTopic",namespace="{namespace}"}} 1.0' in metrics
    assert 'quorate_reconcile_faults_total{kind="KafkaTopic",namespace="kafka"}' not in metrics


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
