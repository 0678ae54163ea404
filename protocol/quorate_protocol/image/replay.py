"""The effect of each metadata record on the image: one pure function per record type.

A function takes the image and the record and returns the resulting writes, or raises
:class:`~quorate_protocol.image.errors.CannotReplay`. Where Kafka's controller and its image differ in what
they tolerate, the controller decides: a record that stops it is refused here too.

Begin-, End- and AbortTransactionRecord change the journal, not tables; :mod:`.image` handles them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.image.errors import CannotReplay
from quorate_protocol.image.index import PartitionIndex
from quorate_protocol.image.partitions import BrokerIdsPool, DirectoriesPool, PartitionRegistration
from quorate_protocol.image.registrations import BrokerRegistration, ControllerRegistration
from quorate_protocol.image.security import AccessControlEntry, DelegationToken, ScramCredential, quota_entity
from quorate_protocol.image.state import NEXT_PRODUCER_ID, AnyTable, ImageState
from quorate_protocol.image.topics import TopicImage
from quorate_protocol.kafka.enums import ConfigResourceType, ScramMechanism
from quorate_protocol.records import generated as records


class ReplayedState(ImageState):
    """State that records are replayed into; its partitions share equal tuples."""

    __slots__ = ("index", "intern_directories", "intern_ids")

    def __init__(self) -> None:
        self.index = PartitionIndex()
        """Partitions by broker and by unusual state; counts for metrics."""
        super().__init__(self.index)
        self.intern_ids = BrokerIdsPool()
        self.intern_directories = DirectoriesPool()


Writes = Iterable[tuple[AnyTable, Any, Any]]
"""(table, key, row or None), in the order in which they have to be written."""


def _nothing(_image: ReplayedState, _record: object) -> Writes:
    # NoOpRecord only advances the offset. ZkMigrationStateRecord has no meaning since Kafka 4.0, but older
    # logs and snapshots contain it.
    return ()


# Features


def _feature_level(image: ReplayedState, record: records.FeatureLevelRecord) -> Writes:
    level = record.feature_level
    if record.name == features.METADATA_VERSION:
        if level not in features.METADATA_VERSIONS:
            raise CannotReplay(
                f"level {level} is not supported; supported are "
                f"{features.METADATA_VERSION_MIN} to {features.METADATA_VERSION_MAX}"
            )
    elif record.name == features.KRAFT_VERSION:
        return ()  # finalized by raft's own KRaftVersionRecord, never by this one
    elif level < 0:
        raise CannotReplay(f"level {level} is negative")
    return ((image.features, record.name, level or None),)


# Brokers and controllers


def _register_broker(image: ReplayedState, record: records.RegisterBrokerRecord) -> Writes:
    return ((image.cluster.brokers, record.broker_id, BrokerRegistration.from_record(record)),)


def _unregister_broker(image: ReplayedState, record: records.UnregisterBrokerRecord) -> Writes:
    _registered_broker(image, record.broker_id, record.broker_epoch)
    return ((image.cluster.brokers, record.broker_id, None),)


def _fence_broker(image: ReplayedState, record: records.FenceBrokerRecord) -> Writes:
    broker = _registered_broker(image, record.id, record.epoch)
    return ((image.cluster.brokers, record.id, broker.with_fenced(True)),)


def _unfence_broker(image: ReplayedState, record: records.UnfenceBrokerRecord) -> Writes:
    broker = _registered_broker(image, record.id, record.epoch)
    return ((image.cluster.brokers, record.id, broker.with_fenced(False)),)


def _broker_registration_change(
    image: ReplayedState, record: records.BrokerRegistrationChangeRecord
) -> Writes:
    broker = _registered_broker(image, record.broker_id, record.broker_epoch)
    return ((image.cluster.brokers, record.broker_id, broker.merge(record)),)


def _registered_broker(image: ReplayedState, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise CannotReplay("no such broker is registered")
    if broker.epoch != epoch:
        raise CannotReplay(f"the broker's epoch is {broker.epoch}, not {epoch}")
    return broker


def _register_controller(image: ReplayedState, record: records.RegisterControllerRecord) -> Writes:
    return ((image.cluster.controllers, record.controller_id, ControllerRegistration.from_record(record)),)


def _unregister_controller(image: ReplayedState, record: records.UnregisterControllerRecord) -> Writes:
    if record.controller_id not in image.cluster.controllers:
        raise CannotReplay("no such controller is registered")
    return ((image.cluster.controllers, record.controller_id, None),)


# Topics and partitions


def _topic(image: ReplayedState, record: records.TopicRecord) -> Writes:
    topic_id = _required(record.topic_id, "topic_id")
    existing = image.topics.by_name.get(record.name)
    if existing is not None:
        raise CannotReplay(f"a topic of that name exists, with id {existing.topic_id}")
    if topic_id in image.topics.by_id:
        raise CannotReplay(f"a topic of that id exists, named {image.topics.by_id[topic_id].name}")
    return ((image.topics.names, topic_id, record.name),)


def _partition(image: ReplayedState, record: records.PartitionRecord) -> Writes:
    topic = _existing_topic(image, record.topic_id)
    partition = PartitionRegistration.from_record(record, image.intern_ids, image.intern_directories)
    return ((image.topics.partitions, (topic.topic_id, record.partition_id), partition),)


def _partition_change(image: ReplayedState, record: records.PartitionChangeRecord) -> Writes:
    topic = _existing_topic(image, record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise CannotReplay(f"topic {topic.name} has no such partition")
    changed = partition.merge(record, image.intern_ids, image.intern_directories)
    return ((image.topics.partitions, (topic.topic_id, record.partition_id), changed),)


def _remove_topic(image: ReplayedState, record: records.RemoveTopicRecord) -> Writes:
    topic = _existing_topic(image, record.topic_id)
    return (
        (image.topics.removals, topic.topic_id, None),
        (image.configs, (ConfigResourceType.TOPIC, topic.name), None),
    )


def _clear_elr(image: ReplayedState, record: records.ClearElrRecord) -> Writes:
    with_elr, topics = image.index.with_elr, image.topics
    if not record.topic_name:
        topic_ids = with_elr.topic_ids
    elif record.topic_name in topics.by_name:
        topic_ids = (topics.by_name[record.topic_name].topic_id,)
    else:
        raise CannotReplay("no such topic exists")
    return tuple(
        (topics.partitions, (topic_id, number), topics.by_id[topic_id].partitions[number].merge(_CLEARED_ELR))
        for topic_id in topic_ids
        for number in sorted(with_elr.of_topic(topic_id))
    )


_CLEARED_ELR: Final = records.PartitionChangeRecord(
    topic_id=None, eligible_leader_replicas=(), last_known_elr=()
)


def _existing_topic(image: ReplayedState, topic_id: UUID | None) -> TopicImage:
    topic = image.topics.by_id.get(topic_id) if topic_id else None
    if topic is None:
        raise CannotReplay("no such topic exists")
    return topic


# Configs, quotas, producer ids


def _config(image: ReplayedState, record: records.ConfigRecord) -> Writes:
    resource = (record.resource_type, record.resource_name)
    configs = with_entries(image.configs.get(resource), [(record.name, record.value)])
    return ((image.configs, resource, configs),)


def _client_quota(image: ReplayedState, record: records.ClientQuotaRecord) -> Writes:
    entity = quota_entity(record.entity)
    value = None if record.remove else record.value
    quotas = with_entries(image.client_quotas.get(entity), [(record.key, value)])
    return ((image.client_quotas, entity, quotas),)


def with_entries(row: Mapping[str, Any] | None, changes: Iterable[tuple[str, Any]]) -> dict[str, Any] | None:
    """Return a new row with the entries, or without those of value None; None if the row would be empty."""
    entries = dict(row or {})
    for name, value in changes:
        entries.pop(name, None)
        if value is not None:
            entries[name] = value
    return entries or None


def _producer_ids(image: ReplayedState, record: records.ProducerIdsRecord) -> Writes:
    if record.next_producer_id <= image.next_producer_id:
        raise CannotReplay(
            f"next_producer_id {record.next_producer_id} is not above the present {image.next_producer_id}"
        )
    return ((image.producer_ids, NEXT_PRODUCER_ID, record.next_producer_id),)


# Security


def _access_control_entry(image: ReplayedState, record: records.AccessControlEntryRecord) -> Writes:
    return ((image.acls, _required(record.id, "id"), AccessControlEntry.from_record(record)),)


def _remove_access_control_entry(
    image: ReplayedState, record: records.RemoveAccessControlEntryRecord
) -> Writes:
    if record.id not in image.acls:
        raise CannotReplay("no such ACL exists")
    return ((image.acls, record.id, None),)


def _user_scram_credential(image: ReplayedState, record: records.UserScramCredentialRecord) -> Writes:
    key = (_scram_mechanism(record.mechanism), record.name)
    return ((image.scram, key, ScramCredential.from_record(record)),)


def _remove_user_scram_credential(
    image: ReplayedState, record: records.RemoveUserScramCredentialRecord
) -> Writes:
    key = (_scram_mechanism(record.mechanism), record.name)
    if key not in image.scram:
        raise CannotReplay("no such credential exists")
    return ((image.scram, key, None),)


def _scram_mechanism(number: int) -> ScramMechanism:
    mechanism = ScramMechanism(number)
    if mechanism is ScramMechanism.UNKNOWN:
        raise CannotReplay(f"unknown SCRAM mechanism {number}")
    return mechanism


def _delegation_token(image: ReplayedState, record: records.DelegationTokenRecord) -> Writes:
    return ((image.delegation_tokens, record.token_id, DelegationToken.from_record(record)),)


def _remove_delegation_token(image: ReplayedState, record: records.RemoveDelegationTokenRecord) -> Writes:
    # Kafka ignores the removal of an unknown token: two nodes may expire the same one.
    return ((image.delegation_tokens, record.token_id, None),)


def _required(uuid: UUID | None, field: str) -> UUID:
    if uuid is None:
        raise CannotReplay(f"{field} is zero")
    return uuid


_REPLAYED: Final[Mapping[type, tuple[Callable[[ReplayedState, Any], Writes], tuple[str, ...]]]] = {
    records.RegisterBrokerRecord: (_register_broker, ("broker_id", "broker_epoch")),
    records.UnregisterBrokerRecord: (_unregister_broker, ("broker_id", "broker_epoch")),
    records.TopicRecord: (_topic, ("name", "topic_id")),
    records.PartitionRecord: (_partition, ("topic_id", "partition_id")),
    records.ConfigRecord: (_config, ("resource_type", "resource_name", "name")),
    records.PartitionChangeRecord: (_partition_change, ("topic_id", "partition_id")),
    records.FenceBrokerRecord: (_fence_broker, ("id", "epoch")),
    records.UnfenceBrokerRecord: (_unfence_broker, ("id", "epoch")),
    records.RemoveTopicRecord: (_remove_topic, ("topic_id",)),
    records.DelegationTokenRecord: (_delegation_token, ("token_id",)),
    records.UserScramCredentialRecord: (_user_scram_credential, ("name", "mechanism")),
    records.FeatureLevelRecord: (_feature_level, ("name",)),
    records.ClientQuotaRecord: (_client_quota, ("entity", "key")),
    records.ProducerIdsRecord: (_producer_ids, ("broker_id", "broker_epoch")),
    records.BrokerRegistrationChangeRecord: (_broker_registration_change, ("broker_id", "broker_epoch")),
    records.AccessControlEntryRecord: (_access_control_entry, ("id",)),
    records.RemoveAccessControlEntryRecord: (_remove_access_control_entry, ("id",)),
    records.NoOpRecord: (_nothing, ()),
    records.ZkMigrationStateRecord: (_nothing, ()),
    records.RemoveUserScramCredentialRecord: (_remove_user_scram_credential, ("name", "mechanism")),
    records.RemoveDelegationTokenRecord: (_remove_delegation_token, ("token_id",)),
    records.RegisterControllerRecord: (_register_controller, ("controller_id",)),
    records.ClearElrRecord: (_clear_elr, ("topic_name",)),
    records.UnregisterControllerRecord: (_unregister_controller, ("controller_id",)),
}

WRITES_OF: Final = {kind: writes_of for kind, (writes_of, _) in _REPLAYED.items()}
"""Record type -> function that returns its writes."""

KEY_FIELDS: Final = {kind: names for kind, (_, names) in _REPLAYED.items()}
"""Record type -> the fields that identify its subject; never secrets, since error messages contain them."""


def key_of(record: object) -> str:
    """Return the subject of a record, for instance ``topic_id=…, partition_id=3``."""
    return ", ".join(f"{name}={getattr(record, name)}" for name in KEY_FIELDS.get(type(record), ()))
