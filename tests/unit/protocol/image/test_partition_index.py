"""The indexes and counts kept about partitions, and the questions answered from them."""

from typing import Any

from quorate_protocol.image import views
from quorate_protocol.image.index import COUNTED_PARTITIONS_MIN
from quorate_protocol.records import generated as records


def test_topics_of_broker(log: Any, make: Any) -> None:
    def topics() -> list[set[str]]:
        return [set(log.image.index.topics_of_broker(number)) for number in (1, 2, 3, 9)]

    log.append(make.topic(1), make.partition(1, 0, (1, 2)), make.partition(1, 1, (2, 3)))
    log.append(make.topic(2), make.partition(2, 0, (2,)))
    assert topics() == [{"topic-1"}, {"topic-1", "topic-2"}, {"topic-1"}, set()]
    log.append(make.change(1, 0, replicas=(3, 9)))
    assert topics() == [set(), {"topic-1", "topic-2"}, {"topic-1"}, {"topic-1"}]
    log.append(make.change(1, 1, replicas=(3, 1)))
    assert topics() == [{"topic-1"}, {"topic-2"}, {"topic-1"}, {"topic-1"}]
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert topics() == [set(), {"topic-2"}, set(), set()]


def test_partitions_of_broker(log: Any, make: Any) -> None:
    log.append(make.topic(1), make.partition(1, 0, (1, 2)), make.partition(1, 1, (2, 3)))
    log.append(make.topic(2), make.partition(2, 0, (3,)), make.topic(3), make.partition(3, 0, (1,)))
    found = {(topic.name, number) for topic, number, _ in views.partitions_of_broker(log.image, 1)}
    assert found == {("topic-1", 0), ("topic-3", 0)}
    assert list(views.partitions_of_broker(log.image, 9)) == []


def test_unusual_partitions_and_counts(log: Any, make: Any) -> None:
    image = log.image
    log.append(make.broker(1, fenced=False), make.broker(2, fenced=False), make.broker(3))
    log.append(make.topic(1), make.partition(1, 0, (1, 2)), make.partition(1, 1, (2, 1)))
    log.append(make.change(1, 0, leader=2, isr=(2,)), make.change(1, 1, leader=-1))
    log.append(make.change(1, 1, adding_replicas=(3,)))
    topic_id = make.topic_id(1)
    assert set(image.index.leaderless) == {(topic_id, 1)}
    assert set(image.index.imbalanced) == {(topic_id, 0), (topic_id, 1)}
    assert (topic_id, 1) in image.index.reassigning
    assert (topic_id, 0) not in image.index.reassigning
    assert image.index.imbalanced.of_topic(topic_id) == {0, 1}
    assert not views.leads_any_partition(image, 1)
    assert image.index.leaderships(2) == 1
    assert views.counts(image) == views.ImageCounts(
        active_brokers=2,
        fenced_brokers=1,
        brokers_in_controlled_shutdown=0,
        controllers=0,
        topics=1,
        partitions=2,
        offline_partitions=1,
        preferred_replica_imbalance=2,
    )
    log.append(make.change(1, 0, leader=1), make.change(1, 1, leader=2, adding_replicas=()))
    assert not list(image.index.leaderless) + list(image.index.imbalanced) + list(image.index.reassigning)
    image.revert_to(0)
    assert views.counts(image).partitions == 0
    assert image.index.leaderships(2) == 0


def test_active_broker(log: Any, make: Any) -> None:
    log.append(
        make.broker(1, fenced=False),
        make.broker(2),
        make.broker(3, fenced=False, in_controlled_shutdown=True),
    )
    brokers = log.image.cluster.brokers
    assert [brokers[number].is_active for number in (1, 2, 3)] == [True, False, False]


def test_a_large_topic_counts_its_replicas(log: Any, make: Any) -> None:
    elsewhere = [make.partition(1, number, (7,)) for number in range(COUNTED_PARTITIONS_MIN)]
    log.append(make.topic(1), *elsewhere, make.partition(1, COUNTED_PARTITIONS_MIN, (1, 2)))
    log.commit()

    def topics() -> list[set[str]]:
        return [set(log.image.index.topics_of_broker(number)) for number in (1, 2, 3, 7)]

    there = {"topic-1"}
    assert topics() == [there, there, set(), there]
    log.append(make.change(1, COUNTED_PARTITIONS_MIN, replicas=(2, 3)), make.change(1, 0, replicas=(3,)))
    assert topics() == [set(), there, there, there]
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert topics() == [set()] * 4
    assert log.image.index._counts == {}
    assert views.counts(log.image).partitions == log.image.index.leaderships(7) == 0
    log.image.revert_to(log.image.committed_end_offset)
    assert topics() == [there, there, set(), there]
    assert views.counts(log.image).partitions == COUNTED_PARTITIONS_MIN + 1
    assert log.image.index.leaderships(7) == COUNTED_PARTITIONS_MIN


def test_a_topic_is_removed_by_one_write(log: Any, make: Any) -> None:
    log.append(make.topic(1), *(make.partition(1, number) for number in range(50)))
    before = len(log.image._journal)
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)))
    assert len(log.image._journal) - before == 2, "the topic and its configs"
