"""BrokerHeartbeat and sessions: the broker state machine (KIP-631, KIP-841, KIP-858, KIP-1066)."""

import time

import pytest
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.records.generated import BrokerRegistrationChangeRecord, PartitionChangeRecord


def test_a_broker_is_unfenced_once_it_has_read_its_registration(harness):
    """No broker serves with metadata older than its registration."""
    epoch = harness.register(1)
    response = harness.heartbeat(offset=epoch - 1)
    assert (response.is_caught_up, response.is_fenced) == (False, True)
    assert harness.records == []
    response = harness.heartbeat(offset=epoch)
    assert (response.is_caught_up, response.is_fenced, response.should_shut_down) == (True, False, False)
    assert harness.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)]
    assert not harness.broker().fenced


def test_an_amended_registration_has_to_be_read_again(harness):
    epoch = harness.register(1)
    harness.register(1)
    assert not harness.heartbeat(offset=epoch).is_caught_up
    assert harness.heartbeat(offset=epoch + 1).is_caught_up


def test_want_fence_keeps_a_caught_up_broker_fenced(harness):
    harness.register(1)
    response = harness.heartbeat(want_fence=True)
    assert (response.is_caught_up, response.is_fenced) == (True, True)
    assert harness.records == []


def test_a_steady_heartbeat_writes_nothing(harness):
    harness.start_broker(1)
    assert not harness.heartbeat().is_fenced
    assert harness.records == []


@pytest.mark.parametrize(("broker_id", "delta"), [(1, 1), (1, -1), (2, 0)])
def test_heartbeats_of_another_epoch_are_stale(harness, broker_id, delta):
    epoch = harness.register(1)
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch + delta,
        current_metadata_offset=epoch,
        want_fence=False,
        want_shut_down=False,
    )
    assert harness.refusal(request).error_code is ErrorCode.stale_broker_epoch


def test_unfencing_elects_leaders_for_leaderless_partitions(harness):
    harness.start_broker(1)
    topic_id = harness.add_topic("t", 1)
    harness.run_until(harness.now_ms + 9_001)
    assert harness.image.topics.by_id[topic_id].partitions[0].leader == -1
    harness.heartbeat()
    unfence, change = harness.records
    assert isinstance(unfence, BrokerRegistrationChangeRecord)
    assert isinstance(change, PartitionChangeRecord)
    assert change.leader == 1


def test_a_session_ends_after_its_timeout(harness):
    """9 s of silence fence a broker, not one ms less."""
    epoch = harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.now_ms += 5_000
    harness.heartbeat(2)
    contact_ms = harness.now_ms - 5_000
    assert not [record for record in harness.run_until(contact_ms + 9_000) if is_about(record, 1)]
    harness.now_ms = contact_ms + 9_001
    harness.replay_result(harness.control.tick(harness.now_ms))
    change, fence = harness.records
    assert (change.leader, change.isr) == (2, (2,))
    assert fence == BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)
    assert not harness.broker(2).fenced


def is_about(record: object, broker_id: int) -> bool:
    return getattr(record, "broker_id", None) == broker_id


def test_stale_brokers_are_fenced_one_per_pass(harness):
    for broker_id in (1, 2):
        harness.start_broker(broker_id)
    harness.now_ms += 9_001
    for broker_id in (1, 2):
        assert harness.control.deadline_ms <= harness.now_ms
        harness.replay_result(harness.control.tick(harness.now_ms))
        assert [record.broker_id for record in harness.records] == [broker_id]


def test_a_session_is_longer_by_what_the_controller_stood_still(harness):
    harness.start_broker(1)
    contact_ms = harness.now_ms
    harness.now_ms += 1_000
    harness.start_broker(2)
    harness.control.excuse_silence(20_000)
    assert not [record for record in harness.run_until(contact_ms + 29_000) if is_about(record, 1)]
    assert [record for record in harness.run_until(contact_ms + 29_001) if is_about(record, 1)]
    assert not harness.broker(2).fenced
    assert [record for record in harness.run_until(contact_ms + 30_001) if is_about(record, 2)]


def test_the_session_of_a_fenced_broker_ends_silently(harness):
    harness.register(1)
    harness.heartbeat(want_fence=True)
    written = harness.run_until(harness.now_ms + 20_000)
    assert not [record for record in written if is_about(record, 1)]


def test_a_new_active_controller_gives_every_unfenced_broker_a_full_session(harness):
    harness.start_broker(1)
    harness.register(2)
    harness.now_ms += 8_999
    harness.control.deactivate()
    harness.replay_result(harness.control.activate(harness.now_ms))
    activated_ms = harness.now_ms
    assert not [record for record in harness.run_until(activated_ms + 9_000) if is_about(record, 1)]
    assert [record for record in harness.run_until(activated_ms + 9_001) if is_about(record, 1)]


# Shutdown


def test_controlled_shutdown_moves_leaders_then_waits_for_the_others_to_know(harness):
    """Clients find the new leader before the old one leaves."""
    epoch = harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(2)
    response = harness.heartbeat(1, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    leave, change = harness.records
    assert leave == BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1)
    assert (change.leader, change.isr) == (2, (2,))
    shutdown_offset = harness.image.end_offset - 1

    harness.heartbeat(2, offset=shutdown_offset - 1)
    assert not harness.heartbeat(1, want_shut_down=True).should_shut_down
    harness.heartbeat(2, offset=shutdown_offset)
    response = harness.heartbeat(1, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert harness.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)]


