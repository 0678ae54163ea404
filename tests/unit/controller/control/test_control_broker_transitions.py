"""Brokers with more partitions than one decision should change: slices, and who may do what between them.

Slices have three partitions here, and brokers seven or more.
"""

import pytest
from quorate_controller.control import broker_transitions
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_partition_request as alter
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)

SESSION_MS = 9_000
SLICE = 3
TOPICS = 7
ELR = {"eligible.leader.replicas.version": 1}


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(broker_transitions, "CHANGES_PER_SLICE_MAX", SLICE)


@pytest.fixture
def make_large(new_harness):
    """Make a cluster in which brokers 1 and 2 replicate seven topics, led by 1; broker 3 has nothing."""

    def make(*replicas, features=None, **config):
        harness = new_harness(features=features, max_idle_interval_ms=0, **config)
        for broker_id in (1, 2, 3):
            harness.start_broker(broker_id)
        for number in range(TOPICS):
            harness.add_topic(f"t{number}", *(replicas or (1, 2)))
        return harness

    return make


@pytest.fixture
def large(make_large):
    return make_large()


def partitions(harness):
    return [topic.partitions[0] for topic in harness.image.topics.by_id.values()]


def memberships(harness, broker_id=1):
    """In how many ISRs a broker is."""
    return sum(broker_id in partition.isr for partition in partitions(harness))


def silence(harness, broker_id=1):
    """Let the session of one broker expire, and the fencing be decided; slices are not run yet."""
    harness.now_ms += SESSION_MS
    for other in {1, 2, 3} - {broker_id}:
        if not harness.broker(other).fenced:
            harness.heartbeat(other)
    harness.now_ms += 1
    harness.replay_result(harness.control.tick(harness.now_ms))


def next_slice(harness):
    """Run the next slice, in a later turn if it has to be. Returns its records."""
    harness.now_ms = max(harness.now_ms, harness.control.deadline_ms)
    harness.replay_result(harness.control.tick(harness.now_ms))
    return harness.records


def finish(harness):
    """Run the slices that are left, a second being ample. Returns their records."""
    return harness.run_until(harness.now_ms + 1_000)


def fail_over(harness):
    """Another controller becomes active with this image, and without the soft state."""
    harness.control.deactivate()
    harness.replay_result(harness.control.activate(harness.now_ms))


def test_a_large_broker_is_fenced_before_its_partitions_move(large):
    silence(large)
    assert [type(record) for record in large.records] == [BrokerRegistrationChangeRecord]
    sizes = []
    while memberships(large):
        before_ms = large.now_ms
        sizes.append(len(next_slice(large)))
        assert large.control.deadline_ms > large.now_ms or sizes[-1] < SLICE
        assert large.now_ms - before_ms <= 1
    assert sizes == [3, 3, 1]
    assert {(it.leader, it.isr, it.leader_epoch, it.partition_epoch) for it in partitions(large)} == {
        (2, (2,), 1, 1)
    }


def test_a_broker_that_fits_in_a_slice_is_fenced_in_one_decision(make_large):
    harness = make_large(2, 1)
    harness.add_topic("other", 3, 1)
    silence(harness, 3)
    change, fence = harness.records
    assert (change.leader, change.isr) == (1, (1,))
    assert fence.fenced == 1
    assert finish(harness) == []


def test_slices_have_the_same_result_as_one_decision(make_large, monkeypatch):
    results = []
    for size in (SLICE, 1_000):
        monkeypatch.setattr(broker_transitions, "CHANGES_PER_SLICE_MAX", size)
        harness = make_large(1, 2, 3, features=ELR)
        silence(harness)
        finish(harness)
        results.append(partitions(harness))
    assert results[0] == results[1]


def test_a_slice_looks_at_a_bounded_number_of_replicas(large, monkeypatch):
    silence(large)
    finish(large)
    fail_over(large)
    monkeypatch.setattr(broker_transitions, "PARTITIONS_PER_SLICE_MAX", 2)
    slices = 0
    while large.control.deadline_ms <= large.now_ms + 1:
        assert next_slice(large) == []
        slices += 1
    assert slices == 4


def test_a_new_leader_continues_in_the_middle(large):
    silence(large)
    next_slice(large)
    assert memberships(large) == TOPICS - SLICE
    fail_over(large)
    assert len(finish(large)) == TOPICS - SLICE
    assert memberships(large) == 0
    fail_over(large)
    assert finish(large) == []


def test_a_broker_returns_after_it_has_left_everything(large):
    silence(large)
    next_slice(large)
    assert large.heartbeat(1).is_fenced
    fail_over(large)
    assert large.heartbeat(1).is_fenced
    finish(large)
    assert not large.heartbeat(1).is_fenced
    assert memberships(large) == 0


