"""The controller as the node drives it: roles, time, what goes where."""

from random import Random

import pytest
from kit.controller_parts import heartbeat
from quorate_controller.control.api import ControlConfig
from quorate_controller.control.controller import QuorumController
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest
from quorate_protocol.kafka.generated.vote_request import VoteRequest
from quorate_protocol.records.generated import NoOpRecord, PartitionChangeRecord


def test_a_standby_answers_reads_only(harness):
    read = DescribeConfigsRequest(resources=())
    assert harness.apply(read).results == ()
    assert harness.refusal(heartbeat()).error_code is ErrorCode.stale_broker_epoch
    harness.control.deactivate()
    assert not harness.control.is_active
    assert harness.control.deadline_ms is None
    assert harness.apply(read).results == ()
    assert harness.refusal(heartbeat()).error_code is ErrorCode.not_controller


def test_requests_of_others_are_refused(harness):
    """A wrong turn inside the server is an error response, not a crash."""
    error = harness.refusal(VoteRequest(cluster_id=None, topics=()))
    assert error.error_code is ErrorCode.unsupported_version


def test_every_request_of_the_table_has_somebody_who_decides(harness):
    known = {request.__name__ for request in (*harness.control._writes, *harness.control._reads)}
    assert known == {
        "AllocateProducerIdsRequest",
        "AlterClientQuotasRequest",
        "AlterConfigsRequest",
        "AlterPartitionReassignmentsRequest",
        "AlterPartitionRequest",
        "AlterUserScramCredentialsRequest",
        "AssignReplicasToDirsRequest",
        "BrokerHeartbeatRequest",
        "BrokerRegistrationRequest",
        "ControllerRegistrationRequest",
        "CreateDelegationTokenRequest",
        "CreateAclsRequest",
        "CreatePartitionsRequest",
        "CreateTopicsRequest",
        "DeleteAclsRequest",
        "DeleteTopicsRequest",
        "DescribeAclsRequest",
        "DescribeClientQuotasRequest",
        "DescribeClusterRequest",
        "DescribeConfigsRequest",
        "DescribeDelegationTokenRequest",
        "DescribeTopicPartitionsRequest",
        "DescribeUserScramCredentialsRequest",
        "ElectLeadersRequest",
        "ExpireDelegationTokenRequest",
        "IncrementalAlterConfigsRequest",
        "ListPartitionReassignmentsRequest",
        "RenewDelegationTokenRequest",
        "UnregisterBrokerRequest",
        "UnregisterControllerRequest",
        "UpdateFeaturesRequest",
    }


def test_noop_records_come_twice_a_second(harness):
    """The high watermark moves while nothing happens (KIP-835)."""
    start_ms = harness.now_ms
    assert harness.control.deadline_ms == start_ms + 500
    assert harness.run_until(start_ms + 3_000) == [NoOpRecord()] * 6


def test_noop_records_can_be_switched_off(new_harness):
    """Metadata.max.idle.interval.ms=0."""
    harness = new_harness(max_idle_interval_ms=0)
    assert harness.run_until(harness.now_ms + 60_000) == []


def test_preferred_leaders_are_elected_every_five_minutes(new_harness):
    for is_enabled in (True, False):
        harness = new_harness(
            max_idle_interval_ms=0,
            broker_session_timeout_ms=10**9,
            leader_imbalance_check_enable=is_enabled,
        )
        harness.start_broker(1)
        harness.start_broker(2)
        topic_id = harness.add_topic("t", 1, 2, leader=2)
        assert harness.run_until(harness.now_ms + 299_999) == []
        written = harness.run_until(harness.now_ms + 1)
        assert [record.leader for record in written] == ([1] if is_enabled else [])
        leader = harness.image.topics.by_id[topic_id].partitions[0].leader
        assert leader == (1 if is_enabled else 2)


def test_a_long_pass_goes_on_in_the_next_turn(new_harness):
    """1,000 elections a step, without waiting five minutes, but not all in one turn."""
    harness = new_harness(max_idle_interval_ms=0, broker_session_timeout_ms=10**9)
    harness.start_broker(1)
    harness.start_broker(2)
    for number in range(1_001):
        harness.add_topic(f"t{number}", 1, 2, leader=2)
    begin_ms = harness.now_ms + 300_000
    steps = [harness.run_until(begin_ms + pause_ms) for pause_ms in (0, 1)]
    elections = [[it for it in written if isinstance(it, PartitionChangeRecord)] for written in steps]
    assert [len(records) for records in elections] == [1_000, 1]


def test_ticks_before_the_deadline_do_nothing(harness):
    assert harness.control.tick(harness.now_ms) is None


@pytest.mark.parametrize("brokers", [1, 50])
def test_a_standby_observes_without_soft_state(brokers):
    image = MetadataImage()
    control = QuorumController(ControlConfig(node_id=1, cluster_id="c"), image, Random(0), None)
    control.observe([NoOpRecord()] * brokers, 0, 0)
    assert control.deadline_ms is None
