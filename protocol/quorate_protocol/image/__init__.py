"""The metadata image: a cluster as its metadata log describes it; replay, undo, snapshots.

Start at :class:`~quorate_protocol.image.image.MetadataImage`. All values in it are frozen. It is loaded from log
batches and checkpoints by :mod:`quorate_protocol.image.loading`, and written as records and checkpoints by
:mod:`quorate_protocol.image.snapshot`; :mod:`quorate_protocol.image.views` has common queries.
"""

from quorate_protocol.image.errors import CorruptCheckpointError, ReplayError, UnwritableImageError
from quorate_protocol.image.image import MetadataImage
from quorate_protocol.image.journal import Transaction
from quorate_protocol.image.partitions import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RESERVED_DIRECTORIES,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
)
from quorate_protocol.image.registrations import (
    BrokerRegistration,
    ControllerRegistration,
    Listener,
    VersionRange,
)
from quorate_protocol.image.security import (
    AccessControlEntry,
    DelegationToken,
    QuotaEntity,
    ScramCredential,
)
from quorate_protocol.image.state import ConfigResource, ImageState, Provenance
from quorate_protocol.image.topics import PartitionKey, TopicImage

__all__ = (
    "LOST_DIRECTORY",
    "MIGRATING_DIRECTORY",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RESERVED_DIRECTORIES",
    "UNASSIGNED_DIRECTORY",
    "AccessControlEntry",
    "BrokerRegistration",
    "ConfigResource",
    "ControllerRegistration",
    "CorruptCheckpointError",
    "DelegationToken",
    "ImageState",
    "Listener",
    "MetadataImage",
    "PartitionKey",
    "PartitionRegistration",
    "Provenance",
    "QuotaEntity",
    "ReplayError",
    "ScramCredential",
    "TopicImage",
    "Transaction",
    "UnwritableImageError",
    "VersionRange",
)
