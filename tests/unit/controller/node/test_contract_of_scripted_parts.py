"""What a node relies on of raft and of storage: the same of the real ones and of those that tests of turns script.

A scripted raft that takes what the real one refuses hides a node that proposes when it does not lead, at a wrong
offset, or in the wrong order.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kit.led_node import FOLLOWER, NODE_ID
from kit.simulator.disk import SimulatedDisk
from kit.storage_parts import prepare
from kit.turn_parts import EPOCH, NOW_MS, ScriptedControl, ScriptedDisk, ScriptedRaft, ScriptedSnapshots
from quorate_controller.control.controller import QuorumController
from quorate_controller.node.snapshot_turns import BEHIND_MS_MAX, SnapshotTurns
from quorate_controller.node.snapshotter import SnapshotLoader, Snapshotter
from quorate_controller.raft.events import Persisted, Propose, Resign, Role, SnapshotTaken, Tick
from quorate_controller.raft.model import (
    BOOTSTRAP_SNAPSHOT_ID,
    Endpoint,
    RaftSafetyError,
    ReplicaKey,
    SnapshotId,
    VersionRange,
    Voter,
)
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.startup import HardState, KRaftVersionAt, LogState, RaftConfig, VotersAt
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.controller_storage import ControllerStorage, StorageConfig
from quorate_controller.storage.errors import FileMissingError
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.records.batch import build_batch

BOTH = ("real", "scripted")


def real_raft() -> RaftNode:
    """The only voter of a quorum, which leads epoch 3 with an empty log but for its LeaderChange."""
    key = ReplicaKey(node_id=1, directory_id=UUID(int=1))
    endpoints = (Endpoint(listener="CONTROLLER", host="h", port=9093),)
    voter = Voter(key=key, endpoints=endpoints, kraft_versions=VersionRange(lowest=0, highest=1))
    raft = RaftNode(
        config=RaftConfig(cluster_id="c", key=key, listener="CONTROLLER", endpoints=endpoints),
        hard_state=HardState(leader_epoch=EPOCH - 1),
        log=LogState(
            snapshot_id=BOOTSTRAP_SNAPSHOT_ID,
            voters=(VotersAt(offset=-1, voters=VoterSet(voters=(voter,))),),
            kraft_versions=(KRaftVersionAt(offset=-1, kraft_version=1),),
        ),
        rng=Random(1),
    )
    raft.start(NOW_MS)
    raft.step(Persisted(end_offset=raft.log_end_offset), NOW_MS)
    assert (raft.role, raft.epoch) == (Role.LEADER, EPOCH)
    return raft


@pytest.fixture(params=BOTH)
def raft(request: pytest.FixtureRequest) -> Any:
    """A leader."""
    if request.param == "real":
        return real_raft()
    journal: list[Any] = []
    disk = ScriptedDisk(journal)
    disk.log.end_offset = 5
    scripted = ScriptedRaft(journal, disk)
    scripted.lead()
    return scripted


def batch(raft: Any, offset_by: int = 0, epoch_by: int = 0) -> Propose:
    """One record at the end of the log in the leader's epoch, or beside them."""
    return Propose(
        batches=build_batch([b"x"], raft.log_end_offset + offset_by, raft.epoch + epoch_by, NOW_MS)
    )


def test_a_leader_appends_what_is_proposed(raft: Any) -> None:
    end_offset = raft.log_end_offset
    batches = batch(raft).batches + batch(raft, offset_by=1).batches
    ready = raft.step(Propose(batches=batches), NOW_MS)
    assert (ready.append, ready.role) == (batches, None)
    assert raft.epoch_start_offset < end_offset


