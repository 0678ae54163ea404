"""A cluster that the gateway's tests share: Python controllers, one more than it needs, and stock brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
from kit.cluster import START_TIMEOUT_S, Cluster, manifests
from kit.waiting import eventually
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.planning.cluster import Address, KafkaFacts
from quorate_operator.planning.steps import KafkaAction

_Result = TypeVar("_Result")


class Gatekeeper:
    """A cluster with the gateway to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def address(self, node_id: int) -> Address:
        """Where a node listens."""
        host, _, port = self.cluster.address(node_id).rpartition(":")
        return Address(host, int(port))

    def run(self, work: Callable[[KafkaGateway], Awaitable[_Result]]) -> _Result:
        """Work with a gateway that has just been started."""

        async def work_and_close() -> _Result:
            gateway = KafkaGateway()
            try:
                return await work(gateway)
            finally:
                await gateway.close()

        return asyncio.run(work_and_close())

    async def observe(
        self, gateway: KafkaGateway, *draining: int, loggers: Mapping[int, frozenset[str]] | None = None
    ) -> KafkaFacts | None:
        """The facts that the running nodes report, with the levels of these loggers."""
        running = {
            node_id: self.address(node_id)
            for node_id in (*self.cluster.controllers, *self.cluster.brokers)
            if self.cluster.runs(node_id)
        }
        controllers = {node_id: at for node_id, at in running.items() if node_id in self.cluster.controllers}
        brokers = {node_id: at for node_id, at in running.items() if node_id in self.cluster.brokers}
        return await gateway.observe(controllers, brokers, frozenset(draining), loggers or {})

    def facts(self, *draining: int) -> KafkaFacts:
        """The facts that are known now."""

        def observed() -> KafkaFacts | None:
            return self.run(lambda gateway: self.observe(gateway, *draining))

        return eventually(
            observed, START_TIMEOUT_S, "a leader", lambda: self.cluster.describe("no leader answers")
        )

    def apply(self, *actions: KafkaAction) -> None:
        """Do steps, by an operator that was started for them."""

        async def do(gateway: KafkaGateway) -> None:
            await self.observe(gateway)
            for action in actions:
                await gateway.apply(action)

        self.run(do)


@pytest.fixture(scope="session")
def gatekeeper(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Gatekeeper]:
    """Four Python controllers and three stock brokers, running."""
    manifest = manifests(controllers=4, brokers=3)
    cluster = Cluster.create(tmp_path_factory.mktemp("gateway") / "cluster", kafka_jars, manifest)
    try:
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        for broker in cluster.brokers:  # one after the other: three JVMs at once are much for a small machine
            cluster.start(broker)
            cluster.await_unfenced(broker)
        yield Gatekeeper(cluster)
    finally:
        cluster.close()
