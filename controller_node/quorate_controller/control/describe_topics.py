"""DescribeTopicPartitions from the image, page by page (KIP-966), also while no broker runs.

Kafka's controllers do not serve it. Source: DescribeTopicPartitionsRequestHandler and KRaftMetadataCache of its
brokers. These count a replica as offline if its broker lacks the listener of the request; brokers do not have a
controller's listener.
"""

from collections.abc import Generator, Iterator
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import NO_LEADER
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
    bits_of_operations,
)
from quorate_protocol.kafka.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from quorate_protocol.kafka.generated.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from quorate_protocol.kafka.metadata_log import INTERNAL_TOPICS

from quorate_controller.control.api import ControlResult, RequestContext, invalid_request
from quorate_controller.control.steps import ITEM, LOOK, StepBudget
from quorate_controller.control.topic_names import why_invalid
from quorate_controller.security.access import Access

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.partitions import PartitionRegistration

PARTITIONS_MAX: Final = 2_000
"""Partitions of a page: the default of a broker's max.request.partition.size.limit."""
NAMES_PER_STEP: Final = 4_096
"""Names of topics that are sorted in a step: some milliseconds."""

_Steps = Generator[None, None, DescribeTopicPartitionsResponse]
_Topic = DescribeTopicPartitionsResponseTopic


class TopicDescriber:
    """Describes topics as brokers do, with all that the image has about their partitions. Stateless."""

    def __init__(self, image: "MetadataImage") -> None:
        self._image = image

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> ControlResult:
        """DescribeTopicPartitions 0, on any controller: topics in the order of their names, from the cursor on.

        A page has at most PARTITIONS_MAX partitions. Without names, it has the topics that the sender may describe.

        Raises:
            ControlError: INVALID_REQUEST for a cursor with another topic than those of the request, or below 0.
        """
        cursor = request.cursor
        if cursor is not None:
            named = {topic.name for topic in request.topics}
            if named and cursor.topic_name not in named:
                raise invalid_request(
                    "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                    f"{cursor.topic_name}"
                )
            if cursor.partition_index < 0:
                raise invalid_request(
                    "DescribeTopicPartitionsRequest cursor partition must be valid: "
                    f"Cursor(topicName='{cursor.topic_name}', partitionIndex={cursor.partition_index})"
                )
        return ControlResult(steps=self._describing(request, context.access))

    def _describing(self, request: DescribeTopicPartitionsRequest, access: Access) -> _Steps:
        cursor, next_cursor = request.cursor, None
        left = max(1, min(PARTITIONS_MAX, request.response_partition_limit))
        described: list[_Topic] = []
        unauthorized: list[_Topic] = []
        budget = StepBudget()
        names = yield from self._names(request, "" if cursor is None else cursor.topic_name)
        for name in names:
            if budget.spend(ITEM):
                yield
            if not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                if request.topics:
                    unauthorized.append(_failed(name, ErrorCode.topic_authorization_failed))
                continue
            if left <= 0:
                next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            first = 0 if cursor is None or name != cursor.topic_name else cursor.partition_index
            topic, end = yield from self._topic(name, first, left, access, budget)
            if topic is not None:
                described.append(topic)
                left -= len(topic.partitions)
            elif request.topics:
                is_invalid = why_invalid(name) is not None
                described.append(
                    _failed(
                        name,
                        ErrorCode.invalid_topic_exception
                        if is_invalid
                        else ErrorCode.unknown_topic_or_partition,
                    )
                )
            if end is not None:
                next_cursor = Cursor(topic_name=name, partition_index=end)
                break
        return DescribeTopicPartitionsResponse(
            throttle_time=timedelta(0), topics=(*described, *unauthorized), next_cursor=next_cursor
        )

    def _names(
        self, request: DescribeTopicPartitionsRequest, start: str
    ) -> Generator[None, None, Iterator[str]]:
        """Return the names from `start` on, in order: those of the request, or those of all topics."""
        if request.topics:
            return iter(sorted({topic.name for topic in request.topics if topic.name >= start}))
        runs = []
        names = iter(tuple(self._image.topics.by_name))
        while some := tuple(islice(names, NAMES_PER_STEP)):
            runs.append(sorted(name for name in some if name >= start))
            yield
        return merge(*runs)

    def _topic(
        self, name: str, first: int, count: int, access: Access, budget: StepBudget
    ) -> Generator[None, None, tuple[_Topic | None, int | None]]:
        """Return a topic with some of its partitions, and the partition that follows them on the next page.

        None for a topic that does not exist, or is deleted between two steps.
        """
        topic = self._image.topics.by_name.get(name)
        if topic is None:
            return None, None
        topic_id, end = topic.topic_id, min(len(topic.partitions), first + count)
        partitions = []
        for index in range(first, end):
            partition = topic.partitions.get(index)
            if partition is not None:
                partitions.append(self._partition(index, partition))
            if budget.spend(ITEM + LOOK * len(partition.replicas if partition else ())):
                yield
                topic = self._image.topics.by_id.get(topic_id)
                if topic is None:
                    return None, None
        operations = access.allowed_operations(
            SUPPORTED_OPERATIONS[ResourceType.TOPIC], ResourceType.TOPIC, name
        )
        described = _Topic(
            error_code=ErrorCode.none,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(partitions),
            topic_authorized_operations=bits_of_operations(operations),
        )
        return described, end if end < len(topic.partitions) else None

    def _partition(
        self, index: int, partition: "PartitionRegistration"
    ) -> DescribeTopicPartitionsResponsePartition:
        brokers = self._image.cluster.brokers
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none,
            partition_index=index,
            leader_id=partition.leader if partition.leader in brokers else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
            offline_replicas=tuple(
                broker_id
                for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
                if (broker := brokers.get(broker_id)) is None
                or broker.fenced
                or not broker.has_online_directory(directory)
            ),
        )


def _failed(name: str, error_code: ErrorCode) -> _Topic:
    return _Topic(
        error_code=error_code,
        name=name,
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS and error_code is not ErrorCode.topic_authorization_failed,
        partitions=(),
    )
