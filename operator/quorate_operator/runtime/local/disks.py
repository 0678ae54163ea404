"""The disks of local nodes, which are directories: formats, deletes, and rebuilds a quorum from one of them."""

from collections import deque
from collections.abc import Sequence

from quorate_protocol.kafka.metadata_log import META_PROPERTIES

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import DesiredNode
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.layout import Layout

STEP_TIMEOUT_S = 60
LINES_SHOWN = 8


async def create(layout: Layout, node: DesiredNode, *, is_initial: bool) -> None:
    """Configure a node and format its directory, also after an interrupted attempt. Raises StepError."""
    for data in layout.log_directories(node):
        layout.directory.make(data)
    layout.write_config(node)
    await _format(layout, node, is_initial=is_initial)


async def format_further(layout: Layout, node: DesiredNode) -> None:
    """Format the directories that were added to a node since its last start. Raises StepError."""
    if not all((data / META_PROPERTIES).is_file() for data in layout.log_directories(node)[1:]):
        await _format(layout, node, is_initial=False)


async def _format(layout: Layout, node: DesiredNode, *, is_initial: bool) -> None:
    command = layout.format_command(node, is_initial=is_initial)
    await _run(layout, node.label, command, "format.log", "formatted")


async def rebuild_quorum(layout: Layout, node: DesiredNode, above_epoch: int) -> None:
    """Make a stopped controller the only voter, from its own disk. Raises StepError."""
    layout.write_config(node)
    await _run(
        layout, node.label, layout.rebuild_command(node, above_epoch), "rebuild.log", "made the only voter"
    )


async def delete(layout: Layout, label: str, volume_id: int | None = None) -> None:
    """Delete one volume of a node, or all. Raises StepError."""
    volumes = layout.directory.volumes(label) | {METADATA_VOLUME: layout.directory.node_data(label)}
    for data in volumes.values() if volume_id is None else (layout.directory.node_data(label, volume_id),):
        # Whole or not at all: half of a disk must not be taken for a disk.
        doomed = data.with_name(f"{data.name}.deleted")
        if data.exists() and not doomed.exists():
            data.rename(doomed)
        await _run(layout, label, ["rm", "-rf", "--", str(doomed), str(data)], "delete.log", "deleted")


def forget(layout: Layout, label: str) -> None:
    """Remove the files of a node that has left, except for its data."""
    directory = layout.directory.node(label)
    if not directory.exists():
        return
    kept = {layout.directory.node_data(label), *layout.directory.volumes(label).values()}
    left = [path for path in directory.iterdir() if path not in kept]
    for path in left:
        if path.is_file():
            path.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


def has_volume(layout: Layout, label: str) -> bool:
    """Whether a node has data, formatted or not."""
    return bool(layout.directory.volumes(label))


def is_formatted(directory: PlayDirectory, label: str) -> bool:
    """Whether a node's data was formatted, for any cluster."""
    return (directory.node_data(label) / META_PROPERTIES).is_file()


async def _run(layout: Layout, label: str, command: Sequence[str], log_name: str, what: str) -> None:
    """Run a command on a node's disk to its end. Raises StepError with the last lines of its output."""
    directory = layout.directory.node(label)
    log = directory / log_name
    process = ChildProcess.start(command, directory=directory, log=log, on_exit=lambda: None)
    if not await process.wait(STEP_TIMEOUT_S):
        await process.stop(grace_ms=0)
        raise StepError(f"{label} could not be {what} in {STEP_TIMEOUT_S} s; see {log}")
    if not process.succeeded:
        with log.open(errors="replace") as file:
            said = "".join(f"\n  {line.rstrip()}" for line in deque(file, maxlen=LINES_SHOWN))
        raise StepError(f"{label} could not be {what} ({process.exit_reason}):{said}")
