"""Log directories of brokers and the replicas in them (KIP-113)."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_admin.errors import ServerError
from quorate_admin.types.partitions import TopicPartition

__all__ = ("LogDirDescription", "ReplicaInfo", "ReplicaLogDirInfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A replica in a log directory.

    `offset_lag` counts offsets behind the high watermark, or behind the current replica for one that
    `is_future`: which will take its place when it has caught up.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory; with an `error`, for instance KAFKA_STORAGE_ERROR when it is offline, nothing is known.

    `total_bytes` and `usable_bytes` of its volume are None where the server does not tell them.
    """

    error: ServerError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogDirInfo:
    """Where a replica is, and where it moves to; None for a directory that does not hold it, the lag then -1."""

    current_log_dir: str | None = None
    current_offset_lag: int = -1
    future_log_dir: str | None = None
    future_offset_lag: int = -1
