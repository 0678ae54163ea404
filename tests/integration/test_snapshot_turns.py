"""Controllers of Quorate take turns at writing snapshots (KIP-631)."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations

import pytest
from kit.cluster import Cluster
from kit.quorums import NewQuorum
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_controller.node.snapshotter import OVERDUE_FACTOR
from quorate_protocol.kafka.enums import ConfigResourceType

pytestmark = pytest.mark.integration

INTERVAL_MS = 5_000
INTERVAL_SHARE_MIN = 0.8
"""Controllers spread the interval."""
GROUPS = 20_000
"""Each has a config: a snapshot of this number takes about a second."""
GROUPS_PER_REQUEST = 1_000
SNAPSHOTS_MIN = 2
"""The first one may be of an image that is still small."""
TIMEOUT_S = 120
_EVENT = re.compile(r"(\S+)Z \w+ +(\w+)")

Event = tuple[float, str]
"""Unix time, name."""


def events_of(cluster: Cluster, node_id: int) -> list[Event]:
    """What a controller logged."""
    found = (_EVENT.match(line) for line in cluster.log_of(node_id).splitlines())
    return [
        (datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp(), match[2])
        for match in found
        if match is not None
    ]


@dataclass(frozen=True, slots=True)
class Written:
    """One snapshot: from when until when it was written, and how long after the one before it."""

    begun: float
    ended: float
    pause_s: float

    @property
    def waited_for_nobody(self) -> bool:
        """At twice the interval a controller does not wait for its turn any more: the machine is slow."""
        return self.pause_s * 1000 >= OVERDUE_FACTOR * INTERVAL_MS * INTERVAL_SHARE_MIN

    def overlaps(self, other: "Written") -> bool:
        """Whether both were written at the same time."""
        return self.begun < other.ended and other.begun < self.ended


def snapshots_of(events: Iterable[Event]) -> list[Written]:
    """The snapshots of a controller, by what it logged."""
    written = []
    before = begun = 0.0
    for at, name in events:
        if name == "started":
            before = at
        elif name == "snapshot_started":
            begun = at
        elif name == "snapshot_written":
            written.append(Written(begun, at, begun - before))
            before = begun
    return written


def in_turn(events: Iterable[Event]) -> list[Written]:
    """The snapshots for which a controller waited until it was its turn. A slow machine also has others."""
    return [snapshot for snapshot in snapshots_of(events) if not snapshot.waited_for_nobody]


async def write_while(cluster: Cluster, goes_on: asyncio.Event) -> None:
    """Set the configs of many groups, then one of them again and again, so that there is always something new."""
    async with AdminClient(bootstrap_controllers=cluster.bootstrap_controllers.split(",")) as client:
        for first in range(0, GROUPS, GROUPS_PER_REQUEST):
            op = AlterConfigOp(name="consumer.session.timeout.ms", value="50000")
            groups = {
                ConfigResource(ConfigResourceType.GROUP, f"group-{number}"): [op]
                for number in range(first, first + GROUPS_PER_REQUEST)
            }
            results = await client.incremental_alter_configs(groups)
            assert not results.errors
        number = 0
        while goes_on.is_set():
            number += 1
            op = AlterConfigOp(name="consumer.session.timeout.ms", value=str(45_000 + number))
            await client.incremental_alter_configs(
                {ConfigResource(ConfigResourceType.GROUP, "group-0"): [op]}
            )


def snapshot_rounds(cluster: Cluster) -> dict[int, list[Event]]:
    """Make each controller write snapshots of a large image. Returns what they logged, by node id."""

    async def run() -> None:
        goes_on = asyncio.Event()
        goes_on.set()
        writing = asyncio.create_task(write_while(cluster, goes_on))
        try:
            await asyncio.to_thread(eventually, have_written, TIMEOUT_S, "snapshots of all controllers")
        finally:
            goes_on.clear()
            await writing

    def have_written() -> bool:
        logged = [events_of(cluster, node_id) for node_id in cluster.controllers]
        return all(len(snapshots_of(events)) >= SNAPSHOTS_MIN and in_turn(events) for events in logged)

    asyncio.run(run())
    return {node_id: events_of(cluster, node_id) for node_id in cluster.controllers}


def test_controllers_do_not_write_snapshots_at_the_same_time(new_quorum: NewQuorum) -> None:
    cluster = new_quorum(controllers=3, config={"metadata.log.max.snapshot.interval.ms": INTERVAL_MS})
    logged = snapshot_rounds(cluster)
    written = {node_id: snapshots_of(events) for node_id, events in logged.items()}
    assert any(turn.ended - turn.begun > 0.05 for each in written.values() for turn in each), (
        "they take no time"
    )
    turns = {node_id: in_turn(events) for node_id, events in logged.items()}
    overlaps = [
        (first, other, mine, theirs)
        for first, other in combinations(turns, 2)
        for mine in turns[first]
        for theirs in turns[other]
        if mine.overlaps(theirs)
    ]
    assert not overlaps


def test_the_active_controller_hands_over_before_its_own_snapshot(new_quorum: NewQuorum) -> None:
    """With the setting, the active controller writes its first snapshot after it has given the leadership
    away.
    """
    cluster = new_quorum(
        controllers=3,
        config={
            "metadata.log.max.snapshot.interval.ms": INTERVAL_MS,
            "quorate.snapshot.handover.enable": "true",
        },
    )
    leader = cluster.await_leader()
    names = [name for _at, name in snapshot_rounds(cluster)[leader]]
    assert "leadership_handed_over" in names
    first = names.index("leadership_handed_over")
    assert "snapshot_started" not in names[names.index("active") : first]
    assert names[first:].index("no_longer_active") < names[first:].index("snapshot_started")
    assert cluster.await_leader() in cluster.controllers
