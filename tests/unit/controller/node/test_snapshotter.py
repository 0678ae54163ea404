"""When a checkpoint is due, and how it is cut into slices."""

from typing import Any

import pytest
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.node.snapshotter import (
    PAUSE_FACTOR,
    RETRY_MS,
    SLICE_MS,
    WAIT_MS,
    Snapshotter,
    spread,
)
from quorate_controller.raft.model import SnapshotId
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.snapshot import RECORDS_PER_STEP, read_checkpoint
from quorate_protocol.kafka.extensions.controller_heartbeat_request import SnapshotState
from quorate_protocol.records.generated import ConfigRecord, FeatureLevelRecord, MetadataRecord

NOW_MS = 1_000_000
BYTES_MAX = 1_000
TOPIC = 2


class FakeWriter:
    """A file of which each part takes some time."""

    def __init__(self, disk: "FakeDisk", snapshot_id: SnapshotId) -> None:
        self.snapshot_id = snapshot_id
        self.parts: list[bytes] = []
        self.is_frozen = self.is_aborted = False
        self._disk = disk

    def append(self, data: bytes) -> None:
        self._disk.now_ms += self._disk.step_ms
        self.parts.append(data)

    def freeze(self) -> None:
        self.is_frozen = True
        self._disk.latest = self.snapshot_id

    def abort(self) -> None:
        self.is_aborted = True


class FakeDisk:
    """Storage, raft and clock of a node, as far as checkpoints need them."""

    def __init__(self, step_ms: int) -> None:
        self.now_ms = NOW_MS
        self.step_ms = step_ms
        self.latest: SnapshotId | None = None
        self.writers: list[FakeWriter] = []
        self.snapshots = self

    def create_snapshot(self, snapshot_id: SnapshotId) -> FakeWriter:
        self.writers.append(FakeWriter(self, snapshot_id))
        return self.writers[-1]

    def kraft_version_at(self, _offset: int) -> int:
        return 0

    def voters_at(self, _offset: int) -> None:
        return None


def new_snapshotter(disk: Any, *, node_id: int = 3000, interval_ms: int = 0) -> Snapshotter:
    """A snapshotter on the fake parts."""
    return Snapshotter(
        storage=disk,
        raft=disk,
        node_id=node_id,
        bytes_max=BYTES_MAX,
        interval_ms=interval_ms,
        clock=lambda: disk.now_ms,
    )


