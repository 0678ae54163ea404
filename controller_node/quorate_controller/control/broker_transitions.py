"""Partition changes when brokers come and go, in slices that are short enough for a turn of the controller.

A transition whose changes fit in one slice is one decision, as in Java. In a larger transition only the record about
the broker is decided at once; its partitions follow slice by slice, whenever `run_slice` is due. In between the
controller responds to its followers: a decision about 100,000 partitions takes longer than their fetch timeout, so
that they would elect another leader, which would have to start again.

Each slice is a batch of its own. A new leader continues from the image: inactive brokers leave their remaining ISRs
(`activate`). Two rules keep that safe:

- A broker that still has partitions to leave is neither unfenced nor registered again: later, its copies there could
  not be distinguished from those of the new incarnation.
- An inactive broker joins no ISR, so that partitions behind a cursor need no second pass.

Lost log directories stay registered until their partitions have moved. The broker reports them in every heartbeat, so
that a new leader begins again.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.topics import PartitionKey
from quorate_protocol.image.views import leads_any_partition
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
)

from quorate_controller.control.api import STEP_PAUSE_MS, ControlError, ControlResult
from quorate_controller.control.partition_change import PartitionChanges, Wanted, is_elr_enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quorate_protocol.image import BrokerRegistration, MetadataImage, PartitionRegistration
    from quorate_protocol.image.topics import TopicImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.config_changes import ConfigManager

CHANGES_PER_SLICE_MAX: Final = 500
"""Partitions that one slice changes: some 10 ms with encoding and replay."""

ELRS_KEPT_MAX: Final = 5_000
"""Partitions whose ELR outlives a ClearElrRecord: their records share its batch."""

PARTITIONS_PER_SLICE_MAX: Final = 10_000
"""Partitions that one slice examines, whether they need a change or not."""

NO_OFFSET: Final = -1

ALL_TOPICS: Final = ""
"""ClearElrRecord.topic_name that means every topic."""

_Partition = tuple["TopicImage", int]


@dataclass(slots=True)
class _Departure:
    """A broker that is leaving its ISRs."""

    partitions: Iterator[PartitionKey]
    """The cursor: the partitions of its topics that were not examined yet."""
    is_lost: bool
    """Whether it leaves the ELRs too, because its copies can't be trusted any more."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """Log directories of a broker that are offline, while it leaves the ISRs of its replicas there."""

    partitions: Iterator[PartitionKey]
    """The cursor: the partitions of its topics that were not examined yet."""
    directories: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class _Departed:
    """A broker that has left all ISRs, and has been inactive since."""

    is_lost: bool
    end_offset: int
    """The end of the records that removed it."""


