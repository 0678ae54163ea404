"""The counts of a large topic go with it."""

from typing import Any

from quorate_protocol.image.index import COUNTED_PARTITIONS_MIN
from quorate_protocol.records import generated as records


def test_the_counts_of_a_deleted_topic_are_forgotten(log: Any, make: Any) -> None:
    partitions = [make.partition(1, number, (7,)) for number in range(COUNTED_PARTITIONS_MIN + 1)]
    log.append(make.topic(1), *partitions)
    log.append(make.change(1, 0, replicas=(8,)))
    log.commit()
    index = log.image.index
    assert len(index._counts) == 1
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert len(index._counts) == 0
    log.image.revert_to(log.image.committed_end_offset)
    log.append(make.change(1, 1, replicas=(8,)))
    assert sorted(index.topics_of_broker(8)) == ["topic-1"]
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert len(index._counts) == 0
