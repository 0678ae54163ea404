"""The identity of a controller, from its properties file and its meta.properties, for add-controller."""

import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from quorate_admin.types.cluster import RaftVoterEndpoint
from quorate_protocol.kafka.metadata_log import META_PROPERTIES
from quorate_protocol.plain_data import dataclass
from quorate_protocol.uuids import uuid_from_text
from quorate_protocol.wildcard_hosts import ALL_INTERFACES

from quorate.console import INT32_MAX, CommandError, parse_id, read_properties

NODE_ID = "node.id"
PROCESS_ROLES = "process.roles"
LISTENERS = "listeners"
ADVERTISED_LISTENERS = "advertised.listeners"
CONTROLLER_LISTENER_NAMES = "controller.listener.names"
METADATA_LOG_DIR = "metadata.log.dir"
LOG_DIRS = "log.dirs"
DIRECTORY_ID = "directory.id"

_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._%]*)):([0-9]{1,5})")
_LISTENER_FORM = "NAME://host:port, where the host may be empty, and an IPv6 address is in brackets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerIdentity:
    """A controller to add to the voters."""

    node_id: int
    directory_id: uuid.UUID
    endpoints: tuple[RaftVoterEndpoint, ...]


def read_controller_identity(properties: Mapping[str, str]) -> ControllerIdentity:
    """The identity of the controller with these properties. Reads its meta.properties. Raises CommandError."""
    node_id = _node_id(properties)
    directory = _metadata_directory(properties)
    return ControllerIdentity(
        node_id=node_id, directory_id=_directory_id(directory), endpoints=tuple(_endpoints(properties))
    )


def _node_id(properties: Mapping[str, str]) -> int:
    text = _required(properties, NODE_ID)
    try:
        node_id = parse_id(text)
    except ValueError:
        raise CommandError(f"{NODE_ID}={text}: it must be a number from 0 to {INT32_MAX}") from None
    roles = properties.get(PROCESS_ROLES, "")
    if "controller" not in _entries(roles):
        raise CommandError(
            f"{PROCESS_ROLES}={roles}: it must contain controller: is this a controller's file?"
        )
    return node_id


def _metadata_directory(properties: Mapping[str, str]) -> Path:
    """The directory of the metadata log: metadata.log.dir, or the first of log.dirs."""
    directories = [properties[METADATA_LOG_DIR]] if METADATA_LOG_DIR in properties else []
    directories += _entries(properties.get(LOG_DIRS, ""))
    if not directories:
        raise CommandError(f"neither {METADATA_LOG_DIR} nor {LOG_DIRS} is set: is this a controller's file?")
    return Path(directories[0])


def _directory_id(directory: Path) -> uuid.UUID:
    path = directory / META_PROPERTIES
    text = read_properties(path, META_PROPERTIES).get(DIRECTORY_ID)
    if text is None:
        raise CommandError(f"{path}: it has no {DIRECTORY_ID}; the controller writes one when it starts")
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise CommandError(f"{path}: {DIRECTORY_ID}={text}: {error}") from None


def _endpoints(properties: Mapping[str, str]) -> Iterator[RaftVoterEndpoint]:
    """The controller's listeners in the order of controller.listener.names, as they are advertised."""
    listeners = dict(_listeners(properties, LISTENERS)) | dict(_listeners(properties, ADVERTISED_LISTENERS))
    for name in dict.fromkeys(
        entry.upper() for entry in _entries(_required(properties, CONTROLLER_LISTENER_NAMES))
    ):
        if name not in listeners:
            raise CommandError(
                f"{CONTROLLER_LISTENER_NAMES}: {name} is neither in {LISTENERS} nor in {ADVERTISED_LISTENERS}"
            )
        yield listeners[name]


def _listeners(properties: Mapping[str, str], key: str) -> Iterator[tuple[str, RaftVoterEndpoint]]:
    for entry in _entries(properties.get(key, "")):
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise CommandError(f"{key}: {entry!r} is not of the form {_LISTENER_FORM}")
        name, host = match[1].upper(), match[2] or match[3]
        if host in ALL_INTERFACES:
            # As the controller on this machine advertises it. Kafka's tool sends localhost or 0.0.0.0, which lead the
            # active controller to its own machine.
            host = socket.getfqdn()
        yield name, RaftVoterEndpoint(name=name, host=host, port=int(match[4]))


def _required(properties: Mapping[str, str], key: str) -> str:
    if key not in properties:
        raise CommandError(f"{key} is missing: is this a controller's file?")
    return properties[key].strip()


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]
