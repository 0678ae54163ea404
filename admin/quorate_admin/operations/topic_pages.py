"""Paging through DescribeTopicPartitions: the state between two requests (KIP-966)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ConnectionFailedError, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorate_admin.types.topics import PartitionDescription, TopicDescription


class TopicPages:
    """Descriptions of topics by name, or of all topics. Requests go in the order of names, as responses do, while
    there `is_more`.

    A page may end inside a topic; its cursor is the start of the next one.
    """

    def __init__(self, names: Iterable[str] | None, *, with_operations: bool) -> None:
        """`names`: None for all topics."""
        self.values: dict[str, TopicDescription] = {}
        self.errors: dict[str, ServerError] = {}
        self._is_of_all = names is None
        self._left = sorted(set(names or ()))
        self._is_more = self._is_of_all or bool(self._left)
        self._cursor: tuple[str, int] | None = None
        self._with_operations = with_operations

    @property
    def is_more(self) -> bool:
        """Whether another page is needed."""
        return self._is_more

    def request(self, partitions_max: int) -> Any:
        """The request for the next page with at most `partitions_max` partitions."""
        from quorate_protocol.kafka.generated.describe_topic_partitions_request import (
            Cursor,
            DescribeTopicPartitionsRequest,
            TopicRequest,
        )

        cursor = None
        if self._cursor is not None:
            topic_name, partition = self._cursor
            cursor = Cursor(topic_name=topic_name, partition_index=partition)
        return DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=name) for name in self._left),
            response_partition_limit=partitions_max,
            cursor=cursor,
        )

    def add(self, response: Any) -> None:
        """Add a page.

        Raises:
            ConnectionFailedError: the cursor of the page does not advance.
        """
        for topic in response.topics:
            if topic.error_code:
                # This may also be a topic of the previous page that has been deleted since.
                self.values.pop(topic.name, None)
                self.errors[topic.name] = ServerError(topic.error_code)
                continue
            description = topic_description(topic, with_operations=self._with_operations)
            begun = self.values.get(topic.name)
            if begun is not None:
                description = replace(description, partitions=begun.partitions + description.partitions)
            self.values[topic.name] = description
        if response.next_cursor is None:
            self._finish()
            return
        name, partition = response.next_cursor.topic_name, response.next_cursor.partition_index
        is_known = self._is_of_all or name in self._left
        if not is_known or (name, partition) <= (self._cursor or ("", 0)):
            raise ConnectionFailedError(
                f"the cursor of the response, partition {partition} of {name!r}, "
                "was not requested or is already answered"
            )
        is_broken = name in self.errors
        self._cursor = None if is_broken else (name, partition)
        self._left = [other for other in self._left if other > name or (other == name and not is_broken)]
        self._is_more = self._is_of_all or bool(self._left)

    def _finish(self) -> None:
        for name in self._left:
            if name not in self.values and name not in self.errors:
                self.errors[name] = ServerError(
                    ErrorCode.unknown_server_error, f"the response has no result for {name!r}"
                )
        self._left = []
        self._is_more = False


def topic_description(topic: Any, *, with_operations: bool) -> TopicDescription:
    """A topic of a DescribeTopicPartitions or Metadata response."""
    from quorate_protocol.kafka.enums import operations_of_bits

    from quorate_admin.types.topics import TopicDescription

    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(map(_partition, partitions)),
        authorized_operations=operations_of_bits(topic.topic_authorized_operations)
        if with_operations
        else None,
    )


def _partition(partition: Any) -> PartitionDescription:
    from quorate_admin.types.topics import PartitionDescription

    return PartitionDescription(
        partition=partition.partition_index,
        leader=None if partition.leader_id < 0 else partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.offline_replicas),
        eligible_leader_replicas=getattr(partition, "eligible_leader_replicas", None),
        last_known_elr=getattr(partition, "last_known_elr", None),
    )
