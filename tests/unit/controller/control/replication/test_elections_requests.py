"""ElectLeaders, and the passes that elect preferred and unclean leaders periodically."""

from collections.abc import Iterator

import pytest
from quorate_controller.control import api, elections
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.kafka.generated import elect_leaders_request as kio_request
from quorate_protocol.records.generated import PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1


def elect(cluster, election_type: int, *topics):
    """``topics``: pairs of name and partition ids; none means all."""
    asked = kio_request.ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=tuple(
            kio_request.TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics
        )
        if topics
        else None,
    )
    return cluster.elections.elect_leaders(asked, cluster.context(2))


def results(decision):
    return {
        (topic.topic, it.partition_id): (it.error_code, it.error_message)
        for topic in decision.response.replica_election_results
        for it in topic.partition_result
    }


def test_the_preferred_leader_takes_over(cluster, make_partition) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 2, leader=2))
    decision = elect(cluster, PREFERRED, ("a", (0,)))
    assert decision.records == (PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1),)
    assert results(decision) == {("a", 0): (ErrorCode.none, None)}
    assert not decision.atomic


def test_an_election_of_all_looks_only_at_partitions_that_need_one(cluster, make_partition) -> None:
    cluster.add_topic("a", *[make_partition(1, 2)] * 50, make_partition(1, 2, leader=2))
    topic = cluster.image.topics.by_name["a"]
    read = []

    class Counted(dict):
        def get(self, key, default=None):
            read.append(key)
            return super().get(key, default)

        items = values = __iter__ = None

    counted = type(topic)(topic.name, topic.topic_id, Counted(topic.partitions), topic.owner)
    cluster.image.topics.by_id[topic.topic_id] = cluster.image.topics.by_name["a"] = counted
    decision = elect(cluster, PREFERRED)
    assert results(decision) == {("a", 50): (ErrorCode.none, None)}
    assert set(read) == {50}


def test_preferred_elections_refused(cluster, make_partition) -> None:
    """Kafka's code and text for each reason."""
    cluster.add_topic("a", make_partition(1, 2), make_partition(1, 2, isr=(2,)))
    decision = elect(cluster, PREFERRED, ("a", (0, 1, 2)), ("b", (0,)))
    assert decision.records == ()
    assert results(decision) == {
        ("a", 0): (ErrorCode.election_not_needed, "Leader election not needed for topic partition."),
        ("a", 1): (ErrorCode.preferred_leader_not_available, "The preferred leader was not available."),
        ("a", 2): (ErrorCode.unknown_topic_or_partition, "No such partition as a-2"),
        ("b", 0): (ErrorCode.unknown_topic_or_partition, "No such topic as b"),
    }


def test_an_unclean_election_on_request(cluster, make_partition) -> None:
    """Asked for, it needs no config; only leaderless partitions take part."""
    cluster.add_topic("a", make_partition(1, 2, isr=(1,), leader=-1), make_partition(2, 1))
    cluster.mark(1, fenced=True)
    decision = elect(cluster, UNCLEAN, ("a", (0, 1)))
    assert {key: code for key, (code, _) in results(decision).items()} == {
        ("a", 0): ErrorCode.none,
        ("a", 1): ErrorCode.election_not_needed,
    }
    cluster.apply(decision)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_nobody_is_left_for_an_unclean_election(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, leader=-1))
    cluster.mark(1, fenced=True)
    assert results(elect(cluster, UNCLEAN, ("a", (0,)))) == {
        ("a", 0): (
            ErrorCode.eligible_leaders_not_available,
            "Eligible topic partition leaders are not available.",
        )
    }


def test_of_all_partitions_only_those_in_need_are_answered(cluster, make_partition) -> None:
    """An election of everything does not list what was right already."""
    cluster.add_topic("a", make_partition(1, 2), make_partition(1, 2, leader=2))
    cluster.add_topic("b", make_partition(1))
    decision = elect(cluster, PREFERRED)
    assert results(decision) == {("a", 1): (ErrorCode.none, None)}
    assert [topic.topic for topic in decision.response.replica_election_results] == ["a", "b"]


