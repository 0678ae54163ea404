"""Listeners, advertised listeners, voters and bootstrap servers of a node configuration."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from quorate_protocol.plain_data import dataclass
from quorate_protocol.wildcard_hosts import ALL_INTERFACES, ANY_IPV4

_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._%]*)):([0-9]{1,5})")
_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._%]+)):([0-9]{1,5})")
_NODE_ID = re.compile(r"[0-9]{1,10}")
_NODE_ID_MAX = 2**31 - 1
PORT_MAX = 65535
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER_FORM = "NAME://host:port, the host may be empty, an IPv6 address stands in brackets"

LISTENERS = "listeners"
ADVERTISED_LISTENERS = "advertised.listeners"
CONTROLLER_LISTENER_NAMES = "controller.listener.names"
PROTOCOL_MAP = "listener.security.protocol.map"
VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"

Problems = Callable[[str], None]
"""Reports a problem by its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddress:
    """An entry of listeners or advertised.listeners. An empty host or 0.0.0.0 binds all interfaces."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticVoter:
    """An entry of controller.quorum.voters: id@host:port."""

    node_id: int
    host: str
    port: int


def parse_host_port(text: str) -> tuple[str, int] | None:
    """`host:port` or `[IPv6]:port`; None if it is neither, or the port is out of range."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match[3]) <= PORT_MAX:
        return None
    return match[1] or match[2], int(match[3])


def parse_listeners(key: str, entries: Iterable[str], problem: Problems) -> tuple[ListenerAddress, ...]:
    """Entries of `listeners` or `advertised.listeners`; names are upper case, as in Kafka."""
    listeners: list[ListenerAddress] = []
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match[4]) > PORT_MAX:
            problem(f"{key}: {entry!r} is not of the form {LISTENER_FORM}")
            continue
        listener = ListenerAddress(name=match[1].upper(), host=match[2] or match[3], port=int(match[4]))
        if any(other.name == listener.name for other in listeners):
            problem(f"{key}: the name {listener.name} appears twice; each listener needs its own name")
        elif listener.port and any((o.host, o.port) == (listener.host, listener.port) for o in listeners):
            problem(f"{key}: port {listener.port} appears twice; each listener needs its own port")
        else:
            listeners.append(listener)
    return tuple(listeners)


def controller_listeners(
    listeners: Sequence[ListenerAddress], names: Sequence[str], problem: Problems
) -> tuple[ListenerAddress, ...]:
    """The listeners of a controller-only node in the order of controller.listener.names."""
    by_name = {listener.name: listener for listener in listeners}
    for name in names:
        if name not in by_name:
            problem(f"{CONTROLLER_LISTENER_NAMES}={','.join(names)}: {name} does not appear in {LISTENERS}")
    for name in by_name.keys() - set(names):
        problem(
            f"{LISTENERS}: {name} is not one of {CONTROLLER_LISTENER_NAMES}; a node with "
            "process.roles=controller has no other listeners"
        )
    return tuple(by_name[name] for name in names if name in by_name)


def advertised_listeners(
    listeners: Sequence[ListenerAddress],
    advertised: Sequence[ListenerAddress],
    own_voter: StaticVoter | None,
    problem: Problems,
) -> tuple[ListenerAddress, ...]:
    """Return the endpoints for other nodes, in the order of `listeners`.

    As KafkaConfig.effectiveAdvertisedControllerListeners: a listener that is not advertised has its own address. If
    it binds all interfaces, the first listener has the address of `own_voter`, which is the entry of this node in
    controller.quorum.voters. Otherwise the host is empty, for the name of this machine.
    """
    by_name = {listener.name: listener for listener in advertised}
    bound = {listener.name for listener in listeners}
    for name in by_name.keys() - bound:
        problem(f"{ADVERTISED_LISTENERS}: {name} does not appear in {LISTENERS}")
    for endpoint in advertised:
        if endpoint.host == ANY_IPV4:
            problem(
                f"{ADVERTISED_LISTENERS}: {endpoint.name}://{endpoint.host}:{endpoint.port} can't be advertised; "
                "set a host name or address that the other nodes can reach, or no host for this machine's name"
            )
    result = []
    for place, listener in enumerate(listeners):
        endpoint = by_name.get(listener.name, listener)
        if endpoint is listener and listener.host in ALL_INTERFACES:
            own = own_voter if place == 0 else None
            endpoint = replace(
                listener, host=own.host if own else "", port=own.port if own else listener.port
            )
        result.append(endpoint)
    return tuple(result)


def parse_protocol_map(
    text: str, *, is_explicit: bool, names: Sequence[str], problem: Problems
) -> Mapping[str, str]:
    """listener.security.protocol.map: listener name -> security protocol.

    As in Kafka, controller listeners use PLAINTEXT while the map is not set.
    """
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in entry.partition(":"))
        if not colon or protocol.upper() not in SECURITY_PROTOCOLS:
            problem(
                f"{PROTOCOL_MAP}: {entry!r} is not of the form NAME:PROTOCOL with a protocol of "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
            continue
        protocols[name.upper()] = protocol.upper()
    for name in names:
        if name in protocols:
            continue
        if is_explicit:
            problem(
                f"{PROTOCOL_MAP}: {name} of {CONTROLLER_LISTENER_NAMES} is missing; add {name}:{PLAINTEXT}"
            )
        protocols[name] = PLAINTEXT
    return protocols


def parse_voters(entries: Iterable[str], problem: Problems) -> tuple[StaticVoter, ...]:
    """controller.quorum.voters, ascending by node id."""
    voters: dict[int, StaticVoter] = {}
    for entry in entries:
        node_id, _, address = entry.partition("@")
        host_port = parse_host_port(address)
        if not _NODE_ID.fullmatch(node_id) or int(node_id) > _NODE_ID_MAX or host_port is None:
            problem(f"{VOTERS}: {entry!r} is not of the form id@host:port")
        elif host_port[0] in ALL_INTERFACES:
            problem(f"{VOTERS}: {entry!r} has no host that other nodes can reach")
        elif int(node_id) in voters:
            problem(f"{VOTERS}: node {node_id} appears twice")
        else:
            voters[int(node_id)] = StaticVoter(node_id=int(node_id), host=host_port[0], port=host_port[1])
    return tuple(voters[node_id] for node_id in sorted(voters))


def parse_bootstrap_servers(entries: Iterable[str], problem: Problems) -> tuple[tuple[str, int], ...]:
    """controller.quorum.bootstrap.servers."""
    servers = []
    for entry in entries:
        host_port = parse_host_port(entry)
        if host_port is None:
            problem(f"{BOOTSTRAP_SERVERS}: {entry!r} is not of the form host:port")
        else:
            servers.append(host_port)
    return tuple(servers)
