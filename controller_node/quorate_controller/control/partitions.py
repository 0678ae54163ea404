"""Brokers' reports on their partitions: AlterPartition and AssignReplicasToDirs."""

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import DIRECTORY_ASSIGNMENT_SINCE
from quorate_protocol.image import NO_LEADER_CHANGE
from quorate_protocol.image.partitions import MIGRATING_DIRECTORY, PartitionRegistration
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.kafka.generated import alter_partition_request as alter_request
from quorate_protocol.kafka.generated import alter_partition_response as alter_response
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as assign_request
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_response as assign_response
from quorate_protocol.records.generated import PartitionChangeRecord

from quorate_controller.control.api import (
    ControlError,
    ControlResult,
    RequestContext,
)
from quorate_controller.control.heartbeats import check_broker_epoch
from quorate_controller.control.partition_change import PartitionChanges, Wanted
from quorate_controller.control.steps import ITEM, LOOK, Parts, Steps, begun

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.registrations import BrokerRegistration
    from quorate_protocol.image.topics import TopicImage

    from quorate_controller.control.config_changes import ConfigManager

EPOCH_UNKNOWN: Final = -1
"""AlterPartition below version 3 lacks the epochs of the brokers in the ISR."""

_RECOVERY_STATES: Final = frozenset(LeaderRecoveryState)


class PartitionManager:
    """Decides on brokers' reports on single partitions. Stateless."""

    def __init__(self, image: "MetadataImage", configs: "ConfigManager") -> None:
        self._image = image
        self._configs = configs

    def alter_partition(
        self,
        request: alter_request.AlterPartitionRequest,
        _context: RequestContext,
    ) -> ControlResult:
        """AlterPartition 2-3: a leader changes its ISR; may complete a running reassignment.

        Errors of single partitions stand in the response.

        Raises:
            ControlError: STALE_BROKER_EPOCH.
        """
        return begun(self._altering(request))

    def _altering(self, request: alter_request.AlterPartitionRequest) -> Steps:
        parts = Parts(atomic=False)
        changes = self._changes_for(request.broker_id, request.broker_epoch)
        responses = []
        for asked in request.topics:
            results = []
            for wanted in asked.partitions:
                records: list[PartitionChangeRecord] = []
                topic = self._image.topics.by_id.get(asked.topic_id) if asked.topic_id else None
                if topic is None:
                    results.append(_refused(wanted.partition_index, ErrorCode.unknown_topic_id))
                else:
                    results.append(self._alter(request.broker_id, topic, wanted, changes, records))
                if parts.add(records, ITEM + LOOK * len(wanted.new_isr_with_epochs)):
                    yield parts.pop()
                    changes = self._changes_for(request.broker_id, request.broker_epoch)
            responses.append(alter_response.TopicData(topic_id=asked.topic_id, partitions=tuple(results)))
            if parts.add(()):
                yield parts.pop()
                changes = self._changes_for(request.broker_id, request.broker_epoch)
        return parts.last(
            alter_response.AlterPartitionResponse(
                throttle_time=timedelta(0), error_code=ErrorCode.none, topics=tuple(responses)
            )
        )

    def _changes_for(self, broker_id: int, broker_epoch: int) -> PartitionChanges:
        """Begin a step of a broker's report.

        Raises:
            ControlError: STALE_BROKER_EPOCH.
        """
        check_broker_epoch(self._image, broker_id, broker_epoch)
        return PartitionChanges(self._image, self._configs)

    def assign_replicas_to_dirs(
        self,
        request: assign_request.AssignReplicasToDirsRequest,
        _context: RequestContext,
    ) -> ControlResult:
        """AssignReplicasToDirs 0 (KIP-858): a broker reports the log directory of each of its replicas.

        A replica assigned to a directory that is not online loses leadership and ISR membership. Errors of
        single partitions stand in the response.

        Raises:
            ControlError: UNSUPPORTED_VERSION below metadata.version 17, STALE_BROKER_EPOCH.
        """
        if self._image.metadata_version < DIRECTORY_ASSIGNMENT_SINCE:
            raise ControlError(ErrorCode.unsupported_version, "Directory assignment is not supported yet.")
        check_broker_epoch(self._image, request.broker_id, request.broker_epoch)
        return begun(self._assigning(request))

    def _assigning(self, request: assign_request.AssignReplicasToDirsRequest) -> Steps:
        parts = Parts(atomic=False)
        responses = []
        for asked in request.directories:
            move = self._move(request, asked.id_)
            topics = []
            for topic in asked.topics:
                results = []
                for partition in topic.partitions:
                    records: list[PartitionChangeRecord] = []
                    error_code = move.assign(topic.topic_id, partition.partition_index, records)
                    results.append(
                        assign_response.PartitionData(
                            partition_index=partition.partition_index, error_code=error_code
                        )
                    )
                    if parts.add(records):
                        yield parts.pop()
                        move = self._move(request, asked.id_)
                topics.append(assign_response.TopicData(topic_id=topic.topic_id, partitions=tuple(results)))
                if parts.add(()):
                    yield parts.pop()
                    move = self._move(request, asked.id_)
            responses.append(assign_response.DirectoryData(id_=asked.id_, topics=tuple(topics)))
            if parts.add(()):
                yield parts.pop()
        return parts.last(
            assign_response.AssignReplicasToDirsResponse(
                throttle_time=timedelta(0), error_code=ErrorCode.none, directories=tuple(responses)
            )
        )

    def _move(self, request: assign_request.AssignReplicasToDirsRequest, directory: UUID | None) -> "_Move":
        """Begin a directory, or a step, of a broker's report.

        Raises:
            ControlError: STALE_BROKER_EPOCH.
        """
        broker = check_broker_epoch(self._image, request.broker_id, request.broker_epoch)
        return _Move(self._image, self._configs, broker, directory or MIGRATING_DIRECTORY)

    def _alter(
        self,
        broker_id: int,
        topic: "TopicImage",
        asked: alter_request.PartitionData,
        changes: PartitionChanges,
        records: list[PartitionChangeRecord],
    ) -> alter_response.PartitionData:
        """Change one partition for its leader: add to `records`. Returns the result for the response."""
        partition_id = asked.partition_index
        partition = topic.partitions.get(partition_id)
        if partition is None:
            return _refused(partition_id, ErrorCode.unknown_topic_or_partition)
        error = _epoch_error(broker_id, partition, asked) or self._isr_error(partition, asked)
        if error is not None:
            return _refused(partition_id, error)
        record = changes.change(
            topic,
            partition_id,
            Wanted(
                isr=tuple(replica.broker_id for replica in asked.new_isr_with_epochs),
                election=changes.election(topic),
                leader_recovery_state=LeaderRecoveryState(asked.leader_recovery_state),
            ),
        )
        if record is not None:
            records.append(record)
            if record.leader not in (broker_id, NO_LEADER_CHANGE):
                # The change completed a reassignment that moved the leadership. This is the only result
                # with an error although a record is written: the broker has to read the metadata first.
                return _refused(partition_id, ErrorCode.new_leader_elected)
            partition = partition.merge(record)
        return alter_response.PartitionData(
            partition_index=partition_id,
            error_code=ErrorCode.none,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            leader_recovery_state=int(partition.leader_recovery_state),
            partition_epoch=partition.partition_epoch,
        )

    def _isr_error(
        self, partition: PartitionRegistration, asked: alter_request.PartitionData
    ) -> ErrorCode | None:
        isr = Counter(replica.broker_id for replica in asked.new_isr_with_epochs)
        if max(isr.values(), default=0) > 1 or not isr.keys() <= set(partition.replicas):
            return ErrorCode.invalid_request
        if partition.leader not in isr:
            return ErrorCode.invalid_request
        if asked.leader_recovery_state not in _RECOVERY_STATES:
            return ErrorCode.invalid_request
        if asked.leader_recovery_state == LeaderRecoveryState.RECOVERING and (
            len(isr) > 1 or partition.leader_recovery_state == LeaderRecoveryState.RECOVERED
        ):
            return ErrorCode.invalid_request
        if not all(map(self._may_join_isr, asked.new_isr_with_epochs)):
            return ErrorCode.ineligible_replica
        return None

    def _may_join_isr(self, replica: alter_request.BrokerState) -> bool:
        """Whether it is registered, neither fenced nor shutting down, and of the epoch in the request."""
        broker = self._image.cluster.brokers.get(replica.broker_id)
        if broker is None or not broker.is_active:
            return False
        return replica.broker_epoch in (EPOCH_UNKNOWN, broker.epoch)


