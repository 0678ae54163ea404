"""The metadata partition, the only one of raft messages, and the refusal of messages about another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from quorate_protocol.kafka.apis import Payload


T = TypeVar("T")


class RefusedMessage(ProtocolError):  # noqa: N818 - named as its siblings in quorate_protocol.errors
    """A message that raft never sees.

    `response` is the canonical answer when it is a request and the answer is not the usual one, an error for
    the response as a whole.
    """

    def __init__(self, error_code: ErrorCode, message: str, response: Payload | None = None) -> None:
        super().__init__(error_code, message)
        self.response = response


def metadata_partition(
    topics: Sequence[Any], *, name: str = "topic_name", index: str = "partition_index"
) -> Any:
    """The only partition of a message; Fetch, which is frequent, does the same without looking names up.

    `name` and `index` are the fields that identify topic and partition.

    Raises:
        RefusedMessage: there is none, there are several, or it is not the metadata partition.
    """
    topic = sole(topics)
    partition = sole(topic.partitions)
    check_partition(getattr(topic, name), getattr(partition, index))
    return partition


def sole(items: Sequence[T]) -> T:
    """The only topic, or the only partition, of a message; RefusedMessage when there is none or several."""
    if len(items) != 1:
        raise RefusedMessage(
            ErrorCode.invalid_request, f"{len(items)} topics or partitions; there is one, {METADATA_TOPIC}-0"
        )
    return items[0]


def check_partition(topic: str | UUID | None, index: int) -> None:
    """Refuse a topic, by name or by id, or a partition index that is not the metadata partition's."""
    if topic not in {METADATA_TOPIC, METADATA_TOPIC_ID} or index != METADATA_PARTITION:
        raise RefusedMessage(ErrorCode.invalid_request, f"{topic}-{index} is not {METADATA_TOPIC}-0")