def test_controlled_shutdown_waits_while_the_broker_leads(harness):
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(1, want_shut_down=True)
    topic_id = harness.add_topic("u", 1)
    harness.heartbeat(2)
    assert not harness.heartbeat(1, want_shut_down=True).should_shut_down
    harness.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1))
    assert harness.heartbeat(1, want_shut_down=True).should_shut_down


def test_shutdown_of_a_broker_that_leads_nothing_is_immediate(harness):
    harness.start_broker(1)
    response = harness.heartbeat(want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert harness.broker().fenced


def test_a_broker_that_was_shut_down_may_come_back_at_once(harness):
    harness.start_broker(1)
    assert harness.heartbeat(want_shut_down=True).should_shut_down
    harness.start_broker(1, incarnation=2)
    assert not harness.broker().fenced


def test_a_fenced_broker_may_shut_down_at_once(harness):
    harness.register(1)
    assert harness.heartbeat(want_shut_down=True).should_shut_down
    assert harness.records == []


@pytest.mark.parametrize("want_shut_down", [False, True])
def test_an_unfenced_broker_that_wants_to_be_fenced_is(harness, want_shut_down):
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    response = harness.heartbeat(1, want_fence=True, want_shut_down=want_shut_down)
    assert response.is_fenced
    assert response.should_shut_down is want_shut_down
    change, fence = harness.records
    assert change.leader == 2
    assert fence.fenced == 1


def test_the_last_broker_may_shut_down(harness):
    harness.start_broker(1)
    harness.add_topic("t", 1)
    assert not harness.heartbeat(want_shut_down=True).should_shut_down
    assert harness.heartbeat(want_shut_down=True).should_shut_down


def test_controlled_shutdown_goes_on_under_a_new_active_controller(harness):
    """The broker's state is in the log, the offset is not."""
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(1, want_shut_down=True)
    harness.control.deactivate()
    harness.replay_result(harness.control.activate(harness.now_ms))
    assert harness.broker().in_controlled_shutdown
    response = harness.heartbeat(1, want_shut_down=True)
    assert response.should_shut_down


def test_fencing_ends_a_controlled_shutdown(harness):
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(1, want_shut_down=True)
    harness.run_until(harness.now_ms + 9_001)
    assert harness.heartbeat(1, want_shut_down=True, offset=0).should_shut_down


# Log directories


def test_offline_directories_are_recorded_once(harness):
    directories = (harness.directory(1, 0), harness.directory(1, 1))
    epoch = harness.start_broker(1, log_dirs=directories)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(1, offline_log_dirs=(directories[0],))
    change, online = harness.records
    assert (change.leader, change.isr) == (2, (2,))
    assert online == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=epoch, log_dirs=(directories[1],)
    )
    harness.heartbeat(1, offline_log_dirs=(directories[0], harness.directory(9)))
    assert harness.records == []


def test_no_leader_is_elected_in_a_directory_that_fails_as_its_broker_returns(harness):
    directories = (harness.directory(1, 0), harness.directory(1, 1))
    harness.start_broker(1, log_dirs=directories)
    topic_id = harness.add_topic("t", 1)
    harness.replay(
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=(directories[0],)),
    )
    harness.heartbeat(1, want_fence=True)
    partition = harness.image.topics.by_id[topic_id].partitions
    assert not partition[0].has_leader
    assert harness.heartbeat(1, offline_log_dirs=(directories[0],)).is_fenced
    assert not harness.heartbeat(1, offline_log_dirs=(directories[0],)).is_fenced
    assert harness.broker().directories == (directories[1],)
    assert not partition[0].has_leader


def test_many_offline_directories_take_linear_time(harness):
    directories = tuple(harness.directory(1, number) for number in range(20_000))
    harness.start_broker(1, log_dirs=directories)
    started_s = time.process_time()
    harness.heartbeat(1, offline_log_dirs=directories[1:])
    assert time.process_time() - started_s < 5
    assert harness.records[-1].log_dirs == directories[:1]


def test_offline_directories_mean_nothing_before_metadata_version_17(new_harness):
    harness = new_harness(16)
    harness.start_broker(1)
    harness.heartbeat(1, offline_log_dirs=(harness.directory(1),))
    assert harness.records == []


def test_cordoned_directories_are_recorded_when_they_change(harness):
    """Placement knows them (KIP-1066)."""
    directories = (harness.directory(1, 0), harness.directory(1, 1))
    harness.start_broker(1, log_dirs=directories)
    for reported, is_recorded in [
        ((), True),
        ((), False),
        (directories, True),
        (directories[::-1], False),
        (None, False),
        ((), True),
    ]:
        harness.heartbeat(1, cordoned_log_dirs=reported)
        assert bool(harness.records) is is_recorded
        if is_recorded:
            assert harness.broker().cordoned_directories == reported


def test_cordoned_directories_mean_nothing_before_metadata_version_30(new_harness):
    harness = new_harness(29)
    harness.start_broker(1)
    harness.heartbeat(1, cordoned_log_dirs=(harness.directory(1),))
    assert harness.records == []
