"""Partitions and their replicas: elections (KIP-183, KIP-460), reassignments (KIP-455), log directories (KIP-113)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError
from quorate_admin.network.routing import To
from quorate_admin.operations.base import KeyedOperations, KeyResult, error_of
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from quorate_protocol.kafka.enums import ElectionType

    from quorate_admin.config import Address
    from quorate_admin.types.partitions import (
        LogDirDescription,
        PartitionReassignment,
        ReplicaLogDirInfo,
        TopicPartition,
        TopicPartitionReplica,
    )

    Described = Mapping[str, LogDirDescription]


class PartitionOperations(KeyedOperations):
    """Elections and reassignments go to the active controller, directly or through a broker.

    Requests for log directories go to each broker; a broker that can't be reached is an error of its own keys only.
    """

    # Elections

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders of the given partitions, or of all that need an election (ElectLeaders).

        A given partition that needs no election has the error ELECTION_NOT_NEEDED; without partitions, it is omitted.
        """
        from quorate_protocol.kafka.generated.elect_leaders_request import (
            ElectLeadersRequest,
            TopicPartitions,
        )

        def request_for(asked: Sequence[TopicPartition] | None, timeout: timedelta) -> ElectLeadersRequest:
            topics = _by_topic(asked, lambda topic, ids: TopicPartitions(topic=topic, partitions=ids))
            return ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout=timeout)

        if partitions is not None:
            return await self._ask_each(partitions, request_for, _election_results, timeout_ms=timeout_ms)
        request = request_for(None, self._server_timeout(timeout_ms))
        results = list(_election_results(await self._ask(request, timeout_ms=timeout_ms)))
        errors = {result.key: error_of(result.error_code, result.message) for result in results}
        return Results(
            {key: None for key, error in errors.items() if error is None},
            {key: error for key, error in errors.items() if error is not None},
        )

    # Reassignments

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Reassign partitions to the given brokers, the preferred leader first (AlterPartitionReassignments).

        None instead of brokers cancels the reassignment of a partition.
        """
        from quorate_protocol.kafka.generated.alter_partition_reassignments_request import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        from quorate_admin.types.partitions import TopicPartition

        def partition_of(topic: str, number: int) -> ReassignablePartition:
            replicas = reassignments[TopicPartition(topic, number)]
            return ReassignablePartition(
                partition_index=number, replicas=None if replicas is None else tuple(replicas)
            )

        def request_for(
            asked: Sequence[TopicPartition], timeout: timedelta
        ) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout=timeout,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=_by_topic(
                    asked,
                    lambda topic, ids: ReassignableTopic(
                        name=topic, partitions=tuple(partition_of(topic, number) for number in ids)
                    ),
                ),
            )

        def results_of(response: Any, _: object) -> Iterator[KeyResult[TopicPartition, None]]:
            for topic in response.responses:
                for partition in topic.partitions:
                    key = TopicPartition(topic.name, partition.partition_index)
                    yield KeyResult(key, None, partition.error_code, partition.error_message)

        return await self._ask_each(reassignments, request_for, results_of, timeout_ms=timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> Mapping[TopicPartition, PartitionReassignment]:
        """The reassignments in progress of the given partitions, or of all (ListPartitionReassignments)."""
        from quorate_protocol.kafka.generated.list_partition_reassignments_request import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsTopics,
        )

        from quorate_admin.types.partitions import PartitionReassignment, TopicPartition

        topics = _by_topic(
            partitions,
            lambda topic, ids: ListPartitionReassignmentsTopics(name=topic, partition_indexes=ids),
        )
        request = ListPartitionReassignmentsRequest(timeout=self._server_timeout(timeout_ms), topics=topics)
        response = await self._ask(request, timeout_ms=timeout_ms)
        return {
            TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
                replicas=tuple(partition.replicas),
                adding_replicas=tuple(partition.adding_replicas),
                removing_replicas=tuple(partition.removing_replicas),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    # Log directories

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> Results[int, Described]:
        """The log directories of brokers by path, with the given or all replicas in them (DescribeLogDirs).
        Brokers only.
        """
        self._brokers_only("describe_log_dirs")
        wanted = None if partitions is None else tuple(partitions)

        async def ask(to: To, _: Sequence[int]) -> Results[int, Described]:
            return Results({to.node_id: await self._log_dirs(to, wanted, timeout_ms)})

        return await self._ask_nodes({To.node(broker_id): [broker_id] for broker_id in broker_ids}, ask)

    async def describe_log_dirs_at(self, address: Address, *, timeout_ms: int | None = None) -> Described:
        """The log directories by path of the broker at an address, whichever it is (DescribeLogDirs)."""
        self._brokers_only("describe_log_dirs_at")
        return await self._log_dirs(To.at(address), None, timeout_ms)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, ReplicaLogDirInfo]:
        """The current and future log directories of replicas (DescribeLogDirs). Brokers only."""
        from quorate_admin.types.partitions import TopicPartition

        self._brokers_only("describe_replica_log_dirs")

        async def ask(
            to: To, asked: Sequence[TopicPartitionReplica]
        ) -> Results[TopicPartitionReplica, ReplicaLogDirInfo]:
            wanted = tuple(TopicPartition(replica.topic, replica.partition) for replica in asked)
            described = await self._log_dirs(to, wanted, timeout_ms)
            return Results(
                {
                    replica: _place(TopicPartition(replica.topic, replica.partition), described)
                    for replica in asked
                }
            )

        return await self._ask_nodes(_by_broker(replicas), ask)

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Move replicas to other log directories, by absolute path, of the same brokers (AlterReplicaLogDirs).
        Brokers only.

        A broker without the replica answers REPLICA_NOT_AVAILABLE, and will create it in that directory.
        """
        self._brokers_only("alter_replica_log_dirs")

        async def ask(to: To, asked: Sequence[TopicPartitionReplica]) -> Results[TopicPartitionReplica, None]:
            return await self._move_replicas(
                to, {replica: assignments[replica] for replica in asked}, timeout_ms
            )

        return await self._ask_nodes(_by_broker(assignments), ask)

    async def alter_replica_log_dirs_at(
        self,
        address: Address,
        assignments: Mapping[TopicPartitionReplica, str],
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartitionReplica, None]:
        """As `alter_replica_log_dirs`, for replicas of the one broker at an address (AlterReplicaLogDirs)."""
        self._brokers_only("alter_replica_log_dirs_at")
        return await self._move_replicas(To.at(address), assignments, timeout_ms)

    async def _move_replicas(
        self, to: To, assignments: Mapping[TopicPartitionReplica, str], timeout_ms: int | None
    ) -> Results[TopicPartitionReplica, None]:
        asked = {(assignment.topic, assignment.partition): assignment for assignment in assignments}

        def results_of(response: Any, _: object) -> Iterator[KeyResult[TopicPartitionReplica, None]]:
            for topic in response.results:
                for partition in topic.partitions:
                    yield KeyResult(
                        asked[topic.topic_name, partition.partition_index], None, partition.error_code
                    )

        return await self._ask_each(
            assignments,
            lambda left, _: _move_request({replica: assignments[replica] for replica in left}),
            results_of,
            to=to,
            timeout_ms=timeout_ms,
        )

    async def _log_dirs(
        self, to: To, partitions: Sequence[TopicPartition] | None, timeout_ms: int | None
    ) -> Described:
        from quorate_protocol.kafka.generated.describe_log_dirs_request import (
            DescribableLogDirTopic,
            DescribeLogDirsRequest,
        )

        topics = _by_topic(partitions, lambda topic, ids: DescribableLogDirTopic(topic=topic, partitions=ids))
        response = await self._ask(DescribeLogDirsRequest(topics=topics), to, timeout_ms=timeout_ms)
        if not response.results:
            # Every broker has a directory. Below version 3 the response has no field for this error.
            raise ServerError(ErrorCode.cluster_authorization_failed)
        return {result.log_dir: _log_dir(result) for result in response.results}


