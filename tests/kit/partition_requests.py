"""Requests of brokers about their partitions, decided and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_protocol.kafka.generated import alter_partition_request as isr_request

if TYPE_CHECKING:
    from quorate_protocol.errors import ErrorCode


def set_isr(cluster: Any, name: str, *isr: int, partition_id: int = 0) -> ErrorCode:
    """Have the leader of a partition alter its ISR. Returns the error code of the partition."""
    topic = cluster.image.topics.by_name[name]
    partition = topic.partitions[partition_id]
    data = isr_request.PartitionData(
        partition_index=partition_id,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=tuple(
            isr_request.BrokerState(broker_id=broker_id, broker_epoch=-1) for broker_id in isr
        ),
        leader_recovery_state=0,
        partition_epoch=partition.partition_epoch,
    )
    asked = isr_request.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=1000 + partition.leader,
        topics=(isr_request.TopicData(topic_id=topic.topic_id, partitions=(data,)),),
    )
    response = cluster.apply(cluster.partitions.alter_partition(asked, cluster.context(3)))
    error_code: ErrorCode = response.topics[0].partitions[0].error_code
    return error_code
