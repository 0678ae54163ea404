"""What happens to partitions when their brokers come and go."""

import pytest
from quorate_controller.control import broker_transitions
from quorate_controller.control.api import ControlError
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
)


def state(cluster, name: str = "a", partition_id: int = 0):
    partition = cluster.partition(name, partition_id)
    return partition.leader, partition.isr, partition.leader_epoch


def test_a_fenced_broker_leaves_isr_and_leadership(cluster, make_partition) -> None:
    topic_id = cluster.add_topic("a", make_partition(1, 2, 3), make_partition(2, 1, 3), make_partition(2, 3))
    records = cluster.transitions.on_broker_fenced(1)
    assert list(records) == [
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=(2, 3), leader=2),
        PartitionChangeRecord(topic_id=topic_id, partition_id=1, isr=(2, 3)),
    ]


def test_the_next_leader_is_the_first_in_replica_order(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2, 3, isr=(3, 1, 2), leader=1))
    cluster.fence(1)
    assert state(cluster) == (2, (3, 2), 6)


def test_the_last_of_the_isr_stays_in_it_without_a_leader(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2))
    cluster.fence(1)
    cluster.fence(2)
    assert state(cluster) == (-1, (2,), 7)
    assert cluster.unfence(1) == []
    cluster.unfence(2)
    assert state(cluster) == (2, (2,), 8)


def test_fencing_costs_only_the_topics_of_that_broker(cluster, make_partition) -> None:
    cluster.add_topic("mine", make_partition(1, 2))
    other = cluster.image.topics.by_id[cluster.add_topic("other", make_partition(2, 3))]

    class Unreadable(dict):
        def __getitem__(self, key):
            raise AssertionError("looked at a topic without replicas on broker 1")

        items = values = __iter__ = __getitem__

    cluster.image.topics.by_id[other.topic_id] = type(other)(
        other.name, other.topic_id, Unreadable(), other.owner
    )
    assert len(cluster.transitions.on_broker_fenced(1)) == 1


def test_a_broker_in_controlled_shutdown_hands_over(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2), make_partition(1))
    assert cluster.transitions.leads_any_partition(1)
    cluster.apply(cluster.transitions.on_controlled_shutdown(1))
    cluster.mark(1, shutting_down=True)
    assert state(cluster)[:2] == (2, (2,))
    assert state(cluster, partition_id=1)[:2] == (-1, (1,))
    assert not cluster.transitions.leads_any_partition(1)
    assert cluster.transitions.leads_any_partition(2)


def test_brokers_that_shut_down_are_not_elected(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2, 3))
    cluster.mark(2, shutting_down=True)
    cluster.fence(1)
    assert state(cluster)[0] == 3


def test_an_unclean_election_only_where_it_is_enabled(cluster, make_partition) -> None:
    cluster.configure("lossy", "unclean.leader.election.enable", "true")
    cluster.add_topic("lossy", make_partition(1, 2, isr=(1,)))
    cluster.add_topic("safe", make_partition(1, 2, isr=(1,)))
    cluster.fence(1)
    assert state(cluster, "lossy") == (2, (2,), 6)
    assert cluster.partition("lossy").leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert state(cluster, "safe") == (-1, (1,), 6)


def test_offline_directories_take_only_their_partitions(make_cluster, make_partition) -> None:
    """A broker with a lost disk continues to lead from the others."""
    cluster = make_cluster()
    cluster.add_broker(1, directories=2)
    cluster.add_broker(2)
    lost, kept, other = cluster.directory(1, 0), cluster.directory(1, 1), cluster.directory(2)
    cluster.add_topic(
        "a", make_partition(1, 2, directories=(lost, other)), make_partition(1, 2, directories=(kept, other))
    )
    cluster.apply(cluster.transitions.on_directories_offline(1, [lost]))
    assert state(cluster)[:2] == (2, (2,))
    assert state(cluster, partition_id=1) == (1, (1, 2), 5)


def test_a_replica_in_an_offline_directory_is_not_elected(make_cluster, make_partition) -> None:
    """An active broker whose disk is lost can't lead."""
    cluster = make_cluster()
    cluster.add_broker(1)
    cluster.add_broker(2, directories=2)
    cluster.add_topic("a", make_partition(1, 2, directories=(cluster.directory(1), cluster.directory(2, 0))))
    cluster.replay(
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1002, log_dirs=(cluster.directory(2, 1),))
    )
    cluster.fence(1)
    assert state(cluster)[0] == -1


@pytest.fixture
def elr_cluster(cluster):
    """ELR on, and topic 'a' with min.insync.replicas 2."""
    cluster.enable_elr()
    cluster.configure("a", "min.insync.replicas", "2")
    return cluster


def test_eligible_leaders_keep_a_partition_alive(elr_cluster, make_partition) -> None:
    """KIP-966."""
    elr_cluster.add_topic("a", make_partition(1, 2, 3))
    for broker_id in (1, 2, 3):
        elr_cluster.fence(broker_id)
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (2, 3))
    assert partition.last_known_elr == (3,)
    assert elr_cluster.unfence(1) == []
    elr_cluster.unfence(2)
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (3,))
    assert partition.last_known_elr == ()
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED, "nothing was lost"


def test_an_unclean_restart_ends_eligibility(elr_cluster, make_partition) -> None:
    elr_cluster.add_topic("a", make_partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)))
    elr_cluster.apply(elr_cluster.transitions.on_unclean_restart(2))
    assert elr_cluster.partition("a").elr == ()
    elr_cluster.apply(elr_cluster.transitions.on_unclean_restart(1))
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), ())
    assert partition.last_known_elr == (1,)


