"""Formatting a node's directories, with the options and the result of `kafka-storage format`.

A directory is formatted when its meta.properties exists, which is therefore written last: after a crash in
between, formatting again completes it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from uuid import UUID

from quorate_protocol.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    METADATA_VERSION_OF_NEW_CLUSTERS,
    SCRAM_SINCE,
    default_levels,
    metadata_version_name,
    metadata_version_named,
    unmet_dependency,
)
from quorate_protocol.kafka.metadata_log import META_PROPERTIES, METADATA_DIRECTORY
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import UserScramCredentialRecord
from quorate_protocol.uuids import random_uuid, uuid_from_text

from quorate_controller.config.endpoints import parse_host_port
from quorate_controller.config.loading import CONTROLLER, FormatTarget
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, Endpoint, ReplicaKey, VersionRange, Voter
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.bootstrap import (
    BOOTSTRAP_CHECKPOINT,
    encode_bootstrap_checkpoint,
    encode_voters_checkpoint,
    feature_records,
)
from quorate_controller.storage.filesystem import FileSystem, write_atomically
from quorate_controller.storage.meta_properties import (
    MetaProperties,
    check_ensemble,
    read_ensemble,
    write_meta_properties,
)
from quorate_controller.storage.segment import LOG_SUFFIX
from quorate_controller.storage.snapshots import SnapshotStore, snapshot_file_name

_INITIAL_CONTROLLER = re.compile(r"([0-9]{1,10})@(.+):([^:]+)")
_INITIAL_CONTROLLER_FORM = "id@host:port:directory-id"
_NODE_ID_MAX = 2**31 - 1
SUPPORTED_KRAFT_VERSIONS = VersionRange(lowest=KRAFT_VERSION_STATIC, highest=KRAFT_VERSION_DYNAMIC)


class FormatError(Exception):
    """The options contradict each other, the configuration or the disk. The message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialController:
    """A voter of --initial-controllers."""

    node_id: int
    host: str
    port: int
    directory_id: UUID


class QuorumChoice(Enum):
    """How a formatted node learns the voters of a dynamic quorum; at most one option of each."""

    UNSPECIFIED = "unspecified"
    STANDALONE = "--standalone"
    INITIAL_CONTROLLERS = "--initial-controllers"
    NO_INITIAL_CONTROLLERS = "--no-initial-controllers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The options of `kafka-storage format`."""

    cluster_id: str
    quorum: QuorumChoice = QuorumChoice.UNSPECIFIED
    initial_controllers: tuple[InitialController, ...] = ()
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    scram_users: tuple[UserScramCredentialRecord, ...] = ()
    ignore_formatted: bool = False


class DirectoryKind(Enum):
    """The kind of a directory, in the words of kafka-storage."""

    DATA = "data directory"
    METADATA = "metadata directory"
    DYNAMIC_METADATA = "dynamic metadata directory"
    DYNAMIC_METADATA_VOTER = "dynamic metadata voter directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedDirectory:
    """One directory after formatting. `is_new` is False if it was formatted before."""

    path: Path
    kind: DirectoryKind
    directory_id: UUID | None
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatResult:
    """The result of formatting."""

    cluster_id: str
    node_id: int
    metadata_version: int
    features: Mapping[str, int]
    """The first feature levels of the cluster, without metadata.version."""
    directories: tuple[FormattedDirectory, ...]


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """`id@host:port:directory-id`, separated by commas; FormatError if it is not that."""
    controllers: dict[int, InitialController] = {}
    for entry in text.split(","):
        match = _INITIAL_CONTROLLER.fullmatch(entry.strip())
        address = parse_host_port(match[2]) if match else None
        if match is None or address is None or int(match[1]) > _NODE_ID_MAX:
            raise FormatError(
                f"--initial-controllers: {entry!r} is not of the form {_INITIAL_CONTROLLER_FORM}"
            )
        try:
            directory_id = uuid_from_text(match[3])
        except ValueError as error:
            raise FormatError(f"--initial-controllers: in {entry!r} the directory id {error}") from None
        node_id = int(match[1])
        if node_id in controllers:
            raise FormatError(f"--initial-controllers: node {node_id} appears twice")
        controllers[node_id] = InitialController(
            node_id=node_id, host=address[0], port=address[1], directory_id=directory_id
        )
    return tuple(controllers[node_id] for node_id in sorted(controllers))


