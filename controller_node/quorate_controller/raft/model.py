"""The nouns of the raft core: replicas, endpoints, voters, positions in the log.

Offsets count records of the metadata log; an end offset is exclusive. Epochs are Kafka's leader epochs.
"""

from typing import TYPE_CHECKING

from quorate_protocol.plain_data import dataclass
from quorate_protocol.uuids import uuid_to_text

if TYPE_CHECKING:
    from uuid import UUID

EPOCH_MAX = 2**31 - 1
NO_NODE_ID = -1
"""No leader known, no vote cast, or a replica that named no id."""


class RaftSafetyError(Exception):
    """A step would break a promise of Raft: a mistake of ours, or of the driver.

    The state in memory may have changed halfway, and nothing of the step may reach the disk or another node. The
    process has to end. Its successor starts from the disk, which is consistent. This package has no
    `assert`, which `python -O` removes. Invalid input from another node is refused with a protocol error instead.
    """


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OffsetAndEpoch:
    """A position in the log. Compares by epoch, then offset: the order in which raft ranks logs."""

    epoch: int
    offset: int


SnapshotId = OffsetAndEpoch
"""`offset` is the exclusive end offset of the snapshot, `epoch` the epoch of the last record in it."""

BOOTSTRAP_SNAPSHOT_ID = SnapshotId(offset=0, epoch=0)
"""The checkpoint that formatting writes. It is never served to other replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKey:
    """A replica: its node id and the id of the directory its log lives in (KIP-853).

    `directory_id` is None where the peer speaks a version without it, and under kraft.version 0.
    """

    node_id: int
    directory_id: "UUID | None" = None

    def matches(self, key: "ReplicaKey") -> bool:
        """Whether `key` is this replica. One without a known directory id is matched by node id alone."""
        return self.node_id == key.node_id and self.directory_id in (None, key.directory_id)

    def __str__(self) -> str:
        return f"{self.node_id}" + (
            "" if self.directory_id is None else f"-{uuid_to_text(self.directory_id)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a replica's listener, by Kafka's listener name (`CONTROLLER`)."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """The lowest and highest supported level, both inclusive."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One voter as VotersRecord describes it."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: VersionRange

    @property
    def node_id(self) -> int:
        return self.key.node_id


def find_endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    """The endpoint of that listener name, or None."""
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)


@dataclass(slots=True, kw_only=True)
class Download:
    """A snapshot being fetched; the first `position` bytes are on our disk."""

    snapshot_id: SnapshotId
    position: int = 0
