"""What a played cluster stores between runs, and how it is settled when a manifest is played."""

import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from quorate_protocol.uuids import random_uuid, uuid_to_text

from quorate_operator.models.started_listeners import StartedNode, started_of
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    Implementation,
    Publication,
    Role,
    Verification,
)
from quorate_operator.properties import QuorumFacts, Voter
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.loopback import (
    LOOPBACK,
    PORT_MAX,
    first_free,
    is_free,
    is_loopback,
    owner_of,
)
from quorate_operator.runtime.local.server_properties import HTTP

FORMAT = 1
BROKER_PORT_FIRST = 9092
# Each directory starts its search for controllers' ports at another port, so that clusters that are played at
# the same time, or in turn, do not collide. Below Linux's ephemeral ports, which begin at 32768.
SCATTERED_PORTS = range(20_000, 32_000)
PORTS_APART = 100
_VERSION = re.compile(r"([0-9]+(\.[0-9]+)*(-[0-9A-Za-z]+)?)?")
"""A path is made of a version, so that it must not have other characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What is stored of a node: its own ports by listener name, and what it takes to run it without a manifest.

    `directory_id` is that of a first voter; a controller that joins later gets another.
    """

    directory_id: str | None
    ports: Mapping[str, int]
    role: Role
    pool: str = ""
    implementation: Implementation = Implementation.JAVA
    kafka_version: str = ""
    is_forgotten: bool = False
    """The node has left, and only its data is kept."""
    advertised_last: Mapping[str, Address] = field(default_factory=dict)
    """The addresses that it was last started with, by listener name; empty if it was never started."""
    listeners_last: str = ""
    """The record of the listeners that it was last started with, see `started_listeners.started_of`."""
    volumes: tuple[int, ...] = (METADATA_VOLUME,)
    """The volumes that its next start uses, of those that it has."""

    def own_address(self, listener: str) -> Address:
        """Return where the node itself listens, which never changes."""
        return Address(LOOPBACK, self.ports[listener])

    @property
    def own_addresses(self) -> Mapping[str, Address]:
        """Where the node itself listens, by listener name."""
        return {name: self.own_address(name) for name in self.ports if name != HTTP}

    @property
    def first_listener(self) -> str:
        """The listener by which other nodes connect to it, as it was last started."""
        started = started_of(self.listeners_last)
        return next(iter(self.own_addresses)) if started is None else started.own[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """What is stored of a cluster. `kafka_versions` are the versions of which a Kafka was found; where it is, is not
    stored, so that a directory can't choose what is run.

    `dynamic_quorum` is what the nodes are configured for; a static quorum may become dynamic.
    """

    name: str
    cluster_id: str
    dynamic_quorum: bool
    nodes: Mapping[int, NodeIdentity]
    kafka_versions: frozenset[str] = frozenset()
    formation: Formation | None = None
    publications: tuple[Publication, ...] = ()
    verifications: tuple[Verification, ...] = ()

    def label(self, node_id: int) -> str:
        return self.nodes[node_id].role.label(node_id)


def read_identity(directory: PlayDirectory) -> ClusterIdentity:
    """Read the stored identity. Raises PlayError."""
    file = directory.identity_file
    directory.check()
    try:
        return _identity_from(json.loads(file.read_text()))
    except FileNotFoundError:
        raise PlayError(f"no cluster was played in {directory.path}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise PlayError(f"{file} can't be read: {where}: {fault['msg']}") from error
    except RecursionError as error:
        raise PlayError(f"{file} can't be read: its lists and objects are nested too deeply") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlayError(f"{file} can't be read: {error!r}") from error


def write_identity(directory: PlayDirectory, identity: ClusterIdentity) -> None:
    """Store the identity. Raises PlayError."""
    content = {"format": FORMAT, **asdict(identity), "kafka_versions": sorted(identity.kafka_versions)}
    directory.write(directory.identity_file, json.dumps(content, indent=2, default=str) + "\n")


def settle_identity(
    directory: PlayDirectory,
    desired: DesiredCluster,
    kafka_versions: Collection[str] = (),
    *,
    kept: ClusterIdentity | None = None,
    running: Collection[int] = (),
) -> ClusterIdentity:
    """Return the identity for this manifest: what is stored, completed by new choices. Writes nothing.

    `kept` is the stored identity, which is read if it is missing; `running` are nodes whose ports are in use
    because they run. Raises PlayError if the directory belongs to another cluster, if the manifest changes what
    can't change, or if a port is in use.
    """
    if kept is None and directory.exists:
        kept = read_identity(directory)
    if kept is not None:
        _check_unchanged(directory, kept, desired)
    cluster_id = kept.cluster_id if kept else desired.cluster_id or uuid_to_text(random_uuid())
    for node in desired.nodes:
        directory.directory_id_of(node.label, cluster_id)  # refuses a node of another cluster
    scattered = _scattered_port(directory)
    wanted = [wanted_port for node in desired.nodes for wanted_port in _wanted_ports(node, scattered)]
    ports = _Ports(
        kept, running, fixed=frozenset(listener.fixed for listener in wanted if listener.fixed is not None)
    )
    nodes = {node.node_id: _node_identity(node, kept, ports, scattered) for node in desired.nodes}
    if ports.problems:
        raise PlayError("\n".join(ports.problems))
    if kept is None:
        return ClusterIdentity(
            name=desired.name,
            cluster_id=cluster_id,
            dynamic_quorum=desired.dynamic_quorum,
            nodes=nodes,
            kafka_versions=frozenset(kafka_versions),
        )
    # Nodes that are not desired now keep what they had: they may still have to leave, or come back.
    return replace(kept, nodes={**kept.nodes, **nodes}, kafka_versions=frozenset(kafka_versions))


def started_nodes(identity: ClusterIdentity, running: Collection[int]) -> Iterator[StartedNode]:
    """Yield the nodes with the listeners that they were last started with."""
    for node_id, kept in identity.nodes.items():
        listeners = started_of(kept.listeners_last)
        if listeners is not None and not kept.is_forgotten:
            yield StartedNode(pool=kept.pool, listeners=listeners, is_running=node_id in running)


def quorum_facts(
    desired: DesiredCluster, identity: ClusterIdentity, node: DesiredNode | None = None
) -> QuorumFacts:
    """Return the quorum for configurations: for that of a node, as it connects to the controllers."""
    controllers = desired.of_role(Role.CONTROLLER)
    name = None if node is None else node.controllers_listener
    listener = next(
        (own for own in controllers[0].listeners if own.name == name), controllers[0].listeners[0]
    )
    voters = []
    for controller in controllers:
        kept = identity.nodes[controller.node_id]
        assert kept.directory_id is not None, "a controller's directory id is settled before it is formatted"
        own = kept.own_address(listener.name)
        voters.append(
            Voter(
                node_id=controller.node_id,
                directory_id=kept.directory_id,
                contact=own,
                advertised=controller.advertised.get(listener.name, own),
            )
        )
    return QuorumFacts(
        voters=tuple(voters),
        dynamic=identity.dynamic_quorum,
        listener=listener,
        broker_count=len(desired.of_role(Role.BROKER)),
    )


def _check_unchanged(directory: PlayDirectory, kept: ClusterIdentity, desired: DesiredCluster) -> None:
    where = f"{directory.path} holds the cluster {kept.name!r} ({kept.cluster_id})"
    elsewhere = "nothing was changed; play in another --dir"
    if kept.name != desired.name:
        raise PlayError(f"{where}, not {desired.name!r}; {elsewhere}")
    if desired.cluster_id not in (None, kept.cluster_id):
        raise PlayError(f"{where}, the manifest says spec.clusterId: {desired.cluster_id}; {elsewhere}")
    if kept.dynamic_quorum and not desired.dynamic_quorum:
        raise PlayError(
            f"{where}, created with spec.quorum: dynamic, which can't become static again; {elsewhere}"
        )
    for node in desired.nodes:
        had = kept.nodes.get(node.node_id)
        if had is not None and had.role is not node.role:
            raise PlayError(
                f"{where}, in which {node.node_id} is a {had.role}; the manifest makes it a {node.role}: "
                f"node ids are not passed on while their data is there; {elsewhere}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedPort:
    """A port that a listener needs: `fixed` by the manifest, or the first free one from `start` on.

    A `bound` one never changes: the voters know each other by it.
    """

    listener: str
    start: int
    fixed: int | None = None
    bound: bool = False


class _Ports:
    """Chooses ports, each once, and collects problems. `running` nodes may keep theirs."""

    def __init__(self, kept: ClusterIdentity | None, running: Collection[int], fixed: frozenset[int]) -> None:
        """Ports that are `fixed` by the manifest are not chosen for other listeners."""
        self._fixed = fixed
        nodes = kept.nodes if kept else {}
        self._kept = {port for node in nodes.values() for port in node.ports.values()}
        self._published = {publication.address.port for publication in (kept.publications if kept else ())}
        self._ours = {
            port for node_id in running if node_id in nodes for port in nodes[node_id].ports.values()
        }
        self._chosen: dict[int, str] = {}
        self.problems: list[str] = []

    def choose(self, label: str, wanted: _WantedPort, kept: int | None) -> int:
        """Return the listener's own port: the stored one, else the manifest's, else a free one.

        If a port is stored, another one in the manifest is an address that leads to it.
        """
        where = f"{label}: listener {wanted.listener}"
        is_fixed = wanted.fixed is not None and kept in (None, wanted.fixed)
        port = kept or wanted.fixed
        is_exchangeable = not wanted.bound and not is_fixed
        if port is None or (is_exchangeable and not self._is_free(port)):
            port = first_free(wanted.start, self._kept | self._published | self._fixed | self._chosen.keys())
        if port is None or port > PORT_MAX:
            self.problems.append(f"{where}: there is no free port up to {PORT_MAX}")
            return 0
        if port in self._chosen:
            self.problems.append(f"{where}: port {port} is {self._chosen[port]}'s already")
        elif not self._is_free(port):
            remedy = (
                "change the port in the manifest" if is_fixed and kept is None else "play in another --dir"
            )
            self.problems.append(
                f"{where}: port {port} is in use by {owner_of(port)}; stop that, or {remedy}"
            )
        self._chosen[port] = label
        return port

    def _is_free(self, port: int) -> bool:
        return port in self._ours or is_free(port)


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
    return NodeIdentity(
        directory_id=(before.directory_id if before else uuid_to_text(random_uuid()))
        if is_controller
        else None,
        ports=chosen,
        role=node.role,
        pool=node.pool,
        implementation=node.implementation,
        kafka_version=node.kafka_version,
        advertised_last=before.advertised_last if before else {},
        listeners_last=before.listeners_last if before else "",
        volumes=before.volumes if before else (METADATA_VOLUME, *(node.volumes.keys() - {METADATA_VOLUME})),
    )


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
    fields = {name: value for name, value in content.items() if name != "format"}
    identity = TypeAdapter(ClusterIdentity).validate_python(fields)
    _check(identity)
    return identity


def _check(identity: ClusterIdentity) -> None:
    """Refuse what would lead out of the directory or off this machine. Raises ValueError."""
    for version in (*identity.kafka_versions, *(node.kafka_version for node in identity.nodes.values())):
        if _VERSION.fullmatch(version) is None:
            raise ValueError(f"kafka_version {version!r}: not of the form 4.4.0")
    for publication in identity.publications:
        if not is_loopback(publication.address):
            raise ValueError(f"publications: {publication.address}: only addresses in 127.0.0.0/8 are opened")
    for node_id, node in identity.nodes.items():
        for listener, port in node.ports.items():
            if not 0 < port <= PORT_MAX:
                raise ValueError(f"nodes.{node_id}.ports.{listener}: {port}: from 1 to {PORT_MAX}")
