"""What a played cluster keeps from one run to the next, and how it is settled when one begins."""

import base64
import json
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Implementation, Role
from quorate_operator.runtime.directory import PlayDirectory
from quorate_operator.runtime.errors import PlayError
from quorate_operator.runtime.kafka import Kafka
from quorate_operator.runtime.ports import PORT_MAX, first_free, is_free, owner_of
from quorate_operator.runtime.properties import HTTP, QuorumFacts, Voter

FORMAT = 1
BROKER_PORT_FIRST = 9092
# Nobody types a controller's port, so each directory searches from a place of its own: clusters that are played
# at the same time, or by turns, do not meet. Below what Linux gives to clients, 32768 and up.
SCATTERED_PORTS = range(20_000, 32_000)
PORTS_APART = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What a node keeps: a controller its directory id, and each node its ports by listener name."""

    directory_id: str | None
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """What a cluster keeps. `kafka` is the Kafka that was found, by version; it may change between runs."""

    name: str
    cluster_id: str
    dynamic_quorum: bool
    nodes: Mapping[int, NodeIdentity]
    kafka: Mapping[str, Kafka]


def random_kafka_uuid() -> str:
    """A UUID as Kafka writes it: base64 for URLs, unpadded, and never like an option of a command."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_identity(directory: PlayDirectory) -> ClusterIdentity:
    """What was kept in the directory. Raises PlayError."""
    file = directory.identity_file
    try:
        return _identity_from(json.loads(file.read_text()))
    except FileNotFoundError:
        raise PlayError(f"no cluster was played in {directory.path}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlayError(f"{file} can't be read: {error!r}") from error


def write_identity(directory: PlayDirectory, identity: ClusterIdentity) -> None:
    """Keep it. Raises PlayError."""
    content = {"format": FORMAT, **asdict(identity)}
    directory.write(directory.identity_file, json.dumps(content, indent=2, default=str) + "\n")


def settle_identity(
    directory: PlayDirectory, desired: DesiredCluster, kafka: Mapping[str, Kafka]
) -> ClusterIdentity:
    """The identity for this run: what was kept, and a choice for what is new. Writes nothing.

    Raises PlayError if the directory belongs to another cluster, if the manifest changes what
    can't change, or if a port is in use.
    """
    kept = read_identity(directory) if directory.exists else None
    if kept is not None:
        _check_unchanged(directory, kept, desired)
    cluster_id = kept.cluster_id if kept else desired.cluster_id or random_kafka_uuid()
    for node in desired.nodes:
        directory.directory_id_of(node.label, cluster_id)  # refuses a node of another cluster
    ports = _Ports(kept)
    scattered = _scattered_port(directory)
    nodes = {node.node_id: _node_identity(node, kept, ports, scattered) for node in desired.nodes}
    if ports.problems:
        raise PlayError("\n".join(ports.problems))
    if kept is not None:
        nodes = {**kept.nodes, **nodes}  # brokers that are not desired now keep what they had
    return ClusterIdentity(
        name=desired.name,
        cluster_id=cluster_id,
        dynamic_quorum=desired.dynamic_quorum,
        nodes=nodes,
        kafka=kafka,
    )


def quorum_facts(desired: DesiredCluster, identity: ClusterIdentity) -> QuorumFacts:
    """What every node's configuration says about the quorum."""
    controllers = desired.of_role(Role.CONTROLLER)
    listener = controllers[0].listeners[0].name
    voters = []
    for node in controllers:
        kept = identity.nodes[node.node_id]
        assert kept.directory_id is not None, "a controller's directory id is settled before it is formatted"
        voters.append(Voter(node_id=node.node_id, directory_id=kept.directory_id, port=kept.ports[listener]))
    return QuorumFacts(
        voters=tuple(voters),
        dynamic=desired.dynamic_quorum,
        listener_name=listener,
        broker_count=len(desired.of_role(Role.BROKER)),
    )


def _check_unchanged(directory: PlayDirectory, kept: ClusterIdentity, desired: DesiredCluster) -> None:
    where = f"{directory.path} holds the cluster {kept.name!r} ({kept.cluster_id})"
    elsewhere = "nothing was changed; play in another --dir"
    if kept.name != desired.name:
        raise PlayError(f"{where}, not {desired.name!r}; {elsewhere}")
    if desired.cluster_id not in (None, kept.cluster_id):
        raise PlayError(f"{where}, the manifest says spec.clusterId: {desired.cluster_id}; {elsewhere}")
    if kept.dynamic_quorum != desired.dynamic_quorum:
        had = "dynamic" if kept.dynamic_quorum else "static"
        raise PlayError(f"{where}, created with spec.quorum: {had}, which can't change here; {elsewhere}")
    controllers = [node.node_id for node in desired.of_role(Role.CONTROLLER)]
    had_controllers = [node_id for node_id, node in kept.nodes.items() if node.directory_id is not None]
    if sorted(controllers) != sorted(had_controllers):
        raise PlayError(
            f"{where}, created with the controllers {_ids(had_controllers)}; the manifest asks for "
            f"{_ids(controllers)}, and the voters of a played quorum can't change; {elsewhere}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedPort:
    """A port that a listener needs: `fixed` by the manifest, or searched for from `start` on.

    A `bound` one stays what it was: the voters know each other by it.
    """

    listener: str
    start: int
    fixed: int | None = None
    bound: bool = False


class _Ports:
    """Chooses ports, each once, and collects what stands in the way."""

    def __init__(self, kept: ClusterIdentity | None) -> None:
        nodes = kept.nodes.values() if kept else ()
        self._kept = {port for node in nodes for port in node.ports.values()}
        self._chosen: dict[int, str] = {}
        self.problems: list[str] = []

    def choose(self, label: str, wanted: _WantedPort, kept: int | None) -> int:
        """The listener's port: the manifest's, else the one it had, else a free one."""
        where = f"{label}: listener {wanted.listener}"
        if wanted.bound and kept is not None and wanted.fixed not in (None, kept):
            self.problems.append(
                f"{where} has port {kept}, by which the voters know it; it can't become {wanted.fixed} here"
            )
            return kept
        port = wanted.fixed or kept
        if port is None or (port == kept and not wanted.bound and not wanted.fixed and not is_free(port)):
            port = first_free(wanted.start, self._kept | self._chosen.keys())
        if port is None or port > PORT_MAX:
            self.problems.append(f"{where}: there is no free port up to {PORT_MAX}")
            return 0
        if port in self._chosen:
            self.problems.append(f"{where}: port {port} is {self._chosen[port]}'s already")
        elif not is_free(port):
            remedy = "change the port in the manifest" if wanted.fixed else "play in another --dir"
            self.problems.append(
                f"{where}: port {port} is in use by {owner_of(port)}; stop that, or {remedy}"
            )
        self._chosen[port] = label
        return port


def _node_identity(
    node: DesiredNode, kept: ClusterIdentity | None, ports: _Ports, scattered: int
) -> NodeIdentity:
    before = kept.nodes.get(node.node_id) if kept else None
    chosen = {
        wanted.listener: ports.choose(
            node.label, wanted, before.ports.get(wanted.listener) if before else None
        )
        for wanted in _wanted_ports(node, scattered)
    }
    is_controller = node.role is Role.CONTROLLER
    directory_id = (before.directory_id if before else random_kafka_uuid()) if is_controller else None
    return NodeIdentity(directory_id=directory_id, ports=chosen)


def _wanted_ports(node: DesiredNode, scattered: int) -> Iterator[_WantedPort]:
    is_controller = node.role is Role.CONTROLLER
    for listener in node.listeners:
        yield _WantedPort(
            listener=listener.name,
            start=(scattered if is_controller else BROKER_PORT_FIRST) + node.place,
            fixed=None if listener.port is None else listener.port + node.place,
            bound=is_controller,
        )
    if is_controller and node.implementation is Implementation.PYTHON:
        yield _WantedPort(listener=HTTP, start=scattered + PORTS_APART // 2 + node.place)


def _scattered_port(directory: PlayDirectory) -> int:
    places = len(SCATTERED_PORTS) // PORTS_APART
    return SCATTERED_PORTS[zlib.crc32(bytes(directory.path)) % places * PORTS_APART]


def _identity_from(content: Mapping[str, Any]) -> ClusterIdentity:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}; this version reads {FORMAT}")
    return ClusterIdentity(
        name=content["name"],
        cluster_id=content["cluster_id"],
        dynamic_quorum=content["dynamic_quorum"],
        nodes={
            int(node_id): NodeIdentity(directory_id=node["directory_id"], ports=node["ports"])
            for node_id, node in content["nodes"].items()
        },
        kafka={
            version: Kafka(version=found["version"], java=found["java"], libs=Path(found["libs"]))
            for version, found in content["kafka"].items()
        },
    )


def _ids(node_ids: list[int]) -> str:
    return ", ".join(str(node_id) for node_id in sorted(node_ids))
