"""From a manifest to a supervised cluster: what is settled first, and the two ways to supervise."""

import asyncio
import logging
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import DesiredCluster, Implementation, Role
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.runtime.control import call
from quorate_operator.runtime.directory import PlayDirectory
from quorate_operator.runtime.errors import KafkaUnavailableError, PlayError
from quorate_operator.runtime.health import HealthProbe
from quorate_operator.runtime.identity import read_identity, settle_identity, write_identity
from quorate_operator.runtime.kafka import Kafka, Progress, find_kafka
from quorate_operator.runtime.layout import QUORATE, Layout
from quorate_operator.runtime.local import LocalRuntime
from quorate_operator.runtime.processes import LOG_SIZE_BYTES_MAX
from quorate_operator.runtime.supervisor import Snapshot, Supervisor
from quorate_operator.runtime.tools import write_tools

DEFAULT_ROOT = Path(".quorate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A cluster that can be supervised, its directory's lock held; `notes` are for the person who asked."""

    layout: Layout
    notes: tuple[str, ...]


def prepare(
    manifest: str, source: str, path: Path | None, environment: Mapping[str, str], progress: Progress
) -> Session:
    """Check a manifest and settle all that its cluster needs, in `path` or in `.quorate/<name>`.

    Raises ManifestError or PlayError; a cluster that was there is as it was then.
    """
    asked = desired_cluster(load_manifests(manifest, source))
    directory = directory_of(asked.name, path)
    if directory.held:
        directory.take()  # raises, before anything that takes time
    kafka, notes = _find_kafkas(asked, environment, progress)
    desired = _playable(asked, kafka)
    directory.take()
    try:
        identity = settle_identity(directory, desired, kafka)
        write_identity(directory, identity)
        directory.write(directory.manifest, manifest)
        layout = Layout(directory, desired, identity)
        if kafka:
            write_tools(layout, kafka[max(kafka, key=_version_key)])
    except PlayError:
        directory.release()
        raise
    return Session(layout=layout, notes=notes)


def directory_of(name: str, path: Path | None) -> PlayDirectory:
    """The directory of the cluster of this name: `path`, or the default."""
    return PlayDirectory(path or DEFAULT_ROOT / name)


def recall(directory: PlayDirectory) -> Layout:
    """The layout of the cluster that was played in a directory. Raises PlayError."""
    identity = read_identity(directory)
    try:
        manifest = directory.manifest.read_text()
    except OSError as error:
        raise PlayError(f"{directory.manifest} can't be read: {error.strerror}") from error
    asked = desired_cluster(load_manifests(manifest, str(directory.manifest)))
    return Layout(directory, _playable(asked, identity.kafka), identity)


def supervisor_of(layout: Layout, environment: Mapping[str, str]) -> Supervisor:
    """A supervisor with the runtime of local processes."""
    woken = asyncio.Event()
    probe = HealthProbe(layout.addresses(Role.CONTROLLER), layout.addresses(Role.BROKER))
    runtime = LocalRuntime(layout, probe, environment, woken.set)
    return Supervisor(layout.directory, layout.desired, runtime, woken)


async def supervise(layout: Layout, supervisor: Supervisor) -> None:
    """Supervise a cluster in this process until it is asked to stop, by a signal or a command.

    Raises StepError. The directory is free again when this process has ended: `play stop` waits for that.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.request_stop)
    try:
        with _log_to(layout.directory.supervisor_log):
            await supervisor.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


def supervise_detached(layout: Layout) -> None:
    """Supervise a cluster in a process of its own, which outlives this one and takes over the lock."""
    directory = layout.directory
    descriptor = directory.lock_descriptor
    with directory.supervisor_log.open("ab") as log:
        subprocess.Popen(  # noqa: S603 - our own command
            [
                *QUORATE,
                "play",
                "supervise",
                "--dir",
                str(directory.path),
                "--lock-descriptor",
                str(descriptor),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
    directory.release()


async def ask_snapshot(directory: PlayDirectory, since: int = 0) -> Snapshot:
    """What the supervisor of a directory tells. Raises NotRunningError, PlayError."""
    return Snapshot.from_json(await call(directory, "status", since=since))


async def ask_stop(directory: PlayDirectory) -> None:
    """Have the supervisor of a directory stop its cluster. Raises NotRunningError, PlayError."""
    await call(directory, "stop")


async def ask_kill(directory: PlayDirectory, node_id: int, number: signal.Signals) -> int:
    """Have a node's process get a signal; its pid. Raises NotRunningError, PlayError."""
    pid: int = await call(directory, "kill", nodeId=node_id, signal=number.name)
    return pid


def played_clusters() -> list[Path]:
    """The directories of the clusters that were played below the current directory, in the default place."""
    return sorted(path for path in DEFAULT_ROOT.glob("*") if PlayDirectory(path).exists)


def node_id_of(layout: Layout, name: str) -> int:
    """The node id that a person means by `3000` or `controller-3000`. Raises PlayError."""
    for node in layout.desired.nodes:
        if name in (str(node.node_id), node.label):
            return node.node_id
    known = ", ".join(node.label for node in layout.desired.nodes)
    raise PlayError(f"there is no node {name!r}; there are {known}")


def _find_kafkas(
    desired: DesiredCluster, environment: Mapping[str, str], progress: Progress
) -> tuple[dict[str, Kafka], tuple[str, ...]]:
    """Every Kafka that the cluster needs, or none and what to say about it."""
    versions = {node.kafka_version for node in desired.nodes if node.implementation is Implementation.JAVA}
    try:
        kafka = {version: find_kafka(version, environment, progress) for version in sorted(versions)}
    except KafkaUnavailableError as error:
        if any(node.implementation is Implementation.JAVA for node in desired.of_role(Role.CONTROLLER)):
            raise
        return {}, (f"Playing the controllers alone, without brokers: {error}",)
    others = {found.version for version, found in kafka.items() if found.version != version}
    return kafka, tuple(
        f"KAFKA_HOME is Kafka {version}; the manifest's version is not used" for version in others
    )


def _playable(desired: DesiredCluster, kafka: Mapping[str, Kafka]) -> DesiredCluster:
    """What can be run with the Kafka that was found."""
    nodes = tuple(
        node
        for node in desired.nodes
        if node.implementation is Implementation.PYTHON or node.kafka_version in kafka
    )
    return replace(desired, nodes=nodes)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@contextmanager
def _log_to(file: Path) -> Iterator[None]:
    """Our own log lines, in a file, while the context is open."""
    handler = RotatingFileHandler(file, maxBytes=LOG_SIZE_BYTES_MAX, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours = logging.getLogger("quorate_operator")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        handler.close()
