"""CreateTopics requests for measurements."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMEOUT_SECONDS = 30.0


def new_topic(name: str, *, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    """A topic whose replicas the controller places."""
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
    )


def create_topics(
    topics: Iterable[CreatableTopic], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> CreateTopicsRequest:
    """The request that creates these topics."""
    return CreateTopicsRequest(topics=tuple(topics), timeout=timedelta(seconds=timeout_seconds))


def check_created(response: Any) -> None:
    """Raises RuntimeError if the only topic of a request was refused."""
    (topic,) = response.topics
    if topic.error_code is not ErrorCode.none:
        raise RuntimeError(f"CreateTopics was refused: {topic.error_code.name}")
