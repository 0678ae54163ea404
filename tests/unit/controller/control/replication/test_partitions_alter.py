"""AlterPartition: leaders change the ISR of their partitions."""

import pytest
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_partition_request as kio_request
from quorate_protocol.records.generated import PartitionChangeRecord


def alter(
    cluster,
    topic_id,
    isr,
    *,
    broker_id: int = 1,
    broker_epoch: int | None = None,
    partition_id: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    recovering: bool = False,
):
    """``isr``: broker ids, or pairs of id and epoch."""
    states = tuple(
        kio_request.BrokerState(broker_id=it[0], broker_epoch=it[1])
        if isinstance(it, tuple)
        else kio_request.BrokerState(broker_id=it, broker_epoch=1000 + it)
        for it in isr
    )
    data = kio_request.PartitionData(
        partition_index=partition_id,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=states,
        leader_recovery_state=int(recovering),
        partition_epoch=partition_epoch,
    )
    asked = kio_request.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=1000 + broker_id if broker_epoch is None else broker_epoch,
        topics=(kio_request.TopicData(topic_id=topic_id, partitions=(data,)),),
    )
    return cluster.partitions.alter_partition(asked, cluster.context(3))


def code_of(decision) -> ErrorCode:
    (topic,) = decision.response.topics
    (partition,) = topic.partitions
    return partition.error_code


def test_an_isr_shrinks_without_a_new_leader_epoch(cluster, make_partition) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 2, 3))
    decision = alter(cluster, topic_id, [1, 3])
    assert decision.records == (PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=(1, 3)),)
    assert not decision.atomic
    response = decision.response.topics[0].partitions[0]
    assert (response.error_code, response.leader_id, response.isr) == (ErrorCode.none, 1, (1, 3))
    assert (response.leader_epoch, response.partition_epoch) == (5, 11)
    cluster.apply(decision)
    assert (cluster.partition("a").leader_epoch, cluster.partition("a").partition_epoch) == (5, 11)


@pytest.mark.parametrize(("metadata_version", "leader_epoch"), [(11, 6), (12, 5)])
def test_before_3_6_a_shrink_bumps_the_leader_epoch(
    make_cluster, make_partition, metadata_version: int, leader_epoch: int
) -> None:
    """KAFKA-15021's workaround ends with 3.6-IV0."""
    cluster = make_cluster(metadata_version=metadata_version)
    cluster.add_brokers(1, 2)
    topic_id = cluster.add_topic("a", make_partition(1, 2))
    cluster.apply(alter(cluster, topic_id, [1]))
    assert cluster.partition("a").leader_epoch == leader_epoch
    cluster.apply(alter(cluster, topic_id, [1, 2], leader_epoch=leader_epoch, partition_epoch=11))
    assert cluster.partition("a").leader_epoch == leader_epoch, "growing never bumps it"


def test_an_isr_that_is_as_it_was_writes_nothing(cluster, make_partition) -> None:
    """No record without a change; the response has the present state."""
    topic_id = cluster.add_topic("a", make_partition(1, 2))
    decision = alter(cluster, topic_id, [1, 2])
    assert decision.records == ()
    assert decision.response.topics[0].partitions[0].partition_epoch == 10


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader_epoch": 6}, ErrorCode.not_controller),
        ({"partition_epoch": 11}, ErrorCode.not_controller),
        ({"leader_epoch": 4}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": 4, "partition_epoch": 11}, ErrorCode.not_controller),
        ({"broker_id": 2}, ErrorCode.invalid_request),
        ({"broker_id": 2, "partition_epoch": 9}, ErrorCode.invalid_request),
        ({"partition_epoch": 9}, ErrorCode.invalid_update_version),
        ({"partition_id": 7}, ErrorCode.unknown_topic_or_partition),
        ({"isr": [1, 4]}, ErrorCode.invalid_request),
        ({"isr": [1, 1]}, ErrorCode.invalid_request),
        ({"isr": []}, ErrorCode.invalid_request),
        ({"isr": [2, 3]}, ErrorCode.invalid_request),
        ({"isr": [1], "recovering": True}, ErrorCode.invalid_request),
        ({"isr": [1, (2, 999)]}, ErrorCode.ineligible_replica),
    ],
)
def test_refused_changes(cluster, make_partition, change, code: ErrorCode) -> None:
    """Each check has Kafka's code, in Kafka's order."""
    cluster.add_broker(4)
    topic_id = cluster.add_topic("a", make_partition(1, 2, 3))
    decision = alter(cluster, topic_id, **{"isr": [1, 2], **change})
    assert (decision.records, code_of(decision)) == ((), code)


