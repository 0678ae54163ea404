"""The reconcile of topics of one cluster: what is made, changed, reverted and refused."""

import asyncio
from dataclasses import replace

import pytest
from kit.entity_group import CONFIG, REACHED, Bench
from kit.waiting import HANG_S
from quorate_admin.errors import ErrorCode, ServerError
from quorate_operator.handlers.entities import group
from quorate_operator.handlers.entities.statuses import Failure
from quorate_operator.handlers.entities.targets import Target
from quorate_operator.web.snapshots import ClusterKey

CLUSTER = ClusterKey("kafka", "quorum")


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


async def settled_topics(bench: Bench, count: int) -> list[str]:
    """Topics that are as desired, looked at 120 s after the start."""
    names = [f"t-{number}" for number in range(count)]
    for name in names:
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    await bench.reconcile(later_ms=0)
    await bench.reconcile()
    bench.handler.batches.clear()
    return names


async def test_topics_that_are_due_soon_are_reconciled_with_those_that_are_due() -> None:
    """Each pass costs requests that do not depend on the number of resources."""
    bench = Bench()
    names = await settled_topics(bench, 60)
    for name in names:
        bench.handler.of(name).topic = None
    # By their jitter they are due from 45 to 60 s after the last pass.
    await bench.reconcile(later_ms=52_500)
    assert bench.handler.batches == [60]


async def test_a_changed_topic_does_not_wait_for_those_that_are_due_soon() -> None:
    bench = Bench()
    names = await settled_topics(bench, 60)
    for name in names:
        bench.handler.of(name).topic = None
    bench.seen(bench.server.change(names[0], partitions=2))
    await bench.reconcile(later_ms=44_000)
    assert bench.handler.batches == [1]


async def test_a_pass_has_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed ones come first."""
    monkeypatch.setattr(group, "PASS_MAX", 25)
    bench = Bench()
    names = [f"t-{number}" for number in range(60)]
    for name in names:
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    for _ in range(3):
        await bench.reconcile(later_ms=0)
    assert bench.handler.batches == [25, 25, 10]
    bench.now_ms += 120_000
    bench.seen(bench.server.change(names[-1], partitions=2))
    await bench.reconcile(later_ms=0)
    assert bench.handler.batches[3:] == [1]


async def test_the_back_off_of_a_failing_topic_is_not_cut_short() -> None:
    bench = Bench()
    names = await settled_topics(bench, 60)
    bench.handler.errors = [ServerError(ErrorCode.policy_violation)] * 60
    for name in names:
        bench.seen(bench.server.change(name, partitions=2))
    await bench.reconcile(later_ms=1)
    assert bench.handler.batches == [60]
    await bench.reconcile(later_ms=700)
    assert bench.handler.batches == [60]


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
    await bench.cleared("listed")
    assert bench.handler.of("listed").topic is not None
    assert "NothingDeleted" in {reason for reason, _ in bench.events.recorded}


async def test_a_page_shows_events_of_the_namespaces_that_its_cluster_admits() -> None:
    """Others could write any text on it, for instance in names of fields."""
    bench = Bench()
    bench.target = replace(REACHED, namespaces=frozenset({"friends"}))
    for name, namespace in (("own", "kafka"), ("listed", "friends"), ("refused", "strangers")):
        body = bench.server.create(name, deletionPolicy="Delete", anyText=1)
        body["metadata"]["namespace"] = namespace
        bench.seen(body)
    await bench.reconcile()
    await bench.reconcile()
    assert {*bench.events.shown} == {
        (CLUSTER, "own", "UnknownFields"),
        (CLUSTER, "own", "CreateTopic"),
        (CLUSTER, "listed", "CreateTopic"),
    }
    bench.events.shown.clear()
    bench.refusal = "spec.config: any text"
    await bench.reconcile()
    assert bench.events.shown == [(CLUSTER, "own", "NotAllowed")]
    # The consent is withdrawn.
    bench.events.shown.clear()
    bench.refusal, bench.target = None, REACHED
    bench.seen(bench.server.delete("listed"))
    await bench.reconcile()
    assert "NothingDeleted" in {reason for reason, _ in bench.events.recorded}
    assert {*bench.events.shown} == {(CLUSTER, "own", "UnknownFields")}


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


async def test_servers_that_do_not_answer_hold_up_no_cluster() -> None:
    """A KafkaTopic may name servers outside of Kubernetes: waiting for these takes no place of a cluster."""
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
