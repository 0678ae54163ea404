"""The configuration files of local nodes: server.properties and log4j2.properties. Text in, text out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorate_operator.planning.cluster import Address, DesiredNode, Implementation
from quorate_operator.runtime.ports import LOOPBACK

HTTP = "http"
"""The name under which a Python controller's port for metrics and health is kept; no listener has small letters."""

ADVERTISED_LISTENERS = "advertised.listeners"

LOG4J2 = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
logger.kafka.name = kafka
logger.kafka.level = INFO
logger.clients.name = org.apache.kafka.clients
logger.clients.level = WARN
logger.config.name = org.apache.kafka.common.config
logger.config.level = WARN
"""

TOOLS_LOG4J2 = """\
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.err.ref = err
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A controller as the others need to know it: its own port, which never changes, and what it advertises."""

    node_id: int
    directory_id: str
    port: int
    advertised: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    """What every node's configuration says about the controller quorum."""

    voters: tuple[Voter, ...]
    dynamic: bool
    listener_name: str
    broker_count: int


def initial_controllers(voters: Sequence[Voter]) -> str:
    """The argument of `--initial-controllers`: `id@host:port:directory-id`, separated by commas."""
    return ",".join(f"{voter.node_id}@{voter.advertised}:{voter.directory_id}" for voter in voters)


def controller_properties(
    node: DesiredNode, ports: Mapping[str, int], quorum: QuorumFacts, data: Path
) -> dict[str, str]:
    """The configuration of a controller that keeps its data in `data`; `ports` are its own."""
    properties = {
        "process.roles": "controller",
        "node.id": str(node.node_id),
        **_quorum_properties(quorum),
        **_listener_properties(node, ports, {}),
        "log.dirs": str(data),
    }
    if node.implementation is Implementation.PYTHON and HTTP in ports:
        properties["quorate.http.listener"] = f"{LOOPBACK}:{ports[HTTP]}"
    return properties | dict(node.config)


def broker_properties(
    node: DesiredNode, ports: Mapping[str, int], quorum: QuorumFacts, data: Path
) -> dict[str, str]:
    """The configuration of a broker that shares a laptop: few threads, small internal topics."""
    copies = str(min(3, quorum.broker_count))
    in_sync = str(max(1, min(3, quorum.broker_count) - 1))
    rack = {} if node.rack is None else {"broker.rack": node.rack}
    return {
        "process.roles": "broker",
        "node.id": str(node.node_id),
        **_quorum_properties(quorum),
        **_listener_properties(node, ports, {quorum.listener_name: "PLAINTEXT"}),
        "inter.broker.listener.name": node.listeners[0].name,
        "log.dirs": str(data),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **rack,
    } | dict(node.config)


def advertised_in(text: str) -> dict[str, Address]:
    """By listener name, what a node advertises that is started with this configuration, as `render_properties`
    wrote it."""
    line = next((line for line in text.splitlines() if line.startswith(f"{ADVERTISED_LISTENERS}=")), "")
    found = re.findall(r"([A-Z][A-Z0-9_]*)://\[?([^,\]]+?)\]?:(\d+)", line)
    return {name: Address(host, int(port)) for name, host, port in found}


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a .properties file that Java reads back as `properties`."""
    lines = [f"{_escaped(key, in_key=True)}={_escaped(value)}\n" for key, value in properties.items()]
    return "# Written by quorate play at each start; change the manifest instead.\n" + "".join(lines)


def _quorum_properties(quorum: QuorumFacts) -> dict[str, str]:
    properties = {"controller.listener.names": quorum.listener_name}
    if quorum.dynamic:
        servers = ",".join(f"{LOOPBACK}:{voter.port}" for voter in quorum.voters)
        properties["controller.quorum.bootstrap.servers"] = servers
    else:
        voters = ",".join(f"{voter.node_id}@{LOOPBACK}:{voter.port}" for voter in quorum.voters)
        properties["controller.quorum.voters"] = voters
    return properties


def _listener_properties(
    node: DesiredNode, ports: Mapping[str, int], others: Mapping[str, str]
) -> dict[str, str]:
    own = {listener.name: Address(LOOPBACK, ports[listener.name]) for listener in node.listeners}
    advertised = {name: node.advertised.get(name, address) for name, address in own.items()}
    protocols = {listener.name: listener.protocol for listener in node.listeners} | dict(others)
    return {
        "listeners": _endpoints(own),
        ADVERTISED_LISTENERS: _endpoints(advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
    }


def _endpoints(addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _escaped(text: str, *, in_key: bool = False) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if in_key:
        escapes |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    # Java reads these files as Latin-1, and anything beyond as UTF-16 units in escapes.
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    escaped = "".join(escapes.get(chr(code), chr(code)) if code < 127 else f"\\u{code:04x}" for code in codes)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