def test_an_unknown_topic_id_is_answered_for_each_partition(cluster) -> None:
    assert code_of(alter(cluster, None, [1])) is ErrorCode.unknown_topic_id


@pytest.mark.parametrize(
    "change", [{"fenced": True}, {"shutting_down": True}], ids=["fenced", "shutting down"]
)
def test_only_active_brokers_may_join_the_isr(cluster, make_partition, change) -> None:
    """KIP-841."""
    cluster.mark(2, **change)
    topic_id = cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    assert code_of(alter(cluster, topic_id, [1, 2])) is ErrorCode.ineligible_replica
    assert code_of(alter(cluster, topic_id, [1, (2, -1)])) is ErrorCode.ineligible_replica


def test_a_broker_that_is_gone_may_not_join_the_isr(cluster, make_partition) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 9, isr=(1,)))
    assert code_of(alter(cluster, topic_id, [1, 9])) is ErrorCode.ineligible_replica


def test_version_2_does_not_tell_epochs(cluster, make_partition) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    assert code_of(alter(cluster, topic_id, [(1, -1), (2, -1)])) is ErrorCode.none


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "message"),
    [
        (1, 1000, "Expected broker epoch 1001, but got broker epoch 1000"),
        (9, 1009, "No broker registration found for broker id 9"),
    ],
)
def test_a_stale_broker_is_refused_as_a_whole(
    cluster, make_partition, broker_id: int, broker_epoch: int, message: str
) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 2))
    with pytest.raises(ControlError) as refused:
        alter(cluster, topic_id, [1], broker_id=broker_id, broker_epoch=broker_epoch)
    assert (refused.value.error_code, refused.value.message) == (ErrorCode.stale_broker_epoch, message)


def test_a_recovering_leader_recovers(cluster, make_partition) -> None:
    """KIP-704."""
    topic_id = cluster.add_topic("a", make_partition(1, 2, isr=(1,), leader_recovery_state=1))
    assert alter(cluster, topic_id, [1], recovering=True).records == ()
    assert code_of(alter(cluster, topic_id, [1, 2], recovering=True)) is ErrorCode.invalid_request
    decision = alter(cluster, topic_id, [1, 2])
    assert decision.records == (
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=(1, 2), leader_recovery_state=0),
    )
    cluster.apply(decision)
    again = alter(cluster, topic_id, [1], recovering=True, partition_epoch=11)
    assert code_of(again) is ErrorCode.invalid_request


def test_an_unknown_recovery_state_is_refused(cluster, make_partition) -> None:
    """Garbage gives an error code, not a crash."""
    topic_id = cluster.add_topic("a", make_partition(1))
    data = kio_request.PartitionData(
        partition_index=0,
        leader_epoch=5,
        new_isr_with_epochs=(kio_request.BrokerState(broker_id=1, broker_epoch=1001),),
        leader_recovery_state=7,
        partition_epoch=10,
    )
    asked = kio_request.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=1001,
        topics=(kio_request.TopicData(topic_id=topic_id, partitions=(data,)),),
    )
    assert code_of(cluster.partitions.alter_partition(asked, cluster.context(3))) is ErrorCode.invalid_request


