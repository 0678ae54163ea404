"""Brokers with several log directories: one is added, one is emptied and removed, and no record is lost."""

import asyncio
import re
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic
from kit.cluster import free_ports
from kit.ledger import SteadyProducer, consume_numbers
from kit.player import Player
from quorate_admin.client import AdminClient
from quorate_admin.types.partitions import LogDirDescription

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BROKERS, PARTITIONS = 2, 12
TOPIC = "numbers"
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
            broker: {path.rpartition("/")[2]: one for path, one in found.items()}
            for broker, found in described.items()
        }

    return asyncio.run(ask())


def held(player: Player) -> list[dict[str, int]]:
    """How many replicas of the topic each directory of each broker has."""
    return [
        {
            name: sum(partition.topic == TOPIC for partition in one.replicas)
            for name, one in sorted(found.items())
        }
        for _, found in sorted(directories(player).items())
    ]


def cordoned(player: Player) -> list[str]:
    """The directories that are cordoned."""
    return [name for found in directories(player).values() for name, one in found.items() if one.is_cordoned]


def restarts(told: str) -> list[str]:
    """The reasons for which brokers were stopped."""
    return re.findall(r"stopping broker-\d: (.*)", told)


def test_a_directory_is_added_and_another_one_is_removed(player: Player) -> None:
    """Goal: volumes of a broker come and go, and every acknowledged record stays.

    Method: a pool with `size` gets volumes 1 and 2 by an edit while a producer works; volume 1 is removed later. The
    directories of stock brokers are described after each step, and all records are read in the end.
    """
    manifests = Manifests()
    player.write(manifests.with_storage("{size: 1Gi}"))
    player.play()
    status = player.until_ready()
    servers = status["bootstrapServers"]
    create_topic(servers, TOPIC)
    assert held(player) == [{"data": PARTITIONS}] * BROKERS
    with SteadyProducer(servers, TOPIC) as producer:
        # The single volume goes on as volume 0: nothing restarts.
        assert restarts(player.edit(manifests.with_volumes(0))) == []
        _add_volumes(player, manifests, servers)
        _remove_a_volume(player, manifests)
    assert producer.acknowledged
    assert not producer.failures
    assert set(producer.acknowledged) <= set(consume_numbers(servers, TOPIC, range(PARTITIONS)))
    player.run("stop")


def _add_volumes(player: Player, manifests: Manifests, servers: str) -> None:
    told = player.edit(manifests.with_volumes(0, 1, 2))
    assert restarts(told) == ["storage.volumes: 0 -> 0,1,2"] * BROKERS, told
    assert [sorted(one) for one in held(player)] == [["data", "data-1", "data-2"]] * BROKERS
    create_topic(servers, "more")
    for found in directories(player).values():
        assert found["data-1"].replicas
        assert found["data-2"].replicas


def _remove_a_volume(player: Player, manifests: Manifests) -> None:
    told = player.edit(manifests.with_volumes(0, 2))
    assert restarts(told) == ["storage.volumes: 0,1,2 -> 0,2"] * BROKERS, told
    assert re.search(r"moving \d+ replicas? between log directories of broker-0", told), told
    for broker in range(BROKERS):
        assert not (player.directory / f"broker-{broker}" / "data-1").exists()
    assert [sorted(one) for one in held(player)] == [["data", "data-2"]] * BROKERS
    assert cordoned(player) == []
