"""Elections of partition leaders (KIP-183, KIP-460)."""

from collections.abc import Iterable

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.elections import ElectionType
from quorate_admin.types.partitions import TopicPartition

__all__ = ("ElectionOperations",)


class ElectionOperations(Operations):
    """Leaders of partitions; asked of the active controller, directly or through a broker."""

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders (ElectLeaders); no partitions: of all that need it.

        A partition that leads well already is an error ELECTION_NOT_NEEDED where it was named, and left out
        where all were meant.
        """
        raise NotImplementedError
