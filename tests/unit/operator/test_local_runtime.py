"""The infrastructure of local processes: from a directory that is not formatted to a process that is watched."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.waiting import HANG_S
from quorate_operator.planning.cluster import (
    Address,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Verification,
)
from quorate_operator.planning.steps import (
    CreateNode,
    DeleteVolume,
    ForgetNode,
    FormCluster,
    PublishAddress,
    RebuildQuorum,
    RuntimeAction,
    StartNode,
    StepError,
    StopNode,
)
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.identity import read_identity, settle_identity
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.node_process import Shippers
from typing_extensions import override

pytestmark = pytest.mark.usefixtures("own_ports")

MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {replicas: 1}
"""
NODE = 3000
WAITS_FOR_A_SIGNAL = "import signal; signal.pause()"


class ScriptedLayout(Layout):
    """A layout whose nodes are formatted and run by small scripts."""

    __slots__ = ()
    format_script = "from pathlib import Path; Path('data/meta.properties').write_text('{}')"
    run_script = WAITS_FOR_A_SIGNAL

    @override
    def format_command(self, node: DesiredNode, *, is_initial: bool = True) -> list[str]:
        """Write what marks a formatted directory."""
        directory_id = self.identity.nodes[node.node_id].directory_id if is_initial else "another"
        meta = f"cluster.id={self.identity.cluster_id}\\ndirectory.id={directory_id}\\n"
        return [sys.executable, "-S", "-c", self.format_script.replace("{}", meta)]

    @override
    def rebuild_command(self, node: DesiredNode, above_epoch: int) -> list[str]:
        """Do nothing, and succeed."""
        return [sys.executable, "-S", "-c", ""]

    @override
    def kept_run_command(self, *_: object, **__: object) -> list[str]:
        """Wait for a signal."""
        return [sys.executable, "-S", "-c", self.run_script]


