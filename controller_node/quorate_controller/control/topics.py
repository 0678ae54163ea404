"""Requests about whole topics: CreateTopics, CreatePartitions, DeleteTopics (KIP-4, KIP-464, KIP-516)."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ResourceType
from quorate_protocol.kafka.generated import create_partitions_request as grow_request
from quorate_protocol.kafka.generated import create_partitions_response as grow_response
from quorate_protocol.kafka.generated import create_topics_request as create_request
from quorate_protocol.kafka.generated import create_topics_response as create_response
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC
from quorate_protocol.records.batch import BATCH_SIZE_BYTES_MAX
from quorate_protocol.records.generated import PartitionRecord, TopicRecord
from quorate_protocol.uuids import uuid_from

from quorate_controller.control.api import (
    RECORDS_PER_BATCH_MAX,
    ControlConfig,
    ControlError,
    ControlResult,
    RequestContext,
    check_number_of_records,
    may_exceed_batch,
)
from quorate_controller.control.assignments import (
    Assignment,
    Placing,
    check_manual,
    partition_records,
    replica_size_bytes,
)
from quorate_controller.control.mutation_quotas import UNBOUNDED, MutationQuota, MutationQuotas
from quorate_controller.control.policies import NO_POLICIES, NewTopic, Policies
from quorate_controller.control.resource_access import finding_allowed
from quorate_controller.control.steps import ITEM, LOOK, Parts, Steps, begun, text_work
from quorate_controller.control.topic_deletion import deleting, error_text
from quorate_controller.control.topic_names import why_invalid
from quorate_controller.security.access import allows_on_cluster

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.topics import TopicImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.config_changes import ConfigManager

USE_DEFAULT: Final = -1
"""Number of partitions or replicas of a topic: the cluster's default, or that of the assignment."""

PLACED_AT_ONCE_MAX: Final = 500
"""Partitions of a topic that are placed in the step that decides on it."""

_CONFIGS_IN_RESPONSE_SINCE: Final = 5
"""CreateTopicsResponse version (KIP-525)."""

_CREATE_TOPICS_STRICT_SINCE: Final = 6
_DELETE_TOPICS_STRICT_SINCE: Final = 5
_CREATE_PARTITIONS_STRICT_SINCE: Final = 3
"""The versions of the requests from which a quota refuses; below, it only throttles (KIP-599)."""

_DELETION_DISABLED_SINCE: Final = 3
"""The first DeleteTopicsResponse version with TOPIC_DELETION_DISABLED."""


