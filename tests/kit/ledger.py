"""Clients that work without pause in their own threads, and record what was acknowledged to them."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LINGER_MS = 5
FLUSH_TIMEOUT_S = 60
CONSUME_TIMEOUT_S = 60
IN_FLIGHT_MAX = 200
CREATE_EVERY_S = 0.03
STEADY_PRODUCE_EVERY_S = 0.005
STEADY_CREATE_EVERY_S = 0.4


class Worker:
    """Repeats one action until the context ends. The end of the context raises what the action has raised."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._ended.set()
        self._thread.join(FLUSH_TIMEOUT_S + 30)
        if error is not None:
            if self._failure is not None:
                error.add_note(f"{self._thread.name} had failed before: {self._failure!r}")
            return
        assert not self._thread.is_alive(), f"{self._thread.name} does not come to an end"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._work()
            self._finish()
        except BaseException as error:
            self._failure = error
        finally:
            self._close()

    def _work(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        """The work that is left at the end."""

    def _close(self) -> None:
        """Release the resources of the thread, whatever happened."""


class Pauses:
    """The longest time between two acknowledgements: what a client notices of a change."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._acknowledged_s: float | None = None

    def acknowledge(self, at_s: float | None = None) -> None:
        """Note an acknowledgement, of now unless its time is given."""
        at_s = time.monotonic() if at_s is None else at_s
        if self._acknowledged_s is not None:
            self.longest_s = max(self.longest_s, at_s - self._acknowledged_s)
        self._acknowledged_s = at_s


class ContinuousProducer(Worker):
    """Produces numbers to a topic with acks=all; `acknowledged` are those whose delivery was reported."""

    def __init__(self, bootstrap_servers: str, topic: str, security: Mapping[str, str] | None = None) -> None:
        """`security` has librdkafka's properties."""
        super().__init__(f"producer to {topic}")
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self.pauses = Pauses()
        self._topic = topic
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "delivery.timeout.ms": FLUSH_TIMEOUT_S * 1000,
                **(security or {}),
            }
        )

    def log_in(self, user: str, password: str) -> None:
        """From the next connection on, log in with these."""
        self._producer.set_sasl_credentials(user, password)

    def _work(self) -> None:
        if len(self._producer) < IN_FLIGHT_MAX:
            self._producer.produce(self._topic, str(self._next).encode(), on_delivery=self._on_delivery)
            self._next += 1
        self._producer.poll(0.001)

    def _finish(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records got no answer"

    def _close(self) -> None:
        self._producer.close()  # else its threads look for the brokers of a cluster that is gone, and say so

    def _on_delivery(self, error: object, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is None:
            self.acknowledged.append(int(value))
            self.pauses.acknowledge()
        else:
            self.failures.append(str(error))


class ContinuousTopics(Worker):
    """Creates topics one by one; `acknowledged` are those that were answered without an error."""

    def __init__(self, bootstrap_servers: str, prefix: str, *, copies: int = 1) -> None:
        super().__init__(f"creator of {prefix} topics")
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self.pauses = Pauses()
        self._prefix = prefix
        self._copies = copies
        self._count = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def _work(self) -> None:
        name = f"{self._prefix}-{self._count}"
        self._count += 1
        topic = NewTopic(name, num_partitions=1, replication_factor=self._copies)
        self._ended.wait(CREATE_EVERY_S)  # a log that is replayed and compared later need not be long
        (future,) = self._admin.create_topics([topic], operation_timeout=5, request_timeout=10).values()
        try:
            future.result()
        except KafkaException as error:
            # No answer, or an error: it may or may not exist, and nothing was promised.
            self.failures.append(f"{name}: {error}")
        else:
            self.pauses.acknowledge()
            self.acknowledged.append(name)


class SteadyProducer(ContinuousProducer):
    """Produces some hundred records a second, so that others get their share of the machine."""

    def _work(self) -> None:
        super()._work()
        self._ended.wait(STEADY_PRODUCE_EVERY_S)


class SteadyTopics(ContinuousTopics):
    """Creates some topics a second: brokers that restart have to load each of them."""

    def _work(self) -> None:
        super()._work()
        self._ended.wait(STEADY_CREATE_EVERY_S)


def create_replicated_topic(admin: AdminClient, topic: str, copies: int) -> None:
    """Create a topic with as many partitions as copies, two of which must have each record."""
    new = NewTopic(
        topic, num_partitions=copies, replication_factor=copies, config={"min.insync.replicas": "2"}
    )
    for future in admin.create_topics([new]).values():
        future.result()


def consume_numbers(
    bootstrap_servers: str, topic: str, partitions: Sequence[int], security: Mapping[str, str] | None = None
) -> list[int]:
    """Every number in a topic, from its beginning to the end that it has now. `security`: librdkafka's properties."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            **(security or {}),
        }
    )
    try:
        places = [TopicPartition(topic, partition, 0) for partition in partitions]
        left = {}
        for place in places:
            _, high = consumer.get_watermark_offsets(place, timeout=30)
            if high > 0:
                left[place.partition] = high
        consumer.assign(places)
        numbers: list[int] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"could not consume up to {left}"
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert isinstance(value, bytes)
                assert partition is not None
                assert offset is not None
                numbers.append(int(value))
                if offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
        return numbers
    finally:
        consumer.close()
