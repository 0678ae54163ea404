"""From Kafka 4.3.1 to 4.4.0, and back as long as the level allows it, while clients work."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from kit.cluster import HEAP, free_ports
from kit.kafka import jars_of
from kit.ledger import SteadyProducer, SteadyTopics, consume_numbers, create_replicated_topic
from kit.pauses import RecordPause
from kit.player import Player, playing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

EXAMPLES = Path(__file__).parents[3] / "examples" / "upgrade"
TOPIC, COPIES = "numbers", 3
JAVA, LEAVING = 3002, 3001
OVERLAP_S = 2
LEVEL_BEFORE, LEVEL_AFTER = 30, 33


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    """A player that finds both releases where `quorate play` looks for them."""
    for version in ("4.3.1", "4.4.0"):
        jars_of(version)
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_HOME"}
    with playing(tmp_path, environment | {"KAFKA_HEAP_OPTS": " ".join(HEAP)}) as player:
        yield player


class Files:
    """The example files with ports that are free here, and a second Java controller that leaves."""

    def __init__(self) -> None:
        first = free_ports(8)
        self._ports = {"19093": str(first), "19192": str(first + 5)}

    def text(self, name: str, *, leaves: bool = True) -> str:
        """A file as it is played."""
        text = (EXAMPLES / name).read_text()
        for example, port in self._ports.items():
            text = text.replace(example, port)
        text = text.replace("  replicas: 3\n", f"  replicas: 3\n  rollout: {{overlap: {OVERLAP_S}s}}\n")
        node = f"    - {{nodeId: {JAVA}, implementation: java}}\n"
        assert node in text
        if leaves:
            return text.replace("  nodes:\n", f"  decommission: [{LEAVING}]\n  nodes:\n")
        return text.replace(node, f"{node}    - {{nodeId: {LEAVING}, implementation: java}}\n")


def test_both_releases_under_load(player: Player, record_pause: RecordPause) -> None:
    """The upgrade, and the way back before the level rises, lose nothing that was acknowledged."""
    files = Files()
    player.edit(files.text("cluster.yaml", leaves=False))
    bootstrap = player.status()["bootstrapServers"]
    create_replicated_topic(ConfluentAdmin({"bootstrap.servers": bootstrap}), TOPIC, COPIES)
    with (
        SteadyProducer(bootstrap, TOPIC) as producer,
        SteadyTopics(bootstrap, "made", copies=COPIES) as topics,
    ):
        reported = player.edit(files.text("cluster.yaml"))
        assert f"controller-{LEAVING} stopped" in reported
        assert f"refreshing the registration of controller-{LEAVING}" in reported

        rolled = player.edit(files.text("1-software.yaml"))
        assert rolled.count("version: 4.3.1 -> 4.4.0") >= 6
        assert player.finalized_level() == LEVEL_BEFORE
        back = player.edit(files.text("cluster.yaml"))
        assert back.count("version: 4.4.0 -> 4.3.1") >= 6
        player.edit(files.text("1-software.yaml"))

        raised = player.edit(files.text("2-level.yaml"))
        assert "finalizing metadata.version" in raised
        assert player.finalized_level() == LEVEL_AFTER
        assert f"unregistering controller-{LEAVING}" in raised
    record_pause(topics.pauses.longest_s)
    record_pause(producer.pauses.longest_s, "records")

    status = player.status()
    assert status["settled"]
    assert producer.failures == []
    numbers = consume_numbers(status["bootstrapServers"], TOPIC, range(COPIES))
    assert set(producer.acknowledged) - set(numbers) == set()
    names = ConfluentAdmin({"bootstrap.servers": status["bootstrapServers"]}).list_topics(timeout=30).topics
    assert set(topics.acknowledged) - names.keys() == set()
    assert len(topics.acknowledged) > 20
