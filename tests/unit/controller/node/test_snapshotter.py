"""When a checkpoint is due, and how it is cut into slices."""

from pathlib import Path
from random import Random

import pytest
from kit.simulator.disk import Inode, SimulatedDisk, SimulatedFile
from kit.storage_parts import DIRECTORY_ID, add_snapshot, prepare
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.node.snapshotter import (
    PAUSE_FACTOR,
    RETRY_MS,
    SLICE_MS,
    WAIT_MS,
    Snapshotter,
    spread,
)
from quorate_controller.raft.model import Endpoint, ReplicaKey, SnapshotId, VersionRange, Voter
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.startup import (
    EpochStart,
    HardState,
    KRaftVersionAt,
    LogState,
    RaftConfig,
    VotersAt,
)
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.controller_storage import ControllerStorage, StorageConfig
from quorate_controller.storage.snapshots import snapshot_file_name
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.snapshot import RECORDS_PER_STEP, read_checkpoint
from quorate_protocol.kafka.extensions.controller_heartbeat_request import SnapshotState
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.records.generated import ConfigRecord, FeatureLevelRecord, MetadataRecord

NOW_MS = 1_000_000
BYTES_MAX = 1_000
TOPIC = 2
END_OFFSET = 10_000
VOTERS = [
    VoterSet.of(
        Voter(
            key=ReplicaKey(node_id=node_id, directory_id=DIRECTORY_ID),
            endpoints=(Endpoint(listener="CONTROLLER", host="h", port=9093),),
            kraft_versions=VersionRange(lowest=0, highest=1),
        )
        for node_id in range(1, count + 1)
    )
    for count in range(1, 5)
]
"""Sets of one to four voters."""


