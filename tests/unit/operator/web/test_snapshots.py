"""The registry that the status page waits on."""

import asyncio

from quorate_operator.web.snapshots import (
    EVENTS_MAX,
    ClusterEvent,
    ClusterKey,
    ClusterSnapshot,
    SnapshotRegistry,
)

KEY = ClusterKey("kafka", "quorum")


async def test_who_waits_is_told_of_a_change_and_not_of_the_same_again() -> None:
    registry = SnapshotRegistry()
    registry.put(ClusterSnapshot(key=KEY, at_ms=1))
    seen = registry.version
    waiting = asyncio.create_task(registry.changed(seen))
    registry.put(ClusterSnapshot(key=KEY, at_ms=2))
    await asyncio.sleep(0)
    assert registry.version == seen
    assert not waiting.done()
    registry.put(ClusterSnapshot(key=KEY, at_ms=3, problem="no leader"))
    assert await waiting == seen + 1
    found = registry.find(KEY)
    assert found is not None
    assert found.problem == "no leader"


async def test_events_are_kept_and_bounded() -> None:
    registry = SnapshotRegistry()
    registry.put(ClusterSnapshot(key=KEY, at_ms=1))
    registry.add_event(KEY, ClusterEvent(at_ms=0, text="the first"))
    registry.put(ClusterSnapshot(key=KEY, at_ms=2))
    (snapshot,) = registry.clusters()
    assert [event.text for event in snapshot.events] == ["the first"]
    for number in range(EVENTS_MAX):
        registry.add_event(KEY, ClusterEvent(at_ms=number, text=f"{number}"))
    (snapshot,) = registry.clusters()
    assert [event.text for event in snapshot.events] == [str(number) for number in range(EVENTS_MAX)]
    registry.forget(KEY)
    assert registry.clusters() == ()


async def test_no_events_are_kept_of_clusters_without_a_snapshot() -> None:
    """A resource may name clusters that do not exist."""
    registry = SnapshotRegistry()
    registry.add_event(KEY, ClusterEvent(at_ms=0, text="before the first snapshot"))
    assert registry.version == 0
    registry.put(ClusterSnapshot(key=KEY, at_ms=1))
    registry.forget(KEY)
    registry.add_event(KEY, ClusterEvent(at_ms=2, text="after the last snapshot"))
    registry.put(ClusterSnapshot(key=KEY, at_ms=3))
    (snapshot,) = registry.clusters()
    assert snapshot.events == ()