class TopicManager:
    """Decides on requests about whole topics. Its only state are the buckets of quotas."""

    def __init__(
        self,
        config: ControlConfig,
        image: "MetadataImage",
        configs: "ConfigManager",
        rng: "Random",
        *,
        policies: Policies = NO_POLICIES,
        placing_rng: "Random | None" = None,
    ) -> None:
        """`placing_rng` places replicas: several numbers for each topic, which need not be secret."""
        self._config = config
        self._image = image
        self._configs = configs
        self._rng = rng
        self._placing = Placing(image, placing_rng or rng)
        self._policies = policies
        self._quotas = MutationQuotas(
            image,
            samples=config.controller_quota_window_num,
            window_s=config.controller_quota_window_size_seconds,
        )

    def create_topics(
        self, request: create_request.CreateTopicsRequest, context: RequestContext
    ) -> ControlResult:
        """CreateTopics 2-7: each topic succeeds or fails alone, with Kafka's code and message.

        Record order per topic is Topic, Configs, Partitions. A topic is written as a whole; a large request is not.

        Raises:
            ControlError: POLICY_VIOLATION for more than 10,000 partitions or records in all; RECORD_LIST_TOO_LARGE.
        """
        return begun(self._creating(request, context))

    def _creating(self, request: create_request.CreateTopicsRequest, context: RequestContext) -> Steps:
        times = Counter(topic.name for topic in request.topics)
        once = [name for name, count in times.items() if count == 1]
        creatable, describable = yield from _finding_creatable(once, context)
        wanted = [topic for topic in request.topics if topic.name in creatable]
        partitions = self._checked_number_of_partitions(wanted)
        if may_exceed_batch(sum(1 + len(topic.configs) for topic in wanted) + partitions):
            yield from self._creating_each(wanted, describable, context, UNBOUNDED, Parts.checking())
        quota = self._quotas.of(context, strict_since=_CREATE_TOPICS_STRICT_SINCE)
        parts = Parts(is_dry=request.validate_only)
        results = yield from self._creating_each(wanted, describable, context, quota, parts)
        duplicate = ControlError(ErrorCode.invalid_request, "Duplicate topic name.")
        results += [_not_created(name, duplicate) for name, count in times.items() if count > 1]
        unauthorized = ControlError(ErrorCode.topic_authorization_failed, "Authorization failed.")
        results += [_not_created(name, unauthorized) for name in once if name not in creatable]
        return parts.last(
            create_response.CreateTopicsResponse(throttle_time=quota.throttle_time, topics=tuple(results))
        )

    def _creating_each(
        self,
        topics: Sequence[create_request.CreatableTopic],
        describable: frozenset[str],
        context: RequestContext,
        quota: MutationQuota,
        parts: Parts,
    ) -> Generator[ControlResult | None, None, list[create_response.CreatableTopicResult]]:
        results = []
        for topic in topics:
            created: Sequence[MetadataRecord] = ()
            placed = None
            if topic.name not in self._image.topics.by_name:
                placed = yield from self._placing_many(*self._sizes_of(topic), parts)
            try:
                created, result = self._create(
                    topic, context, quota, placed, may_describe=topic.name in describable
                )
            except ControlError as error:
                result = _not_created(topic.name, error)
            results.append(result)
            texts = text_work(*(config.value for config in topic.configs))
            if parts.add(created, ITEM + texts + _replicas_work(created)):
                yield parts.pop()
        return results

    def create_partitions(
        self,
        request: grow_request.CreatePartitionsRequest,
        context: RequestContext,
    ) -> ControlResult:
        """CreatePartitions 0-3: grows topics, automatically placed or as assigned; `validate_only` writes
        nothing. All new partitions of a topic are written together.

        Raises:
            ControlError: POLICY_VIOLATION for more than 10,000 new partitions; RECORD_LIST_TOO_LARGE.
        """
        return begun(self._growing(request, context))

    def _growing(self, request: grow_request.CreatePartitionsRequest, context: RequestContext) -> Steps:
        times = Counter(topic.name for topic in request.topics)
        once = [name for name, count in times.items() if count == 1]
        growable = yield from finding_allowed(context.access, AclOperation.ALTER, ResourceType.TOPIC, once)
        existing = self._image.topics.by_name
        # Counted before the first is placed, since a client may request two thousand million.
        partitions = replicas = 0
        for asked in request.topics:
            topic = existing.get(asked.name) if asked.name in growable else None
            if topic is not None:
                additional = max(asked.count - len(topic.partitions), 0)
                partitions += additional
                replicas += additional * _replication_factor(topic)
        check_number_of_records(partitions)
        self._check_number_of_replicas(replicas)
        parts = Parts(is_dry=request.validate_only)
        results = [
            _grown(name, ErrorCode.invalid_request, "Duplicate topic name.")
            for name, count in times.items()
            if count > 1
        ]
        results += [
            _grown(name, ErrorCode.topic_authorization_failed, None) for name in once if name not in growable
        ]
        quota = self._quotas.of(context, strict_since=_CREATE_PARTITIONS_STRICT_SINCE)
        for asked in request.topics:
            if asked.name not in growable:
                continue
            placed = None
            topic = existing.get(asked.name)
            if topic is not None and asked.assignments is None:
                additional = asked.count - len(topic.partitions)
                placed = yield from self._placing_many(additional, _replication_factor(topic), parts)
                topic = existing.get(asked.name)  # another request may have deleted it
            records: Sequence[MetadataRecord] = ()
            if topic is None:
                results.append(_grown(asked.name, ErrorCode.unknown_topic_or_partition, None))
            else:
                try:
                    records = self._grow(asked, topic, quota, placed)
                except ControlError as error:
                    results.append(_grown(asked.name, error.error_code, error_text(error)))
                else:
                    results.append(_grown(asked.name, ErrorCode.none, None))
            if parts.add(records, ITEM + _replicas_work(records)):
                yield parts.pop()
        return parts.last(
            grow_response.CreatePartitionsResponse(throttle_time=quota.throttle_time, results=tuple(results))
        )

    def delete_topics(self, request: DeleteTopicsRequest, context: RequestContext) -> ControlResult:
        """DeleteTopics 1-6, by name or by id: one RemoveTopicRecord per topic.

        Raises:
            ControlError: TOPIC_DELETION_DISABLED by `delete.topic.enable`, POLICY_VIOLATION for more than
                10,000 topics.
        """
        if self._config.static_configs.get("delete.topic.enable", "true").lower() != "true":
            knows_code = context.api_version >= _DELETION_DISABLED_SINCE
            code = ErrorCode.topic_deletion_disabled if knows_code else ErrorCode.invalid_request
            raise ControlError(code, ErrorCode.topic_deletion_disabled.text)
        quota = self._quotas.of(context, strict_since=_DELETE_TOPICS_STRICT_SINCE)
        return begun(deleting(self._image.topics, request, context, quota, self._rng))

    def _checked_number_of_partitions(self, topics: Sequence[create_request.CreatableTopic]) -> int:
        partitions = replicas = 0
        brokers_max = self._placing.brokers_max
        for topic in topics:
            if topic.assignments:
                partitions += len(topic.assignments)
                replicas += sum(len(given.broker_ids) for given in topic.assignments)
                continue
            of_topic, of_partition = self._sizes_of(topic)
            partitions += of_topic
            if of_partition <= brokers_max:  # it is refused otherwise
                replicas += of_topic * of_partition
        if partitions > RECORDS_PER_BATCH_MAX:
            raise ControlError(
                ErrorCode.policy_violation, "Excessively large number of partitions per request."
            )
        self._check_number_of_replicas(replicas)
        return partitions

    def _check_number_of_replicas(self, replicas: int) -> None:
        """Refuse partitions that exceed a batch before they are placed. Kafka refuses them afterwards."""
        size_bytes = replicas * replica_size_bytes(self._image)
        if size_bytes > BATCH_SIZE_BYTES_MAX:
            raise ControlError(
                ErrorCode.record_list_too_large,
                f"The {replicas} replicas of the new partitions take at least {size_bytes} bytes, which exceeds the "
                f"maximum allowed batch size of {BATCH_SIZE_BYTES_MAX}",
            )

    def _create(
        self,
        topic: create_request.CreatableTopic,
        context: RequestContext,
        quota: MutationQuota,
        placed: list[Assignment] | None,
        *,
        may_describe: bool,
    ) -> "tuple[list[MetadataRecord], create_response.CreatableTopicResult]":
        """Decide on one topic; `placed` if its partitions are placed already. Returns its records and its result.

        Raises:
            ControlError: why it can't be created.
        """
        self._check_new_name(topic.name)
        configs = {config.name: config.value for config in topic.configs}
        config_records = self._configs.validate_new_topic(topic.name, configs)
        assignments = self._assigned(topic) if topic.assignments else placed or self._placed(topic)
        self._policies.check_topic(lambda: _as_policies_see(topic, configs, assignments))
        quota.charge(len(assignments))
        topic_id = uuid_from(self._rng)
        records: list[MetadataRecord] = [
            TopicRecord(name=topic.name, topic_id=topic_id),
            *config_records,
            *partition_records(self._image, topic_id, 0, assignments),
        ]
        created = partial(
            create_response.CreatableTopicResult,
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.none,
            error_message=None,
        )
        if not may_describe:
            return records, created(topic_config_error_code=ErrorCode.topic_authorization_failed)
        described: tuple[create_response.CreatableTopicConfigs, ...] = ()
        if context.api_version >= _CONFIGS_IN_RESPONSE_SINCE:
            described = self._configs.describe_new_topic(configs)
        return records, created(
            num_partitions=len(assignments),
            replication_factor=len(assignments[0].replicas),
            configs=described,
        )

    def _check_new_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise ControlError(
                ErrorCode.invalid_request,
                f"Creation of internal topic {METADATA_TOPIC} is prohibited.",
            )
        if name in self._image.topics.by_name:
            raise ControlError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        reason = why_invalid(name)
        if reason is not None:
            raise ControlError(ErrorCode.invalid_topic_exception, reason)
        # Metrics replace '.' by '_', so two such topics would share their metrics (KAFKA-13743).
        for collision in self._image.topics.named_alike(name):
            raise ControlError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {collision}",
            )

    def _assigned(self, topic: create_request.CreatableTopic) -> list[Assignment]:
        """The assignment in the request for each partition of a new topic."""
        for value, field in (
            (topic.replication_factor, "replication factor"),
            (topic.num_partitions, "numPartitions"),
        ):
            if value != USE_DEFAULT:
                raise ControlError(
                    ErrorCode.invalid_request,
                    f"A manual partition assignment was specified, but {field} was not set to -1.",
                )
        assignments: dict[int, Assignment] = {}
        replication_factor = None
        for given in topic.assignments:
            if given.partition_index in assignments:
                raise ControlError(
                    ErrorCode.invalid_replica_assignment,
                    f"Found multiple manual partition assignments for partition {given.partition_index}",
                )
            assignments[given.partition_index] = check_manual(
                self._image, given.partition_index, given.broker_ids, replication_factor
            )
            replication_factor = len(given.broker_ids)
        if sorted(assignments) != list(range(len(assignments))):
            raise ControlError(
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [assignments[partition_id] for partition_id in range(len(assignments))]

    def _placed(self, topic: create_request.CreatableTopic) -> list[Assignment]:
        """Place the partitions of a new topic."""
        num_partitions, replication_factor = topic.num_partitions, topic.replication_factor
        if replication_factor < USE_DEFAULT or replication_factor == 0:
            raise ControlError(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if num_partitions < USE_DEFAULT or num_partitions == 0:
            raise ControlError(
                ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
            )
        num_partitions, replication_factor = self._sizes_of(topic)
        try:
            return self._placing.place(num_partitions, replication_factor)
        except ControlError as error:
            raise ControlError(
                error.error_code,
                f"Unable to replicate the partition {replication_factor} time(s): {error.message}",
            ) from None

    def _sizes_of(self, topic: create_request.CreatableTopic) -> tuple[int, int]:
        """The numbers of partitions and of replicas of a topic that is placed automatically; both 0 for others."""
        num_partitions, replication_factor = topic.num_partitions, topic.replication_factor
        if topic.assignments:
            return 0, 0
        if num_partitions == USE_DEFAULT:
            num_partitions = self._config.num_partitions
        if replication_factor == USE_DEFAULT:
            replication_factor = self._config.default_replication_factor
        return max(num_partitions, 0), max(replication_factor, 0)

    def _placing_many(
        self, num_partitions: int, replication_factor: int, parts: Parts
    ) -> Generator[ControlResult | None, None, list[Assignment] | None]:
        """Place the partitions of a large topic in steps. Returns None if they have to be placed at once, after all
        checks: those of small topics, those that can't be placed, and if the brokers have changed in between.
        """
        if num_partitions <= PLACED_AT_ONCE_MAX or replication_factor > self._placing.brokers_max:
            return None
        # Earlier decisions of the request must be written before other requests come in between.
        yield parts.pop()
        try:
            return (yield from self._placing.placing(num_partitions, replication_factor))
        except ControlError:
            return None

    def _grow(
        self,
        asked: grow_request.CreatePartitionsTopic,
        topic: "TopicImage",
        quota: MutationQuota,
        placed: list[Assignment] | None,
    ) -> "Sequence[MetadataRecord]":
        """The records of the partitions that are added to a topic; `placed` if they are placed already.

        Raises:
            ControlError: why it can't grow like this.
        """
        present = len(topic.partitions)
        if asked.count == present:
            raise ControlError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
        if asked.count < present:
            raise ControlError(
                ErrorCode.invalid_partitions,
                f"The topic {asked.name} currently has {present} partition(s); {asked.count} would not be an "
                "increase.",
            )
        additional = asked.count - present
        if asked.assignments is not None and len(asked.assignments) != additional:
            raise ControlError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} "
                "assignment(s) were specified.",
            )
        quota.charge(additional)
        replication_factor = _replication_factor(topic)
        if placed and len(placed) == additional and len(placed[0].replicas) == replication_factor:
            assignments = placed
        elif asked.assignments is None:
            assignments = self._placing.place(additional, replication_factor)
        else:
            assignments = [
                check_manual(self._image, partition_id, given.broker_ids, replication_factor)
                for partition_id, given in enumerate(asked.assignments, start=present)
            ]
        return partition_records(self._image, topic.topic_id, present, assignments)