def image_of(configs: int) -> MetadataImage:
    """A committed image with so many configs."""
    records: list[MetadataRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    records += [
        ConfigRecord(resource_type=TOPIC, resource_name=f"{number:05}", name="retention.ms", value="1")
        for number in range(configs)
    ]
    image = MetadataImage()
    image.replay_batch(records, base_offset=0, epoch=1, timestamp_ms=NOW_MS)
    image.commit(image.end_offset)
    return image


def begun(snapshotter: Snapshotter, image: MetadataImage) -> None:
    """Begin a checkpoint of the image."""
    snapshotter.applied(BYTES_MAX)
    assert snapshotter.is_due(image, NOW_MS)
    note = snapshotter.begin(image, NOW_MS)
    assert note is not None
    assert note.facts == {"offset": image.end_offset, "epoch": 1}


@pytest.mark.parametrize("step_ms", [1, 2, 4])
def test_a_longer_pause_follows_each_short_slice(step_ms: int) -> None:
    """Goal: other work never waits long, and nearly always not at all, however long a checkpoint takes.

    Method: steps that take time on a fake clock; the end of each slice, what happens in its pause, the bytes.
    """
    disk, image = FakeDisk(step_ms), image_of(5_000)
    snapshotter = new_snapshotter(disk)
    begun(snapshotter, image)
    slices = 0
    while snapshotter.is_writing:
        begun_ms = disk.now_ms
        assert snapshotter.deadline_ms() == begun_ms
        done = snapshotter.write_slice(disk.now_ms)
        slices += 1
        work_ms = disk.now_ms - begun_ms
        assert work_ms < SLICE_MS + step_ms
        if done is not None:
            break
        due_ms = snapshotter.deadline_ms()
        assert due_ms == disk.now_ms + PAUSE_FACTOR * work_ms
        assert snapshotter.write_slice(due_ms - 1) is None
        assert disk.now_ms == begun_ms + work_ms, "nothing is written in a pause"
        disk.now_ms = due_ms
    (writer,) = disk.writers
    assert slices > 5_000 // RECORDS_PER_STEP * step_ms // (SLICE_MS + step_ms)
    assert (writer.is_frozen, snapshotter.is_writing) == (True, False)
    assert snapshotter.latest_id == SnapshotId(offset=5_001, epoch=1)
    restored = MetadataImage()
    restored.restore(read_checkpoint(writer.parts).records, image.stable)
    assert restored.same_as(image)


def test_a_slice_is_bounded_when_the_clock_stands_still() -> None:
    """Goal: a clock of low resolution bounds slices too. Method: steps that take no time; count them."""
    disk = FakeDisk(step_ms=0)
    snapshotter = new_snapshotter(disk)
    begun(snapshotter, image_of(STEPS_PER_SLICE_MAX * RECORDS_PER_STEP + 1))
    assert snapshotter.write_slice(NOW_MS) is None
    assert len(disk.writers[0].parts) == STEPS_PER_SLICE_MAX
    assert snapshotter.deadline_ms() == NOW_MS + PAUSE_FACTOR
    assert snapshotter.write_slice(NOW_MS + PAUSE_FACTOR) is not None


def test_controllers_begin_at_different_sizes() -> None:
    """Goal: the controllers of a quorum do not write at the same time, and none later than configured.

    Method: three that count the same bytes; the size at which each begins.
    """
    image, sizes = image_of(1), []
    for node_id in (3000, 3001, 3002):
        snapshotter = new_snapshotter(FakeDisk(0), node_id=node_id)
        size_bytes = 0
        while not snapshotter.is_due(image, NOW_MS):
            snapshotter.applied(1)
            size_bytes += 1
        sizes.append(size_bytes)
    assert sizes == [BYTES_MAX, BYTES_MAX * 95 // 100, BYTES_MAX * 90 // 100]


def test_a_spread_limit_keeps_its_meaning() -> None:
    """Goal: 0 stays "never", 1 stays "each byte". Method: small limits, and the least share of a large one."""
    assert {spread(0, node_id) for node_id in range(9)} == {0}
    assert {spread(1, node_id) for node_id in range(9)} == {1}
    assert min(spread(BYTES_MAX, node_id) for node_id in range(9)) == BYTES_MAX * 80 // 100


def test_a_checkpoint_is_due_by_time_when_something_was_written() -> None:
    """Goal: an idle quorum writes no checkpoints. Method: the deadline with and without bytes."""
    disk = FakeDisk(0)
    snapshotter = new_snapshotter(disk, interval_ms=60_000)
    assert snapshotter.deadline_ms() is None
    snapshotter.applied(1)
    assert snapshotter.deadline_ms() == NOW_MS + 60_000
    assert not snapshotter.is_due(image_of(1), NOW_MS + 59_999)
    assert snapshotter.is_due(image_of(1), NOW_MS + 60_000)


def test_what_a_checkpoint_has_already_is_not_written_again() -> None:
    """Goal: no second checkpoint of one id, and no hot loop. Method: ask at the offset of the latest one."""
    disk, image = FakeDisk(0), image_of(1)
    disk.latest = SnapshotId(offset=image.end_offset, epoch=1)
    snapshotter = new_snapshotter(disk, interval_ms=1)
    snapshotter.applied(BYTES_MAX)
    assert not snapshotter.is_due(image, NOW_MS + 1)
    assert snapshotter.deadline_ms() == NOW_MS + 1 + RETRY_MS


def test_a_fetched_checkpoint_replaces_one_that_is_being_written() -> None:
    """Goal: no partial file stays. Method: a checkpoint of several slices, interrupted after the first."""
    disk = FakeDisk(SLICE_MS)
    snapshotter = new_snapshotter(disk)
    begun(snapshotter, image_of(1_000))
    assert snapshotter.write_slice(NOW_MS) is None
    snapshotter.restart(disk.now_ms)
    assert disk.writers[0].is_aborted
    assert (snapshotter.is_writing, snapshotter.deadline_ms()) == (False, None)
    assert snapshotter.latest_timestamp_ms == disk.now_ms


def test_a_checkpoint_that_waits_is_looked_at_again_and_not_all_the_time() -> None:
    """Goal: a controller whose turn has not come does nothing but wait, and at twice its limits waits for nobody.

    Method: one that is due and may not begin: its deadlines, its state, and when it is overdue by bytes and by time.
    """
    image = image_of(1)
    snapshotter = new_snapshotter(FakeDisk(0), node_id=0, interval_ms=60_000)
    snapshotter.applied(BYTES_MAX)
    assert snapshotter.state is SnapshotState.IDLE
    assert snapshotter.is_due(image, NOW_MS)
    assert (snapshotter.state, snapshotter.due_since_ms) == (SnapshotState.DUE, NOW_MS)
    snapshotter.wait(NOW_MS + 10)
    assert snapshotter.deadline_ms() == NOW_MS + 10 + WAIT_MS
    assert not snapshotter.is_overdue(NOW_MS + 2 * 60_000 - 1)
    assert snapshotter.is_overdue(NOW_MS + 2 * 60_000)
    snapshotter.applied(BYTES_MAX - 1)
    assert not snapshotter.is_overdue(NOW_MS)
    snapshotter.applied(1)
    assert snapshotter.is_overdue(NOW_MS)
    assert snapshotter.begin(image, NOW_MS) is not None
    assert snapshotter.state is SnapshotState.WRITING
    assert not snapshotter.is_due(image, NOW_MS)
