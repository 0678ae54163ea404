"""Reassigns partitions: AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860).

A reassignment is a state of its partition. It begins with a record that adds the new replicas, and names the adding
and the removing ones. It ends, when the new replicas are in the ISR, with a record that removes the removing ones:
`partition_change` decides it together with the change of the ISR that completes it, by AlterPartition or otherwise.
A reassignment that need not wait, such as a new order of the same replicas, begins and ends in one record.
A cancellation removes the new replicas instead.
"""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.partitions import MIGRATING_DIRECTORY, PartitionRegistration
from quorate_protocol.kafka.generated import alter_partition_reassignments_request as alter_request
from quorate_protocol.kafka.generated import alter_partition_reassignments_response as alter_response
from quorate_protocol.kafka.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from quorate_protocol.kafka.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from quorate_protocol.records.generated import PartitionChangeRecord

from quorate_controller.control.api import RECORDS_PER_BATCH_MAX, ControlError, ControlResult
from quorate_controller.control.assignments import check_replicas, default_directory
from quorate_controller.control.partition_change import Election, PartitionChanges, Wanted
from quorate_controller.control.steps import ITEM, LOOK, Parts, StepBudget, Steps, begun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quorate_protocol.image import MetadataImage

    from quorate_controller.control.config_changes import ConfigManager


_WITHOUT_TEXT: Final = (ErrorCode.unknown_server_error, ErrorCode.no_reassignment_in_progress)
"""Where Kafka sends no text, since it has only that of the error code."""


class ReassignmentManager:
    """Decides on new replicas of existing partitions. Stateless."""

    def __init__(self, image: "MetadataImage", configs: "ConfigManager") -> None:
        self._image = image
        self._configs = configs

    def alter(self, request: alter_request.AlterPartitionReassignmentsRequest) -> ControlResult:
        """AlterPartitionReassignments 0-1: begin, replace or (no replicas) cancel, each partition alone.

        Errors stand in the response, partition by partition: UNKNOWN_TOPIC_OR_PARTITION;
        NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT (also for a cancellation that would need an
        unclean election which the topic does not allow); INVALID_REPLICATION_FACTOR, where the client does
        not allow another factor; UNKNOWN_SERVER_ERROR for each change beyond 10,000, as in Kafka.
        """
        return begun(self._altering(request))

    def _altering(self, request: alter_request.AlterPartitionReassignmentsRequest) -> Steps:
        changes = PartitionChanges(self._image, self._configs)
        parts = Parts()
        responses = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                error_code, message = ErrorCode.none, None
                records: tuple[PartitionChangeRecord, ...] = ()
                try:
                    record = self._alter(
                        topic.name, asked, changes, allow=request.allow_replication_factor_change
                    )
                    if record is not None:
                        _check_room(parts)
                        records = (record,)
                except ControlError as error:
                    has_text = error.error_code not in _WITHOUT_TEXT
                    error_code, message = error.error_code, error.message if has_text else None
                results.append(
                    alter_response.ReassignablePartitionResponse(
                        partition_index=asked.partition_index, error_code=error_code, error_message=message
                    )
                )
                if parts.add(records, ITEM + LOOK * len(asked.replicas or ())):
                    yield parts.pop()
                    changes = PartitionChanges(self._image, self._configs)
            responses.append(
                alter_response.ReassignableTopicResponse(name=topic.name, partitions=tuple(results))
            )
            if parts.add(()):
                yield parts.pop()
                changes = PartitionChanges(self._image, self._configs)
        return parts.last(
            alter_response.AlterPartitionReassignmentsResponse(
                throttle_time=timedelta(0),
                allow_replication_factor_change=request.allow_replication_factor_change,
                error_code=ErrorCode.none,
                error_message=None,
                responses=tuple(responses),
            )
        )

    def list(self, request: ListPartitionReassignmentsRequest) -> ControlResult:
        """ListPartitionReassignments 0: running reassignments of all or of the requested topics; a read."""
        return ControlResult(steps=self._listing(request))

    def _listing(
        self, request: ListPartitionReassignmentsRequest
    ) -> Generator[None, None, ListPartitionReassignmentsResponse]:
        responses = []
        budget = StepBudget()
        for name, partition_ids in self._asked_for(request):
            ongoing = []
            for partition_id in partition_ids:
                topic = self._image.topics.by_name.get(name)
                partition = topic.partitions.get(partition_id) if topic else None
                if partition is not None and partition.is_reassigning:
                    ongoing.append(
                        OngoingPartitionReassignment(
                            partition_index=partition_id,
                            replicas=partition.replicas,
                            adding_replicas=partition.adding_replicas,
                            removing_replicas=partition.removing_replicas,
                        )
                    )
                if budget.spend(ITEM):
                    yield
            if ongoing:
                responses.append(OngoingTopicReassignment(name=name, partitions=tuple(ongoing)))
            if budget.spend(ITEM):
                yield
        return ListPartitionReassignmentsResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=None, topics=tuple(responses)
        )

    def _alter(
        self,
        topic_name: str,
        asked: alter_request.ReassignablePartition,
        changes: PartitionChanges,
        *,
        allow: bool,
    ) -> PartitionChangeRecord | None:
        topic = self._image.topics.by_name.get(topic_name)
        if topic is None:
            raise _unknown(f"Unable to find a topic named {topic_name}.")
        partition_id = asked.partition_index
        partition = topic.partitions.get(partition_id)
        if partition is None:
            raise _unknown(f"Unable to find partition {topic_name}:{partition_id}.")
        if asked.replicas is None:
            is_unclean_allowed = self._configs.unclean_leader_election(topic.name)
            wanted = cancellation(partition, is_unclean_allowed=is_unclean_allowed)
            if wanted is None:
                raise _invalid(
                    f"Unable to revert partition assignment for {topic.name}:{partition_id} because it would "
                    "require an unclean leader election."
                )
        else:
            check_replicas(self._image, asked.replicas)
            if not allow:
                _check_replication_factor(partition, asked.replicas)
            wanted = reassignment(partition, asked.replicas, self._directory_of)
        return changes.change(topic, partition_id, wanted)

    def _directory_of(self, broker_id: int) -> UUID:
        return default_directory(self._image, broker_id) or MIGRATING_DIRECTORY

    def _asked_for(self, request: ListPartitionReassignmentsRequest) -> "Iterable[tuple[str, Sequence[int]]]":
        topics, reassigning = self._image.topics, self._image.index.reassigning
        if request.topics is None:
            for topic_id in sorted(reassigning.topic_ids):
                topic = topics.by_id.get(topic_id)
                if topic is not None:
                    yield topic.name, sorted(reassigning.of_topic(topic_id))
            return
        for asked in request.topics:
            yield asked.name, asked.partition_indexes


