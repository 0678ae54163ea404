"""A metadata log as a busy cluster writes it, of any length: what the benchmark of the lake reads."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Final

from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    encode_control_batch,
)
from quorate_protocol.records.framing import encode_record_at
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METADATA_VERSION: Final = 30
BROKERS: Final = 30
REPLICAS: Final = 3
TOPICS: Final = 2_000
PARTITIONS: Final = 6
CHANGES_PER_TOPIC: Final = 20
"""Distinct changes of partitions, which are repeated in the log; to make each of them would take longer."""
START_MS: Final = 1_700_000_000_000


def write_history(
    directory: Path,
    *,
    cluster_id: str,
    records: int,
    segment_bytes: int,
    seed: int,
    topics: int = TOPICS,
    no_op_share: float = 0.25,
) -> None:
    """Write a metadata directory with about this many records.

    Most are changes of partitions (leaders, in-sync replicas); then topics with their partitions and configs, fencing
    of brokers, in batches of 1 to 200 records; `no_op_share` of the batches are a NoOpRecord alone. 1: nothing else.
    """
    chance = random.Random(seed)
    log = directory / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"cluster.id={cluster_id}\nnode.id=3000\nversion=1\n")
    offset, epoch, now_ms = 0, 1, START_MS
    segment = bytearray()
    base_offset = 0
    batches = _batches(chance, topics, no_op_share)
    while offset < records:
        if chance.random() < 0.0002 or offset == 0:
            epoch += 1
            voter = LeaderChangeVoter(voter_id=3000, voter_directory_id=None)
            leader = LeaderChangeMessage(version=0, leader_id=3000, voters=(voter,), granting_voters=(voter,))
            segment += encode_control_batch([leader], offset, epoch, now_ms)
            offset += 1
            if epoch == 2:
                level = KRaftVersionRecord(version=0, k_raft_version=1)
                segment += encode_control_batch([level], offset, epoch, now_ms)
                offset += 1
        values = next(batches)
        segment += build_batch(values, offset, epoch, now_ms)
        offset += len(values)
        now_ms += chance.randrange(1, 500)
        if len(segment) >= segment_bytes or offset >= records:
            (log / f"{base_offset:020d}.log").write_bytes(segment)
            base_offset, segment = offset, bytearray()


def _batches(chance: random.Random, topic_count: int, no_op_share: float) -> Iterator[list[bytes]]:
    """Values of the records of one batch after the other, without end."""
    no_op = encode_record_at(NoOpRecord(), METADATA_VERSION)
    while no_op_share >= 1:
        yield [no_op]
    registrations = [_registration(chance, broker) for broker in range(BROKERS)]
    yield [
        encode_record_at(
            FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION), METADATA_VERSION
        ),
        *registrations,
    ]
    topics = [_topic(chance, number) for number in range(topic_count)]
    for _, values in topics:
        yield values
    ids = [topic_id for topic_id, _ in topics]
    changes = [_change(chance, chance.choice(ids)) for _ in range(topic_count * CHANGES_PER_TOPIC)]
    flaps = [_flap(broker, fenced) for broker in range(BROKERS) for fenced in (1, -1)]
    while True:
        kind = chance.random()
        if chance.random() < no_op_share:
            yield [no_op]
        elif kind < 0.07:
            yield [chance.choice(flaps)]
        elif kind < 0.20:
            yield chance.choice(topics)[1]
        elif kind < 0.27:
            yield [encode_record_at(RemoveTopicRecord(topic_id=chance.choice(ids)), METADATA_VERSION)]
        else:
            yield chance.choices(changes, k=1 + int(chance.paretovariate(1.2) * 5) % 200)


def _uuid(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128))


def _topic(chance: random.Random, number: int) -> tuple[uuid.UUID, list[bytes]]:
    topic_id, name = _uuid(chance), f"team-{number % 40}.orders.{number}"
    records: list[TopicRecord | PartitionRecord | ConfigRecord] = [TopicRecord(name=name, topic_id=topic_id)]
    records.append(ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="604800000"))
    for partition in range(PARTITIONS):
        replicas = tuple(chance.sample(range(BROKERS), REPLICAS))
        records.append(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(_uuid(chance) for _ in replicas),
            )
        )
    return topic_id, [encode_record_at(record, METADATA_VERSION) for record in records]


def _change(chance: random.Random, topic_id: uuid.UUID) -> bytes:
    isr = tuple(chance.sample(range(BROKERS), chance.randrange(1, REPLICAS + 1)))
    partition = chance.randrange(PARTITIONS)
    if chance.random() < 0.5:
        change = PartitionChangeRecord(partition_id=partition, topic_id=topic_id, isr=isr)
    else:
        change = PartitionChangeRecord(partition_id=partition, topic_id=topic_id, isr=isr, leader=isr[0])
    return encode_record_at(change, METADATA_VERSION)


def _flap(broker: int, fenced: int) -> bytes:
    change = BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker + 100, fenced=fenced)
    return encode_record_at(change, METADATA_VERSION)


def _registration(chance: random.Random, broker: int) -> bytes:
    endpoint = BrokerEndpoint(
        name="PLAINTEXT", host=f"broker-{broker}.example.com", port=9092, security_protocol=0
    )
    registration = RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=_uuid(chance),
        broker_epoch=broker + 100,
        end_points=(endpoint,),
        features=(),
        rack=f"rack-{broker % 3}",
        log_dirs=(_uuid(chance),),
    )
    return encode_record_at(registration, METADATA_VERSION)
