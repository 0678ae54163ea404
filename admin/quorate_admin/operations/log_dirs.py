"""Operations on the log directories of brokers (KIP-113)."""

from collections.abc import Iterable, Mapping

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.log_dirs import LogDirDescription, ReplicaLogDirInfo
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica

__all__ = ("LogDirOperations",)


class LogDirOperations(Operations):
    """Each broker is asked about its own directories."""

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> Results[int, Mapping[str, LogDirDescription]]:
        """The log directories of brokers, by path, with some or all replicas in them (DescribeLogDirs)."""
        raise NotImplementedError

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Where replicas are and move to (DescribeLogDirs); a replica that is nowhere has no directory."""
        raise NotImplementedError

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Move replicas to other directories of their brokers, which are absolute paths (AlterReplicaLogDirs).

        Where a broker does not have the replica yet (REPLICA_NOT_AVAILABLE) it will create it there.
        """
        raise NotImplementedError
