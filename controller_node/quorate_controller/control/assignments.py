"""The brokers of new partitions, placed automatically or named by the client, and their records."""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import DIRECTORY_ASSIGNMENT_SINCE
from quorate_protocol.image.partitions import UNASSIGNED_DIRECTORY
from quorate_protocol.placement import PlacementError, Placer, UsableBroker
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import PartitionRecord

from quorate_controller.control.api import ControlError
from quorate_controller.control.steps import ITEM, LOOK, StepBudget

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image import MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The replicas of one new partition, and those of them that are in sync from the beginning."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """The active replicas in replica order, at least one: the first is the leader."""


def usable_brokers(image: "MetadataImage") -> Iterator[UsableBroker]:
    """Brokers that may get replicas: not shutting down, and with a directory that is not cordoned."""
    for broker in image.cluster.brokers.values():
        # A fenced broker has already shut down; it may return, and counts like any fenced broker.
        is_shutting_down = broker.in_controlled_shutdown and not broker.fenced
        if not is_shutting_down and broker.has_uncordoned_directory:
            yield UsableBroker(broker_id=broker.broker_id, rack=broker.rack, fenced=broker.fenced)


class Placing:
    """Places new partitions on the brokers of an image; reads the brokers again only after they have changed."""

    def __init__(self, image: "MetadataImage", rng: "Random") -> None:
        self._image = image
        self._rng = rng
        self._placer: Placer | None = None
        self._read: tuple[object, int] | None = None

    @property
    def brokers_max(self) -> int:
        """The number of brokers that may get replicas."""
        return self._current().count

    def place(self, num_partitions: int, replication_factor: int) -> list[Assignment]:
        """Assign the new partitions of one topic.

        Raises:
            ControlError: INVALID_REPLICATION_FACTOR for too few brokers, or if all are fenced.
        """
        return list(islice(self._placed(replication_factor), num_partitions))

    def placing(
        self, num_partitions: int, replication_factor: int
    ) -> Generator[None, None, list[Assignment] | None]:
        """Place as `place` does, in steps. Returns None if the brokers have changed in between.

        Raises:
            ControlError: as above, at once.
        """
        placed, read, budget = self._placed(replication_factor), self._read, StepBudget()
        assignments = []
        for assignment in islice(placed, num_partitions):
            assignments.append(assignment)
            if budget.spend(ITEM + LOOK * replication_factor):
                yield
        self._current()
        return assignments if self._read == read else None

    def _placed(self, replication_factor: int) -> Iterator[Assignment]:
        try:
            placed = self._current().placed(replication_factor)
        except PlacementError as error:
            raise ControlError(ErrorCode.invalid_replication_factor, str(error)) from error
        return (Assignment(replicas=replicas, isr=_active(self._image, replicas)) for replicas in placed)

    def _current(self) -> Placer:
        brokers = self._image.cluster.brokers
        read = (id(brokers), brokers.changes)
        if self._placer is None or self._read != read:
            self._placer = Placer(usable_brokers(self._image), self._rng)
            self._read = read
        return self._placer


def check_manual(
    image: "MetadataImage", partition_id: int, replicas: Sequence[int], replication_factor: int | None
) -> Assignment:
    """The requested assignment of one partition.

    Args:
        replication_factor: that of the preceding partitions, if there are any.

    Raises:
        ControlError: INVALID_REPLICA_ASSIGNMENT.
    """
    check_replicas(image, replicas)
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but "
            f"this is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )
    isr = _active(image, replicas)
    if not isr:
        raise _invalid(
            f"All brokers specified in the manual partition assignment for partition {partition_id} are "
            "fenced or in controlled shutdown."
        )
    return Assignment(replicas=tuple(replicas), isr=isr)


def check_replicas(image: "MetadataImage", replicas: Sequence[int]) -> None:
    """Check that each replica is on a registered broker, and that no broker occurs twice.

    Raises:
        ControlError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.cluster.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is "
                "registered."
            )
        if broker_id == previous:
            raise _invalid(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id


def partition_records(
    image: "MetadataImage", topic_id: UUID, first_partition_id: int, assignments: Sequence[Assignment]
) -> list[PartitionRecord]:
    """One record for each new partition, in the order of their ids."""
    has_directories = image.metadata_version >= DIRECTORY_ASSIGNMENT_SINCE
    return [
        PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=assignment.replicas,
            isr=assignment.isr,
            removing_replicas=(),
            adding_replicas=(),
            leader=assignment.isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=(
                tuple(default_directory(image, id_) for id_ in assignment.replicas) if has_directories else ()
            ),
        )
        for partition_id, assignment in enumerate(assignments, start=first_partition_id)
    ]


def replica_size_bytes(image: "MetadataImage") -> int:
    """The smallest size of a replica in a PartitionRecord: its broker's id, and that of its directory."""
    return 4 + (16 if image.metadata_version >= DIRECTORY_ASSIGNMENT_SINCE else 0)


def default_directory(image: "MetadataImage", broker_id: int) -> UUID | None:
    """The directory in which a broker will put a new replica, if it is already known (KIP-858).

    In records, None is the directory of a broker that registered no directories.
    """
    directories = image.cluster.brokers[broker_id].directories
    if not directories:
        return None
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


def _active(image: "MetadataImage", replicas: Sequence[int]) -> tuple[int, ...]:
    brokers = image.cluster.brokers
    return tuple(broker_id for broker_id in replicas if brokers[broker_id].is_active)


def _invalid(message: str) -> ControlError:
    return ControlError(ErrorCode.invalid_replica_assignment, message)
