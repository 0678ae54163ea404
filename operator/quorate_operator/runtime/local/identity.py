"""What a played cluster keeps from one run to the next, and how it is settled when a manifest is played."""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from quorate_protocol.uuids import random_uuid, uuid_to_text

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
from quorate_operator.runtime.local.loopback import LOOPBACK, PORT_MAX, first_free, is_free, owner_of
from quorate_operator.runtime.local.server_properties import HTTP
from quorate_operator.runtime.local.stock_kafka import Kafka

FORMAT = 2
FORMAT_WITHOUT_FORMATION = 1
"""Written by versions whose voters could not change: all controllers of the file are the first voters."""
BROKER_PORT_FIRST = 9092
# Nobody types a controller's port, so each directory searches from a place of its own: clusters that are played
# at the same time, or by turns, do not meet. Below what Linux gives to clients, 32768 and up.
SCATTERED_PORTS = range(20_000, 32_000)
PORTS_APART = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What a node keeps: its own ports by listener name, and what is needed to run it once no manifest has it.

    `directory_id` is a controller's if it is one of the first voters; one that joins later gets another.
    """

    directory_id: str | None
    ports: Mapping[str, int]
    role: Role
    pool: str = ""
    implementation: Implementation = Implementation.JAVA
    kafka_version: str = ""
    is_forgotten: bool = False
    """It left, and only its data is there still."""
    advertised_last: Mapping[str, Address] = field(default_factory=dict)
    """By listener name, what it was last started to advertise; empty if it never was."""

    def own_address(self, listener: str) -> Address:
        """Where the node itself listens: nobody else's, for ever."""
        return Address(LOOPBACK, self.ports[listener])

    @property
    def own_addresses(self) -> Mapping[str, Address]:
        """By listener name, where the node itself listens."""
        return {name: self.own_address(name) for name in self.ports if name != HTTP}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """What a cluster keeps. `kafka` is the Kafka that was found, by version; it may change between runs.

    `dynamic_quorum` is what its nodes are configured for; a static quorum may become dynamic.
    """

    name: str
    cluster_id: str
    dynamic_quorum: bool
    nodes: Mapping[int, NodeIdentity]
    kafka: Mapping[str, Kafka]
    formation: Formation | None = None
    publications: tuple[Publication, ...] = ()
    verifications: tuple[Verification, ...] = ()

    def label(self, node_id: int) -> str:
        """The name of a node for people and directories: `controller-3000`."""
        return f"{self.nodes[node_id].role}-{node_id}"