def test_a_reassignment_completes_when_the_new_replicas_are_in_sync(cluster, make_partition) -> None:
    """KIP-455's last step in one record."""
    topic_id = cluster.add_topic(
        "a", make_partition(1, 2, 3, isr=(1, 3), adding_replicas=(2,), removing_replicas=(3,))
    )
    decision = alter(cluster, topic_id, [1, 2, 3])
    (record,) = decision.records
    assert (record.replicas, record.isr) == ((1, 2), (1, 2))
    assert (record.adding_replicas, record.removing_replicas) == ((), ())
    assert record.directories == (cluster.directory(1), cluster.directory(2))
    assert record.leader == 1, "the leader epoch goes up, so that 3 notices"
    response = decision.response.topics[0].partitions[0]
    assert (response.error_code, response.leader_epoch) == (ErrorCode.none, 6)


def test_a_reassignment_goes_on_while_a_new_replica_is_missing(cluster, make_partition) -> None:
    cluster.add_broker(4)
    topic_id = cluster.add_topic(
        "a", make_partition(1, 2, 3, 4, isr=(1,), adding_replicas=(2, 3), removing_replicas=(4,))
    )
    (record,) = alter(cluster, topic_id, [1, 2]).records
    assert record == PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=(1, 2))


def test_a_leader_that_is_reassigned_away_is_told_to_read_the_metadata(cluster, make_partition) -> None:
    topic_id = cluster.add_topic(
        "a", make_partition(2, 1, isr=(1,), adding_replicas=(2,), removing_replicas=(1,))
    )
    decision = alter(cluster, topic_id, [1, 2])
    assert code_of(decision) is ErrorCode.new_leader_elected
    cluster.apply(decision)
    partition = cluster.partition("a")
    assert (partition.replicas, partition.isr, partition.leader) == ((2,), (2,), 2)


def test_partitions_of_one_request_succeed_and_fail_alone(cluster, make_partition) -> None:
    first = cluster.add_topic("a", make_partition(1, 2), make_partition(1, 2))
    second = cluster.add_topic("b", make_partition(1, 2))

    def data(partition_id: int, partition_epoch: int):
        return kio_request.PartitionData(
            partition_index=partition_id,
            leader_epoch=5,
            new_isr_with_epochs=(kio_request.BrokerState(broker_id=1, broker_epoch=1001),),
            partition_epoch=partition_epoch,
        )

    asked = kio_request.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=1001,
        topics=(
            kio_request.TopicData(topic_id=first, partitions=(data(0, 9), data(1, 10))),
            kio_request.TopicData(topic_id=second, partitions=(data(0, 10),)),
        ),
    )
    decision = cluster.partitions.alter_partition(asked, cluster.context(3))
    assert [(record.topic_id, record.partition_id) for record in decision.records] == [
        (first, 1),
        (second, 0),
    ]
    codes = [partition.error_code for topic in decision.response.topics for partition in topic.partitions]
    assert codes == [ErrorCode.invalid_update_version, ErrorCode.none, ErrorCode.none]


def test_elr_takes_who_leaves_a_small_isr(cluster, make_partition) -> None:
    """KIP-966: below min.insync.replicas who left stays eligible; from there on it is cleared."""
    cluster.enable_elr()
    cluster.configure("a", "min.insync.replicas", "2")
    topic_id = cluster.add_topic("a", make_partition(1, 2, 3))
    cluster.apply(alter(cluster, topic_id, [1, 2]))
    assert cluster.partition("a").elr == ()
    cluster.apply(alter(cluster, topic_id, [1], partition_epoch=11))
    assert cluster.partition("a").elr == (2,)
    cluster.apply(alter(cluster, topic_id, [1, 3], partition_epoch=12))
    assert (cluster.partition("a").isr, cluster.partition("a").elr) == ((1, 3), ())


def test_min_insync_replicas_counts_at_most_the_replication_factor(cluster, make_partition) -> None:
    cluster.enable_elr()
    cluster.configure("a", "min.insync.replicas", "2")
    topic_id = cluster.add_topic("a", make_partition(1))
    assert alter(cluster, topic_id, [1]).records == ()
