"""A cluster whose resources do not all match an operator's selector: nothing is done, and the conditions say why."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.reconciles import filled, resource, shared_parts
from quorate_operator.handlers.process import LEADER_LEASE
from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.handlers.selection import is_guarded, lease_name, split_message
from quorate_operator.models.selectors import LabelSelector
from quorate_operator.planning import steps
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, Kind
from quorate_operator.web.snapshots import ClusterKey

KEY = ClusterKey("kafka", "quorum")
SELECTOR = LabelSelector.parse("operator in (blue, teal),team")
BLUE, GREEN, TEAMLESS = (
    {"operator": "blue", "team": "a"},
    {"operator": "green", "team": "a"},
    {"operator": "blue"},
)
Object = dict[str, Any]


def _quorum(labels: Mapping[str, str]) -> Object:
    return resource(CONTROLLERS, "quorum", labels, replicas=1)


def _pool(labels: Mapping[str, str], name: str = "brokers", *, is_deleted: bool = False) -> Object:
    return resource(
        BROKERS,
        name,
        labels,
        is_deleted=is_deleted,
        controllers="quorum",
        replicas=1,
        nodeIds={"first": 0},
        storage={"onDeletion": "Delete"},
    )


class Bench:
    """An operator that selects resources of an API server by SELECTOR, and what it reports and clears.

    What it has seen is what matches.
    """

    def __init__(self, *bodies: Object) -> None:
        self.reported: dict[str, str] = {}
        self.cleared = False
        self._bodies = bodies
        store = ResourceStore()
        for body in bodies:
            if SELECTOR.matches(body["metadata"]["labels"]):
                store.put(body)
        api = SimpleNamespace(
            get=self._get, merge=self._merge, list=self._list, is_terminating=lambda _namespace: False
        )
        self.shared = shared_parts(store=store, api=api, selector=SELECTOR)
        self.reconciler = ClusterReconciler(
            KEY, self.shared, cast("Any", None), cast("Any", self), fill=filled
        )

    async def reconcile(self) -> bool:
        """Whether there is a cluster to plan for."""
        state = await self.reconciler.desired_state()
        if state is None:
            await self.reconciler.plan_done(None)
        return state is not None

    async def _get(self, kind: Kind, _namespace: str, name: str) -> Object | None:
        return next(
            (body for body in self._bodies if (body["kind"], body["metadata"]["name"]) == (kind.name, name)),
            None,
        )

    async def _list(self, kind: Kind, namespace: str, selector: str) -> tuple[list[Object], str]:
        assert namespace == "kafka"
        wanted = LabelSelector.parse(selector)
        found = [
            body
            for body in self._bodies
            if body["kind"] == kind.name and wanted.matches(body["metadata"]["labels"])
        ]
        return found, "1"

    async def _merge(self, _kind: Kind, _namespace: str, name: str, patch: Object, **_: Any) -> Object:
        (ready,) = [condition for condition in patch["status"]["conditions"] if condition["type"] == "Ready"]
        self.reported[name] = f"{ready['status']} {ready['reason']}: {ready['message']}"
        return next(body for body in self._bodies if body["metadata"]["name"] == name)

    async def stop_pods(self, *_: Any, **__: Any) -> None:
        """Part of the infrastructure."""
        self.cleared = True

    async def delete_volumes(self, *_: Any) -> None:
        """Part of the infrastructure."""
        self.cleared = True

    async def departing(self, _pools: Any) -> dict[int, Any]:
        """Part of the infrastructure."""
        return {}


@pytest.mark.parametrize("labels", [GREEN, TEAMLESS, {}])
async def test_a_pool_of_another_operator_keeps_its_cluster_as_it_is(labels: Mapping[str, str]) -> None:
    bench = Bench(_quorum(BLUE), _pool(labels), _pool(BLUE, "others"))
    assert not await bench.reconcile()
    reported = (
        "False SplitCluster: metadata.labels: those of KafkaBroker brokers do not match "
        "'operator in (blue,teal),team'"
    )
    assert bench.reported.keys() == {"quorum", "others"}
    assert all(message.startswith(reported) for message in bench.reported.values())
    snapshot = bench.shared.snapshots.find(KEY)
    assert snapshot is not None
    assert "KafkaBroker brokers" in (snapshot.problem or "")


def test_resources_of_another_operator_are_counted_where_they_are_many() -> None:
    message = split_message(SELECTOR, KEY, [_pool(GREEN, f"pool-{number}") for number in range(7)])
    named = ", ".join(f"KafkaBroker pool-{number}" for number in range(5))
    assert f"those of {named} and 2 more do not match" in message


async def test_a_deleted_pool_waits_for_the_operator_of_its_quorum() -> None:
    """A pool whose KafkaController was handed over first is not emptied as if it had none."""
    handed_over = Bench(_quorum(GREEN), _pool(BLUE, is_deleted=True))
    assert not await handed_over.reconcile()
    assert not handed_over.cleared
    assert "those of KafkaController quorum do not match" in handed_over.reported["brokers"]

    alone = Bench(_pool(BLUE, is_deleted=True))
    assert not await alone.reconcile()
    assert alone.cleared


async def test_a_cluster_that_matches_together_is_planned_for() -> None:
    stranger = _pool(GREEN, "strangers")
    stranger["spec"]["controllers"] = "another"
    bench = Bench(_quorum(BLUE), _pool(BLUE), stranger)
    assert await bench.reconcile()
    assert bench.reported == {}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (steps.RemoveVoter(node_id=1, reason="", directory_id="d"), True),
        (steps.StopNode(node_id=1, reason="", grace_ms=1), True),
        (steps.FormCluster(node_ids=(1,), cluster_id=None, reason=""), True),
        (steps.ReplaceVolumes(node_id=1, reason=""), True),
        (steps.StartNode(node_id=1, reason=""), False),
    ],
)
def test_two_operators_stop_nodes_one_after_the_other(action: steps.Action, expected: bool) -> None:
    """Neither a shared cluster nor one of two operators that were installed by mistake loses two controllers."""
    assert is_guarded(action) == expected


def test_the_name_of_a_cluster_takes_no_lease_of_leader_election() -> None:
    """Their owner names clusters, and by default clusters are in the operator's own namespace."""
    leaders = (LEADER_LEASE, "quorate-operator", "blue-quorate-operator", "quorate-x-operator")
    for leader in leaders:
        assert leader not in {lease_name(leader), lease_name(leader.removeprefix("quorate-"))}
    assert lease_name("a") != lease_name("b")