def _election_results(response: Any, _: object = None) -> Iterator[KeyResult[TopicPartition, None]]:
    from quorate_admin.types.partitions import TopicPartition

    for topic in response.replica_election_results:
        for partition in topic.partition_result:
            key = TopicPartition(topic.topic, partition.partition_id)
            yield KeyResult(key, None, partition.error_code, partition.error_message)


def _by_topic(
    partitions: Iterable[TopicPartition] | None, make: Callable[[str, tuple[int, ...]], Any]
) -> Any:
    """Call `make` for each topic with its partition numbers. Returns None, which means all, for None."""
    from quorate_admin.types.partitions import partitions_by_topic

    if partitions is None:
        return None
    return tuple(make(topic, tuple(ids)) for topic, ids in partitions_by_topic(partitions).items())


def _by_broker(
    replicas: Iterable[TopicPartitionReplica],
) -> dict[To, Sequence[TopicPartitionReplica]]:
    by_broker = defaultdict(list)
    for replica in dict.fromkeys(replicas):
        by_broker[To.node(replica.broker_id)].append(replica)
    return dict(by_broker)


def _log_dir(result: Any) -> LogDirDescription:
    from quorate_admin.types.partitions import LogDirDescription, ReplicaInfo, TopicPartition

    return LogDirDescription(
        error=error_of(result.error_code),
        replicas={
            TopicPartition(topic.name, partition.partition_index): ReplicaInfo(
                size_bytes=partition.partition_size,
                offset_lag=partition.offset_lag,
                is_future=partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        },
        total_bytes=None if result.total_bytes < 0 else result.total_bytes,
        usable_bytes=None if result.usable_bytes < 0 else result.usable_bytes,
        is_cordoned=result.is_cordoned,
    )


def _place(partition: TopicPartition, described: Described) -> ReplicaLogDirInfo:
    from quorate_admin.types.partitions import ReplicaLogDirInfo

    place = ReplicaLogDirInfo()
    for path, log_dir in described.items():
        info = log_dir.replicas.get(partition)
        if info is None:
            continue
        if info.is_future:
            place = replace(place, future_log_dir=path, future_offset_lag=info.offset_lag)
        else:
            place = replace(place, current_log_dir=path, current_offset_lag=info.offset_lag)
    return place


def _move_request(assignments: Mapping[TopicPartitionReplica, str]) -> Any:
    from quorate_protocol.kafka.generated.alter_replica_log_dirs_request import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    from quorate_admin.types.partitions import TopicPartition

    by_path: dict[str, list[TopicPartition]] = defaultdict(list)
    for replica, path in assignments.items():
        by_path[path].append(TopicPartition(replica.topic, replica.partition))
    return AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path=path,
                topics=_by_topic(
                    partitions, lambda topic, ids: AlterReplicaLogDirTopic(name=topic, partitions=ids)
                ),
            )
            for path, partitions in by_path.items()
        )
    )
