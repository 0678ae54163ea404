"""AssignReplicasToDirs (KIP-858)."""

from uuid import UUID

import pytest
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as assign_request
from quorate_protocol.records.generated import PartitionChangeRecord


def assign(cluster, directory, *partitions, broker_id: int = 1, broker_epoch: int | None = None):
    """``partitions``: pairs of topic id and partition id."""
    asked = assign_request.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=1000 + broker_id if broker_epoch is None else broker_epoch,
        directories=(
            assign_request.DirectoryData(
                id_=directory,
                topics=tuple(
                    assign_request.TopicData(
                        topic_id=topic_id, partitions=(assign_request.PartitionData(partition_index=number),)
                    )
                    for topic_id, number in partitions
                ),
            ),
        ),
    )
    return cluster.partitions.assign_replicas_to_dirs(asked, cluster.context(0))


def codes(decision) -> list[ErrorCode]:
    (directory,) = decision.response.directories
    return [partition.error_code for topic in directory.topics for partition in topic.partitions]


@pytest.fixture
def jbod(make_cluster):
    """Brokers 1 and 2 with two directories each."""
    cluster = make_cluster()
    cluster.add_broker(1, directories=2)
    cluster.add_broker(2, directories=2)
    return cluster


def test_a_replica_is_assigned_to_an_online_directory(jbod, make_partition) -> None:
    topic_id = jbod.add_topic("a", make_partition(1, 2, directories=(UNASSIGNED_DIRECTORY,) * 2))
    decision = assign(jbod, jbod.directory(1, 1), (topic_id, 0))
    assert decision.records == (
        PartitionChangeRecord(
            topic_id=topic_id, partition_id=0, directories=(jbod.directory(1, 1), UNASSIGNED_DIRECTORY)
        ),
    )
    assert codes(decision) == [ErrorCode.none]
    jbod.apply(decision)
    assert assign(jbod, jbod.directory(1, 1), (topic_id, 0)).records == (), "it is there already"


@pytest.mark.parametrize("lost", [LOST_DIRECTORY, UUID(int=9_999_999)], ids=["LOST", "not registered"])
def test_a_replica_in_a_lost_directory_stops_leading(jbod, make_partition, lost: UUID) -> None:
    topic_id = jbod.add_topic("a", make_partition(1, 2))
    jbod.apply(assign(jbod, lost, (topic_id, 0)))
    partition = jbod.partition("a")
    assert (partition.isr, partition.leader) == ((2,), 2)
    assert partition.directories == (lost, jbod.directory(2))


def test_a_replica_that_is_online_again_may_lead(jbod, make_partition) -> None:
    """A partition without a leader gets one when its disk is replaced."""
    topic_id = jbod.add_topic("a", make_partition(1, directories=(LOST_DIRECTORY,), leader=-1))
    jbod.apply(assign(jbod, jbod.directory(1, 1), (topic_id, 0)))
    assert jbod.partition("a").leader == 1


def test_wrong_assignments_are_refused_one_by_one(jbod, make_partition) -> None:
    topic_id = jbod.add_topic("a", make_partition(1), make_partition(2))
    unknown = UUID(int=77)
    decision = assign(jbod, jbod.directory(1, 1), (unknown, 0), (topic_id, 5), (topic_id, 1), (topic_id, 0))
    assert codes(decision) == [
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.none,
    ]
    assert len(decision.records) == 1


def test_assignments_need_metadata_version_17(make_cluster) -> None:
    """Refused before KIP-858."""
    cluster = make_cluster(metadata_version=16)
    cluster.add_broker(1)
    with pytest.raises(ControlError) as refused:
        assign(cluster, cluster.directory(1))
    assert refused.value.error_code is ErrorCode.unsupported_version


def test_assignments_of_a_stale_broker_are_refused(jbod) -> None:
    with pytest.raises(ControlError) as refused:
        assign(jbod, jbod.directory(1), broker_epoch=1)
    assert refused.value.error_code is ErrorCode.stale_broker_epoch
