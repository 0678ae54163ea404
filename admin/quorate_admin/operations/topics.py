"""Operations on topics: create, delete, list, describe, add partitions."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode, error_code_of
from quorate_protocol.uuids import uuid_to_text

from quorate_admin.errors import ConnectionFailedError, ServerError, UnsupportedByServerError
from quorate_admin.network.routing import To
from quorate_admin.operations.base import KeyedOperations, KeyResult, error_of, key_results
from quorate_admin.operations.configs import config_entry
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from quorate_admin.types.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        TopicDescription,
        TopicListing,
    )


PARTITIONS_PER_RESPONSE = 2_000
"""Partitions per request; servers may return fewer (max.request.partition.size.limit)."""

Key = str | uuid.UUID


class TopicOperations(KeyedOperations):
    """Operations on topics. With bootstrap controllers, those of Quorate list and describe them; all others go
    through brokers (KIP-919).
    """

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics (CreateTopics); results by name. Of several topics with the same name the first is used.
        Brokers only.

        With `validate_only` nothing is created, and the results are those of a creation. A topic that is refused with
        THROTTLING_QUOTA_EXCEEDED is retried after its throttle time, unless `retry_on_quota_violation` is false
        (KIP-599).
        """
        from quorate_protocol.kafka.generated.create_topics_request import CreateTopicsRequest

        self._brokers_only("create_topics")
        by_name: dict[str, NewTopic] = {}
        for topic in topics:
            by_name.setdefault(topic.name, topic)

        def request_for(names: Sequence[str], timeout: timedelta) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=tuple(_creatable(by_name[name]) for name in names),
                timeout=timeout,
                validate_only=validate_only,
            )

        return await self._ask_each(
            by_name,
            request_for,
            lambda response, _: key_results(response.topics, lambda topic: topic.name, _created),
            retry_on_quota_violation=retry_on_quota_violation,
            timeout_ms=timeout_ms,
        )

    async def delete_topics(
        self,
        topics: Iterable[Key],
        *,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[Key, None]:
        """Delete topics by name or id (DeleteTopics; ids need version 6); results by the given name or id.
        Brokers only.
        """
        from quorate_protocol.kafka.generated.delete_topics_request import (
            DeleteTopicsRequest,
            DeleteTopicState,
        )

        self._brokers_only("delete_topics")

        def request_for(keys: Sequence[Key], timeout: timedelta) -> DeleteTopicsRequest:
            states = (
                DeleteTopicState(name=key, topic_id=None)
                if isinstance(key, str)
                else DeleteTopicState(name=None, topic_id=key)
                for key in keys
            )
            return DeleteTopicsRequest(topics=tuple(states), timeout=timeout)

        def results_of(response: Any, keys: Sequence[Key]) -> Iterator[KeyResult[Key, None]]:
            asked = set(keys)
            # The response has both name and id, if the topic exists.
            return key_results(
                response.responses, lambda topic: topic.name if topic.name in asked else topic.topic_id
            )

        return await self._ask_each(
            topics,
            request_for,
            results_of,
            retry_on_quota_violation=retry_on_quota_violation,
            timeout_ms=timeout_ms,
        )

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> Mapping[str, TopicListing]:
        """The topics that the client is allowed to see, by name (Metadata); internal ones only if requested.
        Brokers, or controllers of Quorate (DescribeTopicPartitions, page by page).
        """
        if self._to_controllers:
            listed = await self._list_by_controllers(self._countdown(timeout_ms))
            return {name: topic for name, topic in listed.items() if list_internal or not topic.is_internal}
        from quorate_admin.types.topics import TopicListing

        response = await self._metadata(None, timeout_ms=timeout_ms)
        return {
            topic.name: TopicListing(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal)
            for topic in response.topics
            if list_internal or not topic.is_internal
        }

    async def describe_topics(
        self,
        topics: Iterable[Key],
        *,
        include_authorized_operations: bool = False,
        partitions_per_response: int = PARTITIONS_PER_RESPONSE,
        timeout_ms: int | None = None,
    ) -> Results[Key, TopicDescription]:
        """Topics with their partitions, by the given name or id. Brokers, or controllers of Quorate.

        Topics by name are requested page by page (DescribeTopicPartitions, KIP-966). Topics by id, and all topics
        of brokers without that API and thus without eligible leader replicas, are requested at once (Metadata).
        Controllers find the topics of ids in the list of all topics.
        """
        left_ms = self._countdown(timeout_ms)
        given = list(dict.fromkeys(topics))
        by_name: dict[Key, str] = {key: key for key in given if isinstance(key, str)}
        at_once: list[Key] = [key for key in given if isinstance(key, uuid.UUID)]
        if self._to_controllers and at_once:
            listed = await self.list_topics(list_internal=True, timeout_ms=left_ms())
            ids = {topic.topic_id: name for name, topic in listed.items()}
            by_name |= {key: ids[key] for key in at_once if isinstance(key, uuid.UUID) and key in ids}
        pages = TopicPages(by_name.values(), with_operations=include_authorized_operations)
        try:
            await self._read_pages(pages, partitions_per_response, left_ms)
        except UnsupportedByServerError:
            at_once = given
        values = {key: pages.values[name] for key, name in by_name.items() if name in pages.values}
        errors = {key: pages.errors[name] for key, name in by_name.items() if name in pages.errors}
        if self._to_controllers:
            errors |= {key: _missing(key) for key in at_once if key not in by_name}
        elif at_once:
            response = await self._metadata(
                at_once, with_operations=include_authorized_operations, timeout_ms=left_ms()
            )
            found = {key: topic for topic in response.topics for key in (topic.name, topic.topic_id)}
            for key in at_once:
                error = _missing(key) if key not in found else error_of(found[key].error_code)
                if error is None:
                    values[key] = topic_description(found[key], with_operations=include_authorized_operations)
                else:
                    errors[key] = error
        return Results(
            {key: values[key] for key in given if key in values},
            {key: errors[key] for key in given if key in errors},
        )

    async def _read_pages(
        self,
        pages: TopicPages,
        partitions_per_response: int,
        left_ms: Callable[[], int],
        on_page: Callable[[], object] = lambda: None,
    ) -> None:
        while pages.is_more:
            request = pages.request(partitions_per_response)
            pages.add(await self._ask(request, To.READER, timeout_ms=left_ms()))
            on_page()

    async def _list_by_controllers(self, left_ms: Callable[[], int]) -> Mapping[str, TopicListing]:
        """All topics, without keeping the descriptions of their partitions."""
        from quorate_admin.types.topics import TopicListing

        listings: dict[str, TopicListing] = {}
        pages = TopicPages(None, with_operations=False)

        def add_listings() -> None:
            for name, topic in pages.values.items():
                listings[name] = TopicListing(
                    name=name, topic_id=topic.topic_id, is_internal=topic.is_internal
                )
            pages.values.clear()

        await self._read_pages(pages, PARTITIONS_PER_RESPONSE, left_ms, add_listings)
        return listings

    async def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Add partitions to topics (CreatePartitions); results by name. Quotas apply as in `create_topics`.
        Brokers only.
        """
        from quorate_protocol.kafka.generated.create_partitions_request import (
            CreatePartitionsAssignment,
            CreatePartitionsRequest,
            CreatePartitionsTopic,
        )

        self._brokers_only("create_partitions")

        def topic_of(name: str) -> CreatePartitionsTopic:
            new = new_partitions[name]
            assignments = None
            if new.assignments is not None:
                assignments = tuple(
                    CreatePartitionsAssignment(broker_ids=tuple(brokers)) for brokers in new.assignments
                )
            return CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)

        def request_for(names: Sequence[str], timeout: timedelta) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=tuple(map(topic_of, names)), timeout=timeout, validate_only=validate_only
            )

        return await self._ask_each(
            new_partitions,
            request_for,
            lambda response, _: key_results(response.results, lambda topic: topic.name),
            retry_on_quota_violation=retry_on_quota_violation,
            timeout_ms=timeout_ms,
        )

    async def _metadata(
        self, topics: Sequence[Key] | None, *, with_operations: bool = False, timeout_ms: int | None
    ) -> Any:
        """The Metadata response for the given topics, or all, with the brokers."""
        from quorate_protocol.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

        asked = None
        if topics is not None:
            asked = tuple(
                MetadataRequestTopic(topic_id=None, name=key)
                if isinstance(key, str)
                else MetadataRequestTopic(topic_id=key, name=None)
                for key in topics
            )
        request = MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=with_operations,
        )
        return await self._ask(request, To.ANY, timeout_ms=timeout_ms)


def _missing(key: Key) -> ServerError:
    if isinstance(key, str):
        return ServerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {key!r}")
    return ServerError(ErrorCode.unknown_topic_id, f"there is no topic with id {uuid_to_text(key)}")


def _creatable(topic: NewTopic) -> Any:
    from quorate_protocol.kafka.generated.create_topics_request import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
    )

    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=partition, broker_ids=tuple(brokers))
            for partition, brokers in topic.assignments.items()
        ),
        configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()),
    )


def _created(topic: Any) -> CreatedTopic:
    from quorate_admin.types.topics import CreatedTopic

    configs_error = error_of(error_code_of(topic.topic_config_error_code))
    is_returned = configs_error is None and topic.configs is not None and topic.num_partitions >= 0
    return CreatedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=tuple(map(config_entry, topic.configs)) if is_returned else None,
        configs_error=configs_error,
    )


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
