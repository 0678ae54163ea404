"""An answer that came through a broker is true at that broker, also if the broker is late."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from kit.addressed import AddressedQuorum
from kit.forwarder import network
from quorate_admin.client import AdminClient
from quorate_admin.types.topics import NewTopic
from quorate_protocol.errors import ErrorCode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LAG_S = 0.3
"""For as long is each response to the broker's Fetch requests on its way, which brings the records and the high
watermark that makes them visible."""
SOON_S = LAG_S / 2
TOPICS = 5


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
    """Start all nodes. Returns the broker's address."""
    for controller in quorum.controllers:
        quorum.configure(
            controller, {"quorate.responses.wait.for": wait_for, "quorate.responses.wait.max.ms": "5000"}
        )
    quorum.start(*quorum.controllers, *quorum.brokers)
    (broker,) = quorum.brokers
    quorum.await_unfenced(broker)
    return quorum.address(broker)


async def unknown_for_s(broker: str) -> list[float]:
    """Create topics one by one; for how long the broker does not know each after it said that it created it."""
    waited = []
    async with AdminClient(bootstrap_servers=[broker], retries=0) as client:
        for number in range(TOPICS):
            name = f"t{number}"
            (
                await client.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
            ).raise_any()
            created_at = time.monotonic()
            while errors := (await client.describe_topics([name])).errors:
                assert errors[name].error_code is ErrorCode.unknown_topic_or_partition
            waited.append(time.monotonic() - created_at)
    return waited


def test_the_broker_that_was_asked_knows_the_topic(quorum: AddressedQuorum) -> None:
    waited = asyncio.run(unknown_for_s(start(quorum, "forwarder")))
    assert median(waited) < SOON_S, waited


def test_without_the_wait_a_late_broker_does_not_know_it(quorum: AddressedQuorum) -> None:
    waited = asyncio.run(unknown_for_s(start(quorum, "none")))
    assert median(waited) > SOON_S, waited
