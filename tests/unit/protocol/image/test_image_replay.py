"""Each record type: what it does to the image, and when it is refused."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.errors import ProtocolError
from quorate_protocol.image import MetadataImage, ReplayError
from quorate_protocol.image.replay import KEY_FIELDS, WRITES_OF
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.records import generated as records
from quorate_protocol.records.generated import MetadataRecord


def test_every_record_type_is_replayed_or_belongs_to_transactions() -> None:
    known = {classes[-1] for classes in records.RECORD_CLASSES.values()}
    transactions = {
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
    }
    assert set(WRITES_OF) == known - transactions


def test_key_fields_exist_and_hold_no_secrets() -> None:
    for record_type, names in KEY_FIELDS.items():
        assert set(names) <= set(record_type.__dataclass_fields__)  # type: ignore[attr-defined]
        assert not {"salt", "stored_key", "server_key", "value"} & set(names)


def test_features(log: Any, make: Any) -> None:
    assert log.image.metadata_version == 0
    log.append(make.feature(level=30), make.feature("group.version", 1), make.feature("kraft.version", 1))
    assert log.image.metadata_version == 30
    assert log.image.features == {"metadata.version": 30, "group.version": 1}
    log.append(make.feature("group.version", 0), make.feature(level=29))
    assert log.image.features == {"metadata.version": 29}


def test_broker_life(log: Any, make: Any) -> None:
    image = log.image
    log.append(make.broker(1, epoch=7))
    assert image.cluster.brokers[1].fenced
    log.append(records.UnfenceBrokerRecord(id=1, epoch=7))
    assert image.cluster.brokers[1].is_active
    log.append(records.FenceBrokerRecord(id=1, epoch=7))
    assert image.cluster.brokers[1].fenced
    log.append(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    assert image.cluster.brokers[1].is_active
    log.append(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))
    assert not image.cluster.brokers[1].is_active
    assert not image.cluster.brokers[1].fenced
    log.append(make.broker(1, epoch=9, rack="b"))
    assert (image.cluster.brokers[1].epoch, image.cluster.brokers[1].rack) == (9, "b")
    log.append(records.UnregisterBrokerRecord(broker_id=1, broker_epoch=9))
    assert image.cluster.brokers == {}


def test_controllers(log: Any, make: Any) -> None:
    log.append(make.controller(3000))
    log.append(make.controller(3000, incarnation_id=UUID(int=5)))
    assert log.image.cluster.controllers[3000].incarnation_id == UUID(int=5)
    assert log.image.cluster.controllers[3000].listeners["CONTROLLER"].port == 9093
    log.append(records.UnregisterControllerRecord(controller_id=3000))
    assert log.image.cluster.controllers == {}


def test_topics_and_partitions(log: Any, make: Any) -> None:
    image = log.image
    log.append(make.topic(1), make.config("retention.ms", "1"), make.partition(1, 0), make.partition(1, 1))
    topic = image.topics.by_name["topic-1"]
    assert topic is image.topics.by_id[make.topic_id(1)]
    assert sorted(topic.partitions) == [0, 1]
    log.append(make.change(1, 0, leader=2))
    assert image.topics.get_partition(make.topic_id(1), 0).leader == 2
    log.append(make.partition(1, 0, replicas=(4,)))
    assert image.topics.get_partition(make.topic_id(1), 0).replicas == (4,)
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert image.topics.by_id == {}
    assert image.topics.by_name == {}
    assert image.configs == {}
    log.append(records.TopicRecord(name="topic-1", topic_id=make.topic_id(2)))
    assert image.topics.by_name["topic-1"].topic_id == make.topic_id(2)


def test_equal_replica_lists_are_one_object(log: Any, make: Any) -> None:
    """A million partitions fit because tuples are shared."""
    log.append(make.topic(1), *(make.partition(1, number, (1000, 2000)) for number in range(3)))
    log.append(make.change(1, 2, isr=(1000,)), make.change(1, 1, isr=(1000,)))
    partitions = log.image.topics.by_name["topic-1"].partitions
    assert partitions[0].isr is partitions[0].replicas
    assert partitions[0].replicas is partitions[1].replicas
    assert partitions[0].directories is partitions[2].directories
    assert partitions[1].isr is partitions[2].isr


@pytest.mark.parametrize("topic_name", ["topic-1", ""])
def test_clear_elr(log: Any, make: Any, topic_name: str) -> None:
    for number in (1, 2):
        log.append(
            make.topic(number),
            make.partition(number, 0, eligible_leader_replicas=(2,)),
            make.partition(number, 1, last_known_elr=(3,)),
            make.partition(number, 2),
        )
    log.append(records.ClearElrRecord(topic_name=topic_name))
    for number in (1, 2):
        cleared = number == 1 or not topic_name
        partitions = log.image.topics.by_id[make.topic_id(number)].partitions
        assert partitions[0].elr == (() if cleared else (2,))
        assert partitions[1].last_known_elr == (() if cleared else (3,))
        assert [partitions[i].partition_epoch for i in range(3)] == ([1, 1, 0] if cleared else [0, 0, 0])


def test_configs_and_quotas(log: Any, make: Any) -> None:
    image = log.image
    log.append(make.config("a", "1"), make.config("b", "2"), make.config("a", "3"))
    assert image.configs == {(2, "topic-1"): {"a": "3", "b": "2"}}
    log.append(make.config("a", None), make.config("b", None), make.config("never", None, (4, "1")))
    assert image.configs == {}
    entity = {"user": "alice", "client-id": None}
    log.append(make.quota(entity, "producer_byte_rate", 5.0), make.quota(entity, "request_percentage", 1.5))
    key = (("client-id", None), ("user", "alice"))
    assert image.client_quotas == {key: {"producer_byte_rate": 5.0, "request_percentage": 1.5}}
    log.append(make.quota(entity, "producer_byte_rate", 0.0, remove=True))
    assert image.client_quotas == {key: {"request_percentage": 1.5}}
    log.append(make.quota(entity, "request_percentage", 0.0, remove=True))
    assert image.client_quotas == {}


def test_producer_ids(log: Any, make: Any) -> None:
    assert log.image.next_producer_id == -1
    log.append(make.producer_ids(1000), make.producer_ids(2000))
    assert log.image.next_producer_id == 2000


def test_acls_credentials_and_tokens(log: Any, make: Any) -> None:
    image = log.image
    log.append(make.acl(1), make.acl(2), make.scram("alice"), make.scram("alice", 2), make.token("t"))
    assert len(image.acls) == 2
    assert image.acls[UUID(int=0x4001)].principal == "User:alice"
    assert set(image.scram) == {
        (ScramMechanism.SCRAM_SHA_256, "alice"),
        (ScramMechanism.SCRAM_SHA_512, "alice"),
    }
    assert "stored_key" not in repr(image.scram)
    assert image.delegation_tokens["t"].renewers == ("User:carol",)
    log.append(
        records.RemoveAccessControlEntryRecord(id=UUID(int=0x4001)),
        records.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        records.RemoveDelegationTokenRecord(token_id="t"),
        records.RemoveDelegationTokenRecord(token_id="unknown"),
    )
    assert set(image.acls) == {UUID(int=0x4002)}
    assert set(image.scram) == {(ScramMechanism.SCRAM_SHA_512, "alice")}
    assert image.delegation_tokens == {}


def test_records_without_effect(log: Any) -> None:
    """NoOp and the remains of the ZooKeeper migration only move the offset."""
    log.append(records.NoOpRecord(), records.ZkMigrationStateRecord(zk_migration_state=2))
    assert log.image.end_offset == 2
    assert log.image.same_as(MetadataImage())


REFUSED: Sequence[tuple[Callable[[Any], MetadataRecord], str, str]] = (
    (lambda make: make.feature(level=6), "name=metadata.version", "level 6 is not supported"),
    (lambda make: make.feature(level=99), "name=metadata.version", "level 99 is not supported"),
    (lambda make: make.feature("x", -1), "name=x", "negative"),
    (
        lambda make: make.broker(
            1, end_points=(records.BrokerEndpoint(name="A", host="h", port=1, security_protocol=9),)
        ),
        "broker_id=1",
        "unknown security protocol 9 of listener A",
    ),
    (lambda _: records.UnregisterBrokerRecord(broker_id=9, broker_epoch=0), "broker_id=9", "no such broker"),
    (
        lambda _: records.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        "broker_id=1",
        "epoch is 7, not 3",
    ),
    (lambda _: records.FenceBrokerRecord(id=1, epoch=3), "id=1", "epoch is 7, not 3"),
    (lambda _: records.UnfenceBrokerRecord(id=9, epoch=3), "id=9", "no such broker"),
    (
        lambda _: records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=2),
        "broker_id=1",
        "unknown value 2 of fenced",
    ),
    (
        lambda _: records.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=7, in_controlled_shutdown=-1
        ),
        "broker_id=1",
        "unknown value -1 of in_controlled_shutdown",
    ),
    (
        lambda make: make.controller(
            3000,
            end_points=(records.ControllerEndpoint(name="A", host="h", port=1, security_protocol=-1),),
        ),
        "controller_id=3000",
        "unknown security protocol -1 of listener A",
    ),
    (lambda _: records.UnregisterControllerRecord(controller_id=9), "controller_id=9", "no such controller"),
    (lambda make: make.topic(9, "topic-1"), "name=topic-1", "a topic of that name exists"),
    (lambda make: make.topic(1, "other"), "name=other", "a topic of that id exists, named topic-1"),
    (lambda _: records.TopicRecord(name="z", topic_id=None), "name=z", "topic_id is zero"),
    (lambda make: make.partition(9, 0), "partition_id=0", "no such topic"),
    (
        lambda make: make.partition(1, 5, directories=(UUID(int=200),)),
        "partition_id=5",
        "1 directories for 3 replicas",
    ),
    (
        lambda make: make.partition(1, 5, leader_recovery_state=7),
        "partition_id=5",
        "unknown leader_recovery_state 7",
    ),
    (lambda make: make.change(9, 0), "partition_id=0", "no such topic"),
    (lambda make: make.change(1, 9), "partition_id=9", "no such partition"),
    (lambda make: make.change(1, 1, replicas=(1, 2)), "partition_id=1", "3 directories for 2 replicas"),
    (
        lambda make: records.RemoveTopicRecord(topic_id=make.topic_id(9)),
        "topic_id=00000000-0000-0000-0000-000000001009",
        "no such topic",
    ),
    (lambda _: records.RemoveTopicRecord(topic_id=None), "topic_id=None", "no such topic"),
    (lambda _: records.ClearElrRecord(topic_name="nope"), "topic_name=nope", "no such topic"),
    (lambda make: make.producer_ids(1000), "broker_id=1", "1000 is not above the present 1000"),
    (lambda _: records.RemoveAccessControlEntryRecord(id=UUID(int=9)), "id=", "no such ACL"),
    (lambda make: make.scram("bob", 3), "name=bob, mechanism=3", "unknown SCRAM mechanism 3"),
    (
        lambda _: records.RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        "name=bob",
        "no such credential",
    ),
    (lambda _: records.EndTransactionRecord(), "", "no open transaction"),
    (lambda _: records.AbortTransactionRecord(), "", "no open transaction"),
)


@pytest.mark.parametrize(("make_record", "key", "reason"), REFUSED)
def test_refused_record(
    log: Any, make: Any, make_record: Callable[[Any], MetadataRecord], key: str, reason: str
) -> None:
    """What can't be replayed names record, key, offset and reason, and its batch leaves no trace."""
    log.append(
        make.feature(),
        make.broker(1, epoch=7),
        make.topic(1),
        make.partition(1, 0),
        make.partition(1, 1, directories=(UUID(int=201), UUID(int=202), UUID(int=203))),
        make.producer_ids(1000),
    )
    before = list(image_to_records(log.image))
    record = make_record(make)
    with pytest.raises(ReplayError) as caught:
        log.append(make.acl(1), record)
    error = caught.value
    assert isinstance(error, ProtocolError)
    assert error.record_name == type(record).__name__
    assert key in error.key
    assert reason in error.reason
    assert error.offset == 7
    assert str(error) == f"Can't replay {error.record_name}({error.key}) at offset 7: {error.reason}"
    assert log.image.end_offset == 6
    assert list(image_to_records(log.image)) == before
    log.append(make.acl(1))


def test_unknown_record_type_is_refused() -> None:
    with pytest.raises(ReplayError, match="unknown type of record"):
        MetadataImage().replay(object(), 0)  # type: ignore[arg-type]


def test_offsets_never_go_back(log: Any, make: Any) -> None:
    """Replaying the same offset twice is a bug of ours, not a change."""
    log.append(make.acl(1))
    with pytest.raises(AssertionError):
        log.image.replay(make.acl(2), 0)
