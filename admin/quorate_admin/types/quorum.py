"""The controller quorum: who votes, who follows, how far they are (DescribeQuorum, KIP-836, KIP-853)."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftVoterEndpoint:
    """Where a voter listens: the listener's name, for instance CONTROLLER, host and port."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    """A voter or observer of the metadata log, as the leader sees it.

    `log_end_offset` is -1 and the times, in Unix milliseconds of the leader's clock, are None while unknown.
    """

    node_id: int
    directory_id: uuid.UUID | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The controller quorum (DescribeQuorum). `high_watermark` is -1 until the leader knows it.

    `nodes` has the endpoints of the voters by node id, where the server tells them (version 2).
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    nodes: Mapping[int, tuple[RaftVoterEndpoint, ...]] = field(default_factory=dict)
