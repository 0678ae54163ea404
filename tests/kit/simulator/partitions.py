"""The partitions as the committed records make them, and what must be true of each of their changes.

invariant            of every committed change
-------------------  -----------------------------------------------------------------------------------------
SanePartition        the ISR is of replicas, the leader of the ISR, the ELR of replicas outside the ISR
CleanElection        a new leader was in the ISR or the ELR before, or joined with the end of a reassignment, or
                     led last, where no replica of ISR and ELR is active
ActiveMembers        who becomes leader or joins an ISR is neither fenced nor shutting down
ReassignmentInSync   a replica is new only while it is being added; it stays once it is in the ISR
CordonedGetsNothing  a new partition has no replica on a broker all of whose directories are cordoned; not held
                     where decisions are cut into slices
InactiveLeadsNothing a broker that is fenced or shutting down leads nothing, and is in an ISR only as its last
                     member without a leader; a replica in a directory that is offline leads nothing: after each
                     batch, or in calm where decisions are cut into slices, as they are, too, once there are many
                     partitions
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from quorate_controller.control.broker_transitions import CHANGES_PER_SLICE_MAX
from quorate_protocol.image.partitions import NO_LEADER, PartitionRegistration
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from quorate_protocol.image import MetadataImage

RESERVED_IDS: Final = 100
"""Ids of directories below it say that a replica's directory is not known."""
Key = tuple["UUID", int]
"""Topic id and partition id."""

