"""Five edited files in a row, played while clients work: nothing acknowledged is lost, no client is misled."""

import asyncio
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from kit.cluster import free_ports
from kit.ledger import SteadyProducer, SteadyTopics, Worker, consume_numbers, create_replicated_topic
from kit.player import Player
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.planning.cluster import Address

# Eight restarts and as many windows in each of two edits: minutes, where others use the machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[3] / "examples" / "play"
OVERLAP_S = 6
HOLD_S = 3
"""How long a client may use an advertised address: the overlap, less the lag of the advertising node."""
TOPIC, COPIES = "numbers", 3
LOOK_EVERY_S = 0.3
NODE_IDS = frozenset({0, 1, 2, *range(3000, 3006)})


class Files:
    """The example files, with ports that are free here and a short overlap."""

    def __init__(self) -> None:
        first = free_ports(16)
        self._ports = {"19093": str(first), "19192": str(first + 8)}

    def text(self, name: str) -> str:
        """A file as it is played."""
        text = (EXAMPLES / name).read_text()
        for example, port in self._ports.items():
            text = text.replace(example, port)
        assert "20s" in text
        return text.replace("20s", f"{OVERLAP_S}s")


class Truthfulness(Worker):
    """Polls the advertised addresses of each node, and the node that answers there.

    An address that was advertised for a node within the last HOLD_S may not lead to another node, nor be advertised
    for one.
    """

    def __init__(self, brokers: tuple[str, ...], controllers: tuple[str, ...]) -> None:
        super().__init__("checker of addresses")
        self.asked = 0
        self.violations: list[str] = []
        self._runner = asyncio.Runner()
        self._gateway = KafkaGateway()
        self._advertised: dict[Address, tuple[int, float]] = {}
        # Each node is asked at its own address, which leads to no other node.
        self._own = [(address, False) for address in brokers] + [(address, True) for address in controllers]

    def _work(self) -> None:
        self._runner.run(self._poll())
        self._ended.wait(LOOK_EVERY_S)

    async def _poll(self) -> None:
        # An answer counts from the moment of its question: it may have been on its way for as long as that.
        asked_at = time.monotonic()
        reported = await asyncio.gather(*(self._tells(*own) for own in self._own))
        for addresses in reported:
            for address, node_id in addresses.items():
                known = self._advertised.get(address)
                if known is not None and known[0] != node_id:
                    self._note(address, asked_at, f"advertised for {node_id}")
                self._advertised[address] = (node_id, asked_at)
        held = {
            address: node_id for address, (node_id, at) in self._advertised.items() if asked_at - at < HOLD_S
        }
        reached = await self._gateway.probe(frozenset(held), NODE_IDS)
        reached_at = time.monotonic()
        for address, response in reached.items():
            if response.node_id is None:
                continue  # no node for a moment: no client is misled by that
            self.asked += 1
            if response.node_id != held[address]:
                self._note(address, reached_at, f"answered by {response.node_id}")

    def _note(self, address: Address, now: float, found: str) -> None:
        """Record a violation, unless the earlier address is older than HOLD_S."""
        node_id, advertised_at = self._advertised[address]
        if now - advertised_at < HOLD_S:
            self.violations.append(
                f"{address} was advertised for {node_id}, and {now - advertised_at:.1f} s later {found}"
            )

    async def _tells(self, own: str, is_controller: bool) -> Mapping[Address, int]:
        client = AdminClient(
            bootstrap_controllers=[own] if is_controller else (),
            bootstrap_servers=() if is_controller else [own],
            follow_advertised=False,
            retries=0,
            request_timeout_ms=1_000,
        )
        try:
            async with client:
                cluster = await client.describe_cluster()
        except AdminError:
            return {}
        return {Address(node.host, node.port): node.node_id for node in cluster.nodes}

    def _close(self) -> None:
        self._runner.run(self._gateway.close())
        self._runner.close()


class ContinuousConsumer(Worker):
    """Reads a topic in a group, from its beginning on; `seen` is what it was given."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(f"consumer of {topic}")
        self.seen: set[int] = set()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])

    def _work(self) -> None:
        for message in self._consumer.consume(500, timeout=0.2):
            value = message.value()
            if message.error() is None and isinstance(value, bytes):
                self.seen.add(int(value))

    def _close(self) -> None:
        self._consumer.close()


def own_addresses(first: int, count: int) -> tuple[str, ...]:
    """The addresses that nodes themselves listen on: the port of the file, one after the other."""
    return tuple(f"127.0.0.1:{first + place}" for place in range(count))


def port_of(text: str, listener: str) -> int:
    """The port of a listener in a manifest."""
    found = re.search(rf"name: {listener}, port: (\d+)", text)
    assert found is not None
    return int(found[1])


def test_five_edits_with_clients_running(player: Player) -> None:
    """Scale, rename, swap, decommission and upgrade are safe, and no client notices them."""
    files = Files()
    text = files.text("cluster.yaml")
    player.edit(text)
    bootstrap = player.status()["bootstrapServers"]
    assert all(address.startswith("127.1.1.1") for address in bootstrap.split(","))
    admin = ConfluentAdmin({"bootstrap.servers": bootstrap})
    create_replicated_topic(admin, TOPIC, COPIES)
    checker = Truthfulness(
        own_addresses(port_of(text, "PLAINTEXT"), 3),
        own_addresses(port_of(text, "CONTROLLER"), 6),
    )
    with (
        checker,
        SteadyProducer(bootstrap, TOPIC) as producer,
        ContinuousConsumer(bootstrap, TOPIC) as consumer,
        SteadyTopics(bootstrap, "made", copies=COPIES) as topics,
    ):
        player.edit(files.text("1-scale.yaml"))
        assert player.status()["quorum"]["voters"] == list(range(3000, 3005))

        reported = player.edit(files.text("2-rename.yaml"))
        assert len(re.findall(r"stopping \S+: its advertised address changes", reported)) == 8
        hosts = {node["nodeId"]: node["address"].split(":")[0] for node in player.status()["nodes"]}
        assert all(host.startswith("127.2.") for host in hosts.values())

        reported = player.edit(files.text("3-swap.yaml"))
        assert "(until " in reported  # a client waited at an address of its own
        swapped = {node["nodeId"]: node["address"].split(":")[0] for node in player.status()["nodes"]}
        exchanged = {0: hosts[1], 1: hosts[0], 3000: hosts[3002], 3002: hosts[3000]}
        assert swapped == hosts | exchanged

        leader = player.status()["quorum"]["leaderId"]
        reported = player.edit(files.text("4-decommission.yaml").replace("[3001]", f"[{leader}]"))
        assert f"controller-{leader} stopped" in reported
        assert player.status()["quorum"]["voters"] == sorted({*range(3000, 3006)} - {leader})

        reported = player.edit(files.text("5-upgrade.yaml").replace("[3001]", f"[{leader}]"))
        assert "finalizing metadata.version" in reported
        produced = len(producer.acknowledged)
        eventually(lambda: len(producer.acknowledged) > produced + 100, 30, "records after the last edit")

    status = player.status()
    assert status["settled"]
    assert checker.violations == []
    assert checker.asked > 100
    assert player.finalized_level() >= 29
    last = status["bootstrapServers"]
    numbers = consume_numbers(last, TOPIC, range(COPIES))
    assert set(producer.acknowledged) - set(numbers) == set()
    assert len(consumer.seen) > len(producer.acknowledged) // 2
    names = ConfluentAdmin({"bootstrap.servers": last}).list_topics(timeout=30).topics
    assert set(topics.acknowledged) - names.keys() == set()
    assert len(topics.acknowledged) > 20