class SlowFile(SimulatedFile):
    """A file of which each append takes some time."""

    def __init__(self, disk: "SlowDisk", path: Path, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._slow_disk = disk

    def append(self, data: bytes) -> None:
        super().append(data)
        self._slow_disk.now_ms += self._slow_disk.step_ms
        self._slow_disk.appends += 1


class SlowDisk(SimulatedDisk):
    """A disk with a clock, which stands still but for appends."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.step_ms = 0
        self.appends = 0

    def create_file(self, path: Path) -> SlowFile:
        super().create_file(path)
        return SlowFile(self, path, self._inode(path))


class Parts:
    """Storage on a disk whose appends take `step_ms`, and raft, which knows the voters at each offset."""

    def __init__(self, step_ms: int = 0, log: LogState | None = None) -> None:
        self.disk = SlowDisk()
        directory = Path("/data")
        prepare(self.disk, directory)
        self.storage = ControllerStorage.open(self.disk, StorageConfig(node_id=1, metadata_log_dir=directory))
        self.disk.step_ms, self.disk.appends = step_ms, 0
        key = ReplicaKey(node_id=1, directory_id=DIRECTORY_ID)
        config = RaftConfig(cluster_id="c", key=key, listener="CONTROLLER", static_voters=VOTERS[0])
        log = log or LogState(end_offset=END_OFFSET, epochs=(EpochStart(epoch=1, start_offset=0),))
        self.raft = RaftNode(config=config, hard_state=HardState(), log=log, rng=Random(1))

    def snapshotter(self, *, node_id: int = 3000, interval_ms: int = 0) -> Snapshotter:
        """A snapshotter on these parts."""
        return Snapshotter(
            storage=self.storage,
            raft=self.raft,
            node_id=node_id,
            bytes_max=BYTES_MAX,
            interval_ms=interval_ms,
            clock=lambda: self.disk.now_ms,
        )

    def files(self) -> list[str]:
        """The names of all checkpoints, finished and not."""
        names = self.disk.list_directory(Path("/data") / METADATA_DIRECTORY)
        return [name for name in names if ".checkpoint" in name]


def image_of(configs: int) -> MetadataImage:
    """A committed image with `count` configs."""
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
    """Other work never waits long, and nearly always not at all, however long a checkpoint takes."""
    parts, image = Parts(step_ms), image_of(5_000)
    disk, snapshotter = parts.disk, parts.snapshotter()
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
    assert slices > 5_000 // RECORDS_PER_STEP * step_ms // (SLICE_MS + step_ms)
    assert not snapshotter.is_writing
    latest = SnapshotId(offset=5_001, epoch=1)
    assert (snapshotter.latest_id, parts.files()) == (latest, [snapshot_file_name(latest)])
    restored = MetadataImage()
    restored.restore(read_checkpoint(parts.storage.snapshots.chunks(latest)).records, image.stable)
    assert restored.same_as(image)


def test_a_slice_is_bounded_when_the_clock_stands_still() -> None:
    parts = Parts()
    snapshotter = parts.snapshotter()
    begun(snapshotter, image_of(STEPS_PER_SLICE_MAX * RECORDS_PER_STEP + 1))
    assert snapshotter.write_slice(NOW_MS) is None
    assert parts.disk.appends == STEPS_PER_SLICE_MAX
    assert snapshotter.deadline_ms() == NOW_MS + PAUSE_FACTOR
    assert snapshotter.write_slice(NOW_MS + PAUSE_FACTOR) is not None


def test_controllers_begin_at_different_sizes() -> None:
    """The controllers of a quorum do not write at the same time, and none later than configured."""
    image, sizes = image_of(1), []
    for node_id in (3000, 3001, 3002):
        snapshotter = Parts().snapshotter(node_id=node_id)
        size_bytes = 0
        while not snapshotter.is_due(image, NOW_MS):
            snapshotter.applied(1)
            size_bytes += 1
        sizes.append(size_bytes)
    assert sizes == [BYTES_MAX, BYTES_MAX * 95 // 100, BYTES_MAX * 90 // 100]


def test_a_spread_limit_keeps_its_meaning() -> None:
    assert {spread(0, node_id) for node_id in range(9)} == {0}
    assert {spread(1, node_id) for node_id in range(9)} == {1}
    assert min(spread(BYTES_MAX, node_id) for node_id in range(9)) == BYTES_MAX * 80 // 100


def test_a_checkpoint_is_due_by_time_when_something_was_written() -> None:
    snapshotter = Parts().snapshotter(interval_ms=60_000)
    assert snapshotter.deadline_ms() is None
    snapshotter.applied(1)
    assert snapshotter.deadline_ms() == NOW_MS + 60_000
    assert not snapshotter.is_due(image_of(1), NOW_MS + 59_999)
    assert snapshotter.is_due(image_of(1), NOW_MS + 60_000)


def test_what_a_checkpoint_has_already_is_not_written_again() -> None:
    parts, image = Parts(), image_of(1)
    add_snapshot(parts.storage, image.end_offset)
    snapshotter = parts.snapshotter(interval_ms=1)
    snapshotter.applied(BYTES_MAX)
    assert not snapshotter.is_due(image, NOW_MS + 1)
    assert snapshotter.deadline_ms() == NOW_MS + 1 + RETRY_MS


def test_a_fetched_checkpoint_replaces_one_that_is_being_written() -> None:
    parts = Parts(SLICE_MS)
    snapshotter = parts.snapshotter()
    begun(snapshotter, image_of(1_000))
    assert snapshotter.write_slice(NOW_MS) is None
    assert len(parts.files()) == 1
    snapshotter.restart(parts.disk.now_ms)
    assert parts.files() == []
    assert (snapshotter.is_writing, snapshotter.deadline_ms()) == (False, None)
    assert snapshotter.latest_timestamp_ms == parts.disk.now_ms


def test_a_checkpoint_that_waits_is_looked_at_again_and_not_all_the_time() -> None:
    """A controller waits for its turn, and at twice its limits writes without one."""
    image = image_of(1)
    snapshotter = Parts().snapshotter(node_id=0, interval_ms=60_000)
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


def test_a_checkpoint_names_the_voters_of_its_last_record() -> None:
    image = image_of(5)
    for middle, expected in ((image.end_offset - 1, VOTERS[2]), (image.end_offset, VOTERS[1])):
        log = LogState(
            end_offset=END_OFFSET,
            epochs=(EpochStart(epoch=1, start_offset=0),),
            voters=tuple(VotersAt(offset=middle + by, voters=VOTERS[by + 2]) for by in (-1, 0, 1)),
            kraft_versions=(KRaftVersionAt(offset=0, kraft_version=1),),
        )
        parts = Parts(log=log)
        snapshotter = parts.snapshotter()
        begun(snapshotter, image)
        written = snapshotter.write_slice(NOW_MS)
        assert written is not None
        quorum = parts.storage.snapshot_quorum(written)
        assert (quorum.kraft_version, quorum.voters) == (1, expected)