def reassignment(
    partition: PartitionRegistration, replicas: "Sequence[int]", directory_of: Callable[[int], UUID]
) -> Wanted:
    """The beginning of a reassignment, whatever state the partition is in.

    Adding and removing replicas are computed from the present replicas, those of a running reassignment included.
    Without new ones to add, or to remove, those of the running reassignment stay (as in Kafka). `directory_of`
    returns the directory of a new replica.
    """
    removing = tuple(sorted(set(partition.replicas) - set(replicas)))
    adding = tuple(sorted(set(replicas) - set(partition.replicas)))
    return Wanted(
        replicas=(*replicas, *removing),
        removing_replicas=removing or None,
        adding_replicas=adding or None,
        directories={broker_id: directory_of(broker_id) for broker_id in adding},
    )


def cancellation(partition: PartitionRegistration, *, is_unclean_allowed: bool) -> Wanted | None:
    """Return the change that restores the replicas from before a reassignment.

    None when only new replicas are in sync, so that another replica would have to lead uncleanly, which is not
    allowed.

    Raises:
        ControlError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT if all replicas are new.
    """
    if not partition.is_reassigning:
        raise ControlError(ErrorCode.no_reassignment_in_progress)
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not isr:
        if not replicas:
            raise _invalid("Invalid replica assignment: addingReplicas contains all replicas.")
        if not is_unclean_allowed:
            return None
        isr = replicas[:1]
    return Wanted(
        isr=isr,
        election=Election.UNCLEAN if is_unclean_allowed else Election.ONLINE,
        replicas=replicas,
        removing_replicas=(),
        adding_replicas=(),
    )


def _check_room(parts: Parts) -> None:
    if parts.count >= RECORDS_PER_BATCH_MAX:
        raise ControlError(ErrorCode.unknown_server_error)


def _check_replication_factor(partition: PartitionRegistration, replicas: "Sequence[int]") -> None:
    """Compare with the partition as it would be when a running reassignment is done (KIP-860)."""
    current = len({*partition.replicas, *partition.adding_replicas} - set(partition.removing_replicas))
    if current != len(replicas):
        raise ControlError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {current} to {len(replicas)}",
        )


def _unknown(message: str) -> ControlError:
    return ControlError(ErrorCode.unknown_topic_or_partition, message)


def _invalid(message: str) -> ControlError:
    return ControlError(ErrorCode.invalid_replica_assignment, message)
