"""The change of a partition when its ISR, replicas, brokers or directories change: the only place that elects.

Given a partition, the requested change and the rules in force, `change_partition` returns the smallest
PartitionChangeRecord that leads there, or None. In this order, each step seeing the result of the one before:

1. a running reassignment completes when every added replica is in the ISR; if it leaves fewer replicas, when
   every one that stays is;
2. the eligible leader replicas (ELR, KIP-966) are those replicas that left the ISR while it is below
   `min.insync.replicas`;
3. a leader is elected: the present one, if it may continue; else the first of the ISR in replica order; else,
   with an empty ISR, the first of the ELR; else the last known leader; else, only if unclean elections are
   allowed, any active replica;
4. the record has the fields that differ, and while there is no leader the last known one. A leader in the record,
   even the same, bumps the leader epoch; any record bumps the partition epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from quorate_protocol.features import (
    DIRECTORY_ASSIGNMENT_SINCE,
    ELIGIBLE_LEADER_REPLICAS,
    KEEPS_LEADER_EPOCH_ON_ISR_SHRINK_SINCE,
)
from quorate_protocol.image import NO_LEADER, NO_LEADER_CHANGE
from quorate_protocol.image.partitions import (
    MIGRATING_DIRECTORY,
    PartitionRegistration,
)
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import PartitionChangeRecord

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.topics import TopicImage

    from quorate_controller.control.config_changes import ConfigManager


class Election(Enum):
    """The replicas that may be elected."""

    PREFERRED = "preferred"
    """The first replica if it is in the ISR, even if the leader could continue; otherwise as ONLINE."""
    ONLINE = "online"
    """Only replicas that lose no data."""
    UNCLEAN = "unclean"
    """As ONLINE; without such a replica any active one, which may lose data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for the partitions of one topic."""

    metadata_version: int
    elr_enabled: bool
    """`eligible.leader.replicas.version` is 1."""
    min_insync_replicas: int
    """Effective value, at most the replication factor. Read only if `elr_enabled`."""
    may_lead: Callable[[int, UUID], bool]
    """Whether this broker is active, and this directory of it online."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The requested changes of a partition. The defaults request nothing but a leader."""

    isr: tuple[int, ...] | None = None
    """None: as it is."""
    election: Election = Election.ONLINE
    leader_recovery_state: LeaderRecoveryState | None = None
    """None: as it is."""
    lost_replica: int | None = None
    """A broker whose copy can't be trusted any more, so that it leaves the ELR too."""
    directories: Mapping[int, UUID] = field(default_factory=dict)
    """Broker id -> directory that its replica is now in; each new replica needs one."""
    replicas: tuple[int, ...] | None = None
    """The preferred leader first; None: unchanged. The same for adding and removing replicas (KIP-455)."""
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None


