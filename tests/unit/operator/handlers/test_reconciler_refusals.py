"""Invalid resources of a cluster: what the first pass of an operator reports of them."""

from types import SimpleNamespace
from typing import Any, cast

from kit.reconciles import filled, resource, shared_parts
from quorate_operator.handlers.events import EventRecorder
from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, EVENT, Kind
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry

KEY = ClusterKey("kafka", "quorum")
Object = dict[str, Any]


async def test_the_status_page_shows_the_event_of_a_pool_that_was_invalid_from_the_start() -> None:
    """The Event is not recorded again for minutes, so it must not be lost before the cluster is observed."""
    store, snapshots = ResourceStore(), SnapshotRegistry()
    store.put(resource(CONTROLLERS, "quorum", replicas=1))
    pool = resource(BROKERS, "brokers", controllers="quorum", replicas=1, storage={"onDeletion": "Never"})
    store.put(pool)
    written: list[Object] = []

    async def create(kind: Kind, _namespace: str, body: Object) -> None:
        assert kind is EVENT
        written.append(body)

    async def merge(_kind: Kind, _namespace: str, _name: str, patch: Object, **_: Any) -> Object:
        return {**pool, "status": patch["status"]}

    api = SimpleNamespace(create=create, merge=merge, is_terminating=lambda _namespace: False)
    events = EventRecorder(cast("Any", api), snapshots, "operator")
    shared = shared_parts(api=api, store=store, snapshots=snapshots, events=events)
    reconciler = ClusterReconciler(KEY, shared, cast("Any", None), cast("Any", None), fill=filled)
    assert await reconciler.desired_state() is not None
    (event,) = written
    assert (event["reason"], event["regarding"]["name"]) == ("InvalidManifest", "brokers")
    (snapshot,) = snapshots.clusters()
    assert [shown.text for shown in snapshot.events] == [f"InvalidManifest: {event['note']}"]
    assert snapshot.problem is None
    assert snapshot.desired is None