def read_identity(directory: PlayDirectory) -> ClusterIdentity:
    """What was kept in the directory. Raises PlayError."""
    file = directory.identity_file
    try:
        return _identity_from(json.loads(file.read_text()), directory)
    except FileNotFoundError:
        raise PlayError(f"no cluster was played in {directory.path}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlayError(f"{file} can't be read: {error!r}") from error


def write_identity(directory: PlayDirectory, identity: ClusterIdentity) -> None:
    """Keep it. Raises PlayError."""
    content = {"format": FORMAT, **asdict(identity)}
    content["publications"] = [_publication_as_json(one) for one in identity.publications]
    content["verifications"] = [_verification_as_json(one) for one in identity.verifications]
    directory.write(directory.identity_file, json.dumps(content, indent=2, default=str) + "\n")


def settle_identity(
    directory: PlayDirectory,
    desired: DesiredCluster,
    kafka: Mapping[str, Kafka],
    *,
    kept: ClusterIdentity | None = None,
    running: Collection[int] = (),
) -> ClusterIdentity:
    """The identity for this manifest: what was kept, and a choice for what is new. Writes nothing.

    `kept` is what the directory holds, which is read without it; `running` are the nodes whose ports are in use
    because they run. Raises PlayError if the directory belongs to another cluster, if the manifest changes
    what can't change, or if a port is in use.
    """
    if kept is None and directory.exists:
        kept = read_identity(directory)
    if kept is not None:
        _check_unchanged(directory, kept, desired)
    cluster_id = kept.cluster_id if kept else desired.cluster_id or uuid_to_text(random_uuid())
    for node in desired.nodes:
        directory.directory_id_of(node.label, cluster_id)  # refuses a node of another cluster
    ports = _Ports(kept, running)
    scattered = _scattered_port(directory)
    nodes = {node.node_id: _node_identity(node, kept, ports, scattered) for node in desired.nodes}
    if ports.problems:
        raise PlayError("\n".join(ports.problems))
    if kept is None:
        return ClusterIdentity(
            name=desired.name,
            cluster_id=cluster_id,
            dynamic_quorum=desired.dynamic_quorum,
            nodes=nodes,
            kafka=kafka,
        )
    # Nodes that are not desired now keep what they had: they may still have to leave, or come back.
    others = {node.kafka_version for node_id, node in kept.nodes.items() if node_id not in nodes}
    kept_kafka = {version: found for version, found in kept.kafka.items() if version in others}
    return replace(kept, nodes={**kept.nodes, **nodes}, kafka={**kept_kafka, **kafka})


def quorum_facts(desired: DesiredCluster, identity: ClusterIdentity) -> QuorumFacts:
    """What every node's configuration says about the quorum."""
    controllers = desired.of_role(Role.CONTROLLER)
    listener = controllers[0].listeners[0].name
    voters = []
    for node in controllers:
        kept = identity.nodes[node.node_id]
        assert kept.directory_id is not None, "a controller's directory id is settled before it is formatted"
        own = kept.own_address(listener)
        voters.append(
            Voter(
                node_id=node.node_id,
                directory_id=kept.directory_id,
                contact=own,
                advertised=node.advertised.get(listener, own),
            )
        )
    return QuorumFacts(
        voters=tuple(voters),
        dynamic=identity.dynamic_quorum,
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
    """A port that a listener needs: `fixed` by the manifest, or searched for from `start` on.

    A `bound` one stays what it was: the voters know each other by it.
    """

    listener: str
    start: int
    fixed: int | None = None
    bound: bool = False


class _Ports:
    """Chooses ports, each once, and collects what stands in the way. Those of `running` nodes are theirs."""

    def __init__(self, kept: ClusterIdentity | None, running: Collection[int]) -> None:
        nodes = kept.nodes if kept else {}
        self._kept = {port for node in nodes.values() for port in node.ports.values()}
        self._published = {one.address.port for one in (kept.publications if kept else ())}
        self._ours = {
            port for node_id in running if node_id in nodes for port in nodes[node_id].ports.values()
        }
        self._chosen: dict[int, str] = {}
        self.problems: list[str] = []

    def choose(self, label: str, wanted: _WantedPort, kept: int | None) -> int:
        """The listener's own port: the one it had, else the manifest's, else a free one.

        Once it has one, another in the manifest is an address that leads to it.
        """
        where = f"{label}: listener {wanted.listener}"
        is_fixed = wanted.fixed is not None and kept in (None, wanted.fixed)
        port = kept or wanted.fixed
        is_exchangeable = not wanted.bound and not is_fixed
        if port is None or (is_exchangeable and not self._is_free(port)):
            port = first_free(wanted.start, self._kept | self._published | self._chosen.keys())
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


def _identity_from(content: Mapping[str, Any], directory: PlayDirectory) -> ClusterIdentity:
    if content["format"] not in (FORMAT, FORMAT_WITHOUT_FORMATION):
        raise ValueError(f"format {content['format']!r}; this version reads {FORMAT}")
    nodes = {int(node_id): _node_from(node) for node_id, node in content["nodes"].items()}
    if content["format"] == FORMAT:
        formation = content["formation"] and _formation_from(content["formation"])
    else:
        formation = replace(
            _formation_of_all(content["cluster_id"], nodes, directory),
            is_static=not content["dynamic_quorum"],
        )
    return ClusterIdentity(
        name=content["name"],
        cluster_id=content["cluster_id"],
        dynamic_quorum=content["dynamic_quorum"],
        nodes=nodes,
        kafka={
            version: Kafka(version=found["version"], java=found["java"], libs=Path(found["libs"]))
            for version, found in content["kafka"].items()
        },
        formation=formation,
        publications=tuple(_publication_from(one) for one in content.get("publications", ())),
        verifications=tuple(_verification_from(one) for one in content.get("verifications", ())),
    )


def _node_from(node: Mapping[str, Any]) -> NodeIdentity:
    of_old = Role.BROKER if node["directory_id"] is None else Role.CONTROLLER
    role = Role(node.get("role", of_old))
    return NodeIdentity(
        directory_id=node["directory_id"],
        ports=node["ports"],
        role=role,
        pool=node.get("pool", ""),
        implementation=Implementation(
            node.get(
                "implementation", Implementation.PYTHON if HTTP in node["ports"] else Implementation.JAVA
            )
        ),
        kafka_version=node.get("kafka_version", ""),
        is_forgotten=node.get("is_forgotten", False),
        advertised_last={
            name: Address(host, port) for name, (host, port) in node.get("advertised_last", {}).items()
        },
    )


def _formation_from(content: Mapping[str, Any]) -> Formation:
    return Formation(
        cluster_id=content["cluster_id"],
        initial_voters={int(node_id): one for node_id, one in content["initial_voters"].items()},
        is_formed=content["is_formed"],
        is_static=content["is_static"],
        is_rebuilt=content["is_rebuilt"],
    )


def _formation_of_all(
    cluster_id: str, nodes: Mapping[int, NodeIdentity], directory: PlayDirectory
) -> Formation:
    """The formation of a directory that does not tell: once a node has run, an empty disk must not form again."""
    voters = {node_id: node.directory_id for node_id, node in nodes.items() if node.directory_id is not None}
    has_run = any(directory.node_log(f"{Role.CONTROLLER}-{node_id}").exists() for node_id in voters)
    return Formation(cluster_id=cluster_id, initial_voters=voters, is_formed=has_run)


def _publication_as_json(one: Publication) -> dict[str, Any]:
    return {
        "host": one.address.host,
        "port": one.address.port,
        "node_id": one.node_id,
        "listener": one.listener,
        "since_ms": one.since_ms,
        "retired_at_ms": one.retired_at_ms,
    }


def _publication_from(content: Mapping[str, Any]) -> Publication:
    return Publication(
        address=Address(content["host"], content["port"]),
        node_id=content["node_id"],
        listener=content["listener"],
        since_ms=content["since_ms"],
        retired_at_ms=content["retired_at_ms"],
    )


def _verification_as_json(one: Verification) -> dict[str, Any]:
    return {"host": one.address.host, "port": one.address.port, "node_id": one.node_id, "at_ms": one.at_ms}


def _verification_from(content: Mapping[str, Any]) -> Verification:
    return Verification(
        address=Address(content["host"], content["port"]), node_id=content["node_id"], at_ms=content["at_ms"]
    )