def test_a_fencing_that_was_not_written_moves_nothing(large):
    large.now_ms += SESSION_MS
    large.heartbeat(2)
    large.heartbeat(3)
    large.now_ms += 1
    assert large.control.tick(large.now_ms).records
    assert finish(large) == []
    assert memberships(large) == TOPICS


def test_two_brokers_may_leave_at_once(make_large):
    harness = make_large(1, 2, 3)
    harness.now_ms += SESSION_MS
    harness.heartbeat(3)
    harness.now_ms += 1
    harness.replay_result(harness.control.tick(harness.now_ms))
    harness.replay_result(harness.control.tick(harness.now_ms))
    assert harness.broker(1).fenced
    assert harness.broker(2).fenced
    while memberships(harness, 1) or memberships(harness, 2):
        next_slice(harness)
        assert all(it.leader in (1, 3) for it in partitions(harness))
    assert {(it.leader, it.isr) for it in partitions(harness)} == {(3, (3,))}


@pytest.mark.parametrize("partition_number", [0, TOPICS - 1])
def test_a_fenced_broker_joins_no_isr_between_slices(make_large, partition_number):
    """AlterPartition adds no replica behind the cursor."""
    harness = make_large(2, 1)
    silence(harness)
    next_slice(harness)
    topic = harness.image.topics.by_name[f"t{partition_number}"]
    partition = topic.partitions[0]
    asked = alter.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=tuple(
            alter.BrokerState(broker_id=it, broker_epoch=harness.broker(it).epoch) for it in (1, 2)
        ),
        partition_epoch=partition.partition_epoch,
    )
    response = harness.apply(
        alter.AlterPartitionRequest(
            broker_id=2,
            broker_epoch=harness.broker(2).epoch,
            topics=(alter.TopicData(topic_id=topic.topic_id, partitions=(asked,)),),
        )
    )
    assert response.topics[0].partitions[0].error_code is ErrorCode.ineligible_replica


