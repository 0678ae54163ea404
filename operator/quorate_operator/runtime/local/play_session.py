"""From a manifest to a supervised cluster: settling it, supervising it, and commands to its supervisor."""

import asyncio
import logging
import signal
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter
from quorate_protocol.files import read_bounded
from quorate_protocol.kafka.releases import version_key
from quorate_protocol.printable import PrintableFormatter

from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.models.manifests import ManifestError, Manifests, load_manifests
from quorate_operator.models.secrets import SecretUse, secret_uses
from quorate_operator.models.started_listeners import with_listeners_in_use
from quorate_operator.planning.cluster import DesiredCluster, Implementation, Role
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.listeners import fixed_protocols, relisted
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.local import disks
from quorate_operator.runtime.local.child_process import LOG_SIZE_BYTES_MAX
from quorate_operator.runtime.local.client_files import write_client_files, write_tools
from quorate_operator.runtime.local.control_socket import call
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import KafkaUnavailableError, PlayError
from quorate_operator.runtime.local.identity import (
    ClusterIdentity,
    read_identity,
    settle_identity,
    started_nodes,
    write_identity,
)
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import QUORATE, Layout
from quorate_operator.runtime.local.machine_addresses import complete
from quorate_operator.runtime.local.own_certificates import (
    OwnCertificates,
    check_names,
    own_uses,
    stored_certificates,
)
from quorate_operator.runtime.local.stock_kafka import Kafka, Progress, find_kafka, make_aot_cache
from quorate_operator.runtime.local.supervisor import Snapshot, Supervisor

DEFAULT_ROOT = Path(".quorate")
MANIFEST_SIZE_BYTES_MAX = 16 * 1024 * 1024
_KAFKAS = TypeAdapter(dict[str, Kafka])

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A requested manifest, and the Kafka that it needs; `notes` are for the user."""

    manifest: str
    source: str
    directory: PlayDirectory
    kafka: Mapping[str, Kafka]
    notes: tuple[str, ...]

    def as_arguments(self) -> dict[str, Any]:
        """Return arguments for the supervisor that runs the cluster."""
        return {
            "manifest": self.manifest,
            "source": self.source,
            "kafka": _KAFKAS.dump_python(dict(self.kafka), mode="json"),
        }

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], directory: PlayDirectory) -> "Request":
        """Read what `as_arguments` returned."""
        kafka = _KAFKAS.validate_python(arguments["kafka"])
        return cls(**{**arguments, "kafka": kafka}, directory=directory, notes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A cluster that can be supervised, with its directory locked; `notes` are for the user."""

    layout: Layout
    notes: tuple[str, ...]


def ask_for(
    manifest: str,
    source: str,
    path: Path | None,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    without_brokers: bool = False,
) -> Request:
    """Check a manifest and find the Kafka that it needs, which may take time.

    Raises ManifestError or PlayError, for instance KafkaUnavailableError. `without_brokers` needs no Kafka.
    """
    asked = desired_cluster(_load(manifest, source))
    directory = directory_of(asked.name, path)
    kafka: dict[str, Kafka] = {}
    notes: tuple[str, ...] = ()
    if without_brokers:
        _check_controllers_need_no_kafka(asked)
    else:
        kafka, notes = _find_kafkas(asked, _versions_kept(directory), environment, progress)
    return Request(manifest=manifest, source=source, directory=directory, kafka=kafka, notes=notes)


def prepared_to_start(request: Request, progress: Progress) -> Request:
    """Return a request whose nodes start fast, as far as Java can do that. It takes some seconds the first time."""
    faults = [
        fault for kafka in request.kafka.values() if (fault := make_aot_cache(kafka, progress)) is not None
    ]
    return replace(request, notes=(*request.notes, *faults))


def prepare(
    manifest: str,
    source: str,
    path: Path | None,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    without_brokers: bool = False,
) -> Session:
    """Check a manifest and settle its cluster's identity, in `path` or in `.quorate/<name>`.

    Raises ManifestError or PlayError, for instance AlreadyRunningError; an existing cluster is unchanged then.
    """
    asked = desired_cluster(_load(manifest, source))
    directory = directory_of(asked.name, path)
    if directory.held:
        directory.lock()  # raises, before anything that takes time
    request = ask_for(manifest, source, path, environment, progress, without_brokers=without_brokers)
    request = prepared_to_start(request, progress)
    directory = request.directory
    directory.lock()
    try:
        layout = settle(request)
        adopt(request, layout)
    except (PlayError, ManifestError):
        directory.release()
        raise
    return Session(layout=layout, notes=request.notes)