class PartitionTransitions:
    """Decides which partition records follow from a transition of a broker. Each `on_` method only decides.

    The caller adds the record about the broker itself. The partitions' records are computed as if that had taken
    effect: a broker being fenced counts as inactive, a broker being unfenced as active. If they are too many for one
    decision, the method returns no records and slices follow, see `is_departing`.

    The soft state, the cursors, lives only while the controller is active.
    """

    def __init__(self, image: "MetadataImage", configs: "ConfigManager") -> None:
        self._image = image
        self._configs = configs
        self._departures: dict[int, _Departure] = {}
        self._departed: dict[int, _Departed] = {}
        self._losses: dict[int, _Loss] = {}
        self._leaderless: Iterator[PartitionKey] | None = None
        self._seek_again = False
        self._due_ms = 0

    def activate(self) -> None:
        """Continue what previous leaders began: slices for brokers that are not active, and for leaderless
        partitions.
        """
        brokers = self._image.cluster.brokers
        for broker_id in self._image.index.brokers_with_topics():
            broker = brokers.get(broker_id)
            if broker is None or not broker.is_active:
                self._begin_departure(broker_id, is_lost=broker is None)
        if len(self._image.index.leaderless):
            self._seek_leaders()

    def deactivate(self) -> None:
        """Drop all soft state."""
        self._departures.clear()
        self._departed.clear()
        self._losses.clear()
        self._leaderless = None
        self._seek_again = False
        self._due_ms = 0

    # Transitions

    def on_broker_fenced(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Remove `broker_id` from every ISR and leadership (Kafka: handleBrokerFenced)."""
        return self._depart(broker_id, is_lost=False)

    def on_controlled_shutdown(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Move leaderships and ISR memberships away (handleBrokerInControlledShutdown)."""
        return self._depart(broker_id, is_lost=False)

    def on_broker_unregistered(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Remove a broker that leaves the cluster from every ISR, ELR and leadership (handleBrokerUnregistered)."""
        return self._depart(broker_id, is_lost=True)

    def on_unclean_restart(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Remove a broker whose last incarnation shut down uncleanly from ISR and ELR (handleBrokerShutdown).

        As `on_broker_fenced`, which is called after a clean shutdown, while eligible.leader.replicas.version is 0.
        """
        return self._depart(broker_id, is_lost=is_elr_enabled(self._image))

    def on_broker_unfenced(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Elect `broker_id` for leaderless partitions that it may lead (handleBrokerUnfenced)."""
        self._departed.pop(broker_id, None)
        leaderless = self._image.index.leaderless
        if len(leaderless) > CHANGES_PER_SLICE_MAX:
            self._seek_leaders()
            return ()
        return self._elect(leaderless, PartitionChanges(self._image, self._configs, returning=broker_id))

    def on_directories_offline(
        self, broker_id: int, directories: Iterable[UUID]
    ) -> "Sequence[MetadataRecord]":
        """Remove `broker_id` from its partitions in lost directories, and these from its registration (KIP-858): at
        once if the partitions are few, else in slices from now on.
        """
        lost = frozenset(directories)
        current = self._losses.get(broker_id)
        if current is not None and lost <= current.directories:
            return ()
        partitions, is_last = self._next_lost(broker_id, _Loss(self._partitions_near(broker_id), lost))
        if is_last:
            self._losses.pop(broker_id, None)
            return self._end_loss(self._image.cluster.brokers[broker_id], partitions, lost)
        self._losses[broker_id] = _Loss(self._partitions_near(broker_id), lost)
        return ()

    def on_min_insync_replicas_changed(self, topic_names: Iterable[str | None]) -> "Sequence[MetadataRecord]":
        """ClearElrRecords for these topics, None meaning all of them (KIP-966); no records while ELR is off.

        Raises:
            ControlError: INVALID_REQUEST if too many partitions have an ELR and no ISR.
        """
        if not is_elr_enabled(self._image):
            return ()
        return self._clear_elr(tuple(topic_names))

    def on_elr_level_changed(self) -> "Sequence[MetadataRecord]":
        """The records that clear the ELR of every partition: while the feature is off, it does not follow the ISR.

        Raises:
            ControlError: INVALID_REQUEST if too many partitions have an ELR and no ISR.
        """
        return self._clear_elr((None,)) if len(self._image.index.with_elr) else ()

    def _clear_elr(self, topic_names: Collection[str | None]) -> "Sequence[MetadataRecord]":
        """ClearElrRecords, and records that restore the ELR of partitions without an ISR.

        A partition without an ISR gets no writes, so that its ELR stays valid, and only its ELR can lead it again.
        """
        kept = [
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=partition_id,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
            )
            for topic_id, partition_id, partition in islice(
                self._with_nothing_but_elr(topic_names), ELRS_KEPT_MAX + 1
            )
        ]
        if len(kept) > ELRS_KEPT_MAX:
            raise ControlError(
                ErrorCode.invalid_request,
                f"More than {ELRS_KEPT_MAX} partitions have no replica in sync. Their eligible leader replicas would "
                "be lost: start the brokers of these partitions first.",
            )
        return [*(ClearElrRecord(topic_name=name or ALL_TOPICS) for name in topic_names), *kept]

    def _with_nothing_but_elr(
        self, topic_names: Collection[str | None]
    ) -> "Iterator[tuple[UUID, int, PartitionRegistration]]":
        """The partitions of these topics, None meaning all of them, that have an ELR and no ISR."""
        index, topics = self._image.index, self._image.topics
        for topic_id, partition_id in index.leaderless:
            topic = topics.by_id[topic_id]
            partition = topic.partitions[partition_id]
            is_meant = None in topic_names or topic.name in topic_names
            if is_meant and not partition.isr and (partition.elr or partition.last_known_elr):
                yield topic_id, partition_id, partition

    # Queries

    def leads_any_partition(self, broker_id: int) -> bool:
        """True while `broker_id` is the leader of a partition: it may not shut down yet."""
        return leads_any_partition(self._image, broker_id)

    def is_departing(self, broker_id: int) -> bool:
        """True while slices have yet to remove `broker_id` from its partitions: it may not return yet."""
        return broker_id in self._departures

    def departed_offset(self, broker_id: int) -> int:
        """The last offset of the slices that removed `broker_id` from its partitions; -1 without slices."""
        departed = self._departed.get(broker_id)
        return NO_OFFSET if departed is None else departed.end_offset - 1

    # Slices

    @property
    def deadline_ms(self) -> int | None:
        """The time of the next slice; None if all are done."""
        is_busy = self._departures or self._losses or self._leaderless is not None
        return self._due_ms if is_busy else None

    def run_slice(self, now_ms: int) -> ControlResult | None:
        """Decide on the next partitions. Returns None if they need no change."""
        self._due_ms = now_ms + STEP_PAUSE_MS
        departing = next(iter(self._departures.items()), None)
        losing = next(iter(self._losses.items()), None)
        if departing:
            records = self._continue_departure(*departing)
        elif losing:
            records = self._continue_loss(*losing)
        else:
            records = self._continue_seeking()
        return ControlResult(records=tuple(records), atomic=False) if records else None

    def _depart(self, broker_id: int, *, is_lost: bool) -> "Sequence[MetadataRecord]":
        """Remove a broker from its partitions: at once if they are few, else in slices from now on."""
        partitions, is_last = self._next_slice(
            broker_id, _Departure(self._partitions_near(broker_id), is_lost)
        )
        if is_last:
            self._departures.pop(broker_id, None)
            return self._take_out(broker_id, partitions, is_lost=is_lost)
        departed = self._departed.get(broker_id)
        if departed is None or (is_lost and not departed.is_lost):
            self._begin_departure(broker_id, is_lost=is_lost)
        return ()

    def _begin_departure(self, broker_id: int, *, is_lost: bool) -> None:
        current = self._departures.get(broker_id)
        if current is None or (is_lost and not current.is_lost):
            self._departures[broker_id] = _Departure(self._partitions_near(broker_id), is_lost)

    def _continue_departure(self, broker_id: int, departure: _Departure) -> "Sequence[MetadataRecord]":
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is not None and broker.is_active:
            # The decision that began this could not be written.
            del self._departures[broker_id]
            return ()
        partitions, is_last = self._next_slice(broker_id, departure)
        records = self._take_out(broker_id, partitions, is_lost=departure.is_lost)
        if is_last:
            del self._departures[broker_id]
            end_offset = self._image.end_offset + len(records)
            self._departed[broker_id] = _Departed(departure.is_lost, end_offset)
        return records

    def _continue_loss(self, broker_id: int, loss: _Loss) -> "Sequence[MetadataRecord]":
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or loss.directories.isdisjoint(broker.directories):
            del self._losses[broker_id]  # unregistered, or another incarnation
            return ()
        partitions, is_last = self._next_lost(broker_id, loss)
        if not is_last:
            return self._take_out(broker_id, partitions, is_lost=False)
        del self._losses[broker_id]
        return self._end_loss(broker, partitions, loss.directories)

    def _end_loss(
        self, broker: "BrokerRegistration", partitions: Iterable[_Partition], directories: Collection[UUID]
    ) -> "Sequence[MetadataRecord]":
        """Remove a broker from the last of its partitions in lost directories, and these from its registration."""
        kept = tuple(directory for directory in broker.directories if directory not in directories)
        registration = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=kept
        )
        return (*self._take_out(broker.broker_id, partitions, is_lost=False), registration)

    def _next_slice(self, broker_id: int, departure: _Departure) -> tuple[list[_Partition], bool]:
        """The next partitions that the broker has to leave, and whether they are the last."""

        def must_leave(partition: "PartitionRegistration") -> bool:
            return broker_id in partition.isr or (departure.is_lost and broker_id in partition.elr)

        return self._next_of(departure.partitions, must_leave)

    def _next_lost(self, broker_id: int, loss: _Loss) -> tuple[list[_Partition], bool]:
        """The next partitions that the broker has to leave because of its directories; as above."""

        def must_leave(partition: "PartitionRegistration") -> bool:
            return broker_id in partition.isr and partition.directory(broker_id) in loss.directories

        return self._next_of(loss.partitions, must_leave)

    def _next_of(
        self, partitions: Iterator[PartitionKey], must_leave: "Callable[[PartitionRegistration], bool]"
    ) -> tuple[list[_Partition], bool]:
        topics = self._image.topics.by_id
        found: list[_Partition] = []
        examined = 0
        for topic_id, partition_id in islice(partitions, PARTITIONS_PER_SLICE_MAX):
            examined += 1
            topic = topics.get(topic_id)
            partition = topic.partitions.get(partition_id) if topic else None
            if topic is None or partition is None:
                continue  # deleted since
            if must_leave(partition):
                found.append((topic, partition_id))
                if len(found) == CHANGES_PER_SLICE_MAX:
                    return found, False
        return found, examined < PARTITIONS_PER_SLICE_MAX

    def _partitions_near(self, broker_id: int) -> Iterator[PartitionKey]:
        """Yield the partitions of each topic with a replica on the broker. The image may change in between.

        Includes partitions without a replica there: a topic may have many of them, which count for a slice, too.
        """
        for name in tuple(self._image.index.topics_of_broker(broker_id)):
            topic = self._image.topics.by_name.get(name)
            if topic is not None:  # else deleted since
                for partition_id in tuple(topic.partitions):
                    yield topic.topic_id, partition_id

    def _take_out(
        self, broker_id: int, partitions: Iterable[_Partition], *, is_lost: bool
    ) -> list[PartitionChangeRecord]:
        """Remove a broker from ISR and leadership of these partitions; a lost broker from the ELR, too."""
        changes = PartitionChanges(self._image, self._configs, leaving=broker_id)
        lost_replica = broker_id if is_lost else None
        records = []
        for topic, partition_id in partitions:
            isr = tuple(id_ for id_ in topic.partitions[partition_id].isr if id_ != broker_id)
            wanted = Wanted(isr=isr, election=changes.election(topic), lost_replica=lost_replica)
            record = changes.change(topic, partition_id, wanted)
            if record is not None:
                records.append(record)
        return records

    # Leaderless partitions

    def _seek_leaders(self) -> None:
        """Begin a pass over the leaderless partitions. A running pass is finished first, so that it ends
        however often brokers return.
        """
        if self._leaderless is None:
            self._leaderless = iter(self._image.index.leaderless)
        else:
            self._seek_again = True

    def _continue_seeking(self) -> "Sequence[MetadataRecord]":
        if self._leaderless is None:
            return ()
        keys = tuple(islice(self._leaderless, CHANGES_PER_SLICE_MAX))
        records = self._elect(keys, PartitionChanges(self._image, self._configs))
        if len(keys) < CHANGES_PER_SLICE_MAX:
            self._leaderless = iter(self._image.index.leaderless) if self._seek_again else None
            self._seek_again = False
        return records

    def _elect(
        self, keys: Iterable[PartitionKey], changes: PartitionChanges
    ) -> "Sequence[PartitionChangeRecord]":
        """Elect leaders for the leaderless ones of these partitions that have an electable replica."""
        leaderless, topics = self._image.index.leaderless, self._image.topics.by_id
        records = []
        for topic_id, partition_id in keys:
            if (topic_id, partition_id) not in leaderless:
                continue
            topic = topics[topic_id]
            record = changes.change(topic, partition_id, Wanted(election=changes.election(topic)))
            if record is not None:
                records.append(record)
        return records
