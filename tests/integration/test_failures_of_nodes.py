"""Brokers and controllers that die or leave: what the others do, and that nothing acknowledged is lost."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from kit.cluster import Cluster, manifests, unfenced
from kit.ledger import ContinuousProducer, ContinuousTopics, consume_numbers
from kit.metadata import assert_same_images
from kit.names import unused
from kit.waiting import eventually

pytestmark = pytest.mark.integration

PARTITIONS = 6
COPIES = 3
FETCH_TIMEOUT_MS = 40_000
HANDOVER_S_MAX = 10
"""On a slow machine; without a handover, followers wait for FETCH_TIMEOUT_MS before they elect."""
WAIT_S = 40
ANSWER_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition, as a broker reports it."""

    leader: int
    replicas: frozenset[int]
    isr: frozenset[int]


@pytest.fixture(scope="module")
def three_by_three(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """Three controllers of ours and three brokers, with short sessions."""
    manifest = manifests(
        brokers=3,
        config={"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500},
        broker_config={
            "broker.heartbeat.interval.ms": 500,
            "min.insync.replicas": 2,
            "replica.lag.time.max.ms": 5000,
            "auto.create.topics.enable": False,
        },
    )
    cluster = Cluster.create(tmp_path_factory.mktemp("failures") / "cluster", kafka_jars, manifest)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture
def cluster(three_by_three: Cluster) -> Cluster:
    """The cluster with all nodes up."""
    return three_by_three.start_all()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Cluster]:
    """Three controllers of ours that take a silent leader for dead only after a long time."""
    manifest = manifests(brokers=0, config={"controller.quorum.fetch.timeout.ms": FETCH_TIMEOUT_MS})
    cluster = Cluster.create(tmp_path / "cluster", None, manifest)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


def create_topic(cluster: Cluster, prefix: str) -> str:
    """The name of a topic with a copy on each broker, and each broker as a leader."""
    name = unused(prefix)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (future,) = admin.create_topics([NewTopic(name, PARTITIONS, COPIES)]).values()
    future.result()
    await_partitions(cluster, name, lambda partition: len(partition.isr) == COPIES, "three in sync")
    return name


def partitions_of(cluster: Cluster, topic: str, via: int | None = None) -> list[Partition]:
    """The topic's partitions, as the first broker that runs knows them, or the one asked."""
    broker = (
        via
        if via is not None
        else next(broker_id for broker_id in cluster.brokers if cluster.runs(broker_id))
    )

    def ask() -> list[PartitionMetadata]:
        # The client asks any broker that it has learned of: one that stops meanwhile, it waits for in vain.
        admin = AdminClient({"bootstrap.servers": cluster.address(broker)})
        try:
            return [*admin.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic].partitions.values()]
        except KafkaException as error:
            raise ConnectionError(f"{error}") from error

    described = eventually(ask, WAIT_S, f"the partitions of {topic}")
    return [
        Partition(
            leader=partition.leader, replicas=frozenset(partition.replicas), isr=frozenset(partition.isrs)
        )
        for partition in described
    ]


def await_partitions(
    cluster: Cluster, topic: str, holds: Callable[[Partition], bool], what: str, via: int | None = None
) -> None:
    """Wait until something holds for each of the topic's partitions."""

    def observed() -> bool:
        partitions = partitions_of(cluster, topic, via)
        return len(partitions) == PARTITIONS and all(holds(partition) for partition in partitions)

    eventually(observed, WAIT_S, what, lambda: cluster.describe(partitions_of(cluster, topic, via)))


def assert_nothing_lost(cluster: Cluster, topic: str, producer: ContinuousProducer) -> None:
    """Assert that all that was acknowledged is in the topic, and once."""
    assert producer.acknowledged, "nothing was acknowledged"
    assert producer.failures == []
    found = consume_numbers(cluster.bootstrap_servers, topic, range(PARTITIONS))
    assert sorted(set(producer.acknowledged) - set(found)) == [], "acknowledged and lost"
    assert len(found) == len(set(found)), "an idempotent producer's records are there twice"


def assert_topics_kept(cluster: Cluster, names: list[str]) -> None:
    """Assert that all acknowledged topics are known to the brokers and are in all controllers' logs."""
    assert names, "no topic was acknowledged"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    eventually(
        lambda: set(names) <= admin.list_topics(timeout=10).topics.keys(), WAIT_S, "topics at the brokers"
    )
    quorum = cluster.await_quorum()
    with cluster.frozen():
        image = assert_same_images([cluster.metadata(controller) for controller in cluster.controllers])
    assert image.provenance.end_offset >= quorum.high_watermark
    assert set(names) <= image.topics.by_name.keys()


def test_a_killed_broker_is_fenced_and_comes_back(cluster: Cluster) -> None:
    """The life of a broker that dies: fenced, its leaders moved, out of the ISR; then all back."""
    topic = create_topic(cluster, "killed")
    victim = cluster.brokers[1]
    left = set(cluster.brokers) - {victim}
    with ContinuousProducer(cluster.bootstrap_servers, topic) as producer:
        eventually(lambda: len(producer.acknowledged) > 100, WAIT_S, "records")
        cluster.kill(victim)
        via = min(left)
        eventually(
            lambda: (seen := cluster.describe_brokers(via)) and unfenced(seen) == left, WAIT_S, "a fence"
        )
        await_partitions(cluster, topic, lambda partition: partition.leader in left, "new leaders", via)
        await_partitions(cluster, topic, lambda partition: partition.isr == left, "a smaller ISR", via)
        before = len(producer.acknowledged)
        eventually(lambda: len(producer.acknowledged) > before + 100, WAIT_S, "records without it")
        cluster.start(victim)
        cluster.await_unfenced(*cluster.brokers)
        await_partitions(cluster, topic, lambda partition: len(partition.isr) == COPIES, "a whole ISR")
    assert_nothing_lost(cluster, topic, producer)


