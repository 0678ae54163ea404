"""What partitions take in memory: a million of them have to fit."""

import gc
import tracemalloc
from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID

from quorate_protocol.image import MetadataImage
from quorate_protocol.image.partitions import TUPLES_MAX, BrokerIdsPool, DirectoriesPool
from quorate_protocol.image.state import Provenance
from quorate_protocol.records.framing import decode_record, encode_record
from quorate_protocol.records.generated import ConfigRecord

BYTES_PER_PARTITION_MAX = 300
"""Java takes 400 to 500."""


def test_bytes_per_partition(make: Any) -> None:
    replicas = list(permutations(range(1000, 1020), 3))[::7]
    directories = {broker_id: UUID(int=broker_id << 64) for broker_id in range(1000, 1020)}
    values = [
        encode_record(
            make.partition(
                number // 20,
                number % 20,
                replicas[number % len(replicas)],
                leader_epoch=3,
                partition_epoch=9,
                directories=tuple(directories[broker_id] for broker_id in replicas[number % len(replicas)]),
            )
        )
        for number in range(4000)
    ]
    image = MetadataImage()
    for number in range(200):
        image.replay(make.topic(number), number)
    image.advance(end_offset=200, epoch=1, timestamp_ms=0)
    image.commit(200)
    gc.collect()
    tracemalloc.start(1)
    for value in values:
        offset = image.end_offset
        image.replay_batch([decode_record(value)], base_offset=offset, epoch=1, timestamp_ms=0)
        image.commit(offset + 1)
    del value
    gc.collect()
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes / len(values) < BYTES_PER_PARTITION_MAX


def test_pools_are_bounded() -> None:
    ids, directories = BrokerIdsPool(), DirectoriesPool()
    first = ids((5000, 6000))
    for number in range(TUPLES_MAX + 10):
        ids((number, 10**6))
        directories((UUID(int=number + 1000),), 1)
    assert len(ids._tuples) <= TUPLES_MAX
    assert len(directories._tuples) <= TUPLES_MAX
    assert ids((5000, 6000)) == first


def test_many_configs_of_one_resource_take_linear_memory() -> None:
    records = [
        ConfigRecord(resource_type=4, resource_name="1", name=f"plugin.{number}", value="x")
        for number in range(5_000)
    ]
    image = MetadataImage()
    image.replay_all(records[:10], base_offset=0)
    image.advance(end_offset=10, epoch=1, timestamp_ms=0)
    tracemalloc.start(1)
    image.replay_batch([*records, replace(records[7], value=None)], base_offset=10, epoch=1, timestamp_ms=0)
    restored = MetadataImage()
    restored.restore(records, Provenance(end_offset=5_000, epoch=1))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000
    assert len(restored.configs[4, "1"]) == len(image.configs[4, "1"]) + 1 == 5_000
    image.revert_to(10)
    assert list(image.configs[4, "1"]) == [f"plugin.{number}" for number in range(10)]