_HANDLED: Final = (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


@dataclass(slots=True)
class Broker:
    """What the committed records say of a broker."""

    epoch: int
    directories: frozenset[UUID | None]
    """Those that are online."""
    cordoned: frozenset[UUID | None] = frozenset()
    """Those that take no new replicas."""
    is_fenced: bool = True
    is_shutting_down: bool = False

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down


class CommittedPartitions:
    """Follows the committed records. Raises InvariantViolation out of `batch`."""

    def __init__(self, count: Callable[..., None], *, is_sliced: bool) -> None:
        self._count = count
        self._is_sliced = is_sliced
        self.brokers: dict[int, Broker] = {}
        self.names: dict[UUID, str] = {}
        self.history: dict[Key, list[PartitionRegistration]] = {}
        """All states of each partition that is there, the present one last."""
        self.offsets: dict[Key, list[int]] = {}
        """The offset of the record that made each of these states."""
        self.on_leader: Callable[[Key], None] = lambda _key: None
        """Called when a partition has another leader."""
        self.on_unclean_election: Callable[[Key, int], None] = lambda _key, _leader_epoch: None
        self._keys_of: dict[UUID, list[Key]] = {}
        self._led: dict[int, dict[Key, None]] = {}
        self._lately_active: set[int] = set()
        """The brokers active before, during or after the batch: the order within it does not matter."""

    def led_by(self, broker_id: int) -> Sequence[Key]:
        """The partitions of a leader, in an order that does not depend on hashes."""
        return tuple(self._led.get(broker_id, ()))

    def keys_of(self, topic_id: UUID) -> Sequence[Key]:
        """The partitions of a topic."""
        return self._keys_of[topic_id]

    def batch(self, records: Iterable[tuple[int, object]]) -> None:
        """The records that take effect with the next committed batch, and their offsets."""
        offsets = [(offset, record) for offset, record in records if isinstance(record, _HANDLED)]
        handled = [record for _, record in offsets]
        if not handled:
            return
        self._lately_active = {broker_id for broker_id, broker in self.brokers.items() if broker.is_active}
        self._lately_active |= {
            record.broker_id
            for record in handled
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced < 0
        }
        changed: dict[Key, None] = {}
        cleared: list[Key] = []
        some_left = False
        for offset, record in offsets:
            match record:
                case TopicRecord():
                    self.names[record.topic_id] = record.name
                    self._keys_of[record.topic_id] = []
                case RemoveTopicRecord():
                    self._remove_topic(record.topic_id)
                case PartitionRecord():
                    changed[self._create(record, offset)] = None
                case PartitionChangeRecord():
                    changed[self._change(record, offset)] = None
                case ClearElrRecord():
                    cleared += self._clear_elr(record, offset)
                case _:
                    some_left |= self._broker(record)
        for key in cleared:
            # Not between two records: those behind it may give a partition its ELR back.
            self._check_sane(key, self.history[key][-1])
        if not self._is_sliced and len(self.history) <= CHANGES_PER_SLICE_MAX:
            for key in self.history if some_left else changed:
                if key in self.history:
                    self._check_members(key, self.history[key][-1])

    def _broker(self, record: Any) -> bool:
        """Return whether the broker is not active any more."""
        match record:
            case RegisterBrokerRecord():
                known = self.brokers.get(record.broker_id)
                if known is None or known.epoch != record.broker_epoch:
                    known = self.brokers[record.broker_id] = Broker(record.broker_epoch, frozenset())
                else:
                    known.is_fenced, known.is_shutting_down = record.fenced, record.in_controlled_shutdown
                known.directories = frozenset(record.log_dirs)
                known.cordoned = frozenset(record.cordoned_log_dirs or ())
            case UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
                return True
            case BrokerRegistrationChangeRecord():
                broker = self.brokers[record.broker_id]
                if record.fenced:
                    broker.is_fenced = record.fenced > 0
                broker.is_shutting_down |= record.in_controlled_shutdown > 0
                if record.cordoned_log_dirs is not None:
                    self._count(
                        Happening.DIRECTORY_CORDONED, len(set(record.cordoned_log_dirs) - broker.cordoned)
                    )
                    broker.cordoned = frozenset(record.cordoned_log_dirs)
                if record.log_dirs:
                    self._count(
                        Happening.DIRECTORY_OFFLINE, int(len(record.log_dirs) < len(broker.directories))
                    )
                    broker.directories = frozenset(record.log_dirs)
                    return True
        return not self.brokers[record.broker_id].is_active

    # -------------------------------------------------------------------------------------- partitions

    def _create(self, record: PartitionRecord, offset: int) -> Key:
        key = (record.topic_id, record.partition_id)
        partition = PartitionRegistration.from_record(record)
        self.history[key] = [partition]
        self.offsets[key] = [offset]
        self._keys_of[record.topic_id].append(key)
        self._led.setdefault(partition.leader, {})[key] = None
        self._check_sane(key, partition)
        cordoned = [replica for replica in partition.replicas if self._is_cordoned(replica)]
        if cordoned and not self._is_sliced:
            raise self._violated("CordonedGetsNothing", key, f"{cordoned} take no new replicas: {partition}")
        return key

    def _is_cordoned(self, broker_id: int) -> bool:
        broker = self.brokers[broker_id]
        return bool(broker.directories) and broker.directories <= broker.cordoned

    def _remove_topic(self, topic_id: UUID) -> None:
        self._count(Happening.TOPIC_DELETED)
        del self.names[topic_id]
        for key in self._keys_of.pop(topic_id):
            partition = self.history.pop(key)[-1]
            del self.offsets[key]
            del self._led[partition.leader][key]

    def _change(self, record: PartitionChangeRecord, offset: int) -> Key:
        key = (record.topic_id, record.partition_id)
        before = self.history[key][-1]
        after = before.merge(record)
        self.history[key].append(after)
        self.offsets[key].append(offset)
        if after.leader != before.leader:
            del self._led[before.leader][key]
            self._led.setdefault(after.leader, {})[key] = None
        self._check_sane(key, after)
        self._check_election(key, before, after)
        self._check_joining(key, before, after)
        self._check_reassignment(key, before, after)
        return key

    def _clear_elr(self, record: ClearElrRecord, offset: int) -> list[Key]:
        cleared = []
        for key, states in self.history.items():
            is_meant = not record.topic_name or record.topic_name == self.names[key[0]]
            if is_meant and (states[-1].elr or states[-1].last_known_elr):
                change = PartitionChangeRecord(
                    topic_id=key[0], partition_id=key[1], eligible_leader_replicas=(), last_known_elr=()
                )
                states.append(states[-1].merge(change))
                self.offsets[key].append(offset)
                cleared.append(key)
        return cleared

    def _violated(self, invariant: str, key: Key, detail: str) -> InvariantViolation:
        return InvariantViolation(invariant, f"{self.names.get(key[0])}-{key[1]}: {detail}")

    def _check_sane(self, key: Key, partition: PartitionRegistration) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        coming_and_going = {*partition.adding_replicas, *partition.removing_replicas}
        is_sane = (
            len(replicas) == len(partition.replicas)
            and len(isr) == len(partition.isr)
            and isr <= replicas
            and elr <= replicas
            and not isr & elr
            and (isr or elr or partition.last_known_elr)
            and (partition.leader == NO_LEADER or partition.leader in isr)
            and coming_and_going <= replicas
        )
        if not is_sane:
            raise self._violated("SanePartition", key, f"{partition}")

    def _check_election(self, key: Key, before: PartitionRegistration, after: PartitionRegistration) -> None:
        if after.leader == before.leader:
            return
        if after.leader == NO_LEADER:
            self._count(Happening.PARTITION_LEADERLESS)
            return
        self._count(Happening.PARTITION_LEADER_ELECTED)
        self.on_leader(key)
        self._count(Happening.ELR_ELECTED, int(after.leader in before.elr))
        has_joined = before.is_reassigning and not after.is_reassigning and before.has_leader
        eligible = {*before.isr, *before.elr, *(after.isr if has_joined else ())}
        if after.leader not in eligible or after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            self.on_unclean_election(key, after.leader_epoch)
        if not any(map(self._is_active, (*before.isr, *before.elr))):
            # They may be lost without a record of it. Then the last leader leads again, and recovers.
            eligible |= set(before.last_known_elr)
        if after.leader not in eligible:
            raise self._violated("CleanElection", key, f"{after.leader} leads after {before}")
        if after.leader not in self._lately_active:
            raise self._violated("ActiveMembers", key, f"{after.leader} leads: {after}")

    def _check_joining(self, key: Key, before: PartitionRegistration, after: PartitionRegistration) -> None:
        joined = set(after.isr) - set(before.isr)
        inactive = joined - self._lately_active
        if inactive:
            raise self._violated("ActiveMembers", key, f"{sorted(inactive)} joined the ISR: {after}")
        if after.elr and after.elr != before.elr:
            self._count(Happening.ELR_GREW)
        recovers = LeaderRecoveryState.RECOVERING
        is_unclean = after.leader_recovery_state is recovers is not before.leader_recovery_state
        if is_unclean and not before.last_known_elr:
            raise self._violated("CleanElection", key, f"recovers after {before}")

    def _check_reassignment(
        self, key: Key, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        added, adding = set(before.adding_replicas), set(after.adding_replicas)
        new = set(after.replicas) - set(before.replicas)
        if not new <= adding:
            raise self._violated(
                "ReassignmentInSync", key, f"{sorted(new)} are new at once: {before} {after}"
            )
        self._count(Happening.REASSIGNMENT_BEGUN, int(after.is_reassigning and not before.is_reassigning))
        if not before.is_reassigning or after.is_reassigning:
            return
        stayed = added & set(after.replicas)
        self._count(Happening.REASSIGNMENT_DONE if stayed or not added else Happening.REASSIGNMENT_CANCELLED)
        late = stayed - set(after.isr)
        if late:
            raise self._violated("ReassignmentInSync", key, f"{sorted(late)} are not in the ISR: {after}")

    # ----------------------------------------------------------------------------------------- members

    def _check_members(self, key: Key, partition: PartitionRegistration) -> None:
        inactive = sorted(member for member in partition.isr if not self._is_active(member))
        is_last = not partition.has_leader and len(partition.isr) == 1
        if inactive and not is_last:
            raise self._violated("InactiveLeadsNothing", key, f"{inactive} are not active: {partition}")
        if partition.has_leader and not self._may_lead(partition, partition.leader):
            raise self._violated(
                "InactiveLeadsNothing", key, f"its leader's directory is offline: {partition}"
            )

    def _may_lead(self, partition: PartitionRegistration, broker_id: int) -> bool:
        """Whether a replica is on an active broker, and not in a directory that is offline."""
        if not self._is_active(broker_id):
            return False
        directory, online = partition.directory(broker_id), self.brokers[broker_id].directories
        return not online or directory.int < RESERVED_IDS or directory in online

    def _is_active(self, broker_id: int) -> bool:
        return broker_id in self.brokers and self.brokers[broker_id].is_active

    def are_inactive(self, broker_ids: Iterable[int]) -> bool:
        """Whether none of them is active."""
        return not any(map(self._is_active, broker_ids))

    def unsettled(self) -> InvariantViolation | None:
        """What is wrong if no partition should wait for anything any more."""
        try:
            for key, states in self.history.items():
                partition = states[-1]
                self._check_members(key, partition)
                candidates = partition.isr or partition.elr
                if not partition.has_leader and any(
                    self._may_lead(partition, candidate) for candidate in candidates
                ):
                    raise self._violated("Liveness", key, f"nobody leads, though somebody could: {partition}")
        except InvariantViolation as violation:
            return violation
        return None

    def check_same(self, image: MetadataImage) -> None:
        """An image says what the committed records say."""
        for key, states in self.history.items():
            topic = image.topics.by_id.get(key[0])
            if topic is None or topic.partitions.get(key[1]) != states[-1]:
                raise self._violated("SameImages", key, f"an image differs from {states[-1]}")
