"""Moving partitions to other brokers (KIP-455)."""

from dataclasses import dataclass

__all__ = ("PartitionReassignment",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment under way: all replicas now, and which of them come and go."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
