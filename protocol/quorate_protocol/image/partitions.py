"""One partition in the image, and the effect of a PartitionChangeRecord on it.

A cluster may have a million partitions, so equal tuples are shared between them: see the ``intern``
parameters, and :class:`BrokerIdsPool`.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.image.errors import CannotReplay, UnwritableImageError
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import PartitionChangeRecord, PartitionRecord

NO_LEADER: Final = -1
"""The ``leader`` of a partition without one."""

NO_LEADER_CHANGE: Final = -2
"""The ``leader`` of a PartitionChangeRecord that keeps the leader and its epoch."""

NO_RECOVERY_STATE_CHANGE: Final = -1
"""The ``leader_recovery_state`` of a PartitionChangeRecord that keeps it."""

MIGRATING_DIRECTORY: Final = UUID(int=0)
"""Directory of a replica that metadata.version < 17 created, until its broker reports it; None in records."""

UNASSIGNED_DIRECTORY: Final = UUID(int=1)
"""Directory of a replica that its broker has not placed yet (KIP-858)."""

LOST_DIRECTORY: Final = UUID(int=2)
"""Directory of a replica whose log directory went offline (KIP-858)."""

RESERVED_DIRECTORIES: Final = frozenset(UUID(int=number) for number in range(100))
"""Ids that no log directory of a broker may have (DirectoryId.reserved)."""

InternIds = Callable[[tuple[int, ...]], tuple[int, ...]]
"""Returns an equal tuple, if possible one that other partitions share."""

InternDirectories = Callable[[tuple[UUID | None, ...], int], tuple[UUID, ...]]
"""The same for the tuples of :func:`directories_of_replicas`."""


def directories_of_replicas(given: tuple[UUID | None, ...], num_replicas: int) -> tuple[UUID, ...]:
    """Return one directory per replica; MIGRATING for each if the record has none, or only MIGRATING ones.

    Raises:
        CannotReplay: the record has directories, but not one for each replica.
    """
    directories = tuple(directory or MIGRATING_DIRECTORY for directory in given)
    if all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * num_replicas
    if len(directories) != num_replicas:
        raise CannotReplay(f"{len(directories)} directories for {num_replicas} replicas")
    return directories


def _shared_id(broker_id: int, replicas: tuple[int, ...]) -> int:
    # Python shares the objects of ints up to 256 only: reuse the object of a larger id.
    return replicas[replicas.index(broker_id)] if broker_id in replicas else broker_id


def _same_ids(values: tuple[int, ...]) -> tuple[int, ...]:
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """Replicas, leader and epochs of one partition."""

    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first."""
    directories: tuple[UUID, ...]
    """Log directory of each replica, in the order of ``replicas``."""
    isr: tuple[int, ...]
    leader: int
    """Broker id or ``NO_LEADER``."""
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        """The preferred leader: the first replica; ``NO_LEADER`` without replicas."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_leader

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> UUID:
        """Return the log directory of the replica on ``broker_id``.

        Raises:
            ValueError: the broker has no replica of this partition.
        """
        return self.directories[self.replicas.index(broker_id)]

    @classmethod
    def from_record(
        cls,
        record: PartitionRecord,
        intern_ids: InternIds = _same_ids,
        intern_directories: InternDirectories = directories_of_replicas,
    ) -> "PartitionRegistration":
        """Return the partition that a PartitionRecord creates.

        Raises:
            CannotReplay: the directories do not match the replicas, or the recovery state is unknown.
        """
        replicas = intern_ids(record.replicas)
        removing, adding = record.removing_replicas, record.adding_replicas
        elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
        return cls(
            replicas=replicas,
            directories=intern_directories(record.directories, len(replicas)),
            isr=replicas if record.isr == replicas else intern_ids(record.isr),
            leader=_shared_id(record.leader, replicas),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=_recovery_state(record.leader_recovery_state),
            removing_replicas=intern_ids(removing) if removing else (),
            adding_replicas=intern_ids(adding) if adding else (),
            elr=intern_ids(elr) if elr else (),
            last_known_elr=intern_ids(last_known_elr) if last_known_elr else (),
        )

    def merge(
        self,
        change: PartitionChangeRecord,
        intern_ids: InternIds = _same_ids,
        intern_directories: InternDirectories = directories_of_replicas,
    ) -> "PartitionRegistration":
        """Return the partition after ``change``: its epoch increases, and the leader epoch if a leader is named.

        Naming the current leader thus increases the leader epoch; Kafka does so when it removes replicas.

        Raises:
            CannotReplay: the directories do not match the replicas, or the recovery state is unknown.
        """
        replicas = self.replicas if change.replicas is None else intern_ids(change.replicas)
        directories: tuple[UUID | None, ...] = self.directories
        if change.directories is not None:
            directories = change.directories
        keeps_leader = change.leader == NO_LEADER_CHANGE
        elr, last_known_elr = change.eligible_leader_replicas, change.last_known_elr
        removing, adding = change.removing_replicas, change.adding_replicas
        return PartitionRegistration(
            replicas=replicas,
            directories=(
                self.directories
                if directories is self.directories and len(directories) == len(replicas)
                else intern_directories(directories, len(replicas))
            ),
            isr=self.isr if change.isr is None else intern_ids(change.isr),
            leader=self.leader if keeps_leader else _shared_id(change.leader, replicas),
            leader_epoch=self.leader_epoch if keeps_leader else self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
                else _recovery_state(change.leader_recovery_state)
            ),
            removing_replicas=self.removing_replicas if removing is None else intern_ids(removing),
            adding_replicas=self.adding_replicas if adding is None else intern_ids(adding),
            elr=self.elr if elr is None else intern_ids(elr),
            last_known_elr=self.last_known_elr if last_known_elr is None else intern_ids(last_known_elr),
        )

    def to_record(self, topic_id: UUID, partition_id: int, metadata_version: int) -> PartitionRecord:
        """Return the PartitionRecord that recreates this partition.

        Raises:
            UnwritableImageError: the replicas have directories, for which metadata.version is too low.
        """
        directories: tuple[UUID | None, ...] = ()
        if metadata_version >= features.DIRECTORY_ASSIGNMENT_SINCE:
            directories = self._record_directories()
        elif any(directory != MIGRATING_DIRECTORY for directory in self.directories):
            raise UnwritableImageError(
                metadata_version, "the directory assignment state of one or more replicas"
            )
        # Kafka drops the ELR at levels without it, and writes the tagged fields only if they are not empty.
        knows_elr = metadata_version >= features.ELIGIBLE_LEADER_REPLICAS_SINCE
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=int(self.leader_recovery_state),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=directories,
            eligible_leader_replicas=(self.elr or None) if knows_elr else None,
            last_known_elr=(self.last_known_elr or None) if knows_elr else None,
        )

    def _record_directories(self) -> tuple[UUID | None, ...]:
        if MIGRATING_DIRECTORY not in self.directories:
            return self.directories
        return tuple(
            None if directory == MIGRATING_DIRECTORY else directory for directory in self.directories
        )


_RECOVERY_STATES: Final = {int(state): state for state in LeaderRecoveryState}


def _recovery_state(value: int) -> LeaderRecoveryState:
    try:
        return _RECOVERY_STATES[value]
    except KeyError:
        raise CannotReplay(f"unknown leader_recovery_state {value}") from None


# Sharing equal tuples between partitions: in a cluster of a million, most replica lists occur many times.

TUPLES_MAX: Final = 1 << 16
"""Tuples kept at most; sharing the few repetitions among more would cost more memory than it saves."""


class BrokerIdsPool:
    """Returns an equal tuple of broker ids that it has seen before. It is cleared when it is full."""

    __slots__ = ("_ids", "_tuples")

    def __init__(self) -> None:
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._ids: dict[int, int] = {}

    def __call__(self, broker_ids: tuple[int, ...]) -> tuple[int, ...]:
        known = self._tuples.get(broker_ids)
        if known is not None:
            return known
        if len(self._tuples) >= TUPLES_MAX:
            self._tuples.clear()
            self._ids.clear()
        # Python shares the objects of ints up to 256 only: let tuples share larger ids too.
        shared = tuple(self._ids.setdefault(broker_id, broker_id) for broker_id in broker_ids)
        self._tuples[shared] = shared
        return shared


class DirectoriesPool:
    """The same for :func:`directories_of_replicas`: from the directories of a record to a shared tuple.

    The keys are the numbers of the ids: an id itself has its hash computed in Python, several times for each record.
    """

    __slots__ = ("_directories", "_tuples")

    def __init__(self) -> None:
        self._tuples: dict[tuple[int, ...], tuple[UUID, ...]] = {}
        self._directories: dict[int, UUID] = {}

    def __call__(self, given: tuple[UUID | None, ...], num_replicas: int) -> tuple[UUID, ...]:
        known = self._tuples.get(_numbers(given))
        if known is not None and len(known) == num_replicas:
            return known
        directories = directories_of_replicas(given, num_replicas)
        if len(self._tuples) >= TUPLES_MAX:
            self._tuples.clear()
            self._directories.clear()
        shared = tuple([self._directories.setdefault(directory.int, directory) for directory in directories])
        # The numbers of the shared ids as key, too: those of ``given`` would be kept beside them.
        self._tuples[_numbers(shared) if len(shared) == len(given) else _numbers(given)] = shared
        return shared


def _numbers(directories: tuple[UUID | None, ...]) -> tuple[int, ...]:
    return tuple([0 if directory is None else directory.int for directory in directories])
