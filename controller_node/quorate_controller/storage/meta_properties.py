"""`meta.properties`: the cluster, node and directory id of a log directory (version 1)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

from quorate_protocol.kafka.metadata_log import META_PROPERTIES
from quorate_protocol.plain_data import dataclass
from quorate_protocol.properties import format_properties, parse_properties
from quorate_protocol.uuids import is_reserved, uuid_from_text, uuid_to_text

from quorate_controller.storage.errors import CorruptFileError, StorageError
from quorate_controller.storage.filesystem import FileSystem, write_atomically

_FILE_BYTES_MAX = 1024 * 1024
_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """`directory_id` is None in directories formatted before Kafka 3.7."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None = None


def read_meta_properties(file_system: FileSystem, directory: Path) -> MetaProperties | None:
    """The parsed file; None if the directory is not formatted: it, or the file in it, does not exist."""
    path = directory / META_PROPERTIES
    if not file_system.exists(path):
        return None
    try:
        return _parse(parse_properties(file_system.read_file(path, _FILE_BYTES_MAX).decode("latin-1")))
    except ValueError as error:
        raise CorruptFileError(
            path, str(error), advice="Restore it with version=1, cluster.id, node.id and directory.id"
        ) from error


def write_meta_properties(file_system: FileSystem, directory: Path, properties: MetaProperties) -> None:
    """Write it durably."""
    content = {"version": _VERSION, "cluster.id": properties.cluster_id, "node.id": str(properties.node_id)}
    if properties.directory_id is not None:
        content["directory.id"] = uuid_to_text(properties.directory_id)
    write_atomically(file_system, directory / META_PROPERTIES, format_properties(content).encode("latin-1"))


def check_ensemble(
    found: Mapping[Path, MetaProperties], *, node_id: int, cluster_id: str | None = None
) -> str | None:
    """Check that the directories of a node belong together; return their cluster id, None without directories.

    Raises:
        StorageError: a directory does not fit the others or the configuration (MetaPropertiesEnsemble.verify).
    """
    owners: dict[UUID, Path] = {}
    for directory, properties in found.items():
        path = directory / META_PROPERTIES
        if cluster_id is None:
            cluster_id = properties.cluster_id
        if properties.cluster_id != cluster_id:
            raise StorageError(
                path,
                f"belongs to cluster {properties.cluster_id}, not {cluster_id}",
                advice="Use the directory of this cluster, or move this one away and format an empty one",
            )
        if properties.node_id != node_id:
            raise StorageError(
                path,
                f"belongs to node {properties.node_id}, but node.id is {node_id}",
                advice="Set node.id to the directory's, or use a directory of this node",
            )
        if properties.directory_id is None:
            continue
        if is_reserved(properties.directory_id):
            raise CorruptFileError(path, f"directory.id {uuid_to_text(properties.directory_id)} is reserved")
        if properties.directory_id in owners:
            raise StorageError(
                path,
                f"has the directory.id of {owners[properties.directory_id]}",
                advice="A copied directory can't be used beside its original: format an empty one",
            )
        owners[properties.directory_id] = directory
    return cluster_id


def read_ensemble(file_system: FileSystem, directories: Iterable[Path]) -> dict[Path, MetaProperties]:
    """The formatted ones of the directories."""
    found = {directory: read_meta_properties(file_system, directory) for directory in directories}
    return {directory: properties for directory, properties in found.items() if properties is not None}


def _parse(properties: Mapping[str, str]) -> MetaProperties:
    version = properties.get("version", "0")
    if version != _VERSION:
        raise ValueError(f"has version {version}; a KRaft node has version 1")
    missing = [key for key in ("cluster.id", "node.id") if key not in properties]
    if missing:
        raise ValueError(f"lacks {' and '.join(missing)}")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        cluster_id=properties["cluster.id"],
        node_id=int(properties["node.id"]),
        directory_id=None if directory_id is None else uuid_from_text(directory_id),
    )
