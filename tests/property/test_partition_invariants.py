"""Partitions stay sane through any sequence of creations, failures, returns, ISR changes and elections."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from random import Random
from unittest import mock
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from quorate_controller.control import broker_transitions
from quorate_controller.control.api import ControlConfig, ControlResult, RequestContext
from quorate_controller.control.broker_transitions import PartitionTransitions
from quorate_controller.control.elections import Elections
from quorate_controller.control.partitions import PartitionManager
from quorate_controller.control.topics import TopicManager
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import LOST_DIRECTORY, MetadataImage, PartitionRegistration, TopicImage
from quorate_protocol.kafka.enums import LeaderRecoveryState
from quorate_protocol.kafka.generated import alter_partition_request as alter
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as assign
from quorate_protocol.kafka.generated import create_partitions_request as grow
from quorate_protocol.kafka.generated import create_topics_request as create
from quorate_protocol.kafka.generated import delete_topics_request as delete
from quorate_protocol.kafka.generated import elect_leaders_request as elect
from quorate_protocol.kafka.generated.create_topics_response import CreatableTopicConfigs
from quorate_protocol.placement import UsableBroker, place_replicas
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

BROKERS = range(5)
DIRECTORIES = {broker: tuple(UUID(int=1000 * (broker + 1) + n) for n in range(2)) for broker in BROKERS}
TIMEOUT = timedelta(seconds=1)
brokers = st.sampled_from(BROKERS)


class Configs:
    """Topic configs, of which only these two matter to partitions."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.unclean = False

    def validate_new_topic(self, _name: str, _configs: Mapping[str, str | None]) -> Sequence[object]:
        return ()

    def describe_new_topic(self, _configs: Mapping[str, str | None]) -> tuple[CreatableTopicConfigs, ...]:
        return ()

    def min_insync_replicas(self, _topic_name: str) -> int:
        return self.min_isr

    def unclean_leader_election(self, _topic_name: str) -> bool:
        return self.unclean