class Stage:
    """The infrastructure of one controller, with what surrounds it."""

    def __init__(self, layout: ScriptedLayout) -> None:
        self.woken = asyncio.Event()
        self.infrastructure = LocalInfrastructure(layout, {}, self.woken.set)

    @property
    def layout(self) -> Layout:
        """The layout as it is now."""
        return self.infrastructure.layout

    @property
    def data(self) -> Path:
        """The node's data."""
        return self.layout.directory.node_data(f"controller-{NODE}")

    async def apply(self, action: RuntimeAction) -> None:
        """Do a step."""
        await self.infrastructure.apply(action, self.layout.desired)

    async def node(self) -> ObservedNode:
        """The node as it is observed."""
        return (await self.infrastructure.nodes(self.layout.desired))[NODE]

    async def state(self) -> NodeState:
        """The node's state as it is observed."""
        return (await self.node()).state

    async def create(self, *, is_initial: bool = True) -> None:
        """Create the node."""
        await self.apply(CreateNode(node_id=NODE, reason="test", is_initial=is_initial))

    async def start(self) -> None:
        """Start the node."""
        await self.apply(StartNode(node_id=NODE, reason="test"))

    async def stop(self) -> None:
        """Stop the node."""
        await self.apply(StopNode(node_id=NODE, reason="test", grace_ms=HANG_S * 1000))

    async def kill(self) -> None:
        """Kill the node's process, and wait until that was noticed."""
        self.woken.clear()
        self.infrastructure.send_signal(NODE, signal.SIGKILL)
        await self.woken.wait()

    def desire_nothing(self) -> None:
        """A manifest that has the node no more."""
        self.infrastructure.use(replace(self.layout, desired=replace(self.layout.desired, nodes=())))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A prepared cluster of one controller; nothing of it is left."""
    layout = play_session.prepare(MANIFEST, "test", tmp_path / "quorum", {}, lambda _: None).layout
    stage = Stage(ScriptedLayout(layout.directory, layout.manifests, layout.desired, layout.identity, {}))
    yield stage
    await stage.infrastructure.close()
    layout.directory.release()


async def test_a_node_goes_from_absent_to_running_and_to_stopped(stage: Stage) -> None:
    assert await stage.state() is NodeState.ABSENT
    await stage.create()
    assert await stage.state() is NodeState.STOPPED
    await stage.start()
    node = await stage.node()
    assert (node.state, node.revision["controllers"]) == (NodeState.STARTING, "known")
    assert node.configured == stage.layout.desired.nodes[0].advertised
    assert stage.infrastructure.contacts(stage.layout.desired) == {NODE: node.configured["CONTROLLER"]}
    await stage.stop()
    assert await stage.state() is NodeState.STOPPED
    assert (await stage.node()).configured == node.configured


async def test_the_next_run_knows_what_a_stopped_node_advertised(stage: Stage) -> None:
    await stage.create()
    assert (await stage.node()).configured == {}
    had = stage.layout.desired.nodes[0].advertised
    await stage.start()
    await stage.stop()
    (node,) = stage.layout.desired.nodes
    other = replace(node, advertised={"CONTROLLER": Address("c0.example.com", 9093)})
    changed = replace(stage.layout, desired=replace(stage.layout.desired, nodes=(other,)))
    stage.infrastructure.use(changed)
    await stage.apply(RebuildQuorum(node_id=NODE, reason="test"))
    await stage.infrastructure.close()
    identity = settle_identity(changed.directory, changed.desired)
    again = LocalInfrastructure(replace(changed, identity=identity), {}, stage.woken.set)
    seen = (await again.nodes(changed.desired))[NODE]
    assert (seen.state, seen.configured) == (NodeState.STOPPED, had)


async def test_how_a_node_died_is_its_problem_until_the_next_process_is_stable(stage: Stage) -> None:
    await stage.create()
    await stage.start()
    await stage.kill()
    await stage.start()
    assert (await stage.node()).problem == "it died (killed by SIGKILL) and was started again"


async def test_a_stop_that_was_asked_for_is_no_death(stage: Stage) -> None:
    await stage.create()
    await stage.start()
    await stage.kill()
    for _ in range(2):
        await stage.start()
        await stage.stop()
        assert (await stage.node()).exits_in_a_row == 0
    await stage.start()
    assert (await stage.node()).problem is None


async def test_starting_twice_is_starting_once(stage: Stage) -> None:
    await stage.create()
    await stage.start()
    before = stage.infrastructure.process_of(NODE)
    await stage.start()
    assert stage.infrastructure.process_of(NODE) is before


async def test_a_crash_is_told_with_its_reason_and_counted(stage: Stage) -> None:
    await stage.create()
    for times in (1, 2):
        await stage.start()
        await stage.kill()
        node = await stage.node()
        assert (node.state, node.exits_in_a_row) == (NodeState.CRASHED, times)
        assert node.exit_reason == "killed by SIGKILL"


async def test_what_formatting_said_is_in_the_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedLayout, "format_script", "print('no such key'); raise SystemExit(3)")
    with pytest.raises(StepError) as failed:
        await stage.create()
    assert str(failed.value) == f"controller-{NODE} could not be formatted (exit status 3):\n  no such key"


async def test_a_formatter_that_hangs_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedLayout, "format_script", WAITS_FOR_A_SIGNAL)
    monkeypatch.setattr("quorate_operator.runtime.local.disks.STEP_TIMEOUT_S", 0.05)
    with pytest.raises(StepError, match="could not be formatted in"):
        await stage.create()


async def test_a_voter_that_lost_its_data_gets_another_directory_id(stage: Stage) -> None:
    await stage.create()
    first = (await stage.node()).directory_id
    await stage.start()
    await stage.kill()
    stage.data.rename(stage.data.with_name("elsewhere"))
    assert await stage.state() is NodeState.ABSENT
    await stage.create(is_initial=False)
    assert (await stage.node()).directory_id not in (None, first)


async def test_an_interrupted_creation_is_repeated(stage: Stage) -> None:
    """A runtime that is killed between two steps does no harm."""
    await stage.create()
    (stage.data / "meta.properties").unlink()
    await stage.create()
    assert await stage.state() is NodeState.STOPPED


async def test_closing_leaves_no_process(stage: Stage) -> None:
    await stage.create()
    await stage.start()
    await stage.infrastructure.close()
    assert await stage.state() is NodeState.STOPPED
    assert stage.infrastructure.send_signal(NODE, signal.SIGCONT) is None


async def test_a_formation_is_written_down_before_anything_is_formatted(stage: Stage) -> None:
    assert await stage.infrastructure.formation() is None
    form = FormCluster(node_ids=(NODE,), cluster_id=None, reason="test")
    await stage.apply(form)
    kept = read_identity(stage.layout.directory)
    assert kept.formation is not None
    assert kept.formation.initial_voters == {NODE: kept.nodes[NODE].directory_id}
    assert not kept.formation.is_formed
    await stage.apply(form)
    await stage.infrastructure.note_leader(1, 4)
    kept = read_identity(stage.layout.directory)
    assert kept.formation is not None
    assert kept.formation.is_formed
    assert kept.formation.leader_epoch == 4
    with pytest.raises(StepError, match="not formed again"):
        await stage.apply(form)


async def test_whom_names_led_to_is_read_again_by_the_next_run(stage: Stage) -> None:
    known = Verification(address=Address("c0.example.com", 9093), node_id=NODE, at_ms=7)
    await stage.infrastructure.note_verifications(NODE, (known,))
    assert read_identity(stage.layout.directory).verifications == (known,)
    assert await stage.infrastructure.verifications() == (known,)
    await stage.infrastructure.note_verifications(NODE, ())
    assert read_identity(stage.layout.directory).verifications == ()


async def test_a_quorum_is_rebuilt_from_a_stopped_controller_alone(stage: Stage) -> None:
    """The survivor's disk counts, and is not touched while it runs."""
    rebuild = RebuildQuorum(node_id=NODE, reason="test")
    with pytest.raises(StepError, match="has no data"):
        await stage.apply(rebuild)
    await stage.create()
    await stage.start()
    with pytest.raises(StepError, match="its log is changed only after it has stopped"):
        await stage.apply(rebuild)
    await stage.stop()
    await stage.apply(rebuild)
    formation = await stage.infrastructure.formation()
    assert formation is not None
    assert (formation.is_rebuilt, formation.is_formed) == (True, False)


