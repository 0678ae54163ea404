"""The tables of an image, and the plain copy of them from which a snapshot is written."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.image.registrations import BrokerRegistration, ControllerRegistration
from quorate_protocol.image.security import AccessControlEntry, DelegationToken, QuotaEntity, ScramCredential
from quorate_protocol.image.topics import TopicsImage, TopicsObserver
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.plain_data import dataclass

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class TableOf(Protocol[K_contra, V]):
    """Rows by key. Rows are frozen values; None stands for no row."""

    @property
    def name(self) -> str:
        """The name, unique within an image."""

    def get(self, key: K_contra, /) -> V | None:
        """Return the row, or None."""

    def write(self, key: K_contra, value: V | None, /) -> V | None:
        """Write the row ``value``, or remove it for None; return the previous row, or None."""


AnyTable = TableOf[Any, Any]


class Table(dict[K, V], Generic[K, V]):
    """A table whose rows do not nest in those of another."""

    __slots__ = ("changes", "name")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name: Final = name
        self.changes = 0
        """Number of writes so far: what was read before the last one may be outdated."""

    def write(self, key: K, value: V | None, /) -> V | None:
        old = self.get(key)
        self.changes += 1
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value
        return old


class FollowedTable(Table[K, V]):
    """A table that an index follows: ``on_change`` gets each row before and after a write."""

    __slots__ = ("on_change",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.on_change: Callable[[V | None, V | None], None] | None = None

    def write(self, key: K, value: V | None) -> V | None:
        old = super().write(key, value)
        if self.on_change is not None:
            self.on_change(old, value)
        return old


ConfigResource = tuple[int, str]
"""Type (a ConfigResourceType) and name of what has configs."""

NEXT_PRODUCER_ID: Final = "next_producer_id"
"""The only key of the table ``producer_ids``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The position of an image in the log (Kafka: MetadataProvenance)."""

    end_offset: int = 0
    """The image contains the records below this offset; (end_offset, epoch) is the id of its snapshot."""
    epoch: int = 0
    """Leader epoch of the last record that it contains."""
    timestamp_ms: int = 0
    """Append time of that record's batch."""


class ClusterImage:
    """Registered brokers and controllers, by node id."""

    __slots__ = ("brokers", "controllers")

    def __init__(self) -> None:
        self.brokers: Final = Table[int, BrokerRegistration]("brokers")
        self.controllers: Final = Table[int, ControllerRegistration]("controllers")


class ImageState:
    """The content of all metadata records of a cluster. Readers use the tables as read-only mappings."""

    __slots__ = (
        "acls",
        "client_quotas",
        "cluster",
        "configs",
        "delegation_tokens",
        "features",
        "producer_ids",
        "provenance",
        "scram",
        "topics",
    )

    def __init__(self, observer: TopicsObserver | None = None) -> None:
        self.provenance = Provenance()
        self.features = Table[str, int]("features")
        """Finalized levels, metadata.version included; a feature at level 0 has no row."""
        self.cluster = ClusterImage()
        self.topics = TopicsImage(observer)
        self.configs = Table[ConfigResource, Mapping[str, str]]("configs")
        """Dynamic configs of each resource that has any, by name."""
        self.client_quotas = Table[QuotaEntity, Mapping[str, float]]("client_quotas")
        """Quota values of each entity that has any, by quota key."""
        self.producer_ids = Table[str, int]("producer_ids")
        self.acls = FollowedTable[UUID, AccessControlEntry]("acls")
        self.scram = Table[tuple[ScramMechanism, str], ScramCredential]("scram")
        """By mechanism and user name."""
        self.delegation_tokens = FollowedTable[str, DelegationToken]("delegation_tokens")
        """By token id."""

    @property
    def metadata_version(self) -> int:
        """Finalized level of metadata.version; 0 until a FeatureLevelRecord has set it."""
        return self.features.get(features.METADATA_VERSION, 0)

    @property
    def next_producer_id(self) -> int:
        """First producer id after all allocated blocks; -1 before the first block."""
        return self.producer_ids.get(NEXT_PRODUCER_ID, -1)

    def tables(self) -> tuple[AnyTable, ...]:
        """Return all tables."""
        topics = self.topics
        return (topics.names, topics.partitions, topics.removals, *self.flat_tables())

    def flat_tables(self) -> tuple[Table[Any, Any], ...]:
        """Return the tables whose rows do not nest in those of another."""
        return (
            self.features,
            self.cluster.brokers,
            self.cluster.controllers,
            self.configs,
            self.client_quotas,
            self.producer_ids,
            self.acls,
            self.scram,
            self.delegation_tokens,
        )

    def copy(self) -> "ImageState":
        """Return a copy that changes independently; cheap, see :mod:`quorate_protocol.image.topics`."""
        copied = ImageState()
        copied.provenance = self.provenance
        copied.topics = self.topics.copy()
        for table, target in zip(self.flat_tables(), copied.flat_tables(), strict=True):
            target.update(table)
        return copied

    def same_as(self, other: "ImageState") -> bool:
        """Whether both describe the same cluster, at any position in the log. Compares every row."""
        return self.flat_tables() == other.flat_tables() and self.topics.same_as(other.topics)
