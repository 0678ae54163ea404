"""DeleteTopics, by name or by id: the topics that the sender may delete, and the results of all others (KIP-516).

To a sender that may not describe a topic, the response is the same whether the topic exists or not.

Source: kafka.server.ControllerApis.deleteTopics.
"""

from collections import Counter
from collections.abc import Generator, Sequence, Set
from typing import TYPE_CHECKING
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ResourceType
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest
from quorate_protocol.kafka.generated.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import RemoveTopicRecord

from quorate_controller.control.api import ControlError, RequestContext, check_number_of_records
from quorate_controller.control.mutation_quotas import MutationQuota
from quorate_controller.control.resource_access import finding_allowed
from quorate_controller.control.steps import ITEM, LOOK, Parts, StepBudget, Steps
from quorate_controller.security.access import Access, allows_on_cluster

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image.topics import TopicImage, TopicsImage
    from quorate_protocol.records.framing import MetadataRecord


@dataclass(frozen=True, slots=True)
class _Permitted:
    """The names of topics of a request that its sender may describe, and of those that it may delete."""

    seen: frozenset[str]
    deleted: frozenset[str]


def deleting(
    topics: "TopicsImage",
    request: DeleteTopicsRequest,
    context: RequestContext,
    quota: MutationQuota,
    rng: "Random",
) -> Steps:
    """Delete topics in steps; the caller has checked that the cluster permits it.

    Raises:
        ControlError: POLICY_VIOLATION for more than 10,000 topics.
    """
    deletable, results = yield from _finding_deletable(topics, request, context.access)
    check_number_of_records(len(deletable))
    parts = Parts()
    for topic_id, name in deletable.items():
        records: Sequence[MetadataRecord] = ()
        topic = topics.by_id.get(topic_id)
        if topic is None:  # deleted by another request since
            results.append(_refusal(name, topic_id, ErrorCode.unknown_topic_or_partition))
            continue
        try:
            quota.charge(len(topic.partitions))
        except ControlError as error:
            results.append(_result(name, topic_id, error.error_code, error_text(error)))
        else:
            records = (RemoveTopicRecord(topic_id=topic_id),)
            results.append(_result(name, topic_id))
        if parts.add(records, ITEM + LOOK * len(topic.partitions) // 4):
            yield parts.pop()
    if context.access.is_restricted:
        # The order must not distinguish absent topics from those that the sender may not see.
        rng.shuffle(results)
    return parts.last(DeleteTopicsResponse(throttle_time=quota.throttle_time, responses=tuple(results)))


def error_text(error: ControlError) -> str | None:
    """The text of an error; Kafka sends none where it has only that of the error code."""
    return None if error.error_code is ErrorCode.throttling_quota_exceeded else error.message


def _finding_deletable(
    topics: "TopicsImage", request: DeleteTopicsRequest, access: Access
) -> "Generator[None, None, tuple[dict[UUID, str], list[DeletableTopicResult]]]":
    """Return the names of the topics to delete by their ids, and the results for all others, in steps."""
    budget = StepBudget()
    names = Counter(it.name for it in request.topics if it.name is not None and it.topic_id is None)
    ids = Counter(it.topic_id for it in request.topics if it.topic_id is not None and it.name is None)
    refused = [
        _result(
            asked.name,
            asked.topic_id,
            ErrorCode.invalid_request,
            "Neither topic name nor id were specified."
            if asked.name is None
            else "You may not specify both topic name and topic id.",
        )
        for asked in request.topics
        if (asked.name is None) == (asked.topic_id is None)
    ]
    once = {name for name, count in names.items() if count == 1}
    once |= {
        topics.by_id[topic_id].name
        for topic_id, count in ids.items()
        if count == 1 and topic_id in topics.by_id
    }
    permitted = yield from _finding_permitted(once, access)
    deletable: dict[UUID, str] = {}
    for topic_id, count in ids.items():
        topic = topics.by_id.get(topic_id)
        refusal = _refused_by_id(topic_id, topic, count, permitted)
        if refusal is not None:
            refused.append(refusal)
        elif topic is not None:
            deletable[topic_id] = topic.name
        if budget.spend(ITEM):
            yield
    for name, count in names.items():
        topic = topics.by_name.get(name)
        refusal = _refused_by_name(name, topic, count, ids.keys(), permitted)
        if refusal is not None:
            refused.append(refusal)
            if refusal.topic_id is not None:
                deletable.pop(refusal.topic_id, None)
        elif topic is not None:
            deletable[topic.topic_id] = name
        if budget.spend(ITEM):
            yield
    return deletable, refused


def _finding_permitted(names: set[str], access: Access) -> Generator[None, None, _Permitted]:
    if not access.is_restricted or allows_on_cluster(access, AclOperation.DELETE, logs_denial=False):
        return _Permitted(frozenset(names), frozenset(names))
    return _Permitted(
        (yield from finding_allowed(access, AclOperation.DESCRIBE, ResourceType.TOPIC, names)),
        (yield from finding_allowed(access, AclOperation.DELETE, ResourceType.TOPIC, names)),
    )


def _refused_by_id(
    topic_id: UUID, topic: "TopicImage | None", count: int, permitted: _Permitted
) -> DeletableTopicResult | None:
    if count > 1:
        return _result(None, topic_id, ErrorCode.invalid_request, "Duplicate topic id.")
    if topic is None:
        return _refusal(None, topic_id, ErrorCode.unknown_topic_id)
    if topic.name not in permitted.deleted:
        shown = topic.name if topic.name in permitted.seen else None
        return _refusal(shown, topic_id, ErrorCode.topic_authorization_failed)
    return None


def _refused_by_name(
    name: str, topic: "TopicImage | None", count: int, ids: Set[UUID], permitted: _Permitted
) -> DeletableTopicResult | None:
    if count > 1:
        return _result(name, None, ErrorCode.invalid_request, "Duplicate topic name.")
    if name not in permitted.seen:
        return _refusal(name, None, ErrorCode.topic_authorization_failed)
    if topic is None:
        return _refusal(name, None, ErrorCode.unknown_topic_or_partition)
    if name not in permitted.deleted:
        return _refusal(name, None, ErrorCode.topic_authorization_failed)
    if topic.topic_id in ids:
        message = "The provided topic name maps to an ID that was already supplied."
        return _result(name, topic.topic_id, ErrorCode.invalid_request, message)
    return None


def _refusal(name: str | None, topic_id: UUID | None, error_code: ErrorCode) -> DeletableTopicResult:
    return _result(name, topic_id, error_code, error_code.text)


def _result(
    name: str | None,
    topic_id: UUID | None,
    error_code: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error_code, error_message=message)
