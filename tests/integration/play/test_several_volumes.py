"""Brokers with several log directories: one is added, one is emptied and removed, and no record is lost."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic
from kit.cluster import free_ports
from kit.ledger import SteadyProducer, consume_numbers
from kit.player import Player
from quorate_admin.client import AdminClient
from quorate_admin.types.partitions import LogDirDescription
from quorate_operator.entities.balance import BALANCED, plan_rebalancing
from quorate_operator.entities.balance_facts import (
    DIRECTORY_RATE,
    MoveToDirectories,
    RebalanceChange,
    StoredRebalance,
)
from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.gateway.rebalances import change_rebalance, observe_rebalance
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.planning.cluster import Address

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BROKERS, PARTITIONS = 2, 12
TOPIC = "numbers"
REBALANCE_TIMEOUT_S, LOOK_EVERY_S = 120, 0.3
MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: quorum}}
spec: {{replicas: 1, listeners: [{{name: CONTROLLER, port: {port}}}]}}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: brokers}}
spec:
  controllers: quorum
  replicas: 2
  listeners: [{{name: PLAINTEXT, port: {broker_port}}}]
  config: {{log.index.size.max.bytes: 16384, num.replica.alter.log.dirs.threads: 2}}
  storage: {storage}
"""


class Manifests:
    """The manifest with one storage or another, always with the same ports."""

    def __init__(self) -> None:
        self.port = free_ports(1 + BROKERS)

    def with_storage(self, storage: str) -> str:
        """The manifest of a pool with this storage."""
        return MANIFEST.format(port=self.port, broker_port=self.port + 1, storage=storage)

    def with_volumes(self, *ids: int) -> str:
        """The manifest of a pool with these volumes."""
        volumes = ", ".join(f"{{id: {volume_id}, size: 1Gi}}" for volume_id in ids)
        return self.with_storage(f"{{volumes: [{volumes}], onDecommission: Delete}}")


def create_topic(servers: str, topic: str) -> None:
    """Create a topic with a replica of each partition on each broker."""
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=BROKERS)
    admin = ConfluentAdmin({"bootstrap.servers": servers})
    for future in admin.create_topics([new]).values():
        future.result()


def directories(player: Player) -> Mapping[int, Mapping[str, LogDirDescription]]:
    """The log directories of each broker, by the last part of the path."""

    async def ask() -> Mapping[int, Mapping[str, LogDirDescription]]:
        async with AdminClient(bootstrap_servers=player.status()["bootstrapServers"].split(",")) as client:
            described = (await client.describe_log_dirs(range(BROKERS))).values
        return {
            broker: {path.rpartition("/")[2]: log_dir for path, log_dir in found.items()}
            for broker, found in described.items()
        }

    return asyncio.run(ask())


def held(player: Player) -> list[dict[str, int]]:
    """How many replicas of the topic each directory of each broker has."""
    return [
        {
            name: sum(partition.topic == TOPIC for partition in log_dir.replicas)
            for name, log_dir in sorted(found.items())
        }
        for _, found in sorted(directories(player).items())
    ]


def cordoned(player: Player) -> list[str]:
    """The directories that are cordoned."""
    return [
        name
        for found in directories(player).values()
        for name, log_dir in found.items()
        if log_dir.is_cordoned
    ]


def restarts(log: str) -> list[str]:
    """The reasons for which brokers were stopped."""
    return re.findall(r"stopping broker-\d: (.*)", log)


def test_a_directory_is_added_and_another_one_is_removed(player: Player) -> None:
    """Volumes of a broker come and go, and every acknowledged record stays."""
    manifests = Manifests()
    player.write(manifests.with_storage("{size: 1Gi}"))
    player.play()
    status = player.until_ready()
    servers = status["bootstrapServers"]
    create_topic(servers, TOPIC)
    assert held(player) == [{"data": PARTITIONS}] * BROKERS
    with SteadyProducer(servers, TOPIC) as producer:
        # The single volume becomes volume 0: nothing restarts.
        assert restarts(player.edit(manifests.with_volumes(0))) == []
        _add_volumes(player, manifests, servers)
        asyncio.run(_even_directories(servers))
        assert all(replicas["data-1"] and replicas["data-2"] for replicas in held(player)), held(player)
        _remove_a_volume(player, manifests)
    assert producer.acknowledged
    assert not producer.failures
    assert set(producer.acknowledged) <= set(consume_numbers(servers, TOPIC, range(PARTITIONS)))
    player.run("stop")


def _add_volumes(player: Player, manifests: Manifests, servers: str) -> None:
    reported = player.edit(manifests.with_volumes(0, 1, 2))
    assert restarts(reported) == ["storage.volumes: 0 -> 0,1,2"] * BROKERS, reported
    assert [sorted(replicas) for replicas in held(player)] == [["data", "data-1", "data-2"]] * BROKERS
    create_topic(servers, "more")
    for found in directories(player).values():
        assert found["data-1"].replicas
        assert found["data-2"].replicas


async def _even_directories(servers: str) -> None:
    """Carry out a rebalance, as the operator does: look, plan, store the status, make the changes."""
    body = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaRebalance",
        "metadata": {"name": "even", "namespace": "kafka"},
        "spec": {"cluster": "quorum", "approval": "Auto", "throttleBytesPerSecond": "10Mi"},
    }
    resource = load_entity(body, "test")
    assert isinstance(resource, KafkaRebalance)
    addresses = {
        node_id: Address("127.0.0.1", int(server.rpartition(":")[2]))
        for node_id, server in enumerate(servers.split(","))
    }
    kafka = ObservedKafka(cluster_id="c", brokers=(), addresses=addresses)
    status: dict[str, Any] = {}
    changes: list[type[object]] = []
    async with AdminClient(bootstrap_servers=servers.split(",")) as client:
        async with asyncio.timeout(REBALANCE_TIMEOUT_S):
            while True:
                stored = StoredRebalance.of_status(status)
                observed = await observe_rebalance(client, resource, stored, kafka)
                plan = plan_rebalancing(resource, observed, stored, is_deleted=False)
                status = {
                    name: value for name, value in {**status, **plan.status}.items() if value is not None
                }
                if plan.state == BALANCED:
                    break
                for change in plan.changes:
                    assert isinstance(change, RebalanceChange)
                    changes.append(type(change))
                    await change_rebalance(client, change)
                await asyncio.sleep(LOOK_EVERY_S)
    assert MoveToDirectories in changes
    assert status["proposal"]["directoryReplicas"] > 0
    assert DIRECTORY_RATE not in observed.rates


def _remove_a_volume(player: Player, manifests: Manifests) -> None:
    reported = player.edit(manifests.with_volumes(0, 2))
    assert restarts(reported) == ["storage.volumes: 0,1,2 -> 0,2"] * BROKERS, reported
    assert re.search(r"moving \d+ replicas? between log directories of broker-0", reported), reported
    for broker in range(BROKERS):
        assert not (player.directory / f"broker-{broker}" / "data-1").exists()
    assert [sorted(replicas) for replicas in held(player)] == [["data", "data-2"]] * BROKERS
    assert cordoned(player) == []
