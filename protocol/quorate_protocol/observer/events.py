"""What an observer tells whoever drives it."""

from dataclasses import dataclass
from typing import NamedTuple

from quorate_protocol.observer.position import Position
from quorate_protocol.records.batch import RecordBatch


class Endpoint(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """Another leader, another epoch, or none."""

    leader_id: int
    """-1 while there is none."""
    epoch: int
    endpoint: Endpoint | None
    """None when nobody has told: the bootstrap addresses are asked one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Batches below the high watermark, whole and in order, control batches among them."""

    batches: tuple[RecordBatch, ...]
    """At least one; the first begins where the last event ended."""
    position: Position
    """Behind the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A new leader's log lacks records that were fetched; they were not committed, so nobody has seen them."""

    position: Position
    """The end of what is still held."""
    records: int
    """How many were dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The leader no longer has the records behind our position: a snapshot will stand for them."""

    start: Position
    end: Position
    """That of the snapshot, which is offered and may still change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun:
    """The first chunk of a snapshot is about to follow."""

    snapshot_id: Position
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """The next bytes of the snapshot, cut anywhere."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAbandoned:
    """The chunks so far are of no use: the leader has deleted the snapshot, or is no longer the leader."""

    snapshot_id: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded:
    """The snapshot is whole: it replaces everything before."""

    position: Position
    """Its id: the records from there on follow."""


Event = (
    LeaderChanged
    | Committed
    | Truncated
    | Gap
    | SnapshotBegun
    | SnapshotChunk
    | SnapshotAbandoned
    | SnapshotLoaded
)
