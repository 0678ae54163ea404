"""Quorums without brokers, and changes to them, for tests of streams."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.ledger import Worker
from quorate_admin.client import AdminClient
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_protocol.kafka.enums import ConfigResourceType

NewQuorum = Callable[..., Cluster]
_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
_CHANGE_EVERY_S = 0.05
_QUICK_ELECTIONS = {
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
}


@pytest.fixture
def new_quorum(tmp_path: Path) -> Iterator[NewQuorum]:
    """Make quorums of our controllers, which run; `config` is for all of them."""
    names = (f"quorum-{number}" for number in count())
    with ExitStack() as closing:

        def make(controllers: int = 1, config: dict[str, object] | None = None) -> Cluster:
            manifest = manifests(
                controllers=controllers, brokers=0, config={**_QUICK_ELECTIONS, **(config or {})}
            )
            cluster = Cluster.settle(tmp_path / next(names), None, manifest)
            closing.callback(cluster.close)
            cluster.format(*cluster.controllers)
            return cluster.start_all()

        yield make


async def _change(client: AdminClient, number: int) -> None:
    op = AlterConfigOp(name="log.retention.ms", value=str(number + 1))
    results = await client.incremental_alter_configs({_BROKERS: [op]})
    assert not results.errors, results


class Changes(Worker):
    """Changes one config of a cluster again and again; each change is one record."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__("changes")
        self.acknowledged = 0
        self._cluster = cluster

    def _work(self) -> None:
        asyncio.run(self._some())

    async def _some(self) -> None:
        async with AdminClient(
            bootstrap_controllers=self._cluster.bootstrap_controllers.split(",")
        ) as client:
            while not self._ended.is_set():
                await _change(client, self.acknowledged)
                self.acknowledged += 1
                # Leaves something of the processors to the others.
                await asyncio.to_thread(self._ended.wait, _CHANGE_EVERY_S)


@pytest.fixture
def changing() -> Callable[[Cluster], Changes]:
    """Make a context in which a cluster is changed without pause; `acknowledged` counts."""
    return Changes


@pytest.fixture
def change() -> Callable[[Cluster, int], None]:
    """Make this number of changes to a cluster."""

    def make(cluster: Cluster, changes: int) -> None:
        async def make_all() -> None:
            async with AdminClient(bootstrap_controllers=cluster.bootstrap_controllers.split(",")) as client:
                for number in range(changes):
                    await _change(client, number)

        asyncio.run(make_all())

    return make