def test_an_unknown_election_type_is_refused(cluster) -> None:
    with pytest.raises(ControlError) as refused:
        elect(cluster, 7)
    assert (refused.value.error_code, refused.value.message) == (
        ErrorCode.invalid_request,
        "Unknown election type 7",
    )


def test_too_many_elections_at_once_are_refused(cluster, make_partition, monkeypatch) -> None:
    monkeypatch.setattr(api, "RECORDS_PER_BATCH_MAX", 2)
    cluster.add_topic("a", *[make_partition(1, 2, leader=2)] * 3)
    with pytest.raises(ControlError) as refused:
        elect(cluster, PREFERRED)
    assert refused.value.error_code is ErrorCode.policy_violation


def test_a_partition_that_is_named_again_and_again_ends_at_the_bound(
    cluster, make_partition, monkeypatch
) -> None:
    """A request is refused at the first election too many, not at the end of its topic."""
    monkeypatch.setattr(api, "RECORDS_PER_BATCH_MAX", 2)
    cluster.add_topic("a", make_partition(1, 2, leader=2))

    class Ids(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            yield from (0, 0, 0)
            raise AssertionError("read on")

    with pytest.raises(ControlError) as refused:
        elect(cluster, PREFERRED, ("a", Ids((0, 0, 0, 0))))
    assert refused.value.error_code is ErrorCode.policy_violation


def test_the_preferred_pass_goes_on_where_it_stopped(cluster, make_partition, monkeypatch) -> None:
    """Bounded steps that together elect everything."""
    monkeypatch.setattr(elections, "ELECTIONS_PER_PASS_MAX", 2)
    cluster.add_topic("a", *[make_partition(1, 2, leader=2)] * 5)
    steps = []
    more = True
    while more:
        decision, more = cluster.elections.balance_leaders()
        cluster.apply(decision)
        steps.append(len(decision.records))
    assert steps == [2, 2, 1]
    assert len(cluster.image.index.imbalanced) == 0


def test_the_preferred_pass_skips_who_can_not_lead(cluster, make_partition) -> None:
    cluster.mark(3, fenced=True)
    topic_id = cluster.add_topic(
        "a",
        make_partition(1, 2, isr=(2,)),
        make_partition(3, 2, leader=2),
        make_partition(9, 2, leader=2, directories=(None, None)),
        make_partition(1, 2, leader=2),
    )
    decision, more = cluster.elections.balance_leaders()
    assert decision.records == (PartitionChangeRecord(topic_id=topic_id, partition_id=3, leader=1),)
    assert not more


def test_the_unclean_pass_asks_each_topic(cluster, make_partition, monkeypatch) -> None:
    monkeypatch.setattr(elections, "ELECTIONS_PER_PASS_MAX", 1)
    cluster.configure("lossy", "unclean.leader.election.enable", "true")
    cluster.mark(1, fenced=True)
    for name in ("safe", "lossy"):
        cluster.add_topic(name, *[make_partition(1, 2, isr=(1,), leader=-1)] * 2)
    more = True
    while more:
        decision, more = cluster.elections.elect_unclean_leaders()
        cluster.apply(decision)
    assert [cluster.partition("lossy", number).leader for number in (0, 1)] == [2, 2]
    assert [cluster.partition("safe", number).leader for number in (0, 1)] == [-1, -1]


def test_a_step_looks_at_a_bounded_number_of_partitions(cluster, make_partition, monkeypatch) -> None:
    """Partitions without an electable replica do not delay a turn."""
    monkeypatch.setattr(elections, "EXAMINED_PER_STEP_MAX", 2)
    cluster.configure("lossy", "unclean.leader.election.enable", "true")
    cluster.mark(1, fenced=True)
    for name, count in (("safe", 4), ("lossy", 1)):
        cluster.add_topic(name, *[make_partition(1, 2, isr=(1,), leader=-1)] * count)
    steps = []
    more = True
    while more:
        decision, more = cluster.elections.elect_unclean_leaders()
        cluster.apply(decision)
        steps.append(len(decision.records))
    assert steps == [0, 0, 1]


def test_passes_with_nothing_to_do(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2))
    for decision, more in (cluster.elections.balance_leaders(), cluster.elections.elect_unclean_leaders()):
        assert (decision.records, more) == ((), False)
