"""A fetched snapshot is loaded in slices, and the node answers its peers between them."""

import gc
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest
from quorate_controller.config import ControllerConfig
from quorate_controller.node import ControllerNode
from quorate_controller.node.assembly import open_node
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.node.snapshotter import LOAD_SLICE_MS
from quorate_controller.raft.events import RequestReceived, Shutdown, Tick
from quorate_controller.raft.messages import VoteRequest, VoteResponse
from quorate_controller.raft.model import ReplicaKey, SnapshotId
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.features import METADATA_VERSION
from quorate_protocol.image.image import RECORDS_PER_STEP
from quorate_protocol.image.snapshot import write_records
from quorate_protocol.image.topics import TopicImage
from quorate_protocol.records.generated import FeatureLevelRecord, TopicRecord

FETCHED = SnapshotId(offset=9_000, epoch=3)
TOPICS = 3 * STEPS_PER_SLICE_MAX * RECORDS_PER_STEP
CHECKPOINT = b"".join(
    write_records(
        [
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=25),
            *(TopicRecord(name=f"t{index}", topic_id=UUID(int=index + 2)) for index in range(TOPICS)),
        ],
        metadata_version=25,
        now_ms=1,
        epoch=FETCHED.epoch,
    )
)


class TickingClock:
    """Each look at it takes some time, as the step of a slice does before it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.tick_ms = 0

    def __call__(self) -> int:
        self.now_ms += self.tick_ms
        return self.now_ms


@pytest.fixture
def clock() -> TickingClock:
    """The clock of the node."""
    return TickingClock()


@pytest.fixture
def node(voter_config: ControllerConfig, clock: TickingClock) -> Iterator[ControllerNode]:
    """One voter of three whose raft waits for the load of a snapshot that was fetched."""
    node = open_node(voter_config, file_system=OsFileSystem(), rng=Random(1), clock=clock)
    try:
        node.start(clock.now_ms)
        node.storage.write_snapshot_chunk(FETCHED, 0, CHECKPOINT)
        node.raft._replica.begin_restore(FETCHED)
        node._perform(node.raft.step(Tick(), clock.now_ms))
        yield node
    finally:
        node.close()


def vote_request(node: ControllerNode, epoch: int) -> RequestReceived:
    """Another voter stands for election in that epoch."""
    request = VoteRequest(
        cluster_id=node.storage.cluster_id,
        voter=None,
        replica=ReplicaKey(node_id=3001),
        replica_epoch=epoch,
        last_offset=FETCHED.offset,
        last_offset_epoch=FETCHED.epoch,
    )
    return RequestReceived(token=epoch, request=request, listener="CONTROLLER")


def test_peers_are_answered_between_short_slices(node: ControllerNode, clock: TickingClock) -> None:
    """A quorum can elect a leader while one of its voters loads a large snapshot; no half of it shows."""
    clock.tick_ms, epoch, notes = 1, FETCHED.epoch, []
    while node.loader.is_loading:
        assert not node.metadata.image.topics.by_name
        assert (node.storage.log.end_offset, node.storage.snapshots.ids) == (0, ())
        assert node.deadline_ms <= clock.now_ms
        epoch += 1
        begun_ms = clock.now_ms
        effects = node.turn([vote_request(node, epoch)], begun_ms)
        assert clock.now_ms - begun_ms <= LOAD_SLICE_MS + 2 * clock.tick_ms
        (response,) = effects.raft_responses
        assert isinstance(response.response.response, VoteResponse)
        assert response.response.response.vote_granted
        notes += [note.event for note in effects.notes]
    assert epoch - FETCHED.epoch > TOPICS // RECORDS_PER_STEP // LOAD_SLICE_MS
    assert notes.count("snapshot_loaded") == 1
    assert len(node.metadata.image.topics.by_name) == TOPICS
    assert node.metadata.applied_offset == FETCHED.offset
    assert (node.storage.log.start_offset, node.storage.snapshots.latest) == (FETCHED.offset, FETCHED)


def test_a_slice_is_bounded_when_the_clock_stands_still(node: ControllerNode, clock: TickingClock) -> None:
    slices = 0
    while node.loader.is_loading:
        node.turn([], clock.now_ms)
        slices += 1
    assert slices == TOPICS // RECORDS_PER_STEP // STEPS_PER_SLICE_MAX + 1
    assert len(node.metadata.image.topics.by_name) == TOPICS


def test_a_node_stops_while_it_loads(
    node: ControllerNode, voter_config: ControllerConfig, clock: TickingClock
) -> None:
    node.turn([Shutdown(timeout_ms=1_000)], clock.now_ms)
    node.turn([], clock.now_ms + 1_000)
    assert node.raft.is_shut_down
    node.close()
    again = open_node(voter_config, file_system=OsFileSystem(), rng=Random(1), clock=clock)
    try:
        assert (again.storage.log.end_offset, again.storage.snapshots.ids) == (0, ())
        assert not again.loader.is_loading
    finally:
        again.close()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Without the garbage collector, and with nothing frozen."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_loaded_image_can_be_frozen(node: ControllerNode, clock: TickingClock) -> None:
    """No full collection visits the image, and yet a replaced image is freed."""
    gc.unfreeze()
    gc.freeze()
    frozen_before = gc.get_freeze_count()
    while node.loader.is_loading:
        assert node.turn([], clock.now_ms).has_loaded
        gc.freeze()
    assert not node.turn([], clock.now_ms).has_loaded
    assert gc.get_freeze_count() - frozen_before > TOPICS // 2
    assert not any(isinstance(get_object, TopicImage) for get_object in gc.get_objects())
    image = node.metadata.image
    copied = image.committed_copy()
    gc.freeze()
    frozen = gc.get_freeze_count()
    image.restore([], image.provenance)
    del copied
    assert frozen - gc.get_freeze_count() > TOPICS // 2, "no reference cycle keeps the topics"
