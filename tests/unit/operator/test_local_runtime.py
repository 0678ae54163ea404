"""The runtime of local processes: from a directory that is not formatted to a process that is watched."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from quorate_operator.planning.cluster import DesiredNode, NodeState
from quorate_operator.planning.steps import CreateNode, StartNode, StopNode
from quorate_operator.runtime import session
from quorate_operator.runtime.errors import StepError
from quorate_operator.runtime.health import Health
from quorate_operator.runtime.layout import Layout
from quorate_operator.runtime.local import LocalRuntime
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
    def format_command(self, node: DesiredNode) -> list[str]:
        """Writes what marks a formatted directory."""
        meta = f"cluster.id={self.identity.cluster_id}\\ndirectory.id=abc\\n"
        return [sys.executable, "-S", "-c", self.format_script.replace("{}", meta)]

    @override
    def run_command(self, node: DesiredNode, environment: Mapping[str, str]) -> list[str]:
        """Waits for a signal."""
        return [sys.executable, "-S", "-c", self.run_script]


class Probe:
    """Tells what a test wants."""

    health = Health()

    async def probe(self, **_: Sequence[int]) -> Health:
        """The health that was set."""
        return self.health

    async def close(self) -> None:
        """Nothing to close."""


class Stage:
    """A runtime of one controller, with what surrounds it."""

    def __init__(self, layout: ScriptedLayout) -> None:
        self.layout = layout
        self.probe = Probe()
        self.woken = asyncio.Event()
        self.runtime = LocalRuntime(layout, self.probe, {}, self.woken.set)  # type: ignore[arg-type]

    @property
    def data(self) -> Path:
        """The node's data."""
        return self.layout.directory.node_data(f"controller-{NODE}")

    async def state(self) -> NodeState:
        """The node's state as it is observed."""
        return (await self.runtime.observe()).nodes[NODE].state

    async def create(self) -> None:
        """Create the node."""
        await self.runtime.apply(CreateNode(node_id=NODE, reason="test"))

    async def start(self) -> None:
        """Start the node."""
        await self.runtime.apply(StartNode(node_id=NODE, reason="test"))

    async def kill(self) -> None:
        """Kill the node's process, and wait until that was noticed."""
        self.woken.clear()
        self.runtime.send_signal(NODE, signal.SIGKILL)
        await self.woken.wait()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A prepared cluster of one controller; nothing of it is left."""
    layout = session.prepare(MANIFEST, "test", tmp_path / "quorum", {}, lambda _: None).layout
    stage = Stage(ScriptedLayout(layout.directory, layout.desired, layout.identity))
    yield stage
    await stage.runtime.close()
    layout.directory.release()


async def test_a_node_goes_from_absent_to_ready_and_to_stopped(stage: Stage) -> None:
    """Goal: each state means what it says. Method: one life, observed after each step."""
    assert await stage.state() is NodeState.ABSENT
    await stage.create()
    assert await stage.state() is NodeState.STOPPED
    await stage.start()
    assert await stage.state() is NodeState.STARTING
    started_ms = (await stage.runtime.observe()).nodes[NODE].started_at_ms
    assert started_ms is not None
    stage.probe.health = Health(seen_ms={NODE: started_ms - 1})
    assert await stage.state() is NodeState.STARTING  # that was an earlier process
    stage.probe.health = Health(seen_ms={NODE: started_ms})
    assert await stage.state() is NodeState.READY
    stage.probe.health = Health()
    assert await stage.state() is NodeState.UNREADY
    await stage.runtime.apply(StopNode(node_id=NODE, reason="test", grace_ms=10_000))
    assert await stage.state() is NodeState.STOPPED


async def test_a_crash_is_told_with_its_reason_and_counted(stage: Stage) -> None:
    """Goal: planning can pause longer each time. Method: kill the node twice."""
    await stage.create()
    for times in (1, 2):
        await stage.start()
        await stage.kill()
        node = (await stage.runtime.observe()).nodes[NODE]
        assert (node.state, node.exits_in_a_row) == (NodeState.CRASHED, times)
        assert node.exit_reason == "killed by SIGKILL"


async def test_what_formatting_said_is_in_the_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a wrong manifest can be repaired. Method: a formatter that complains and fails."""
    monkeypatch.setattr(ScriptedLayout, "format_script", "print('no such key'); raise SystemExit(3)")
    with pytest.raises(StepError) as failed:
        await stage.create()
    assert str(failed.value) == f"controller-{NODE} could not be formatted (exit status 3):\n  no such key"


async def test_a_formatter_that_hangs_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a play does not hang. Method: a formatter that waits, and little patience."""
    monkeypatch.setattr(ScriptedLayout, "format_script", WAITS_FOR_A_SIGNAL)
    monkeypatch.setattr("quorate_operator.runtime.local.FORMAT_TIMEOUT_S", 0.05)
    with pytest.raises(StepError, match="could not be formatted in"):
        await stage.create()


async def test_a_voter_that_lost_its_data_is_not_created_again(stage: Stage) -> None:
    """Goal: no voter forgets its votes unnoticed. Method: move the data away after it has run."""
    await stage.create()
    await stage.start()
    await stage.kill()
    stage.data.rename(stage.data.with_name("elsewhere"))
    assert await stage.state() is NodeState.ABSENT
    with pytest.raises(StepError, match=r"has run before, and .* is gone"):
        await stage.create()


async def test_an_interrupted_creation_is_repeated(stage: Stage) -> None:
    """Goal: whoever kills us between two steps does no harm. Method: format twice without a start between."""
    await stage.create()
    (stage.data / "meta.properties").unlink()
    await stage.create()
    assert await stage.state() is NodeState.STOPPED


async def test_closing_leaves_no_process(stage: Stage) -> None:
    """Goal: no orphans. Method: close the runtime of a running node."""
    await stage.create()
    await stage.start()
    await stage.runtime.close()
    assert await stage.state() is NodeState.STOPPED
    assert stage.runtime.send_signal(NODE, signal.SIGCONT) is None
