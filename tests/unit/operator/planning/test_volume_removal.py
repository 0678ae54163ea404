"""Volumes that were removed from a pool: cordoned, emptied, left out at the next start, deleted or kept."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kit.scenarios import REVISION, Situation, briefly, healthy
from quorate_operator.placement.cluster import IN_FLIGHT_MAX, ObservedDirectory, PartitionId
from quorate_operator.planning.cluster import NodeState, ObservedVolume, RolloutPolicy, VolumePolicy
from quorate_operator.planning.steps import CordonDirectories, MoveBetweenDirectories, ReleaseVolume
from quorate_operator.planning.volumes import VOLUMES, used_volumes, volumes_revision

GIB = 2**30
FIRST, SECOND, THIRD = "/v0/data", "/v1/data", "/v2/data"
PATHS = {0: FIRST, 1: SECOND, 2: THIRD}


def replicas(*sizes: int, topic: str = "t") -> dict[PartitionId, int]:
    """Partitions of a topic with these sizes."""
    return {PartitionId(topic, number): size for number, size in enumerate(sizes)}


def removing(
    directories: Mapping[str, ObservedDirectory] | None = None,
    *,
    released: tuple[int, ...] = (),
    used: str = "0,1,2",
    wanted: tuple[int, ...] = (0, 2),
    **facts: Any,
) -> Situation:
    """A healthy cluster of which broker 0 has the volumes 0, 1 and 2, and shall have others.

    `used` are the volumes of its process. Its volumes in `released` are not used by its next start.
    """
    volumes = {
        volume_id: ObservedVolume(directory=path, is_in_use=volume_id not in released)
        for volume_id, path in PATHS.items()
    }
    next_ids = [volume_id for volume_id, volume in volumes.items() if volume.is_in_use]
    situation = healthy(3, brokers=2).finalized(metadata_version=30)
    return (
        situation.asking_node(
            0,
            volumes=dict.fromkeys(wanted, GIB),
            revision={**REVISION, **volumes_revision(next_ids)},
        )
        .node(0, volumes=volumes, revision={**REVISION, VOLUMES: used})
        .kafka(directories={} if directories is None else {0: directories}, **facts)
    )


def described(**second: Any) -> dict[str, ObservedDirectory]:
    """The directories of broker 0, with room in the first and in the third; `second` is what leaves."""
    roomy = ObservedDirectory(room_bytes=100 * GIB)
    second_one = ObservedDirectory(**{"is_cordoned": True, "room_bytes": GIB, **second})
    return {FIRST: roomy, SECOND: second_one, THIRD: replace(roomy, room_bytes=50 * GIB)}


def test_a_removed_volume_is_cordoned_before_anything_moves() -> None:
    """No replica enters a directory behind the back of its removal."""
    held = described(replicas=replicas(GIB), is_cordoned=False)
    situation = removing(held, cordoned={0: ("/gone", FIRST)})
    (step,) = situation.due()
    assert isinstance(step, CordonDirectories)
    assert step.directories == (FIRST, SECOND)
    reported = removing(held, cordoned={0: (SECOND,)})
    assert reported.due() == ()
    assert "volume 1 of broker-0 to be cordoned, before it is emptied" in reported.waits()
    unknown = removing({FIRST: ObservedDirectory()})
    assert unknown.due() == ()
    assert "volume 1 of broker-0 to be described by the broker" in unknown.waits()


def test_replicas_leave_some_at_a_time_to_where_the_most_room_is() -> None:
    """The disks of a broker are not overrun, and they fill evenly."""
    situation = removing(described(replicas=replicas(2 * GIB, 8 * GIB, 3 * GIB)), cordoned={0: (SECOND,)})
    even = removing(
        {**described(replicas=replicas(2 * GIB, 1 * GIB)), THIRD: ObservedDirectory(room_bytes=99 * GIB)},
        cordoned={0: (SECOND,)},
    )
    (step,) = situation.due()
    assert isinstance(step, MoveBetweenDirectories)
    assert set(step.targets.values()) == {FIRST}
    assert "volume 1 of broker-0 to be emptied: 3 replica(s) left, 13.0 GiB" in situation.waits()
    (step,) = even.due()
    assert isinstance(step, MoveBetweenDirectories)
    assert dict(step.targets) == {PartitionId("t", 0): FIRST, PartitionId("t", 1): THIRD}
    (step,) = removing(
        described(replicas=replicas(*[1] * (IN_FLIGHT_MAX + 1))), cordoned={0: (SECOND,)}
    ).due()
    assert isinstance(step, MoveBetweenDirectories)
    assert len(step.targets) == IN_FLIGHT_MAX
    (step,) = removing(described(replicas=replicas(20 * GIB, 20 * GIB)), cordoned={0: (SECOND,)}).due()
    assert isinstance(step, MoveBetweenDirectories)
    assert len(step.targets) == 1, "a replica that is larger than all that may move at once moves alone"


def test_moves_under_way_are_waited_for() -> None:
    held = replicas(*[1] * IN_FLIGHT_MAX)
    directories = described(replicas=held)
    directories[FIRST] = replace(directories[FIRST], incoming=frozenset(held))
    situation = removing(directories, cordoned={0: (SECOND,)})
    assert situation.due() == ()
    assert "volume 1 of broker-0 to be emptied: 50 replica(s) left" in situation.waits()


def test_a_replica_that_fits_nowhere_is_told() -> None:
    """A person reads what is in the way, and the rest moves."""
    situation = removing(described(replicas=replicas(200 * GIB, GIB)), cordoned={0: (SECOND,)})
    (step,) = situation.due()
    assert isinstance(step, MoveBetweenDirectories)
    assert set(step.targets) == {PartitionId("t", 1)}
    assert (
        "t-0 (200.0 GiB) can't leave a removed volume of broker-0" in situation.refusals()["TooLittleSpace"]
    )


def test_an_empty_volume_is_released_and_the_rollout_restarts_the_broker() -> None:
    situation = removing(described(), cordoned={0: (SECOND,)})
    (step,) = situation.due()
    assert isinstance(step, ReleaseVolume)
    assert step.volume_id == 1
    assert briefly(situation.kafka(directories={0: described(incoming=frozenset(replicas(1)))}).due()) == []
    released = removing(described(), released=(1,), cordoned={0: (SECOND,)})
    (stop,) = released.due()
    assert (briefly([stop]), stop.reason) == (["StopNode 0"], "storage.volumes: 0,1,2 -> 0,2")


def test_a_volume_that_was_left_out_is_deleted_if_the_pool_says_so() -> None:
    gone = removing(described(), released=(1,), used="0,2", cordoned={0: (SECOND, FIRST)})
    (step,) = gone.due()
    assert isinstance(step, CordonDirectories)
    assert step.directories == (FIRST,)
    kept = gone.kafka(cordoned={})
    assert kept.plan().steps == ()
    deleting = kept.asking(rollouts={"brokers": RolloutPolicy(volumes=VolumePolicy.DELETE)})
    assert briefly(deleting.due()) == ["DeleteVolume 0"]
    assert briefly(deleting.down(0).due()) == ["StartNode 0"]


def test_a_volume_that_is_asked_for_again_stays() -> None:
    back = removing(described(replicas=replicas(1)), wanted=(0, 1, 2), cordoned={0: (SECOND,)})
    (step,) = back.due()
    assert isinstance(step, CordonDirectories)
    assert step.directories == ()
    assert briefly(removing(released=(1,), wanted=(0, 1, 2), used="0,2").due()) == ["CreateVolume 0"]


def test_a_volume_that_no_process_has_used_is_released_at_once() -> None:
    """An edit that is taken back costs no restart."""
    assert briefly(removing(used="0,2").due())[0] == "ReleaseVolume 0"


@pytest.mark.parametrize("state", [NodeState.STARTING, NodeState.UNREADY, NodeState.CRASHED])
def test_a_broker_that_is_not_in_service_is_waited_for(state: NodeState) -> None:
    situation = removing(described(), cordoned={0: (SECOND,)}).node(0, state=state, exited_at_ms=0)
    assert not any(isinstance(step, ReleaseVolume) for step in situation.due())
    assert "broker-0 to be in service, so that its volume(s) 1 can be emptied" in situation.waits()


def test_what_can_not_be_emptied_is_refused() -> None:
    old = removing(described()).finalized(metadata_version=29)
    assert "volume(s) 1 can't be removed with metadata.version" in old.refusals()["MetadataVersionTooLow"]
    assert old.due() == ()
    failed = removing(described(error="KAFKA_STORAGE_ERROR"), cordoned={0: (SECOND,)})
    assert "its directory is offline (KAFKA_STORAGE_ERROR)" in failed.refusals()["VolumeFailed"]
    assert failed.due() == ()


def test_volume_zero_never_leaves() -> None:
    assert (
        removing(described(), wanted=(), used="0")
        .asking_node(0, revision=REVISION)
        .node(0, volumes={0: ObservedVolume(directory=FIRST)}, revision=REVISION)
        .plan()
        .steps
        == ()
    )


def test_the_revision_names_volumes_only_if_there_are_several() -> None:
    """Nodes that were started by earlier versions are not restarted."""
    assert volumes_revision([0]) == {}
    assert volumes_revision({2, 0, 10}) == {VOLUMES: "0,2,10"}
    assert used_volumes({}) == {0}
    assert used_volumes({VOLUMES: "0,2,10"}) == {0, 2, 10}
