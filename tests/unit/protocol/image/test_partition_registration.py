"""PartitionRegistration: what a change record changes, and what older record versions can't say."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
    UnwritableImageError,
)
from quorate_protocol.kafka.enums import LeaderRecoveryState

DIRECTORIES = (UUID(int=201), UUID(int=202), UUID(int=203))


@pytest.fixture
def partition(make: Any) -> PartitionRegistration:
    return PartitionRegistration.from_record(
        make.partition(1, 0, leader_epoch=4, partition_epoch=9, directories=DIRECTORIES)
    )


def test_questions(partition: PartitionRegistration, make: Any) -> None:
    assert partition.has_leader
    assert partition.has_preferred_leader
    assert partition.directory(2) == DIRECTORIES[1]
    with pytest.raises(ValueError, match="not in tuple"):
        partition.directory(9)
    moved = partition.merge(make.change(1, 0, leader=2, adding_replicas=(4,)))
    assert (moved.preferred_leader, moved.has_preferred_leader, moved.is_reassigning) == (1, False, True)
    empty = PartitionRegistration.from_record(make.partition(1, 0, replicas=()))
    assert (empty.preferred_leader, empty.has_leader) == (NO_LEADER, False)


def test_empty_change_bumps_the_partition_epoch_alone(partition: PartitionRegistration, make: Any) -> None:
    changed = partition.merge(make.change(1, 0))
    assert changed.partition_epoch == 10
    assert changed.leader_epoch == 4
    assert replace(changed, partition_epoch=9) == partition


@pytest.mark.parametrize("leader", [1, 2, NO_LEADER])
def test_naming_a_leader_bumps_the_leader_epoch(
    partition: PartitionRegistration, make: Any, leader: int
) -> None:
    changed = partition.merge(make.change(1, 0, leader=leader))
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (leader, 5, 10)


def test_all_fields_of_a_change(partition: PartitionRegistration, make: Any) -> None:
    changed = partition.merge(
        make.change(
            1,
            0,
            replicas=(2, 3, 4, 5),
            directories=(*DIRECTORIES, None),
            isr=(2,),
            leader=2,
            leader_recovery_state=1,
            removing_replicas=(1,),
            adding_replicas=(5,),
            eligible_leader_replicas=(3,),
            last_known_elr=(4,),
        )
    )
    assert changed == PartitionRegistration(
        replicas=(2, 3, 4, 5),
        directories=(*DIRECTORIES, MIGRATING_DIRECTORY),
        isr=(2,),
        leader=2,
        leader_epoch=5,
        partition_epoch=10,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        removing_replicas=(1,),
        adding_replicas=(5,),
        elr=(3,),
        last_known_elr=(4,),
    )
    assert changed.merge(make.change(1, 0, isr=())).leader_recovery_state == LeaderRecoveryState.RECOVERING
    recovered = changed.merge(make.change(1, 0, leader_recovery_state=0))
    assert recovered.leader_recovery_state == LeaderRecoveryState.RECOVERED


@pytest.mark.parametrize("directories", [(), (None, None, None), (MIGRATING_DIRECTORY,)])
def test_no_directories_mean_migrating(make: Any, directories: tuple[UUID | None, ...]) -> None:
    """Records from before metadata.version 17 get MIGRATING per replica."""
    partition = PartitionRegistration.from_record(make.partition(1, 0, directories=directories))
    assert partition.directories == (MIGRATING_DIRECTORY,) * 3
    grown = partition.merge(make.change(1, 0, replicas=(1, 2, 3, 4)))
    assert grown.directories == (MIGRATING_DIRECTORY,) * 4


@pytest.mark.parametrize("level", [7, 17, 23, 33])
def test_record_round_trip_by_metadata_version(make: Any, level: int) -> None:
    fields: dict[str, Any] = {"leader_epoch": 3, "partition_epoch": 8, "leader_recovery_state": 1}
    if level >= 17:
        fields["directories"] = (UNASSIGNED_DIRECTORY, None, DIRECTORIES[2])
    if level >= 23:
        fields |= {"eligible_leader_replicas": (2,), "last_known_elr": (3,)}
    record = make.partition(1, 0, **fields)
    assert PartitionRegistration.from_record(record).to_record(make.topic_id(1), 0, level) == record


def test_elr_is_dropped_below_its_level(make: Any) -> None:
    partition = PartitionRegistration.from_record(make.partition(1, 0, eligible_leader_replicas=(2,)))
    assert partition.to_record(make.topic_id(1), 0, 22).eligible_leader_replicas is None


def test_directories_are_not_dropped_below_their_level(partition: PartitionRegistration, make: Any) -> None:
    with pytest.raises(UnwritableImageError, match="16 can't express the directory assignment state"):
        partition.to_record(make.topic_id(1), 0, 16)
