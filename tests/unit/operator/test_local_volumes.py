"""Several volumes of a played broker: directories that are created, formatted, released and deleted."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.waiting import HANG_S
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import DesiredNode, ObservedNode
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import (
    CreateNode,
    CreateVolume,
    DeleteVolume,
    ForgetNode,
    ReleaseVolume,
    RuntimeAction,
    StartNode,
    StepError,
    StopNode,
)
from quorate_operator.planning.volumes import VOLUMES
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.identity import read_identity, settle_identity
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.machine_addresses import complete
from typing_extensions import override

pytestmark = pytest.mark.usefixtures("own_ports")

MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {replicas: 1}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 1, nodeIds: {first: 0}, storage: {volumes: [{id: 0}, {id: 2}]}}
"""
BROKER = 0


class ScriptedLayout(Layout):
    """A layout whose broker is run by a script. It is formatted as usual."""

    __slots__ = ()

    @override
    def kept_run_command(self, *_: object, **__: object) -> list[str]:
        return [sys.executable, "-S", "-c", "import signal; signal.pause()"]


class Stage:
    """A broker with the volumes 0 and 2, and what is done to it."""

    def __init__(self, layout: Layout) -> None:
        self.infrastructure = LocalInfrastructure(layout, {}, lambda: None)

    @property
    def directory(self) -> Path:
        """The broker's directory."""
        return self.infrastructure.layout.directory.node("broker-0")

    @property
    def desired(self) -> DesiredNode:
        """The broker as it is desired."""
        return self.infrastructure.layout.node(BROKER)

    async def seen(self) -> ObservedNode:
        """The broker as it is observed."""
        return (await self.infrastructure.nodes(self.infrastructure.layout.desired))[BROKER]

    async def apply(self, *actions: RuntimeAction) -> None:
        """Do steps, one after the other."""
        for action in actions:
            await self.infrastructure.apply(action, self.infrastructure.layout.desired)

    async def restart(self) -> None:
        """Stop the broker, and start it again."""
        await self.apply(
            StopNode(node_id=BROKER, reason="test", grace_ms=HANG_S * 1000),
            StartNode(node_id=BROKER, reason="test"),
        )

    def log_dirs(self) -> list[str]:
        """The last parts of `log.dirs` in the broker's configuration."""
        lines = (self.directory / "server.properties").read_text().splitlines()
        (found,) = [line.partition("=")[2] for line in lines if line.startswith("log.dirs=")]
        return [path.rpartition("/")[2] for path in found.split(",")]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A broker that runs; nothing of it is left."""
    directory = PlayDirectory(tmp_path / "cluster")
    directory.lock()
    manifests = load_manifests(MANIFEST, "test")
    asked = desired_cluster(manifests)
    identity = settle_identity(directory, asked)
    layout = ScriptedLayout(directory, manifests, complete(manifests, asked, identity), identity, {})
    stage = Stage(layout)
    await stage.apply(
        CreateNode(node_id=BROKER, reason="test", is_initial=False), StartNode(node_id=BROKER, reason="test")
    )
    yield stage
    await stage.infrastructure.close()
    directory.release()


def is_formatted(path: Path) -> bool:
    """Whether a directory has the file that Kafka looks for."""
    return (path / "meta.properties").is_file()


async def test_a_new_broker_has_a_directory_for_each_volume(stage: Stage) -> None:
    assert stage.log_dirs() == ["data", "data-2"]
    assert "metadata.log.dir=" in (stage.directory / "server.properties").read_text()
    seen = await stage.seen()
    assert {volume_id: volume.directory for volume_id, volume in seen.volumes.items()} == {
        0: str(stage.directory / "data"),
        2: str(stage.directory / "data-2"),
    }
    assert all(is_formatted(Path(volume.directory)) for volume in seen.volumes.values())
    assert seen.revision[VOLUMES] == stage.desired.revision[VOLUMES] == "0,2"


async def test_a_volume_that_is_created_is_formatted_by_the_next_start(stage: Stage) -> None:
    await stage.apply(CreateVolume(node_id=BROKER, volume_id=1, reason="test"))
    assert (await stage.seen()).volumes[1].is_in_use
    assert (await stage.seen()).revision[VOLUMES] == "0,2"
    assert stage.desired.revision[VOLUMES] == "0,1,2"
    assert read_identity(stage.infrastructure.layout.directory).nodes[BROKER].volumes == (0, 1, 2)
    assert not is_formatted(stage.directory / "data-1")
    await stage.restart()
    assert stage.log_dirs() == ["data", "data-1", "data-2"]
    assert is_formatted(stage.directory / "data-1")
    ids = [(stage.directory / name / "meta.properties").read_text() for name in stage.log_dirs()]
    await stage.restart()
    assert ids == [(stage.directory / name / "meta.properties").read_text() for name in stage.log_dirs()]


async def test_a_volume_that_is_released_is_left_out_and_may_be_deleted(stage: Stage) -> None:
    await stage.apply(ReleaseVolume(node_id=BROKER, volume_id=2, reason="test"))
    assert not (await stage.seen()).volumes[2].is_in_use
    assert VOLUMES not in stage.desired.revision
    delete = DeleteVolume(node_id=BROKER, volume_id=2, reason="test")
    with pytest.raises(StepError, match=r"runs; .* only after it has stopped"):
        await stage.apply(delete)
    await stage.restart()
    assert stage.log_dirs() == ["data"]
    assert is_formatted(stage.directory / "data-2")
    await stage.apply(delete)
    assert sorted((await stage.seen()).volumes) == [0]
    await stage.apply(CreateVolume(node_id=BROKER, volume_id=2, reason="test"))
    assert (await stage.seen()).volumes[2].is_in_use


async def test_all_volumes_of_a_broker_go_together(stage: Stage) -> None:
    """A broker that leaves takes every volume along, or keeps each."""
    await stage.apply(
        StopNode(node_id=BROKER, reason="test", grace_ms=HANG_S * 1000),
        ForgetNode(node_id=BROKER, reason="test"),
    )
    assert sorted(path.name for path in stage.directory.iterdir()) == ["data", "data-2"]
    await stage.apply(DeleteVolume(node_id=BROKER, reason="test"))
    assert [path.name for path in stage.directory.iterdir() if path.is_dir()] == []
    assert not (await stage.seen()).has_volume