def parse_features(entries: list[str]) -> dict[str, int]:
    """`name=level` each; FormatError if one is not that."""
    features: dict[str, int] = {}
    for entry in entries:
        name, equals, level = (part.strip() for part in entry.partition("="))
        if not equals or not re.fullmatch(r"[0-9]{1,5}", level):
            raise FormatError(
                f"--feature: {entry!r} is not of the form name=level, for instance {KRAFT_VERSION}=1"
            )
        if name in features:
            raise FormatError(f"--feature: {name} appears twice")
        features[name] = int(level)
    return features


def format_directories(
    file_system: FileSystem,
    target: FormatTarget,
    options: FormatOptions,
    *,
    now_ms: int,
    generate_directory_id: Callable[[], UUID] = random_uuid,
) -> FormatResult:
    """Format those directories of a node that are not formatted yet.

    Raises:
        FormatError: the options are wrong. Nothing was written.
        StorageError: a directory cannot be used.
    """
    _check_quorum_choice(target, options)
    controllers = _initial_controllers(target, options, generate_directory_id)
    metadata_version = _metadata_version(options)
    if options.scram_users and metadata_version < SCRAM_SINCE:
        raise FormatError(
            f"SCRAM is only supported in {METADATA_VERSION} {metadata_version_name(SCRAM_SINCE)} or later."
        )
    features = _feature_levels(target, options, metadata_version)
    found = read_ensemble(file_system, target.log_dirs)
    check_ensemble(found, node_id=target.node_id, cluster_id=options.cluster_id)
    if found and not options.ignore_formatted:
        raise FormatError(
            f"Log directory {next(iter(found))} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    records = (*feature_records(metadata_version, features.items()), *options.scram_users)
    bootstrap = encode_bootstrap_checkpoint(records, now_ms)
    directories = []
    for path in target.log_dirs:
        kind = _directory_kind(target, path, controllers)
        if path in found:
            directory_id = found[path].directory_id
        else:
            is_voter = kind is DirectoryKind.DYNAMIC_METADATA_VOTER
            directory_id = controllers[target.node_id].directory_id if is_voter else generate_directory_id()
            _prepare_directory(file_system, path)
            write_atomically(file_system, path / BOOTSTRAP_CHECKPOINT, bootstrap)
            if is_voter or kind is DirectoryKind.DYNAMIC_METADATA:
                _write_voters(file_system, path, target.controller_listener_name, controllers, now_ms)
            properties = MetaProperties(
                cluster_id=options.cluster_id, node_id=target.node_id, directory_id=directory_id
            )
            write_meta_properties(file_system, path, properties)
        directories.append(
            FormattedDirectory(path=path, kind=kind, directory_id=directory_id, is_new=path not in found)
        )
    return FormatResult(
        cluster_id=options.cluster_id,
        node_id=target.node_id,
        metadata_version=metadata_version,
        features=features,
        directories=tuple(directories),
    )


def _check_quorum_choice(target: FormatTarget, options: FormatOptions) -> None:
    choice = options.quorum
    if not options.cluster_id.strip():
        raise FormatError("--cluster-id: must not be empty")
    if choice is QuorumChoice.STANDALONE and CONTROLLER not in target.process_roles:
        raise FormatError("You can only use --standalone on a controller.")
    if target.has_static_voters and choice in (QuorumChoice.STANDALONE, QuorumChoice.INITIAL_CONTROLLERS):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and "
            "specify controller.quorum.bootstrap.servers instead."
        )
    if (
        choice is QuorumChoice.UNSPECIFIED
        and CONTROLLER in target.process_roles
        and not target.has_static_voters
    ):
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the "
            "following: --standalone, --initial-controllers, or --no-initial-controllers."
        )


def _initial_controllers(
    target: FormatTarget, options: FormatOptions, generate_directory_id: Callable[[], UUID]
) -> dict[int, InitialController]:
    if options.quorum is not QuorumChoice.STANDALONE:
        return {controller.node_id: controller for controller in options.initial_controllers}
    address = target.controller_address
    assert address is not None, "parse_format_target requires one of a controller"
    standalone = InitialController(
        node_id=target.node_id,
        host=address.host or "localhost",
        port=address.port,
        directory_id=generate_directory_id(),
    )
    return {target.node_id: standalone}


