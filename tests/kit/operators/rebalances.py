"""KafkaRebalances of a namespace, and what became of replicas, leaders and throttles."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from kit.asking import Asking
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated
from kit.operators.resources import InClusters
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import NewTopic, TopicDescription
from quorate_operator.gateway.rebalances import DEFAULTS
from quorate_operator.models.rebalances import ANNOTATION_APPROVE
from quorate_protocol.kafka.enums import ConfigResourceType

TOPIC = "orders"
PARTITIONS = range(8)
RECORDS = 1_000
RECORD_BYTES = 4_096
BROKERS_TIMEOUT_S = 300
FLUSH_TIMEOUT_S = 60
SLOW, FAST = "5k", "50Mi"
"""A rate with which a partition takes minutes, and one without effect."""
CONFIG = {
    **SMALL_FILES,
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    # A throttle waits between two fetches, which take a batch at least: one is not to take a whole partition.
    "replica.fetch.max.bytes": f"{2 * RECORD_BYTES}",
}


class Rebalances(InClusters):
    """The resources, and the cluster that they are about."""

    def __init__(self, operated: Operated) -> None:
        super().__init__(operated, "KafkaRebalance")
        self.servers = f"{operated.agent.address_of(f'{BROKERS}-0')}:{BROKER_PORT}"
        self.ask = Asking(servers=self.servers)

    def approve(self, name: str) -> str:
        """Approve the proposal that is there; its id."""
        proposal = str(self.status(name)["proposal"]["id"])
        self.annotate(name, {ANNOTATION_APPROVE: proposal})
        return proposal

    def is_in(self, name: str, phase: str) -> bool:
        """Whether the phase of the present generation is this one."""
        resource = self.read(name) or {}
        status = resource.get("status") or {}
        is_present = status.get("observedGeneration") == resource["metadata"]["generation"]
        return is_present and status.get("phase") == phase

    def wait_for(self, name: str, phase: str) -> dict[str, Any]:
        """Wait for a phase; the status."""
        self.operated.wait(lambda: self.is_in(name, phase), f"{name} to be {phase}: {self.status(name)}")
        return self.status(name)

    def make_topic(self) -> None:
        """Partitions with two replicas each on brokers 0 and 1, and records in them."""
        placed = {number: [number % 2, 1 - number % 2] for number in PARTITIONS}
        self.ask(lambda client: client.create_topics([NewTopic(name=TOPIC, assignments=placed)])).raise_any()
        producer = Producer(_producer(self.servers))
        for number in range(RECORDS):
            produce(producer, number)
        assert producer.flush(FLUSH_TIMEOUT_S) == 0

    def topic(self) -> TopicDescription:
        """The topic."""
        return self.ask(lambda client: client.describe_topics([TOPIC]))[TOPIC]

    def replicas_on(self) -> Counter[int]:
        """Number of replicas of the topic by broker."""
        return Counter(replica for partition in self.topic().partitions for replica in partition.replicas)

    def moving(self) -> int:
        """Number of partitions that are being reassigned."""
        return len(self.ask(lambda client: client.list_partition_reassignments()))

    def throttles(self) -> dict[str, str | None]:
        """Whatever throttles replication, of brokers and of the topic."""
        resources = [DEFAULTS, ConfigResource(ConfigResourceType.TOPIC, TOPIC)]
        described = self.ask(lambda client: client.describe_configs(resources))
        return {
            entry.name: entry.value
            for resource in resources
            for entry in described[resource]
            if "replication.throttled" in entry.name and entry.value
        }

    def is_even(self) -> bool:
        """Whether replicas and leaders are even, in sync, led by the preferred, and nothing throttles or moves."""
        partitions = self.topic().partitions
        leaders = Counter(partition.leader for partition in partitions)
        replicas = self.replicas_on()
        return (
            max(replicas.values()) - min(replicas.values()) <= 1
            and max(leaders.values()) - min(leaders.values()) <= 1
            and all(set(partition.isr) == set(partition.replicas) for partition in partitions)
            and all(partition.leader == partition.replicas[0] for partition in partitions)
            and not self.moving()
            and not self.throttles()
        )


def _producer(servers: str) -> dict[str, Any]:
    """The config of a producer with a batch for each record."""
    return {"bootstrap.servers": servers, "acks": "all", "batch.num.messages": 1}


def produce(producer: Producer, number: int, on_delivery: Any = None) -> None:
    """A record with a number, of RECORD_BYTES that can't be compressed."""
    producer.produce(
        TOPIC,
        f"{number}".encode(),
        key=os.urandom(RECORD_BYTES),
        partition=PARTITIONS[number % len(PARTITIONS)],
        on_delivery=on_delivery,
    )


@contextmanager
def producing(servers: str) -> Iterator[set[int]]:
    """Produce records all the time. Yields the numbers beyond RECORDS of those that were acknowledged."""
    acknowledged: set[int] = set()
    stop = threading.Event()
    producer = Producer(_producer(servers))

    def run() -> None:
        number = RECORDS
        while not stop.wait(0.02):
            here = number

            def delivered(error: object, _: object, here: int = here) -> None:
                if error is None:
                    acknowledged.add(here)

            produce(producer, number, delivered)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=run, name="producing")
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()
        producer.flush(FLUSH_TIMEOUT_S)
