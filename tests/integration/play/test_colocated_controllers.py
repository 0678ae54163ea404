"""A cluster whose controllers are placed with its brokers, as processes: rolled, killed by halves, decommissioned."""

import os
import signal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic
from kit.cluster import free_ports
from kit.ledger import SteadyProducer, consume_numbers
from kit.player import Player

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TOPIC = "numbers"
PARTITIONS = 6
BROKERS = 3
BACK_WITHIN_S = 240
MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: quorum}}
spec:
  replicas: 3
  placement: {{type: WithBrokers, pool: brokers}}
  listeners: [{{name: CONTROLLER, port: {port}}}]
  rollout: {{overlap: 1s}}
  config: {{{controllers}}}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: brokers}}
spec:
  controllers: quorum
  replicas: 3
  nodeIds: {{first: 0}}
  listeners: [{{name: PLAINTEXT, port: {broker_port}}}]
  rollout: {{overlap: 1s}}
  config: {{log.index.size.max.bytes: 16384, default.replication.factor: 3, min.insync.replicas: 2{brokers}}}
  decommission: [{decommission}]
"""


class Manifests:
    """The manifest with one change or another, always with the same ports."""

    def __init__(self) -> None:
        self.port = free_ports(2 * (BROKERS + 1))

    def text(self, *, controllers: str = "", brokers: str = "", decommission: str = "") -> str:
        """The manifest with more properties of each role, and brokers that leave."""
        ports = {"port": self.port, "broker_port": self.port + BROKERS + 1}
        return MANIFEST.format(**ports, controllers=controllers, brokers=brokers, decommission=decommission)


def pids(status: dict[str, Any]) -> dict[int, int | None]:
    """The process of each node by its id; None unless it is in service."""
    return {node["nodeId"]: node["pid"] if node["state"] == "ready" else None for node in status["nodes"]}


def test_a_cluster_lives_with_its_controllers_beside_its_brokers(player: Player) -> None:
    """No acknowledged record is lost in a roll, by the death of either half, or when a broker leaves."""
    manifests = Manifests()
    player.write(manifests.text())
    player.play()
    status = player.until_ready()
    assert sorted(pids(status)) == [0, 1, 2, 3000, 3001, 3002]
    servers = status["bootstrapServers"]
    admin = ConfluentAdmin({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)]).values():
        future.result()
    with SteadyProducer(servers, TOPIC) as producer:
        player.edit(
            manifests.text(
                controllers="controller.quorum.request.timeout.ms: 2100", brokers=", num.io.threads: 4"
            )
        )
        for killed, other in ((3001, 1), (2, 3002)):
            _kill_alone(player, killed, other)
        reported = player.edit(manifests.text(brokers=", num.io.threads: 4", decommission="1"))
        assert "controller-3003" in reported
    left = player.until(lambda seen: seen["ready"], BACK_WITHIN_S, "a cluster without broker 1")
    assert sorted(pids(left)) == [0, 2, 3, 3000, 3002, 3003]
    assert producer.acknowledged
    assert not producer.failures
    servers = left["bootstrapServers"]
    assert set(producer.acknowledged) <= set(consume_numbers(servers, TOPIC, range(PARTITIONS)))


def _kill_alone(player: Player, killed: int, other: int) -> None:
    """Kill a node of a pair; the other one runs on as the same process."""
    before = pids(player.until_ready())
    pid = before[killed]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    after = player.until(
        lambda seen: seen["ready"] and pids(seen)[killed] not in (None, pid), BACK_WITHIN_S, "another process"
    )
    assert pids(after)[other] == before[other]