def _metadata_version(options: FormatOptions) -> int:
    level = options.features.get(METADATA_VERSION)
    if level is not None and options.release_version is not None:
        raise FormatError(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    if level is not None:
        if not METADATA_VERSION_MIN <= level <= METADATA_VERSION_MAX:
            raise FormatError(
                f"No {METADATA_VERSION} with feature level {level}. "
                f"Valid feature levels are from {METADATA_VERSION_MIN} to {METADATA_VERSION_MAX}."
            )
    elif options.release_version is not None:
        try:
            level = metadata_version_named(options.release_version)
        except ValueError as error:
            raise FormatError(str(error)) from None
    else:
        level = METADATA_VERSION_OF_NEW_CLUSTERS
    if level > METADATA_VERSION_MAX:
        raise FormatError(
            f"{METADATA_VERSION} {metadata_version_name(level)} is not yet stable: no release has it for production. "
            f"The highest is {metadata_version_name(METADATA_VERSION_MAX)}."
        )
    return level


def _feature_levels(target: FormatTarget, options: FormatOptions, metadata_version: int) -> dict[str, int]:
    """Levels besides metadata.version; kraft.version, too, is only checked: it is no metadata record."""
    unknown = options.features.keys() - FEATURES.keys() - {METADATA_VERSION}
    if unknown:
        raise FormatError(
            f"Unsupported feature: {min(unknown)}. Supported features are: {', '.join(sorted(FEATURES))}"
        )
    _check_kraft_version(target, options)
    levels = default_levels(metadata_version) | {
        name: level
        for name, level in options.features.items()
        if name not in (METADATA_VERSION, KRAFT_VERSION)
    }
    for name, level in levels.items():
        feature = FEATURES[name]
        if level > feature.level_max:
            raise FormatError(
                f"No feature:{name} with feature level {level}. Levels are from 0 to {feature.level_max}."
            )
        problem = unmet_dependency(name, level, levels | {METADATA_VERSION: metadata_version})
        if problem is not None:
            raise FormatError(problem)
    return {name: level for name, level in sorted(levels.items()) if level > 0}


def _check_kraft_version(target: FormatTarget, options: FormatOptions) -> None:
    level = options.features.get(KRAFT_VERSION)
    if level is None:
        return
    is_dynamic = not target.has_static_voters
    if level not in SUPPORTED_KRAFT_VERSIONS:
        raise FormatError(f"No feature:{KRAFT_VERSION} with feature level {level}.")
    if is_dynamic and level == KRAFT_VERSION_STATIC:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to 0 if controller.quorum.voters is empty and one of the flags "
            "--standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic "
            f"controllers support, try removing the --feature flag for {KRAFT_VERSION}."
        )
    if not is_dynamic and level == KRAFT_VERSION_DYNAMIC:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to 1 unless controller.quorum.voters is empty and one of the flags "
            "--standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic "
            "controllers support, try using one of --standalone, --initial-controllers, or "
            "--no-initial-controllers and removing controller.quorum.voters."
        )


def _directory_kind(
    target: FormatTarget, path: Path, controllers: Mapping[int, InitialController]
) -> DirectoryKind:
    if path != target.metadata_log_dir:
        return DirectoryKind.DATA
    if not controllers:
        return DirectoryKind.METADATA
    if target.node_id in controllers:
        return DirectoryKind.DYNAMIC_METADATA_VOTER
    return DirectoryKind.DYNAMIC_METADATA


def _prepare_directory(file_system: FileSystem, path: Path) -> None:
    """Create it; refuse to format over a log without meta.properties, and remove left-overs of a crash."""
    file_system.make_directory(path)
    partition = path / METADATA_DIRECTORY
    if file_system.exists(partition) and any(
        name.endswith(LOG_SUFFIX) for name in file_system.list_directory(partition)
    ):
        raise FormatError(
            f"{partition} holds a metadata log although {path} is not formatted. "
            f"Restore {META_PROPERTIES} in it, or move the directory away."
        )
    # Bootstrap records in it, as Kafka 4.4 writes them, would take precedence over the new ones.
    left_over = partition / snapshot_file_name(BOOTSTRAP_SNAPSHOT_ID)
    if file_system.exists(left_over):
        file_system.remove(left_over)


def _write_voters(
    file_system: FileSystem,
    log_dir: Path,
    listener: str,
    controllers: Mapping[int, InitialController],
    now_ms: int,
) -> None:
    voters = VoterSet.of(
        Voter(
            key=ReplicaKey(node_id=controller.node_id, directory_id=controller.directory_id),
            endpoints=(Endpoint(listener=listener, host=controller.host, port=controller.port),),
            kraft_versions=SUPPORTED_KRAFT_VERSIONS,
        )
        for controller in controllers.values()
    )
    directory = log_dir / METADATA_DIRECTORY
    file_system.make_directory(directory)
    store = SnapshotStore.open(file_system, directory)
    writer = store.create(BOOTSTRAP_SNAPSHOT_ID)
    writer.append(encode_voters_checkpoint(voters.to_record(), KRAFT_VERSION_DYNAMIC, now_ms))
    writer.freeze()
