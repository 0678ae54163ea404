"""Operations on partition reassignments (KIP-455)."""

from collections.abc import Iterable, Mapping, Sequence

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.partitions import TopicPartition
from quorate_admin.types.reassignments import PartitionReassignment

__all__ = ("ReassignmentOperations",)


class ReassignmentOperations(Operations):
    """Partitions on the move; asked of the active controller, directly or through a broker."""

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these brokers; None cancels (AlterPartitionReassignments)."""
        raise NotImplementedError

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> Mapping[TopicPartition, PartitionReassignment]:
        """What is on the move, of some partitions or of all (ListPartitionReassignments)."""
        raise NotImplementedError
