"""Operations on topics: create, delete, list, describe, add partitions."""

import uuid
from collections.abc import Iterable, Mapping

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.topics import CreatedTopic, NewPartitions, NewTopic, TopicDescription, TopicListing

__all__ = ("PARTITIONS_PER_RESPONSE", "TopicOperations")

PARTITIONS_PER_RESPONSE = 2_000
"""Partitions asked for at once; servers may send fewer (max.request.partition.size.limit)."""


class TopicOperations(Operations):
    """What an administrator does with topics. All of it goes through brokers (KIP-919)."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, CreatedTopic]:
        """Create topics (CreateTopics); results by name.

        With `validate_only` nothing is created, and the answer is what would be. A topic refused with
        THROTTLING_QUOTA_EXCEEDED is tried again when its throttle time is over, unless
        `retry_on_quota_violation` is false (KIP-599).

        Raises AdminError when there is no answer at all.
        """
        raise NotImplementedError

    async def delete_topics(
        self,
        topics: Iterable[str | uuid.UUID],
        *,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str | uuid.UUID, None]:
        """Delete topics by name or id (DeleteTopics; ids need version 6); results by what was given."""
        raise NotImplementedError

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> Mapping[str, TopicListing]:
        """The topics that the client may see, by name (Metadata); internal ones if asked for."""
        raise NotImplementedError

    async def describe_topics(
        self,
        topics: Iterable[str | uuid.UUID],
        *,
        include_authorized_operations: bool = False,
        partitions_per_response: int = PARTITIONS_PER_RESPONSE,
        timeout_ms: int | None = None,
    ) -> Results[str | uuid.UUID, TopicDescription]:
        """Topics with their partitions, by the name or id that was given.

        Names are asked for page by page (DescribeTopicPartitions, KIP-966), or at once on servers that lack
        it, which know no eligible leader replicas; ids always at once (Metadata).
        """
        raise NotImplementedError

    async def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Give topics more partitions (CreatePartitions); results by name."""
        raise NotImplementedError
