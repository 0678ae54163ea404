"""The input of a raft node's start: its configuration, and the state on its disk."""

from dataclasses import field

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey, SnapshotId, VersionRange
from quorate_controller.raft.voters import VoterSet
from quorate_controller.unix_time import UnixTime, unchanged

KRAFT_VERSION_STATIC = 0
"""kraft.version 0: the voters are those of `controller.quorum.voters`."""
KRAFT_VERSION_DYNAMIC = 1
"""kraft.version 1: the voters are those of the last VotersRecord (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What `quorum-state` holds: the state of an election that must survive a restart.

    `leader_id` is `NO_NODE_ID` when unknown. `voted_key` is the replica that got our vote in `leader_epoch`;
    its directory id may be unknown.
    """

    leader_epoch: int = 0
    leader_id: int = NO_NODE_ID
    voted_key: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """One line of leader-epoch-checkpoint: the first offset written in `epoch`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersAt:
    """The voter set of the VotersRecord at `offset`; one out of a snapshot has `snapshot.offset - 1`."""

    offset: int
    voters: VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionAt:
    """The level of the KRaftVersionRecord at `offset`; one out of a snapshot has `snapshot.offset - 1`."""

    offset: int
    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The log's metadata as storage found it after recovery.

    `epochs` ascend in both fields. `snapshot_id` is the latest snapshot (the bootstrap checkpoint 0-0
    included) and `earliest_snapshot_id` the oldest one, both None without a snapshot; a log that starts
    behind 0 has a snapshot that ends where it starts, and that is the oldest. `voters` and `kraft_versions`
    hold, ascending, those of the latest snapshot and of every such control record in the log behind it.
    """

    start_offset: int = 0
    end_offset: int = 0
    epochs: tuple[EpochStart, ...] = ()
    snapshot_id: SnapshotId | None = None
    earliest_snapshot_id: SnapshotId | None = None
    voters: tuple[VotersAt, ...] = ()
    kraft_versions: tuple[KRaftVersionAt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapServer:
    """One address of `controller.quorum.bootstrap.servers`."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Kafka's `controller.quorum.*` properties, and the identity of this node.

    `key.directory_id` is never None. `listener` is the name of the listener on which controllers talk to each
    other (the first of `controller.listener.names`); `endpoints` are all of this node's controller endpoints,
    as advertised. `static_voters` is `controller.quorum.voters` (empty for a dynamic quorum; directory ids
    None), `bootstrap_servers` is `controller.quorum.bootstrap.servers`. At least one of both is not empty.
    """

    cluster_id: str
    key: ReplicaKey
    listener: str
    endpoints: tuple[Endpoint, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    bootstrap_servers: tuple[BootstrapServer, ...] = ()
    can_vote: bool = True
    """False for a node that is no controller: it stays an observer."""
    unix_ms_of: UnixTime = unchanged
    """For the times of control records."""
    auto_join: bool = False
    """`controller.quorum.auto.join.enable`: ask to become a voter when the log has a voter set without this node."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_ms_max: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms_max: int = 500
    fetch_size_bytes_max: int = 1024 * 1024
    snapshot_fetch_size_bytes_max: int = 1024 * 1024
    fetches_held_max: int = 10_000
    observers_max: int = 10_000
    fast_backoff_ms_max: int = 100
    """The maximum of the random pause before an election after the connection to the leader broke or an election
    was tied. Not a property of Kafka, which waits for its timeouts."""
    kraft_versions: VersionRange = field(
        default_factory=lambda: VersionRange(lowest=KRAFT_VERSION_STATIC, highest=KRAFT_VERSION_DYNAMIC)
    )