async def test_a_node_that_no_manifest_has_runs_as_before_until_it_is_forgotten(stage: Stage) -> None:
    """A node that leaves can be started again to leave in order, and then goes."""
    await stage.create()
    await stage.start()
    configured = (await stage.node()).configured
    stage.desire_nothing()
    await stage.kill()
    await stage.start()
    assert (await stage.node()).configured == configured
    for step in (DeleteVolume(node_id=NODE, reason="test"), ForgetNode(node_id=NODE, reason="test")):
        with pytest.raises(StepError, match=r"runs; .* only after it has stopped"):
            await stage.apply(step)
    await stage.stop()
    await stage.apply(DeleteVolume(node_id=NODE, reason="test"))
    assert not stage.data.exists()
    await stage.apply(ForgetNode(node_id=NODE, reason="test"))
    assert await stage.infrastructure.nodes(stage.layout.desired) == {}
    assert NODE not in read_identity(stage.layout.directory).nodes


async def test_a_forgotten_node_keeps_its_data_and_its_ports(stage: Stage) -> None:
    await stage.create()
    await stage.start()
    await stage.stop()
    desired = stage.layout.desired
    stage.desire_nothing()
    assert (await stage.node()).has_volume
    await stage.apply(ForgetNode(node_id=NODE, reason="test"))
    assert await stage.infrastructure.nodes(stage.layout.desired) == {}
    assert read_identity(stage.layout.directory).nodes[NODE].is_forgotten
    stage.infrastructure.use(replace(stage.layout, desired=desired))
    node = await stage.node()
    assert (node.state, node.configured) == (NodeState.STOPPED, {}), "its name may be another's by now"


async def test_a_published_address_survives_the_supervisor(stage: Stage) -> None:
    """What was promised to clients is kept by the next play."""
    port = stage.layout.identity.nodes[NODE].ports["CONTROLLER"]
    address = Address("127.0.0.2", port)
    await stage.apply(PublishAddress(address=address, node_id=NODE, listener="CONTROLLER", reason="test"))
    published = await stage.infrastructure.publications()
    assert [publication.address for publication in published] == [Address("127.0.0.1", port), address]
    await stage.infrastructure.close()
    layout = stage.layout
    again = LocalInfrastructure(
        replace(layout, identity=read_identity(layout.directory)), {}, stage.woken.set
    )
    await again.open()
    try:
        assert [replace(publication, connections=None) for publication in await again.publications()] == [
            replace(publication, connections=None) for publication in published
        ]
    finally:
        await again.close()


async def test_a_history_that_can_not_be_kept_stops_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Shippers, "run", fail)
    desired = stage.layout.desired
    await stage.infrastructure.apply_supporting_objects(desired, ObservedCluster(nodes={}, quorum=None))
    assert "the history is not shipped: no space left" in caplog.text