class _Move:
    """Replicas of one broker that are now in one of its directories."""

    def __init__(
        self, image: "MetadataImage", configs: "ConfigManager", broker: "BrokerRegistration", directory: UUID
    ) -> None:
        self._image = image
        self._broker_id = broker.broker_id
        self._directory = directory
        self._is_online = broker.has_online_directory(directory)
        self._changes = PartitionChanges(image, configs)

    def assign(
        self, topic_id: UUID | None, partition_id: int, records: list[PartitionChangeRecord]
    ) -> ErrorCode:
        topic = self._image.topics.by_id.get(topic_id) if topic_id else None
        if topic is None:
            return ErrorCode.unknown_topic_id
        partition = topic.partitions.get(partition_id)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if self._broker_id not in partition.replicas:
            return ErrorCode.not_leader_or_follower
        isr = partition.isr
        if not self._is_online:
            isr = tuple(replica for replica in isr if replica != self._broker_id)
        wanted = Wanted(
            isr=isr,
            election=self._changes.election(topic),
            directories={self._broker_id: self._directory},
        )
        record = self._changes.change(topic, partition_id, wanted)
        if record is not None:
            records.append(record)
        return ErrorCode.none


def _epoch_error(
    broker_id: int, partition: PartitionRegistration, asked: alter_request.PartitionData
) -> ErrorCode | None:
    """Whether the broker has the current epochs of the partition, and leads it."""
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return ErrorCode.not_controller  # its epochs are newer than ours: there must be a newer controller
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    return None


def _refused(partition_id: int, error_code: ErrorCode) -> alter_response.PartitionData:
    return alter_response.PartitionData(
        partition_index=partition_id,
        error_code=error_code,
        leader_id=0,
        leader_epoch=0,
        isr=(),
        partition_epoch=0,
    )