class PartitionsMachine(RuleBasedStateMachine):
    """Drives the managers as brokers and clients would, and replays what they decide."""

    changes_per_slice_max = broker_transitions.CHANGES_PER_SLICE_MAX

    @initialize(
        levels=st.sampled_from(((7, False), (17, False), (30, False), (23, True), (30, True))),
        min_isr=st.integers(1, 3),
        seed=st.integers(0, 2**32),
    )
    def begin(self, levels: tuple[int, bool], min_isr: int, seed: int) -> None:
        self.small_slices = mock.patch.object(
            broker_transitions, "CHANGES_PER_SLICE_MAX", self.changes_per_slice_max
        )
        self.small_slices.start()
        metadata_version, self.elr = levels
        self.image = MetadataImage()
        self.configs = Configs(min_isr)
        config = ControlConfig(node_id=3000, cluster_id="c", num_partitions=3, default_replication_factor=3)
        self.topics = TopicManager(config, self.image, self.configs, Random(seed))
        self.partitions = PartitionManager(self.image, self.configs)
        self.elections = Elections(self.image, self.configs)
        self.transitions = PartitionTransitions(self.image, self.configs)
        self.before: dict[tuple[UUID, int], PartitionRegistration] = {}
        self.unclean_allowed = False
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
        if self.elr:
            self.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        for broker in BROKERS:
            self.register(broker)
            self.change(broker, fenced=-1)
        self.create_topic("a", partitions=2, replicas=2)
        self.create_topic("b", partitions=2, replicas=3)

    def teardown(self) -> None:
        if hasattr(self, "small_slices"):
            self.small_slices.stop()

    # The log

    def replay(self, *records: object) -> None:
        """Replay records as the log gives them back, in the versions of this metadata.version."""
        level = self.image.metadata_version or 30
        read_back = [
            decode_record(encode_record(record, record_version_for(type(record), level)))
            for record in records
        ]
        if read_back:
            self.image.replay_batch(read_back, base_offset=self.image.end_offset, epoch=1, timestamp_ms=0)
        self.check_history()

    def apply(self, decision: ControlResult | Iterable[object]) -> None:
        self.replay(*(decision.records if isinstance(decision, ControlResult) else decision))

    def context(self) -> RequestContext:
        return RequestContext(now_ms=0, next_offset=self.image.end_offset, api_version=7)

    def check_history(self) -> None:
        """What must hold between one state of a partition and the next."""
        now = {
            (topic_id, number): partition
            for topic_id, topic in self.image.topics.by_id.items()
            for number, partition in topic.partitions.items()
        }
        for key, new in now.items():
            old = self.before.get(key)
            if old is None or old is new:
                continue
            assert new.partition_epoch > old.partition_epoch
            assert new.leader_epoch >= old.leader_epoch
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch
            if new.has_leader and new.leader != old.leader and new.leader not in (*old.isr, *old.elr):
                assert self.unclean_allowed or old.last_known_elr == (new.leader,)
                assert new.leader_recovery_state is LeaderRecoveryState.RECOVERING
        self.before = now

    # Brokers

    def register(self, broker: int) -> None:
        level = self.image.metadata_version
        self.replay(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=self.image.end_offset,
                incarnation_id=UUID(int=self.image.end_offset + 1),
                end_points=(),
                features=(),
                rack="ab"[broker % 2],
                log_dirs=DIRECTORIES[broker] if level >= 17 else (),
            )
        )

    def change(self, broker: int, **changes: object) -> None:
        epoch = self.image.cluster.brokers[broker].epoch
        self.replay(BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epoch, **changes))

    def registered(self, broker: int):
        return self.image.cluster.brokers.get(broker)

    @rule(broker=brokers)
    def fence(self, broker: int) -> None:
        registration = self.registered(broker)
        if registration and not registration.fenced:
            self.apply(self.transitions.on_broker_fenced(broker))
            self.change(broker, fenced=1)

    @rule(broker=brokers)
    def unfence(self, broker: int) -> None:
        registration = self.registered(broker)
        may_return = registration and not self.transitions.is_departing(broker)
        if may_return and registration.fenced and not registration.in_controlled_shutdown:
            records = self.transitions.on_broker_unfenced(broker)
            self.change(broker, fenced=-1)
            self.apply(records)

    @rule(broker=brokers)
    def shut_down(self, broker: int) -> None:
        registration = self.registered(broker)
        if registration and registration.is_active:
            self.apply(self.transitions.on_controlled_shutdown(broker))
            self.change(broker, in_controlled_shutdown=1)

    @rule(broker=brokers, clean=st.booleans())
    def restart(self, broker: int, clean: bool) -> None:
        known_clean = clean and self.registered(broker) is not None
        method = self.transitions.on_broker_fenced if known_clean else self.transitions.on_unclean_restart
        records = method(broker)
        if self.transitions.is_departing(broker):
            return
        self.apply(records)
        self.register(broker)
        if not known_clean:
            self.check_distrusted(broker)

    @rule(broker=brokers)
    def unregister(self, broker: int) -> None:
        registration = self.registered(broker)
        if registration and registration.fenced:
            self.apply(self.transitions.on_broker_unregistered(broker))
            self.replay(UnregisterBrokerRecord(broker_id=broker, broker_epoch=registration.epoch))
            if not self.transitions.is_departing(broker):
                self.check_distrusted(broker)

    def check_distrusted(self, broker: int) -> None:
        """What a broker has on disk does not count any more."""
        for topic in self.image.topics.by_id.values():
            assert not any(broker in partition.elr for partition in topic.partitions.values())

    @precondition(lambda self: self.image.metadata_version >= 17)
    @rule(broker=brokers, number=st.integers(0, 1))
    def lose_directory(self, broker: int, number: int) -> None:
        registration, lost = self.registered(broker), DIRECTORIES[broker][number]
        if registration and len(registration.directories) == 2:
            self.apply(self.transitions.on_directories_offline(broker, [lost]))

    @precondition(lambda self: self.image.metadata_version >= 17)
    @rule(broker=brokers, directory=st.sampled_from((0, 1, LOST_DIRECTORY)))
    def assign_directory(self, broker: int, directory: int | UUID) -> None:
        registration = self.registered(broker)
        if registration is None:
            return
        id_ = DIRECTORIES[broker][directory] if isinstance(directory, int) else directory
        topics = tuple(
            assign.TopicData(
                topic_id=topic_id,
                partitions=tuple(assign.PartitionData(partition_index=number) for number in topic.partitions),
            )
            for topic_id, topic in self.image.topics.by_id.items()
        )
        asked = assign.AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=registration.epoch,
            directories=(assign.DirectoryData(id_=id_, topics=topics),),
        )
        self.apply(self.partitions.assign_replicas_to_dirs(asked, self.context()))

    # Clients

    @precondition(lambda self: len(self.image.topics.by_id) < 3)
    @rule(name=st.sampled_from("abc"), partitions=st.integers(1, 3), replicas=st.integers(1, 4))
    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        topic = create.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
        )
        asked = create.CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT)
        self.apply(self.topics.create_topics(asked, self.context()))

    @rule(name=st.sampled_from("abc"))
    def delete_topic(self, name: str) -> None:
        asked = delete.DeleteTopicsRequest(
            topics=(delete.DeleteTopicState(name=name, topic_id=None),), timeout=TIMEOUT
        )
        self.apply(self.topics.delete_topics(asked, self.context()))

    @rule(name=st.sampled_from("abc"), count=st.integers(2, 4))
    def grow_topic(self, name: str, count: int) -> None:
        topic = grow.CreatePartitionsTopic(name=name, count=count, assignments=None)
        asked = grow.CreatePartitionsRequest(topics=(topic,), timeout=TIMEOUT, validate_only=False)
        self.apply(self.topics.create_partitions(asked, self.context()))

    @rule(data=st.data())
    def alter_isr(self, data: st.DataObject) -> None:
        """A leader shrinks or grows the ISR of each of its partitions, as far as brokers are eligible."""
        for topic_id, topic in list(self.image.topics.by_id.items()):
            for number, partition in list(topic.partitions.items()):
                leader = self.registered(partition.leader)
                if leader is None or not leader.is_active:
                    continue
                eligible = [it for it in partition.replicas if self.may_lead(partition, it)]
                isr = {leader.broker_id, *data.draw(st.sets(st.sampled_from(eligible)))}
                replicas = tuple(
                    alter.BrokerState(broker_id=it, broker_epoch=self.registered(it).epoch) for it in isr
                )
                asked = alter.PartitionData(
                    partition_index=number,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=replicas,
                    partition_epoch=partition.partition_epoch,
                )
                decision = self.partitions.alter_partition(
                    alter.AlterPartitionRequest(
                        broker_id=leader.broker_id,
                        broker_epoch=leader.epoch,
                        topics=(alter.TopicData(topic_id=topic_id, partitions=(asked,)),),
                    ),
                    self.context(),
                )
                (response,) = decision.response.topics[0].partitions
                assert response.error_code is ErrorCode.none
                self.apply(decision)
                now = self.image.topics.by_id[topic_id].partitions[number]
                assert set(now.isr) == isr == set(response.isr)
                assert (response.leader_epoch, response.partition_epoch) == (
                    now.leader_epoch,
                    now.partition_epoch,
                )

    @rule(min_isr=st.integers(1, 3))
    def change_min_isr(self, min_isr: int) -> None:
        self.configs.min_isr = min_isr
        self.apply(self.transitions.on_min_insync_replicas_changed([None]))

    @rule(election_type=st.sampled_from((0, 1)))
    def elect(self, election_type: int) -> None:
        self.unclean_allowed = election_type == 1
        asked = elect.ElectLeadersRequest(election_type=election_type, topic_partitions=None)
        self.apply(self.elections.elect_leaders(asked, self.context()))
        self.unclean_allowed = self.configs.unclean

    @rule()
    def balance(self) -> None:
        decision, more = self.elections.balance_leaders()
        self.apply(decision)
        assert not more
        assert self.elections.balance_leaders()[0].records == (), "one pass elects all that it can"

    @rule(enable=st.booleans())
    def elect_uncleanly(self, enable: bool) -> None:
        self.configs.unclean = self.unclean_allowed = enable
        self.apply(self.elections.elect_unclean_leaders()[0])
        if enable:
            for topic, number in self.leaderless():
                partition = topic.partitions[number]
                assert not any(self.may_lead(partition, it) for it in partition.replicas)

    # What must always hold

    def leaderless(self) -> list[tuple[TopicImage, int]]:
        return [
            (self.image.topics.by_id[topic_id], number) for topic_id, number in self.image.index.leaderless
        ]

    def may_lead(self, partition: PartitionRegistration, broker: int) -> bool:
        registration = self.registered(broker)
        return (
            registration is not None
            and registration.is_active
            and registration.has_online_directory(partition.directory(broker))
        )

    @invariant()
    def partitions_are_sane(self) -> None:
        if self.transitions.deadline_ms is not None:
            return
        for topic in self.image.topics.by_id.values():
            for partition in topic.partitions.values():
                replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
                assert isr <= replicas
                assert elr <= replicas
                assert not isr & elr
                assert len(isr) == len(partition.isr)
                assert isr or (self.elr and (elr or partition.last_known_elr)), "nobody can ever lead"
                if not self.elr:
                    assert not elr
                    assert not partition.last_known_elr
                if partition.has_leader:
                    assert partition.leader in isr
                    assert all(self.may_lead(partition, it) for it in isr)
                    assert not partition.last_known_elr
                else:
                    assert len(isr) <= 1
                    candidates = isr or elr
                    assert not any(self.may_lead(partition, it) for it in candidates), "somebody could lead"
                if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
                    assert len(isr) <= 1

    @invariant()
    def leads_any_partition_is_right(self) -> None:
        leaders = {
            partition.leader
            for topic in self.image.topics.by_id.values()
            for partition in topic.partitions.values()
        }
        for broker in BROKERS:
            assert self.transitions.leads_any_partition(broker) == (broker in leaders)