@dataclass(slots=True, kw_only=True)
class _Target:
    """The future state of the partition, while it is computed."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_recovery_state: LeaderRecoveryState


def change_partition(
    topic_id: UUID, partition_id: int, partition: PartitionRegistration, wanted: Wanted, rules: Rules
) -> PartitionChangeRecord | None:
    """Return the record that changes `partition` to the target, or None if it has it already."""
    recovery_state = wanted.leader_recovery_state
    target = _Target(
        replicas=_or_else(wanted.replicas, partition.replicas),
        isr=_or_else(wanted.isr, partition.isr),
        removing_replicas=_or_else(wanted.removing_replicas, partition.removing_replicas),
        adding_replicas=_or_else(wanted.adding_replicas, partition.adding_replicas),
        elr=partition.elr,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state if recovery_state is None else recovery_state,
    )
    _complete_reassignment(target)
    if rules.elr_enabled:
        _update_elr(target, partition, wanted.lost_replica, rules.min_insync_replicas)
    _elect(target, partition, wanted, rules)
    if not rules.elr_enabled:
        # Without ELR an ISR never becomes empty: its last member stays, since it may lead again.
        target.isr = target.isr or partition.isr
        # An ISR may have become empty before the feature was switched off: then the ELR may lead again.
        target.elr = () if target.isr else target.elr
    difference = _difference(partition, target, wanted.directories, rules)
    if not difference:
        return None
    return PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, **difference)


def _or_else(wanted: tuple[int, ...] | None, current: tuple[int, ...]) -> tuple[int, ...]:
    return current if wanted is None else wanted


def _complete_reassignment(target: _Target) -> None:
    """End a running reassignment once its target replicas are in sync (KIP-455)."""
    adding, removing = target.adding_replicas, target.removing_replicas
    if not removing and not adding:
        return
    isr = tuple(replica for replica in target.isr if replica not in removing)
    replicas = tuple(replica for replica in target.replicas if replica not in removing)
    # Fewer replicas than before: each has to be in sync, or removing the others would thin out the ISR.
    needed = (*adding, *replicas) if len(adding) < len(removing) else adding
    if not isr or not replicas or not set(needed) <= set(isr):
        return
    target.isr = isr
    target.replicas = replicas
    target.removing_replicas = target.adding_replicas = ()


def _update_elr(
    target: _Target, partition: PartitionRegistration, lost_replica: int | None, min_insync_replicas: int
) -> None:
    if len(target.isr) >= min_insync_replicas:
        target.elr = ()
        return
    # A removed replica deletes its copy: if it ever returned, it would be empty.
    eligible = ({*target.elr, *partition.isr} & set(target.replicas)) - set(target.isr)
    target.elr = tuple(sorted(replica for replica in eligible if replica != lost_replica))


def _elect(target: _Target, partition: PartitionRegistration, wanted: Wanted, rules: Rules) -> None:
    def may_lead(replica: int) -> bool:
        if replica not in partition.replicas:
            return False
        directory = wanted.directories.get(replica) or partition.directory(replica)
        return rules.may_lead(replica, directory)

    leader = _clean_leader(target, wanted.election, may_lead)
    if leader is not None:
        target.leader = leader
        if leader in target.elr:
            target.isr = (leader,)
            target.elr = tuple(replica for replica in target.elr if replica != leader)
        return
    leader = _unclean_leader(target, wanted.election, partition.last_known_elr, may_lead)
    if leader is None:
        target.leader = NO_LEADER
        return
    target.leader = leader
    target.isr = (leader,)
    target.elr = ()
    target.leader_recovery_state = LeaderRecoveryState.RECOVERING


def _clean_leader(target: _Target, election: Election, may_lead: Callable[[int], bool]) -> int | None:
    """A replica that has all committed records, the present leader before others; or None."""
    candidates = target.isr or target.elr
    order = (target.leader, *target.replicas)
    if election is Election.PREFERRED:
        order = (target.replicas[0], *order)
    for replica in order:
        if replica in candidates and may_lead(replica):
            return replica
    return None


def _unclean_leader(
    target: _Target, election: Election, last_known: tuple[int, ...], may_lead: Callable[[int], bool]
) -> int | None:
    """A replica that may have lost records, or None."""
    nobody_is_eligible = not target.isr and not target.elr
    if nobody_is_eligible and len(last_known) == 1 and may_lead(last_known[0]):
        return last_known[0]
    if election is Election.UNCLEAN:
        return next(filter(may_lead, target.replicas), None)
    return None


def _difference(
    partition: PartitionRegistration, target: _Target, moved: Mapping[int, UUID], rules: Rules
) -> dict[str, Any]:
    """The fields of a PartitionChangeRecord that are not at their defaults."""
    fields: dict[str, Any] = {}
    leader = NO_LEADER_CHANGE
    if target.leader != partition.leader or _needs_new_leader_epoch(partition, target, rules):
        leader = fields["leader"] = target.leader
    if target.leader_recovery_state != partition.leader_recovery_state:
        fields["leader_recovery_state"] = int(target.leader_recovery_state)
    # The order of an ELR has no meaning, so the same members in another order are no change.
    if target.elr != partition.elr and set(target.elr) != set(partition.elr):
        fields["eligible_leader_replicas"] = target.elr
    for name in ("isr", "replicas", "removing_replicas", "adding_replicas"):
        value = getattr(target, name)
        if value != getattr(partition, name):
            fields[name] = value
    has_last_known = rules.elr_enabled or bool(partition.last_known_elr)
    last_known_elr = _last_known_elr(partition, target, leader) if has_last_known else None
    if last_known_elr is not None:
        fields["last_known_elr"] = last_known_elr
    directories = _directories(partition, target, moved, rules.metadata_version)
    if directories is not None:
        fields["directories"] = directories
    return fields


def _last_known_elr(partition: PartitionRegistration, target: _Target, leader: int) -> tuple[int, ...] | None:
    """The last leader, which the partition keeps while it is leaderless."""
    if leader >= 0 and partition.last_known_elr:
        return ()
    if partition.last_known_elr or target.leader != NO_LEADER:
        return None
    if partition.has_leader:
        return (partition.leader,)
    if target.isr or target.elr:
        return None
    # Without a leader since the feature was off, it loses the last replica that was in sync, or eligible.
    return (partition.isr or partition.elr)[:1] or None


def _directories(
    partition: PartitionRegistration, target: _Target, moved: Mapping[int, UUID], metadata_version: int
) -> tuple[UUID | None, ...] | None:
    if metadata_version < DIRECTORY_ASSIGNMENT_SINCE or (not moved and target.replicas == partition.replicas):
        return None
    current = {**dict(zip(partition.replicas, partition.directories, strict=True)), **moved}
    directories = tuple(current[replica] for replica in target.replicas)
    if directories == partition.directories:
        return None
    return tuple(None if directory == MIGRATING_DIRECTORY else directory for directory in directories)


def _needs_new_leader_epoch(partition: PartitionRegistration, target: _Target, rules: Rules) -> bool:
    """Whether the record names the leader although it stays, so that followers notice by the epoch."""
    if target.replicas != partition.replicas and not set(partition.replicas) <= set(target.replicas):
        return True
    # Brokers before 3.6 needed it after each ISR shrink (KAFKA-15021).
    epoch_shows_shrink = rules.metadata_version < KEEPS_LEADER_EPOCH_ON_ISR_SHRINK_SINCE
    return epoch_shows_shrink and not set(partition.isr) <= set(target.isr)


FIRST_PARTITION: Final = 0


def is_elr_enabled(image: "MetadataImage") -> bool:
    """Whether the cluster keeps eligible leader replicas (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


class PartitionChanges:
    """Changes partitions by the rules of image and configs. One instance per decision, since it caches what it read.

    A decision about a broker is made before the image has it as fenced or unfenced: `leaving` is a broker that may
    not lead any more, `returning` a broker that may lead again, whatever the image has.
    """

    def __init__(
        self,
        image: "MetadataImage",
        configs: "ConfigManager",
        *,
        leaving: int | None = None,
        returning: int | None = None,
    ) -> None:
        self._image = image
        self._configs = configs
        self._leaving = leaving
        self._returning = returning
        self._elr_enabled = is_elr_enabled(image)
        self._rules: dict[UUID, Rules] = {}
        self._elections: dict[UUID, Election] = {}
        self._leaders: dict[tuple[int, UUID], bool] = {}

    def change(self, topic: "TopicImage", partition_id: int, wanted: Wanted) -> PartitionChangeRecord | None:
        """Return the record that changes this partition to the target, or None."""
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            rules = self._rules[topic.topic_id] = self._rules_for(topic)
        return change_partition(topic.topic_id, partition_id, topic.partitions[partition_id], wanted, rules)

    def election(self, topic: "TopicImage") -> Election:
        """The kind of election for a partition of this topic that would be leaderless."""
        election = self._elections.get(topic.topic_id)
        if election is None:
            is_unclean = self._configs.unclean_leader_election(topic.name)
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
            self._elections[topic.topic_id] = election
        return election

    def _rules_for(self, topic: "TopicImage") -> Rules:
        min_insync_replicas = 1
        if self._elr_enabled:
            replication_factor = len(topic.partitions[FIRST_PARTITION].replicas)
            min_insync_replicas = min(self._configs.min_insync_replicas(topic.name), replication_factor)
        return Rules(
            metadata_version=self._image.metadata_version,
            elr_enabled=self._elr_enabled,
            min_insync_replicas=min_insync_replicas,
            may_lead=self._may_lead,
        )

    def _may_lead(self, broker_id: int, directory: UUID) -> bool:
        key = (broker_id, directory)
        may_lead = self._leaders.get(key)
        if may_lead is None:
            may_lead = self._leaders[key] = self._is_active(broker_id, directory)
        return may_lead

    def _is_active(self, broker_id: int, directory: UUID) -> bool:
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or broker_id == self._leaving:
            return False
        if not broker.is_active and broker_id != self._returning:
            return False
        return broker.has_online_directory(directory)
