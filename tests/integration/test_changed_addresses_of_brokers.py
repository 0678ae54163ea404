"""What client libraries do when all addresses that they know have gone, while their bootstrap address stays."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, libversion
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import __version__ as kafka_python_version
from kit.cluster import DIE_WITH_PARENT, Cluster, manifests
from kit.forwarder import network
from kit.waiting import eventually
from quorate_admin.diagnosis import Rebootstraps, judge_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 60
ATTEMPTS = 3
TOPIC = "orders"
KAFKA_PYTHON = f"""
import logging, sys
from kafka import KafkaProducer
logging.disable(logging.CRITICAL)
producer = KafkaProducer(bootstrap_servers=sys.argv[1], delivery_timeout_ms=5_000, request_timeout_ms=4_000)
for _ in sys.stdin:
    try:
        producer.send("{TOPIC}", b"7").get({TIMEOUT_S})
        print("written", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""
"""A producer that writes once for each line, in a process because it leaves sockets of failed connections open."""


@contextmanager
def kafka_python(bootstrap: str) -> Iterator[Callable[[], str]]:
    """Run kafka-python's producer. Yields a function that writes once, and returns what became of it."""
    command = [*DIE_WITH_PARENT, sys.executable, "-c", KAFKA_PYTHON, bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def attempt() -> str:
            print(file=stdin, flush=True)
            return stdout.readline().strip()

        try:
            yield attempt
        finally:
            process.kill()


@pytest.fixture
def cluster(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """A controller of ours and a stock broker, not formatted."""
    made = Cluster.settle(tmp_path / "cluster", kafka_jars, manifests(controllers=1, brokers=1))
    try:
        yield made
    finally:
        made.close()


def test_librdkafka_starts_again_and_kafka_python_does_not(cluster: Cluster) -> None:
    """The doctor's table of libraries says so. When kafka-python starts again, too, correct the table."""
    (broker,) = cluster.brokers
    bootstrap = cluster.address(broker)
    port = int(bootstrap.rpartition(":")[2])
    with network() as addresses:
        old, new = addresses.addresses([port, port])
        cluster.configure(broker, {"advertised.listeners": f"PLAINTEXT://{old.address}"})
        cluster.format(*cluster.controllers, broker)
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        librdkafka = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 5_000})
        written: list[KafkaError | None] = []

        def write() -> bool:
            def delivered(error: KafkaError | None, _: Message) -> None:
                written.append(error)

            librdkafka.produce(TOPIC, b"7", on_delivery=delivered)
            librdkafka.flush(TIMEOUT_S)
            return written[-1] is None

        eventually(write, TIMEOUT_S, "librdkafka to write")
        with kafka_python(bootstrap) as attempt:
            assert attempt() == "written"
            addresses.refuse(old)
            cluster.terminate(broker)
            cluster.configure(broker, {"advertised.listeners": f"PLAINTEXT://{new.address}"})
            cluster.start(broker)
            cluster.await_unfenced(broker)
            eventually(write, TIMEOUT_S, "librdkafka to start again")
            assert [attempt() for _ in range(ATTEMPTS)] == ["KafkaTimeoutError"] * ATTEMPTS
    assert judge_client("librdkafka", libversion()[0])[0] is Rebootstraps.YES
    assert judge_client("kafka-python", kafka_python_version)[0] is Rebootstraps.NO