def test_preferred_leaders_lead_again_when_asked_to(cluster: Cluster) -> None:
    """Kafka-leader-election moves leaders through our controllers."""
    topic = create_topic(cluster, "preferred")
    preferred = [partition.leader for partition in partitions_of(cluster, topic)]
    restarted = cluster.brokers[0]
    via = cluster.brokers[1]
    assert restarted in preferred
    cluster.terminate(restarted)
    cluster.start(restarted)
    cluster.await_unfenced(*cluster.brokers)
    await_partitions(cluster, topic, lambda partition: len(partition.isr) == COPIES, "a whole ISR", via)
    assert restarted not in {partition.leader for partition in partitions_of(cluster, topic, via)}
    election = cluster.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert election.returncode == 0, election.stdout + election.stderr
    assert "Successfully completed leader election (PREFERRED) for partitions" in election.stdout
    eventually(
        lambda: [partition.leader for partition in partitions_of(cluster, topic, via)] == preferred,
        WAIT_S,
        f"the leaders {preferred}",
        lambda: partitions_of(cluster, topic, via),
    )


def test_a_broker_that_leaves_hands_its_leaders_over_first(cluster: Cluster) -> None:
    """Controlled shutdown: no partition is without a leader, and no session has to run out."""
    topic = create_topic(cluster, "leaving")
    leaving = cluster.brokers[2]
    left = set(cluster.brokers) - {leaving}
    via = min(left)
    assert any(partition.leader == leaving for partition in partitions_of(cluster, topic))
    leaderless = []
    cluster.signal(leaving, signal.SIGTERM)
    while cluster.runs(leaving):
        leaderless += [partition for partition in partitions_of(cluster, topic, via) if partition.leader < 0]
    cluster.await_exit(leaving)
    assert leaderless == []
    assert {partition.leader for partition in partitions_of(cluster, topic, via)} <= left
    seen = cluster.describe_brokers(via)
    assert seen is not None
    assert leaving not in unfenced(seen)
    cluster.start(leaving)
    cluster.await_unfenced(*cluster.brokers)
    await_partitions(cluster, topic, lambda partition: len(partition.isr) == COPIES, "a whole ISR")


def test_killing_the_active_controller_loses_nothing(cluster: Cluster) -> None:
    """Responses to clients stay true when the active controller dies under load."""
    topic = create_topic(cluster, "controllers")
    with (
        ContinuousProducer(cluster.bootstrap_servers, topic) as producer,
        ContinuousTopics(cluster.bootstrap_servers, unused("made"), copies=COPIES) as topics,
    ):
        for _ in range(3):
            created = len(topics.acknowledged)
            eventually(lambda: len(topics.acknowledged) > created + 3, WAIT_S, "topics")  # noqa: B023
            active = cluster.await_leader()
            cluster.kill(active)
            successor = cluster.await_leader(other_than=active)
            assert successor != active
            created = len(topics.acknowledged)
            eventually(lambda: len(topics.acknowledged) > created + 3, WAIT_S, "topics")  # noqa: B023
            cluster.start(active)
            cluster.await_quorum()
    assert_topics_kept(cluster, topics.acknowledged)
    assert_nothing_lost(cluster, topic, producer)


def test_killing_all_controllers_loses_nothing(cluster: Cluster) -> None:
    topic = create_topic(cluster, "everything")
    with (
        ContinuousProducer(cluster.bootstrap_servers, topic) as producer,
        ContinuousTopics(cluster.bootstrap_servers, unused("before-and-after"), copies=COPIES) as topics,
    ):
        eventually(lambda: len(topics.acknowledged) > 5, WAIT_S, "topics")
        eventually(lambda: producer.acknowledged, WAIT_S, "records: the producer has its id")
        cluster.kill(*cluster.controllers)
        produced = len(producer.acknowledged)
        eventually(lambda: len(producer.acknowledged) > produced + 100, WAIT_S, "records without controllers")
        created = len(topics.acknowledged)
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        eventually(lambda: len(topics.acknowledged) > created + 3, WAIT_S, "topics after the restart")
    cluster.await_unfenced(*cluster.brokers)
    assert_topics_kept(cluster, topics.acknowledged)
    assert_nothing_lost(cluster, topic, producer)


def test_an_active_controller_that_leaves_hands_over_at_once(patient: Cluster) -> None:
    leader = patient.await_quorum().leader_id
    others = [controller for controller in patient.controllers if controller != leader]

    def successor() -> int | None:
        quorum = patient.quorum(*others)
        settled = quorum is not None and quorum.high_watermark >= 0 and quorum.leader_id in others
        return quorum.leader_id if quorum is not None and settled else None

    began_s = time.monotonic()
    patient.signal(leader, signal.SIGTERM)
    eventually(successor, WAIT_S, "a successor", lambda: patient.describe(patient.quorum(*others)))
    took_s = time.monotonic() - began_s
    patient.await_exit(leader)
    assert took_s < HANDOVER_S_MAX, patient.describe(f"the handover took {took_s:.2f} s")
