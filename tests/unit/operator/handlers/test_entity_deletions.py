"""The reconcile of deleted topics: what they wait for, and when they go."""

import asyncio

from kit.entity_group import Bench
from kit.waiting import HANG_S
from quorate_admin.errors import ErrorCode, ServerError
from quorate_operator.handlers.entities.statuses import Failure
from quorate_operator.handlers.entities.targets import Target


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
    await bench.cleared("two")
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
    await bench.cleared("orders")


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
    await bench.cleared("orders")


async def test_a_deletion_is_stalled_after_a_minute_in_which_its_cluster_never_answers() -> None:
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    bench.seen(bench.server.delete("orders"))
    bench.handler.errors = [ServerError(ErrorCode.not_controller)]
    for is_reachable in (False, True, False):
        bench.is_reachable = is_reachable
        await bench.reconcile()
        assert bench.condition("orders", "Stalled")[0] == "False"
    await bench.reconcile(later_ms=60_000)
    assert bench.condition("orders", "Stalled") == ("True", "Unreachable")


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
    await bench.cleared("one")
    assert bench.condition("two", "Stalled") == ("True", "SecretMissing")


async def test_a_login_whose_secret_is_gone_is_used_for_deletions_alone() -> None:
    bench = Bench()
    for name in ("one", "two"):
        bench.seen(bench.server.create(name, deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    failure = Failure(code="SecretMissing", message="no such Secret", is_retried=False)
    bench.target = Target(failure=failure, is_secret_gone=True)
    bench.described = 0
    await bench.reconcile()
    assert bench.described == 0
    assert bench.condition("one", "Stalled") == bench.condition("two", "Stalled") == ("True", "SecretMissing")
    bench.seen(bench.server.delete("one"))
    await bench.reconcile()
    assert bench.described == 1


async def test_a_deletion_that_succeeds_without_its_secret_is_no_failure() -> None:
    """The missing Secret is a failure of the resources that stay."""
    bench = Bench()
    bench.seen(bench.server.create("orders", deletionPolicy="Delete"))
    await bench.reconcile()
    await bench.reconcile()
    bench.is_reachable = False
    bench.seen(bench.server.delete("orders"))
    for _ in range(5):
        await bench.reconcile()
    writes, failures = bench.server.writes, bench.failed_passes()
    failure = Failure(code="SecretMissing", message="no such Secret", is_retried=False)
    bench.target, bench.is_reachable = Target(failure=failure, is_secret_gone=True), True
    await bench.reconcile()
    assert bench.handler.done[-1] == "DeleteTopic"
    assert (bench.server.writes, bench.failed_passes()) == (writes, failures)
    await bench.reconcile(later_ms=1_000)
    await bench.cleared("orders")


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
    await bench.cleared("orders")
    assert ("NothingDeleted", "the cluster is gone: nothing was deleted in it") in bench.events.recorded


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