class SlicedPartitionsMachine(PartitionsMachine):
    """Slices of one partition, with everything else in between, and other controllers that continue."""

    changes_per_slice_max = 1

    @rule(slices=st.integers(1, 30))
    def run_slices(self, slices: int) -> None:
        for _ in range(slices):
            if self.transitions.deadline_ms is not None:
                decision = self.transitions.run_slice(0)
                if decision is not None:
                    assert len(decision.records) == 1
                    self.apply(decision)

    @rule()
    def fail_over(self) -> None:
        self.transitions.deactivate()
        self.transitions.activate()


class TestPartitions(PartitionsMachine.TestCase):
    settings = settings(
        max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )


class TestPartitionsInSlices(SlicedPartitionsMachine.TestCase):
    settings = TestPartitions.settings


@given(
    racks=st.lists(st.sampled_from((None, "a", "b", "c")), min_size=1, max_size=9),
    fenced=st.sets(st.integers(0, 8), max_size=4),
    num_partitions=st.integers(1, 40),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_placement_obeys_its_rules(
    racks: list[str | None], fenced: set[int], num_partitions: int, data: st.DataObject
) -> None:
    """No broker twice, no fenced leader, as many racks as there can be."""
    fenced = {it for it in fenced if it < len(racks)}
    if len(fenced) == len(racks):
        fenced.pop()
    given_brokers = [
        UsableBroker(broker_id=it, rack=rack, fenced=it in fenced) for it, rack in enumerate(racks)
    ]
    replication_factor = data.draw(st.integers(1, len(racks)))
    seed = data.draw(st.integers(0, 2**32))
    placed = place_replicas(given_brokers, num_partitions, replication_factor, Random(seed))
    assert len(placed) == num_partitions
    for replicas in placed:
        assert len(set(replicas)) == replication_factor == len(replicas)
        assert replicas[0] not in fenced
        used = Counter(racks[it] for it in replicas)
        assert len(used) == min(len(set(racks)), replication_factor)
        for rack, count in used.items():
            in_rack = {it for it, other in enumerate(racks) if other == rack}
            assert set(replicas) & in_rack & fenced == set() or in_rack - fenced <= set(replicas)
            more_room = [it for it in used if used[it] < Counter(racks)[it]]
            assert all(count <= used[it] + 1 for it in more_room), f"{rack} has more than its share"


@given(
    per_rack=st.integers(1, 3),
    num_racks=st.integers(1, 4),
    rounds=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_placement_is_even(per_rack: int, num_racks: int, rounds: int, seed: int) -> None:
    """Racks lead, and brokers follow, equally often."""
    count = per_rack * num_racks
    given_brokers = [
        UsableBroker(broker_id=it, rack=f"rack {it % num_racks}", fenced=False) for it in range(count)
    ]
    placed = place_replicas(given_brokers, count * rounds, num_racks, Random(seed))
    leading_racks = Counter(replicas[0] % num_racks for replicas in placed)
    assert set(Counter(it for replicas in placed for it in replicas).values()) == {rounds * num_racks}
    # A shuffle between two rounds may give one rack its turns of both in a row.
    assert max(leading_racks.values()) - min(leading_racks.values()) <= rounds