def test_the_last_known_leader_may_come_back(elr_cluster, make_partition) -> None:
    elr_cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    elr_cluster.apply(elr_cluster.transitions.on_unclean_restart(1))
    elr_cluster.mark(1, fenced=True)
    elr_cluster.mark(2, fenced=True)
    assert elr_cluster.unfence(2) == []
    elr_cluster.unfence(1)
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_an_unclean_restart_without_elr_is_a_fencing(cluster, make_partition) -> None:
    """Before KIP-966 the last in sync stays in the ISR."""
    cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    assert list(cluster.transitions.on_unclean_restart(1)) == list(cluster.transitions.on_broker_fenced(1))


def test_an_unregistered_broker_is_no_longer_eligible(elr_cluster, make_partition) -> None:
    elr_cluster.add_topic(
        "a", make_partition(1, 2), make_partition(1, 2, isr=(1,), eligible_leader_replicas=(2,))
    )
    elr_cluster.apply(elr_cluster.transitions.on_broker_unregistered(2))
    for partition_id in (0, 1):
        partition = elr_cluster.partition("a", partition_id)
        assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())


def test_a_new_minimum_clears_the_elr(cluster, make_partition) -> None:
    cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    assert list(cluster.transitions.on_min_insync_replicas_changed(["a", None])) == []
    cluster.enable_elr()
    records = list(cluster.transitions.on_min_insync_replicas_changed(["a", None]))
    assert records == [ClearElrRecord(topic_name="a"), ClearElrRecord(topic_name="")]
    cluster.apply(records)


def test_a_partition_without_isr_keeps_its_elr_when_others_are_cleared(elr_cluster, make_partition) -> None:
    """It gets no writes meanwhile, and no other replica can lead it cleanly."""
    elr_cluster.add_topic(
        "a",
        make_partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)),
        make_partition(1, 2, isr=(), leader=-1, eligible_leader_replicas=(2,), last_known_elr=(1,)),
    )
    elr_cluster.add_topic("b", make_partition(1, 2, isr=(), leader=-1, eligible_leader_replicas=(1, 2)))
    for names in (["a"], [None]):
        elr_cluster.apply(elr_cluster.transitions.on_min_insync_replicas_changed(names))
        assert elr_cluster.partition("a").elr == ()
        partition = elr_cluster.partition("a", 1)
        assert (partition.elr, partition.last_known_elr) == ((2,), (1,))
        assert elr_cluster.partition("b").elr == (1, 2)


@pytest.mark.parametrize("last_known_elr", [(), (1,)])
def test_who_was_eligible_leads_after_the_feature_is_switched_off(
    elr_cluster, make_partition, last_known_elr
) -> None:
    elr = () if last_known_elr else (1,)
    elr_cluster.add_topic(
        "a",
        make_partition(1, 2, isr=(), leader=-1, eligible_leader_replicas=elr, last_known_elr=last_known_elr),
    )
    elr_cluster.mark(1, fenced=True)
    elr_cluster.mark(2, fenced=True)
    elr_cluster.enable_elr(0)
    elr_cluster.apply(elr_cluster.transitions.on_elr_level_changed())
    elr_cluster.apply(elr_cluster.transitions.on_unclean_restart(2))
    elr_cluster.unfence(2)
    assert not elr_cluster.partition("a").has_leader
    elr_cluster.unfence(1)
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (1, (1,), (), ())


def test_the_last_in_sync_leads_again_although_it_had_no_leader_with_the_feature(
    elr_cluster, make_partition
) -> None:
    elr_cluster.enable_elr(0)
    elr_cluster.add_topic("a", make_partition(1, 2, isr=(1,)))
    elr_cluster.fence(1)
    assert elr_cluster.partition("a").last_known_elr == ()
    elr_cluster.enable_elr()
    elr_cluster.apply(elr_cluster.transitions.on_unclean_restart(1))
    assert elr_cluster.partition("a").last_known_elr == (1,)
    elr_cluster.unfence(1)
    partition = elr_cluster.partition("a")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_the_last_eligible_replica_is_remembered_although_it_never_led_with_the_feature(
    elr_cluster, make_partition
) -> None:
    elr_cluster.add_topic("a", make_partition(1, 2, isr=(), leader=-1, eligible_leader_replicas=(1,)))
    elr_cluster.apply(elr_cluster.transitions.on_broker_unregistered(1))
    partition = elr_cluster.partition("a")
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (), (1,))


def test_another_level_of_the_feature_clears_stale_elrs(elr_cluster, make_partition) -> None:
    elr_cluster.add_topic("a", make_partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)))
    elr_cluster.enable_elr(0)
    records = list(elr_cluster.transitions.on_elr_level_changed())
    assert records == [ClearElrRecord(topic_name="")]
    elr_cluster.apply(records)
    assert elr_cluster.partition("a").elr == ()
    assert list(elr_cluster.transitions.on_elr_level_changed()) == []


def test_too_many_partitions_without_isr_are_a_refusal(elr_cluster, make_partition, monkeypatch) -> None:
    monkeypatch.setattr(broker_transitions, "ELRS_KEPT_MAX", 1)
    stuck = {"isr": (), "leader": -1, "eligible_leader_replicas": (2,)}
    elr_cluster.add_topic("a", make_partition(1, 2, **stuck), make_partition(1, 2, **stuck))
    with pytest.raises(ControlError, match="More than 1 partitions have no replica in sync"):
        elr_cluster.transitions.on_min_insync_replicas_changed([None])