def _replicas_work(records: "Sequence[MetadataRecord]") -> int:
    """The work of placing replicas, and of their bytes; all partitions of a topic have the same number."""
    last = records[-1] if records else None
    return LOOK * len(records) * len(last.replicas) if isinstance(last, PartitionRecord) else 0


def _replication_factor(topic: "TopicImage") -> int:
    """The number of replicas that a new partition gets; 0 for a topic without partitions, which no record makes."""
    first = next(iter(topic.partitions.values()), None)
    return 0 if first is None else len(first.replicas)


def _finding_creatable(
    names: list[str], context: RequestContext
) -> Generator[None, None, tuple[frozenset[str], frozenset[str]]]:
    """Return the topics that the sender may create, and those whose configs it may describe afterwards.

    The metadata log cannot be created, which is reported without an ACL check.
    """
    access = context.access
    if not access.is_restricted:
        return frozenset(names), frozenset(names)
    usual = [name for name in names if name != METADATA_TOPIC]
    if allows_on_cluster(access, AclOperation.CREATE, logs_denial=False):
        creatable = frozenset(usual)
    else:
        creatable = yield from finding_allowed(access, AclOperation.CREATE, ResourceType.TOPIC, usual)
    describable = yield from finding_allowed(
        access, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, usual, logs_denial=False
    )
    return creatable | (frozenset(names) - frozenset(usual)), describable


def _as_policies_see(
    topic: create_request.CreatableTopic, configs: Mapping[str, str | None], placed: Sequence[Assignment]
) -> NewTopic:
    given = {assignment.partition_index: tuple(assignment.broker_ids) for assignment in topic.assignments}
    return NewTopic(
        name=topic.name,
        num_partitions=None if given else len(placed),
        replication_factor=None if given else len(placed[0].replicas),
        assignments=given or None,
        configs={key: value for key, value in configs.items() if value is not None},
    )


def _not_created(name: str, error: ControlError) -> create_response.CreatableTopicResult:
    return create_response.CreatableTopicResult(
        name=name, topic_id=None, error_code=error.error_code, error_message=error_text(error), configs=()
    )


def _grown(
    name: str, error_code: ErrorCode, message: str | None
) -> grow_response.CreatePartitionsTopicResult:
    return grow_response.CreatePartitionsTopicResult(name=name, error_code=error_code, error_message=message)