# Registration


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_new_incarnation_waits_until_the_last_one_has_left(make_large, fails_over):
    harness = make_large(1, 2, features=ELR)
    harness.replay(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    silence(harness)
    finish(harness)
    assert sum(1 in partition.elr for partition in partitions(harness)) == TOPICS
    restarted = harness.registration(1, incarnation=2)
    assert harness.refusal(restarted).error_code is ErrorCode.duplicate_broker_registration
    next_slice(harness)
    if fails_over:
        fail_over(harness)
    assert harness.refusal(restarted).error_code is ErrorCode.duplicate_broker_registration
    finish(harness)
    harness.apply(restarted)
    assert [type(record) for record in harness.records] == [RegisterBrokerRecord]
    assert not any(1 in partition.elr for partition in partitions(harness))
    assert not harness.heartbeat(1).is_fenced


def test_partitions_that_a_broker_can_not_leave_do_not_keep_it_out(make_large):
    """The last of an ISR stays in it, which is no reason to wait for."""
    harness = make_large(1)
    silence(harness)
    finish(harness)
    assert memberships(harness) == TOPICS
    harness.register(1, incarnation=2)
    fail_over(harness)
    refusal = harness.refusal(harness.registration(1, incarnation=3))
    assert refusal.error_code is ErrorCode.duplicate_broker_registration
    finish(harness)
    harness.register(1, incarnation=3)
    assert not harness.heartbeat(1).is_fenced


# Unregistering


def test_a_large_broker_is_unregistered_at_once(large):
    """The answer does not wait for partitions, which follow, also under another leader."""
    response = large.apply(UnregisterBrokerRequest(broker_id=1))
    assert response.error_code is ErrorCode.none
    assert [type(record) for record in large.records] == [UnregisterBrokerRecord]
    next_slice(large)
    fail_over(large)
    assert large.refusal(large.registration(1)).error_code is ErrorCode.duplicate_broker_registration
    finish(large)
    assert {(it.leader, it.isr) for it in partitions(large)} == {(2, (2,))}
    large.register(1)


def test_topics_may_go_while_a_broker_leaves_them(large):
    silence(large)
    next_slice(large)
    large.replay(RemoveTopicRecord(topic_id=large.image.topics.by_name[f"t{TOPICS - 1}"].topic_id))
    finish(large)
    assert memberships(large) == 0


# Controlled shutdown


def test_a_broker_shuts_down_after_its_leaders_have_moved(large):
    assert not large.heartbeat(1, want_shut_down=True).should_shut_down
    assert [type(record) for record in large.records] == [BrokerRegistrationChangeRecord]
    before = large.image.end_offset
    next_slice(large)
    large.heartbeat(2, offset=before)
    large.heartbeat(3, offset=before)
    assert not large.heartbeat(1, want_shut_down=True).should_shut_down
    finish(large)
    assert not large.heartbeat(1, want_shut_down=True).should_shut_down, "the others don't know yet"
    last = large.image.end_offset - 1
    for offset, may_stop in ((last - 1, False), (last, True)):
        large.heartbeat(2, offset=offset)
        large.heartbeat(3, offset=offset)
        assert large.heartbeat(1, want_shut_down=True).should_shut_down is may_stop
    assert large.broker(1).fenced


def test_a_fenced_broker_shuts_down_after_its_leaders_have_moved(large):
    silence(large)
    assert not large.heartbeat(1, want_shut_down=True).should_shut_down
    finish(large)
    assert large.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_shutdown_continues_under_a_new_leader(large):
    large.heartbeat(1, want_shut_down=True)
    next_slice(large)
    fail_over(large)
    assert not large.heartbeat(1, want_shut_down=True).should_shut_down
    finish(large)
    large.heartbeat(2)
    large.heartbeat(3)
    assert large.heartbeat(1, want_shut_down=True).should_shut_down


# Unfencing


@pytest.mark.parametrize("fails_over", [False, True])
def test_leaderless_partitions_get_leaders_in_slices(make_large, fails_over):
    """A broker that returns to many partitions delays no other request."""
    harness = make_large(1)
    silence(harness)
    finish(harness)
    assert not harness.heartbeat(1).is_fenced
    assert [type(record) for record in harness.records] == [BrokerRegistrationChangeRecord]
    sizes = [len(next_slice(harness))]
    if fails_over:
        fail_over(harness)
    while len(harness.image.index.leaderless):
        sizes.append(len(next_slice(harness)))
        assert all(isinstance(record, PartitionChangeRecord) for record in harness.records)
    assert sizes == [3, 3, 1]
    assert {partition.leader for partition in partitions(harness)} == {1}


def test_a_second_broker_that_returns_is_not_overlooked(make_large):
    """A running pass does not miss partitions behind its cursor."""
    harness = make_large(1)
    for number in range(TOPICS):
        harness.add_topic(f"u{number}", 2)
    for broker_id in (1, 2):
        silence(harness, broker_id)
        finish(harness)
    assert len(harness.image.index.leaderless) == 2 * TOPICS
    harness.heartbeat(2)
    next_slice(harness)
    next_slice(harness)
    harness.heartbeat(1)
    finish(harness)
    assert len(harness.image.index.leaderless) == 0


# Lost log directories


@pytest.fixture
def two_disks(new_harness):
    """Brokers 1 and 2 replicate seven topics, led by 1, which has them in the first of its two directories."""
    harness = new_harness(max_idle_interval_ms=0)
    harness.start_broker(1, log_dirs=(harness.directory(1, 0), harness.directory(1, 1)))
    harness.start_broker(2)
    for number in range(TOPICS):
        harness.add_topic(f"t{number}", 1, 2)
    return harness


def report_lost(harness):
    """A heartbeat of broker 1, whose first directory is offline. Returns the records."""
    harness.heartbeat(1, offline_log_dirs=(harness.directory(1, 0),))
    return harness.records


def test_a_large_lost_directory_moves_in_slices_and_is_unregistered_last(two_disks):
    harness = two_disks
    assert report_lost(harness) == []
    counts = []
    while memberships(harness):
        records = next_slice(harness)
        counts.append(sum(isinstance(record, PartitionChangeRecord) for record in records))
        if memberships(harness):
            assert report_lost(harness) == []
            assert len(harness.image.cluster.brokers[1].directories) == 2
    assert counts == [3, 3, 1]
    assert harness.records[-1] == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=harness.broker(1).epoch, log_dirs=(harness.directory(1, 1),)
    )
    assert {partition.leader for partition in partitions(harness)} == {2}
    assert not harness.broker(1).fenced
    assert finish(harness) == report_lost(harness) == []


def test_a_new_leader_hears_again_of_a_lost_directory(two_disks):
    """A failover between slices forgets no partition."""
    harness = two_disks
    report_lost(harness)
    next_slice(harness)
    fail_over(harness)
    assert report_lost(harness) == []
    finish(harness)
    assert not memberships(harness)
    assert harness.image.cluster.brokers[1].directories == (harness.directory(1, 1),)


def test_slices_for_lost_directories_end_with_the_broker(two_disks):
    harness = two_disks
    report_lost(harness)
    next_slice(harness)
    harness.apply(UnregisterBrokerRequest(broker_id=1))
    records = finish(harness)
    assert not [record for record in records if isinstance(record, BrokerRegistrationChangeRecord)]
    assert harness.control.deadline_ms > harness.now_ms
