"""A turn does a bounded part of long work, so that votes, fetches and heartbeats are answered in between."""

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.config import ControllerConfig
from quorate_controller.control.api import ControlResult
from quorate_controller.node import ControllerNode
from quorate_controller.node.assembly import open_node
from quorate_controller.node.metadata import REPLAY_SLICE_MS
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.node.turn import TIMER_DECISIONS_PER_TURN_MAX, TIMER_RECORDS_PER_TURN_MAX
from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.features import METADATA_VERSION
from quorate_protocol.image.image import RECORDS_PER_STEP
from quorate_protocol.image.snapshot import image_to_records, write_records
from quorate_protocol.records.generated import ConfigRecord, FeatureLevelRecord, TopicRecord

TOPICS = 2 * STEPS_PER_SLICE_MAX * RECORDS_PER_STEP


class TickingClock:
    """Each look at it takes some time, as the step of a slice does before it."""

    def __init__(self, tick_ms: int) -> None:
        self.now_ms = 2_000_000
        self.tick_ms = tick_ms

    def __call__(self) -> int:
        self.now_ms += self.tick_ms
        return self.now_ms


@pytest.fixture
def written(bench: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """The records of a log whose last batch has a record for each of many topics."""
    topics = tuple(TopicRecord(name=f"t{number}", topic_id=UUID(int=number + 2)) for number in range(TOPICS))
    bench.decide_next(monkeypatch, ControlResult(records=topics))
    bench.ask()
    records = tuple(image_to_records(bench.node.metadata.image))
    bench.node.close()
    return records


def replayed_by_turn(node: ControllerNode, now_ms: int) -> Iterator[int]:
    """Take turns until the node is active; yield how many records each but the last has replayed."""
    image = node.metadata.image
    before = image.end_offset
    node.start(now_ms)
    while not node.is_active:
        yield image.end_offset - before
        before = image.end_offset
        now_ms = max(now_ms, node.deadline_ms)
        node.turn([], now_ms)


@pytest.mark.parametrize(
    ("tick_ms", "steps"),
    [(REPLAY_SLICE_MS, 1), (REPLAY_SLICE_MS // 2, 2), (0, STEPS_PER_SLICE_MAX)],
    ids=["slow", "faster", "no time passes"],
)
def test_one_turn_replays_one_slice_of_the_log(
    node_config: ControllerConfig, written: tuple[Any, ...], tick_ms: int, steps: int
) -> None:
    """A standby that is far behind answers within milliseconds, however large a batch is."""
    node = open_node(node_config, file_system=OsFileSystem(), rng=Random(1), clock=TickingClock(tick_ms))
    try:
        assert max(replayed_by_turn(node, 2_000_000)) == steps * RECORDS_PER_STEP
        assert tuple(image_to_records(node.metadata.image)) == written
    finally:
        node.close()


@pytest.mark.usefixtures("written")
def test_a_snapshot_ends_the_replay_of_a_batch(node_config: ControllerConfig) -> None:
    clock = TickingClock(REPLAY_SLICE_MS)
    node = open_node(node_config, file_system=OsFileSystem(), rng=Random(1), clock=clock)
    try:
        metadata, end_offset = node.metadata, node.storage.log.end_offset
        while metadata.image.end_offset < 2 * RECORDS_PER_STEP:
            metadata.catch_up(node.storage, end_offset, clock.now_ms)
        assert metadata.applied_offset < metadata.image.end_offset, "within the batch"
        snapshot = write_records(
            [FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)],
            metadata_version=30,
            now_ms=1,
            epoch=3,
        )
        metadata.load(snapshot, SnapshotId(offset=end_offset, epoch=3))
        assert metadata.catch_up(node.storage, end_offset, clock.now_ms) == 0
        assert metadata.applied_offset == metadata.image.end_offset == end_offset
        assert not metadata.image.topics.by_name
    finally:
        node.close()


@pytest.mark.parametrize(
    ("records_each", "decisions"),
    [(0, TIMER_DECISIONS_PER_TURN_MAX), (TIMER_RECORDS_PER_TURN_MAX // 5, 5)],
    ids=["nothing to write", "many records"],
)
def test_one_turn_makes_a_bounded_number_of_due_decisions(
    bench: Any, monkeypatch: pytest.MonkeyPatch, records_each: int, decisions: int
) -> None:
    """A hundred brokers whose sessions expire together do not make one turn of seconds."""
    control = bench.node.metadata.control
    ticks = []

    def tick(now_ms: int) -> ControlResult:
        ticks.append(now_ms)
        records = (
            ConfigRecord(resource_type=2, resource_name="t", name=f"c{number}", value=f"{len(ticks)}")
            for number in range(records_each)
        )
        return ControlResult(records=tuple(records), atomic=False)

    monkeypatch.setattr(control, "tick", tick)
    monkeypatch.setattr(type(control), "deadline_ms", property(lambda _self: bench.now_ms))
    bench.node.turn([], bench.now_ms)
    assert len(ticks) == decisions
    assert bench.node.deadline_ms <= bench.now_ms
    bench.node.turn([], bench.now_ms)
    assert len(ticks) == 2 * decisions
