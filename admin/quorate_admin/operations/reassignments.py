"""Operations on partition reassignments (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_admin.operations.keyed import KeyedOperations, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from quorate_admin.results import Results
    from quorate_admin.types.partitions import TopicPartition
    from quorate_admin.types.reassignments import PartitionReassignment

__all__ = ("ReassignmentOperations",)


class ReassignmentOperations(KeyedOperations):
    """Partitions on the move; asked of the active controller, directly or through a broker."""

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels
        (AlterPartitionReassignments).

        :raises AdminError: there was no answer at all, or the whole was refused.
        """
        from kio.schema.alter_partition_reassignments.v1.request import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        from quorate_admin.types.partitions import TopicPartition, partitions_by_topic

        def partition_of(topic: str, number: int) -> ReassignablePartition:
            replicas = reassignments[TopicPartition(topic, number)]
            return ReassignablePartition(
                partition_index=number, replicas=None if replicas is None else tuple(replicas)
            )

        def request_for(
            asked: Sequence[TopicPartition], timeout: timedelta
        ) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout=timeout,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=tuple(
                    ReassignableTopic(
                        name=topic, partitions=tuple(partition_of(topic, number) for number in numbers)
                    )
                    for topic, numbers in partitions_by_topic(asked).items()
                ),
            )

        def outcomes_of(
            response: Any, _: Sequence[TopicPartition]
        ) -> Iterator[Outcome[TopicPartition, None]]:
            for topic in response.responses:
                for one in topic.partitions:
                    key = TopicPartition(topic.name, one.partition_index)
                    yield Outcome(key, None, one.error_code, one.error_message)

        return await self._ask_each(reassignments, request_for, outcomes_of, timeout_ms=timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> Mapping[TopicPartition, PartitionReassignment]:
        """What is on the move, of some partitions or of all (ListPartitionReassignments).

        :raises AdminError: there was no answer, or a refusal.
        """
        from kio.schema.list_partition_reassignments.v0.request import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsTopics,
        )

        from quorate_admin.types.partitions import TopicPartition, partitions_by_topic
        from quorate_admin.types.reassignments import PartitionReassignment

        topics = None
        if partitions is not None:
            topics = tuple(
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in partitions_by_topic(partitions).items()
            )
        request = ListPartitionReassignmentsRequest(timeout=self._server_timeout(timeout_ms), topics=topics)
        response = await self._ask(request, timeout_ms=timeout_ms)
        return {
            TopicPartition(topic.name, one.partition_index): PartitionReassignment(
                replicas=tuple(one.replicas),
                adding_replicas=tuple(one.adding_replicas),
                removing_replicas=tuple(one.removing_replicas),
            )
            for topic in response.topics
            for one in topic.partitions
        }