@pytest.mark.parametrize(("offset_by", "epoch_by"), [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_batch_beside_the_log_is_refused(raft: Any, offset_by: int, epoch_by: int) -> None:
    with pytest.raises(RaftSafetyError):
        raft.step(batch(raft, offset_by, epoch_by), NOW_MS)


@pytest.mark.parametrize("kind", BOTH)
def test_only_a_leader_appends(kind: str) -> None:
    if kind == "real":
        raft: Any = real_raft()
        raft.step(Resign(epoch=EPOCH), NOW_MS)
    else:
        journal: list[Any] = []
        raft = ScriptedRaft(journal, ScriptedDisk(journal))
        raft.lead()
        raft.step_down(Role.RESIGNED)
    assert raft.role is not Role.LEADER
    assert raft.epoch_start_offset is None
    with pytest.raises(RaftSafetyError):
        raft.step(batch(raft), NOW_MS)


def test_the_disk_has_no_more_than_was_appended(raft: Any) -> None:
    """The same for a flush that counts too much, a checkpoint of what is not committed, time that goes back."""
    for event in (
        Persisted(end_offset=raft.log_end_offset + 1),
        SnapshotTaken(snapshot_id=SnapshotId(offset=raft.high_watermark + 1, epoch=EPOCH)),
    ):
        with pytest.raises(RaftSafetyError):
            raft.step(event, NOW_MS)
    raft.step(Tick(), NOW_MS)
    with pytest.raises(RaftSafetyError):
        raft.step(Tick(), NOW_MS - 1)


@pytest.fixture(params=BOTH)
def storage(request: pytest.FixtureRequest) -> Any:
    """An empty log."""
    if request.param == "scripted":
        return ScriptedDisk([])
    disk = SimulatedDisk()
    prepare(disk, Path("/data"))
    return ControllerStorage.open(disk, StorageConfig(node_id=1, metadata_log_dir=Path("/data")))


def test_the_log_is_without_gaps(storage: Any) -> None:
    storage.append(build_batch([b"a", b"b"], 0, 1, NOW_MS))
    assert (storage.log.start_offset, storage.log.end_offset) == (0, 2)
    with pytest.raises(AssertionError):
        storage.append(build_batch([b"c"], 3, 1, NOW_MS))
    storage.append(build_batch([b"c"], 2, 1, NOW_MS))
    storage.flush()
    storage.truncate_to(2)
    storage.truncate_to(9)
    assert storage.log.end_offset == 2
    storage.append(build_batch([b"d"], 2, 2, NOW_MS))
    with pytest.raises(AssertionError):
        storage.truncate_to(-1)


def test_a_snapshot_that_is_not_there(storage: Any) -> None:
    missing = SnapshotId(offset=5, epoch=1)
    assert not storage.snapshots.serves(missing)
    with pytest.raises(FileMissingError):
        storage.snapshots.size(missing)
    with pytest.raises(FileMissingError):
        storage.snapshots.read(missing, 0, 10)


def test_turns_to_write_know_which_voters_are_caught_up(open_led: Any) -> None:
    """What the tests of turns assume of raft's description of the quorum."""
    led = open_led({})
    led.lead()
    led.register_controller(FOLLOWER)
    turns = SnapshotTurns(led.node.raft, node_id=NODE_ID, hands_over=True)

    def has_successor() -> bool:
        idle = ControllerHeartbeatRequest(controller_id=FOLLOWER, last_snapshot_offset=-1, snapshot_state=0)
        turns.heartbeat(idle, {FOLLOWER}, led.now_ms)
        return turns.has_successor(led.now_ms)

    led.commit()
    assert has_successor()
    led.now_ms += BEHIND_MS_MAX
    assert has_successor()
    led.now_ms += 1
    assert not has_successor()


# Names and parameters


OF_TESTS = {
    ScriptedRaft: {"deposed_at", "known_high_watermarks", "lead", "on_step", "scripted", "step_down"},
    ScriptedDisk: {"failure", "fails_at", "log_start_moves_to"},
    ScriptedControl: {"decisions", "ticks"},
    ScriptedSnapshots: {"loaded", "written"},
}
"""What tests set and call: the real ones have nothing of these names."""


@pytest.mark.parametrize(
    ("scripted", "reals"),
    [
        (ScriptedRaft, (RaftNode,)),
        (ScriptedDisk, (ControllerStorage,)),
        (ScriptedControl, (QuorumController,)),
        (ScriptedSnapshots, (Snapshotter, SnapshotLoader)),
    ],
)
def test_scripted_parts_have_the_names_and_parameters_of_real_ones(
    scripted: type, reals: Iterable[type]
) -> None:
    journal: list[Any] = []
    disk = ScriptedDisk(journal)
    instance = scripted(journal, disk) if scripted is ScriptedRaft else scripted(journal)
    names = {name for name in dir(instance) if not name.startswith("_")} - OF_TESTS[scripted]
    for name in sorted(names):
        found = [getattr(real, name) for real in reals if hasattr(real, name)]
        of_instances = [real for real in reals if f"self.{name}" in inspect.getsource(real.__init__)]
        assert found or of_instances, f"{scripted.__name__}.{name} is not one of {reals}"
        method = getattr(scripted, name, None)
        if callable(method):
            counts = {len(inspect.signature(method).parameters) for method in found if callable(method)}
            assert len(inspect.signature(method).parameters) in counts, f"{scripted.__name__}.{name}"
