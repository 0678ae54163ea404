"""Deleted pools: what a reconcile clears at once, and what waits for a plan."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.reconciles import filled, resource, shared_parts
from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.planning.cluster import NodeState, ObservedNode, Role
from quorate_operator.planning.steps import StopNode
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, Kind
from quorate_operator.web.snapshots import ClusterKey

KEY = ClusterKey("kafka", "quorum")
Object = dict[str, Any]


def _pool(name: str, policy: str) -> Object:
    first = {"emptied": 0, "kept": 10}[name]
    return resource(
        BROKERS,
        name,
        is_deleted=True,
        controllers="quorum",
        replicas=1,
        nodeIds={"first": first},
        storage={"onDeletion": policy},
    )


class Bench:
    """A reconciler of two deleted pools, one of which deletes its volumes, and what it does to them."""

    def __init__(self, *pods: str, quorum: Object | None = None) -> None:
        self.is_terminating = False
        self.stopped: set[str] = set()
        self.emptied: set[str] = set()
        self._pods, self._quorum = pods, quorum
        store = ResourceStore()
        for pool in (_pool("emptied", "Delete"), _pool("kept", "Retain")):
            store.put(pool)
        api = SimpleNamespace(
            get=self._get, merge=self._merge, is_terminating=lambda _namespace: self.is_terminating
        )
        shared = shared_parts(store=store, api=api)
        self.reconciler = ClusterReconciler(KEY, shared, cast("Any", None), cast("Any", self), fill=filled)

    async def _get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        assert (kind.name, namespace, name) == ("KafkaController", *KEY)
        return self._quorum

    async def _merge(self, _kind: Kind, _namespace: str, _name: str, _: Object, **__: Any) -> Object:
        assert self._quorum is not None
        return self._quorum

    async def reconcile(self) -> tuple[bool, frozenset[str]]:
        """Whether there is a cluster to plan for, and the resources that may be removed."""
        state = await self.reconciler.desired_state()
        if state is None and self.reconciler._resources.quorum is None:
            await self.reconciler.plan_done(None)
        return state is not None, self.reconciler._cleared

    async def departing(self, pools: Collection[str]) -> Mapping[int, ObservedNode]:
        """Part of the infrastructure."""
        return {
            number: ObservedNode(node_id=number, role=Role.BROKER, state=NodeState.READY, pool=pool)
            for number, pool in enumerate(self._pods)
            if pool in pools and pool not in self.stopped
        }

    async def stop_pods(self, pools: Collection[str] | None = None) -> None:
        """Part of the infrastructure."""
        self.stopped |= set(self._pods if pools is None else pools)

    async def delete_volumes(self, pools: Collection[str]) -> None:
        """Part of the infrastructure."""
        self.emptied |= set(pools)


async def test_a_quorum_that_was_not_seen_yet_is_asked_for() -> None:
    """An operator that starts does not take a pool that is drained for one that lost its quorum, and empty
    it.
    """
    bench = Bench("emptied", "kept", quorum=resource(CONTROLLERS, "quorum"))
    assert await bench.reconcile() == (True, frozenset())
    assert (bench.stopped, bench.emptied) == (set(), set())

    alone = Bench("emptied", "kept")
    assert await alone.reconcile() == (False, {"emptied", "kept"})
    assert (alone.stopped, alone.emptied) == ({"emptied", "kept"}, {"emptied"})


@pytest.mark.parametrize(("pods", "cleared"), [(("emptied",), {"kept"}), ((), {"emptied", "kept"})])
async def test_an_invalid_quorum_lets_no_pool_go_that_is_to_be_drained(
    pods: tuple[str, ...], cleared: set[str]
) -> None:
    bench = Bench(*pods, quorum=resource(CONTROLLERS, "quorum", replicas=-1))
    assert await bench.reconcile() == (False, cleared)
    assert (bench.stopped, bench.emptied) == ({"kept"}, set())


async def test_a_cluster_whose_namespace_is_deleted_is_not_started_again() -> None:
    """Its pods are deleted with the namespace, and no others can be created."""
    bench = Bench(quorum=resource(CONTROLLERS, "quorum", replicas=3))
    for is_terminating in (False, True):
        bench.is_terminating = is_terminating
        state = await bench.reconciler.desired_state()
        assert state is not None
        assert state.cluster.running != is_terminating
        assert (
            bench.reconciler.lock_for(StopNode(node_id=1, reason="", grace_ms=1)) is None
        ) == is_terminating
