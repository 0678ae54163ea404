"""What the committed records say, folded into plain rows: what each checkpoint has to contain.

It shares no code with the image of the code under test: a row is a tuple or a dict of a record's values. All versions
of each row are kept, because nodes write checkpoints of one offset at different times. The semantics are those of
Kafka's images (`TopicDelta`, `PartitionRegistration.merge`, `ClusterDelta`, KIP-868).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.records import generated as records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

Row = tuple[Any, ...]
Key = tuple[Any, ...]

NO_CHANGE: Final = -2
"""The leader of a PartitionChangeRecord that keeps the leader."""
NO_STATE_CHANGE: Final = -1
TOPIC_RESOURCE: Final = 2
KRAFT_VERSION: Final = "kraft.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
ZERO_ID: Final = 0


class Rows:
    """Rows of the records so far; `changed` has the keys that were written since it was cleared."""

    def __init__(self) -> None:
        self.rows: dict[Key, Any] = {}
        self.changed: dict[Key, None] = {}
        self._partitions: dict[UUID | None, dict[int, None]] = {}
        self._configs: dict[tuple[int, str], dict[str, None]] = {}

    def apply(self, record: object) -> None:
        """Apply one record. Raises KeyError for a record whose subject does not exist."""
        _APPLIED[type(record)](self, record)

    def _put(self, key: Key, row: Any) -> None:
        self.rows[key] = row
        self.changed[key] = None

    def _remove(self, key: Key) -> None:
        del self.rows[key]
        self.changed[key] = None

    def _nothing(self, record: object) -> None:
        """A record that changes no state."""

    # ------------------------------------------------------------------------------------------ cluster

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        key = ("feature", record.name)
        if record.name == KRAFT_VERSION:
            return
        if record.feature_level:
            self._put(key, record.feature_level)
        elif key in self.rows:
            self._remove(key)

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        row = {
            "epoch": record.broker_epoch,
            "incarnation": record.incarnation_id,
            "endpoints": _endpoints(record.end_points),
            "features": _features(record.features),
            "rack": record.rack,
            "migrating": record.is_migrating_zk_broker,
            "fenced": record.fenced,
            "shutting down": record.in_controlled_shutdown,
            "directories": _sorted(record.log_dirs),
            "cordoned": None if record.cordoned_log_dirs is None else _sorted(record.cordoned_log_dirs),
        }
        self._put(("broker", record.broker_id), row)

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._remove(("broker", record.broker_id))

    def _fence(self, record: records.FenceBrokerRecord) -> None:
        self._change_broker(record.id, {"fenced": True})

    def _unfence(self, record: records.UnfenceBrokerRecord) -> None:
        self._change_broker(record.id, {"fenced": False})

    def _broker_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["shutting down"] = True
        if record.log_dirs:
            changes["directories"] = _sorted(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned"] = _sorted(record.cordoned_log_dirs)
        self._change_broker(record.broker_id, changes)

    def _change_broker(self, broker_id: int, changes: dict[str, Any]) -> None:
        key = ("broker", broker_id)
        self._put(key, self.rows[key] | changes)

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        row = (
            record.incarnation_id,
            record.zk_migration_ready,
            _endpoints(record.end_points),
            _features(record.features),
        )
        self._put(("controller", record.controller_id), row)

    def _unregister_controller(self, record: records.UnregisterControllerRecord) -> None:
        self._remove(("controller", record.controller_id))

    # ------------------------------------------------------------------------------------------- topics

    def _topic(self, record: records.TopicRecord) -> None:
        self._put(("topic", record.topic_id), record.name)
        self._partitions[record.topic_id] = {}

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self.rows["topic", record.topic_id]
        for partition_id in self._partitions.pop(record.topic_id):
            self._remove(("partition", record.topic_id, partition_id))
        for config in self._configs.pop((TOPIC_RESOURCE, name), ()):
            self._remove(("config", TOPIC_RESOURCE, name, config))
        self._remove(("topic", record.topic_id))

    def _partition(self, record: records.PartitionRecord) -> None:
        self._partitions[record.topic_id][record.partition_id] = None
        row = {
            "replicas": record.replicas,
            "isr": record.isr,
            "removing": record.removing_replicas or (),
            "adding": record.adding_replicas or (),
            "leader": record.leader,
            "recovery": record.leader_recovery_state,
            "leader epoch": record.leader_epoch,
            "epoch": record.partition_epoch,
            "directories": _directories(record.directories),
            "elr": record.eligible_leader_replicas or (),
            "last elr": record.last_known_elr or (),
        }
        self._put(("partition", record.topic_id, record.partition_id), row)

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        key = ("partition", record.topic_id, record.partition_id)
        before = self.rows[key]
        changes: dict[str, Any] = {
            name: value
            for name, value in (
                ("replicas", record.replicas),
                ("isr", record.isr),
                ("removing", record.removing_replicas),
                ("adding", record.adding_replicas),
                ("elr", record.eligible_leader_replicas),
                ("last elr", record.last_known_elr),
            )
            if value is not None
        }
        if record.directories is not None:
            changes["directories"] = _directories(record.directories)
        if record.leader_recovery_state != NO_STATE_CHANGE:
            changes["recovery"] = record.leader_recovery_state
        if record.leader != NO_CHANGE:
            changes |= {"leader": record.leader, "leader epoch": before["leader epoch"] + 1}
        self._put(key, before | changes | {"epoch": before["epoch"] + 1})

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        for topic_id, partition_ids in self._partitions.items():
            if record.topic_name in {"", None, self.rows["topic", topic_id]}:
                for partition_id in partition_ids:
                    key = ("partition", topic_id, partition_id)
                    row = self.rows[key]
                    if row["elr"] or row["last elr"]:
                        self._put(key, row | {"elr": (), "last elr": (), "epoch": row["epoch"] + 1})

    # ------------------------------------------------------------------------------------ everything else

    def _config(self, record: records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        key = ("config", *resource, record.name)
        names = self._configs.setdefault(resource, {})
        if record.value is not None:
            names[record.name] = None
            self._put(key, record.value)
        elif key in self.rows:
            del names[record.name]
            self._remove(key)

    def _quota(self, record: records.ClientQuotaRecord) -> None:
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        key = ("quota", entity, record.key)
        if not record.remove:
            self._put(key, record.value)
        elif key in self.rows:
            self._remove(key)

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self._put(("producer ids",), record.next_producer_id)

    def _acl(self, record: records.AccessControlEntryRecord) -> None:
        row = (
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._put(("acl", record.id), row)

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        self._remove(("acl", record.id))

    def _scram(self, record: records.UserScramCredentialRecord) -> None:
        row = (record.salt, record.stored_key, record.server_key, record.iterations)
        self._put(("scram", record.mechanism, record.name), row)

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._remove(("scram", record.mechanism, record.name))

    def _token(self, record: records.DelegationTokenRecord) -> None:
        row = (
            record.owner,
            record.requester,
            record.renewers,
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )
        self._put(("token", record.token_id), row)

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        if ("token", record.token_id) in self.rows:
            self._remove(("token", record.token_id))


_APPLIED: Final[dict[type, Callable[[Rows, Any], None]]] = {
    records.FeatureLevelRecord: Rows._feature,
    records.RegisterBrokerRecord: Rows._register_broker,
    records.UnregisterBrokerRecord: Rows._unregister_broker,
    records.FenceBrokerRecord: Rows._fence,
    records.UnfenceBrokerRecord: Rows._unfence,
    records.BrokerRegistrationChangeRecord: Rows._broker_change,
    records.RegisterControllerRecord: Rows._register_controller,
    records.UnregisterControllerRecord: Rows._unregister_controller,
    records.TopicRecord: Rows._topic,
    records.RemoveTopicRecord: Rows._remove_topic,
    records.PartitionRecord: Rows._partition,
    records.PartitionChangeRecord: Rows._partition_change,
    records.ClearElrRecord: Rows._clear_elr,
    records.ConfigRecord: Rows._config,
    records.ClientQuotaRecord: Rows._quota,
    records.ProducerIdsRecord: Rows._producer_ids,
    records.AccessControlEntryRecord: Rows._acl,
    records.RemoveAccessControlEntryRecord: Rows._remove_acl,
    records.UserScramCredentialRecord: Rows._scram,
    records.RemoveUserScramCredentialRecord: Rows._remove_scram,
    records.DelegationTokenRecord: Rows._token,
    records.RemoveDelegationTokenRecord: Rows._remove_token,
    records.NoOpRecord: Rows._nothing,
    records.ZkMigrationStateRecord: Rows._nothing,
}


class CommittedFold:
    """The rows of all committed records, at any offset. Records of a metadata transaction count when it ends."""

    def __init__(self) -> None:
        self._rows = Rows()
        self._versions: dict[Key, list[tuple[int, Any]]] = {}
        self._transaction: list[object] | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction is open at the end of what was committed so far."""
        return self._transaction is not None

    @property
    def has_elr(self) -> bool:
        """Whether partitions have eligible leader replicas (KIP-966)."""
        return bool(self.row(("feature", ELR_VERSION)))

    def row(self, key: Key) -> Any:
        """A row of all that is committed so far; None if there is no such row."""
        return self._rows.rows.get(key)

    def rows(self) -> Iterable[tuple[Key, Any]]:
        """All rows of what is committed so far."""
        return self._rows.rows.items()

    def batch(self, base_offset: int, batch: Iterable[object]) -> list[tuple[int, object]]:
        """The metadata records of the next committed batch. Returns those that take effect, each with the offset at
        which it does: those of a metadata transaction when it ends, of an aborted one never.
        """
        effective: list[tuple[int, object]] = []
        for offset, record in enumerate(batch, start=base_offset):
            if isinstance(record, records.BeginTransactionRecord):
                self._transaction = []
            elif isinstance(record, records.AbortTransactionRecord):
                self._transaction = None
            elif isinstance(record, records.EndTransactionRecord):
                effective += [(offset, record) for record in self._transaction or ()]
                self._transaction = None
            elif self._transaction is not None:
                self._transaction.append(record)
            else:
                effective.append((offset, record))
        for offset, record in effective:
            self._rows.apply(record)
            self._store_versions(offset)
        return effective

    def _store_versions(self, offset: int) -> None:
        for key in self._rows.changed:
            versions = self._versions.setdefault(key, [])
            row = self._rows.rows.get(key)
            if versions and versions[-1][0] == offset:
                versions.pop()
            versions.append((offset, row))
        self._rows.changed.clear()

    def at(self, end_offset: int) -> dict[Key, Any]:
        """The rows of the records below an offset."""
        found = {}
        for key, versions in self._versions.items():
            place = len(versions)
            if versions[-1][0] >= end_offset:
                place = bisect_left(versions, end_offset, key=_offset_of)
            if place and versions[place - 1][1] is not None:
                found[key] = versions[place - 1][1]
        return found


def _offset_of(version: tuple[int, Any]) -> int:
    return version[0]


def _endpoints(given: Sequence[Any]) -> tuple[Row, ...]:
    return tuple((point.name, point.host, point.port, point.security_protocol) for point in given)


def _features(given: Sequence[Any]) -> dict[str, tuple[int, int]]:
    return {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in given}


def _sorted(directories: Sequence[UUID | None]) -> tuple[int, ...]:
    return tuple(sorted(_number(directory) for directory in directories))


def _directories(given: Sequence[UUID | None]) -> tuple[int, ...]:
    """None, or as many zeros as there are replicas, stand for the same: no broker has reported a directory yet."""
    numbers = tuple(_number(directory) for directory in given)
    return numbers if any(numbers) else ()


def _number(directory: UUID | None) -> int:
    return ZERO_ID if directory is None else directory.int