def settle(request: Request, kept: ClusterIdentity | None = None, running: Collection[int] = ()) -> Layout:
    """Return the layout of a manifest; writes nothing. See `settle_identity`. Raises PlayError."""
    manifests = _load(request.manifest, request.source)
    directory = request.directory
    if any(character in str(directory.path) for character in ":}") and manifests.secrets:
        raise PlayError(
            f"{directory.path}: Kafka can't read Secrets under a path with ':' or '}}'; choose another --dir"
        )
    if kept is None and directory.exists:
        kept = read_identity(directory)
    if kept is not None:
        manifests = with_listeners_in_use(manifests, started_nodes(kept, running), request.source)
    desired = relisted(_playable(desired_cluster(manifests), request.kafka), manifests)
    if kept is not None:
        _check_left_out(manifests, desired, kept, directory)
    identity = settle_identity(directory, desired, request.kafka, kept=kept, running=running)
    own = _issued(manifests, desired, identity, directory, running)
    manifests = own.added_to(manifests)
    desired = complete(manifests, desired, identity)
    return Layout(directory, manifests, desired, identity, request.kafka, own_certificates=own)


def _issued(
    manifests: Manifests,
    desired: DesiredCluster,
    identity: ClusterIdentity,
    directory: PlayDirectory,
    running: Collection[int],
) -> OwnCertificates:
    """Return the certificates of listeners that name none. Raises PlayError."""
    where = next(iter(own_uses(manifests).values()), None)
    if where is None:
        return OwnCertificates()
    try:
        from quorate_operator.runtime.local.certificate_issuance import (  # noqa: PLC0415 - others do without it
            issue_certificates,
        )
    except ModuleNotFoundError as error:
        raise PlayError(
            f"{where}: {error.name} is missing: pip install 'quorate[tls]', or name a Secret in tls.secretName"
        ) from error
    now = datetime.now(UTC)
    return issue_certificates(manifests, desired, identity, directory, running=running, now=now)


def adopt(request: Request, layout: Layout) -> None:
    """Store what is played from now on. Raises PlayError."""
    write_identity(layout.directory, layout.identity)
    layout.directory.write(layout.directory.manifest, request.manifest)
    layout.write_secrets()
    write_client_files(layout)
    if request.kafka:
        write_tools(layout, request.kafka[max(request.kafka, key=version_key)])


def read_manifests(files: Sequence[Path]) -> tuple[str, str]:
    """Return the text of manifest files, and their names for messages. Raises PlayError."""
    return "\n---\n".join(map(_read_manifest, files)), ", ".join(map(str, files))


