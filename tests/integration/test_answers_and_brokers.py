"""An answer that came through a broker is true at that broker, also if the broker is late."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.addressed import AddressedQuorum
from kit.forwarder import network
from quorate_admin.client import AdminClient
from quorate_admin.types.topics import NewTopic
from quorate_protocol.errors import ErrorCode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LAG_S = 0.1
TOPICS = 10


@pytest.fixture
def quorum(tmp_path: Path, kafka_jars: Path) -> Iterator[AddressedQuorum]:
    """Controllers, and a stock broker to which the metadata log is on its way for LAG_S; the rest is not late."""
    with network() as addresses:
        made = AddressedQuorum.prepare(
            tmp_path / "cluster", network=addresses, peers_forwarded=True, jars=kafka_jars, brokers=1
        )
        for address in made.peer_addresses:
            address.lag_s, address.lags = LAG_S, b"raft-client-0"
        try:
            yield made
        finally:
            made.close()


def start(quorum: AddressedQuorum, wait_for: str) -> str:
    """Start all nodes; returns the broker's address."""
    for controller in quorum.controllers:
        quorum.configure(controller, {"quorate.answers.wait.for": wait_for})
    quorum.start(*quorum.controllers, *quorum.brokers)
    (broker,) = quorum.brokers
    quorum.await_unfenced(broker)
    return quorum.address(broker)


async def missed_topics(broker: str) -> list[str]:
    """Creates topics one by one; those that the broker does not know right after it said that it created them."""
    missed = []
    async with AdminClient(bootstrap_servers=[broker], retries=0) as client:
        for number in range(TOPICS):
            name = f"t{number}"
            (
                await client.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
            ).raise_any()
            (result,) = (await client.describe_topics([name])).errors.values() or (None,)
            if result is not None:
                assert result.error_code is ErrorCode.unknown_topic_or_partition, result
                missed.append(name)
    return missed


def test_the_broker_that_was_asked_knows_the_topic(quorum: AddressedQuorum) -> None:
    """Goal: a client never misses the topic that it has just created. Method: a broker that is late."""
    assert asyncio.run(missed_topics(start(quorum, "forwarder"))) == []


def test_without_the_wait_a_late_broker_misses_topics(quorum: AddressedQuorum) -> None:
    """Goal: the test above can fail. Method: the same with answers at commit, as Kafka's controllers give them."""
    assert asyncio.run(missed_topics(start(quorum, "nobody"))) != []