def _read_manifest(manifest: Path) -> str:
    try:
        return read_bounded(manifest, MANIFEST_SIZE_BYTES_MAX).decode()
    except UnicodeDecodeError as error:
        raise PlayError(f"{manifest} can't be read: it is not UTF-8 text") from error
    except OSError as error:
        raise PlayError(f"{manifest} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise PlayError(f"{manifest} can't be read: {error}") from error


def directory_of(name: str, path: Path | None) -> PlayDirectory:
    """Return the directory of a cluster: `path`, or the default for its name."""
    return PlayDirectory(path or DEFAULT_ROOT / name)


def recall(directory: PlayDirectory, kafka: Mapping[str, Kafka] = MappingProxyType({})) -> Layout:
    """Return the layout of the cluster that was played in a directory. Raises PlayError.

    `kafka` is what runs its nodes; a layout that is only shown needs none.
    """
    identity = read_identity(directory)
    try:
        manifest = directory.manifest.read_text()
    except OSError as error:
        raise PlayError(f"{directory.manifest} can't be read: {error.strerror}") from error
    manifests = _load(manifest, str(directory.manifest))
    manifests = with_listeners_in_use(manifests, started_nodes(identity, ()), str(directory.manifest))
    desired = relisted(_playable(desired_cluster(manifests), identity.kafka_versions), manifests)
    own = stored_certificates(manifests, directory)
    manifests = own.added_to(manifests)
    uses = secret_uses(manifests.controllers, manifests.brokers)
    _check_secrets(manifests, str(directory.secrets), (use for use in uses if use.is_own))
    return Layout(
        directory, manifests, complete(manifests, desired, identity), identity, kafka, own_certificates=own
    )


def recall_to_run(directory: PlayDirectory, environment: Mapping[str, str]) -> Layout:
    """Return the layout with the Kafka of this machine, for a supervisor. Raises PlayError."""
    versions = read_identity(directory).kafka_versions
    return recall(directory, {version: find_kafka(version, environment, logger.info) for version in versions})


def supervisor_of(layout: Layout, environment: Mapping[str, str]) -> Supervisor:
    woken = asyncio.Event()
    infrastructure = LocalInfrastructure(layout, environment, woken.set)

    runtime = ClusterRuntime(infrastructure, KafkaGateway(infrastructure.security_of))
    return Supervisor(infrastructure, runtime, woken, settle=settle_edited, adopt=adopt_edited)


def settle_edited(arguments: Mapping[str, Any], current: Layout, running: frozenset[int]) -> Layout:
    """Return the layout of an edited manifest of a running cluster. Raises PlayError."""
    request = Request.from_arguments(arguments, current.directory)
    try:
        # Nodes that are not in it any more still have to leave.
        edited = settle(replace(request, kafka={**current.kafka, **request.kafka}), current.identity, running)
    except ManifestError as error:
        raise PlayError(str(error)) from error
    refusal = next(iter(fixed_protocols(edited.desired)), None)
    if refusal is not None:
        raise PlayError(f"{refusal.message}; or run `quorate play stop` first")
    return edited


def adopt_edited(arguments: Mapping[str, Any], edited: Layout) -> None:
    """Store the edited manifest of a running cluster. Raises PlayError."""
    adopt(Request.from_arguments(arguments, edited.directory), edited)


async def supervise(layout: Layout, supervisor: Supervisor) -> signal.Signals | None:
    """Supervise a cluster in this process until a signal or a command stops it. Returns the first signal.

    Raises StepError. The directory is free again when this process has ended: `play stop` waits for that.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        supervisor.request_stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    try:
        with _log_to(layout.directory.supervisor_log):
            for kafka in layout.kafka.values():
                logger.info("Kafka %s of %s runs on %s", kafka.version, kafka.libs, kafka.java_found)
            await supervisor.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
    return received[0] if received else None


def supervise_detached(layout: Layout) -> None:
    """Supervise a cluster in a new process, which outlives this one and takes over the lock."""
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
    """Return the snapshot of a directory's supervisor. Raises NotRunningError, PlayError."""
    return Snapshot.from_json(await call(directory, "status", since=since))


async def ask_stop(directory: PlayDirectory) -> None:
    """Stop the cluster of a directory. Raises NotRunningError, PlayError."""
    await call(directory, "stop")


async def ask_kill(directory: PlayDirectory, node_id: int, number: signal.Signals) -> int:
    """Send a node's process a signal; returns its pid. Raises NotRunningError, PlayError."""
    pid: int = await call(directory, "kill", nodeId=node_id, signal=number.name)
    return pid


async def ask_play(request: Request) -> int:
    """Make the supervisor of a directory continue with a manifest; returns the number of the last event before.

    Raises NotRunningError, PlayError.
    """
    last: int = await call(request.directory, "play", **request.as_arguments())
    return last


async def ask_plan(request: Request) -> dict[str, Any]:
    """Return the plan that a manifest would have, if it were played. Raises NotRunningError, PlayError."""
    plan: dict[str, Any] = await call(request.directory, "plan", **request.as_arguments())
    return plan


def played_clusters() -> list[Path]:
    """Return the directories of played clusters below the current directory, in the default place."""
    return sorted(path for path in DEFAULT_ROOT.glob("*") if PlayDirectory(path).exists)


def node_id_of(layout: Layout, name: str) -> int:
    """Return the node id of `3000` or `controller-3000`. Raises PlayError."""
    for node in layout.desired.nodes:
        if name in (str(node.node_id), node.label):
            return node.node_id
    known = ", ".join(node.label for node in layout.desired.nodes)
    raise PlayError(f"there is no node {name!r}; there are {known}")


def _load(manifest: str, source: str) -> Manifests:
    """Return manifests with each Secret that they name, and not those that play writes. Raises ManifestError."""
    manifests = load_manifests(manifest, source)
    uses = tuple(secret_uses(manifests.controllers, manifests.brokers))
    issued = [use.where for use in uses if use.is_issued]
    if issued:
        raise ManifestError(
            f"{source}: {issued[0]}: needs cert-manager on Kubernetes; to play the cluster, name a Secret in "
            "tls.secretName instead"
        )
    check_names(manifests, source)
    _check_secrets(manifests, source, (use for use in uses if not use.is_own))
    return manifests


def _check_secrets(manifests: Manifests, place: str, uses: Iterable[SecretUse]) -> None:
    """Refuse Secrets that are missing, or have not what nodes need. Raises ManifestError."""
    faults = [fault for use in uses if (fault := use.fault(manifests.secrets, place)) is not None]
    if faults:
        raise ManifestError("\n".join(f"{place}: {fault}" for fault in faults))


def _versions_kept(directory: PlayDirectory) -> set[str]:
    """Return the versions of Kafka of the nodes that a directory has, which may still have to leave."""
    if not directory.exists:
        return set()
    nodes = read_identity(directory).nodes.values()
    return {
        node.kafka_version
        for node in nodes
        if node.implementation is Implementation.JAVA and node.kafka_version and not node.is_forgotten
    }


def _check_controllers_need_no_kafka(desired: DesiredCluster) -> None:
    for node in desired.of_role(Role.CONTROLLER):
        if node.implementation is Implementation.JAVA:
            raise PlayError(
                f"--without-brokers: controller {node.node_id} of the manifest is stock Kafka's; "
                "remove the KafkaBrokers from the manifest instead"
            )


def _find_kafkas(
    desired: DesiredCluster,
    kept: Collection[str],
    environment: Mapping[str, str],
    progress: Progress,
) -> tuple[dict[str, Kafka], tuple[str, ...]]:
    """Return every Kafka that the cluster needs, and notes. Raises KafkaUnavailableError."""
    versions = {node.kafka_version for node in desired.nodes if node.implementation is Implementation.JAVA}
    try:
        kafka = {version: find_kafka(version, environment, progress) for version in sorted(versions)}
    except KafkaUnavailableError as error:
        if any(node.implementation is Implementation.JAVA for node in desired.of_role(Role.CONTROLLER)):
            raise
        raise KafkaUnavailableError(
            f"{error}; --without-brokers runs the controllers alone, without Java"
        ) from None
    notes = []
    for version in sorted(set(kept) - versions):
        try:
            kafka[version] = find_kafka(version, environment, progress)
        except KafkaUnavailableError as error:
            notes.append(f"Nodes of Kafka {version} that are to leave can't be started: {error}")
    used = {found.version for version, found in kafka.items() if found.version != version}
    notes += [
        f"KAFKA_HOME is Kafka {version}; the manifest's version is not used" for version in sorted(used)
    ]
    return kafka, tuple(notes)


def _playable(desired: DesiredCluster, kafka: Collection[str]) -> DesiredCluster:
    """Return the nodes that can run with the Kafka that was found."""
    nodes = tuple(
        node
        for node in desired.nodes
        if node.implementation is Implementation.PYTHON or node.kafka_version in kafka
    )
    return replace(desired, nodes=nodes)


def _check_left_out(
    manifests: Manifests, playable: DesiredCluster, kept: ClusterIdentity, directory: PlayDirectory
) -> None:
    """Refuse to play without nodes that have data: leaving them out would drain and forget them."""
    left_out = {node.node_id for node in desired_cluster(manifests).nodes} - {
        node.node_id for node in playable.nodes
    }
    with_data = [
        kept.label(node_id)
        for node_id in sorted(left_out & kept.nodes.keys())
        if disks.is_formatted(directory, kept.label(node_id))
    ]
    if with_data:
        raise PlayError(
            f"{', '.join(with_data)} would be left out, and the cluster in {directory.path} has them; nothing was "
            "changed. Play with brokers, where there is Java 17 or newer"
        )


@contextmanager
def _log_to(file: Path) -> Iterator[None]:
    """Log Quorate's own lines to a file while the context is open."""
    handler = RotatingFileHandler(file, maxBytes=LOG_SIZE_BYTES_MAX, backupCount=1)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    ours = logging.getLogger("quorate_operator")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        handler.close()
