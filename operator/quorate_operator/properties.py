"""Nodes' configuration files: server.properties with Kafka's names, its text, and log4j2.properties. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate_protocol.properties import format_properties

from quorate_operator.models.listeners import Listener
from quorate_operator.models.pools import LogFormat
from quorate_operator.planning.cluster import Address

ADVERTISED_LISTENERS = "advertised.listeners"
LOG_DIRS = "log.dirs"
METADATA_LOG_DIR = "metadata.log.dir"
ANY_HOST = ""
"""The host in `listeners` that binds to every interface of the machine or pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A controller as the others need to know it.

    `contact` is its address for its whole life, `advertised` is the address that it advertises at the moment.
    """

    node_id: int
    contact: Address
    advertised: Address
    directory_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    """What the configuration of every node has to contain about the controller quorum."""

    voters: tuple[Voter, ...]
    dynamic: bool
    listener: Listener
    """The controllers' listener."""
    broker_count: int


def initial_controllers(voters: Sequence[Voter]) -> str:
    """Return the argument of `--initial-controllers`: `id@host:port:directory-id`, separated by commas."""
    return ",".join(f"{voter.node_id}@{voter.advertised}:{voter.directory_id}" for voter in voters)


def quorum_properties(quorum: QuorumFacts, own: Sequence[Listener] = ()) -> dict[str, str]:
    """Return how a node finds the quorum: a dynamic one by bootstrap servers, a static one by its voters.

    `own` are a controller's own listeners: it connects to the others by the first.
    """
    names = [listener.name for listener in own] or [quorum.listener.name]
    properties = {"controller.listener.names": ",".join(names)}
    if quorum.dynamic:
        servers = ",".join(f"{voter.contact}" for voter in quorum.voters)
        return properties | {"controller.quorum.bootstrap.servers": servers}
    voters = ",".join(f"{voter.node_id}@{voter.contact}" for voter in quorum.voters)
    return properties | {"controller.quorum.voters": voters}


def listener_properties(
    listeners: Sequence[Listener],
    bound: Mapping[str, Address],
    advertised: Mapping[str, Address],
    others: Mapping[str, str],
) -> dict[str, str]:
    """Return the properties of the node's own listeners: by name, where each is bound and what it advertises.

    `others` are listeners of other nodes that it talks to, with their security protocols.
    """
    protocols = {listener.name: listener.protocol for listener in listeners} | dict(others)
    return {
        "listeners": _endpoints(listeners, bound),
        ADVERTISED_LISTENERS: _endpoints(listeners, advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
    }


def internal_topic_copies(broker_count: int) -> int:
    """Return the replication factor of Kafka's internal topics: three, or the number of brokers if that is less."""
    return max(1, min(3, broker_count))


def internal_topic_properties(broker_count: int) -> dict[str, str]:
    """Return the properties for `internal_topic_copies`, which brokers read when they create a topic."""
    copies = str(internal_topic_copies(broker_count))
    in_sync = str(max(1, internal_topic_copies(broker_count) - 1))
    return {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def directory_properties(directories: Sequence[str]) -> dict[str, str]:
    """Return the properties of a node with these log directories. The first one has the metadata log."""
    if len(directories) == 1:
        return {LOG_DIRS: directories[0]}
    return {LOG_DIRS: ",".join(directories), METADATA_LOG_DIR: directories[0]}


def _endpoints(listeners: Sequence[Listener], addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{listener.name}://{addresses[listener.name]}" for listener in listeners)


def render_properties(properties: Mapping[str, str], comment: str) -> str:
    """Return the text of a .properties file; `comment` is its first line."""
    return f"# {comment}\n{format_properties(properties, is_plain=True)}"


_TEXT_LAYOUT = "appender.out.layout.pattern = [%d] %p %m (%c)%n"
# log4j2's own shutdown hook is disabled, so that the node's messages during shutdown are logged.
LOG4J2 = f"""\
status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
{_TEXT_LAYOUT}
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
logger.kafka.name = kafka
logger.kafka.level = INFO
logger.clients.name = org.apache.kafka.clients
logger.clients.level = WARN
logger.config.name = org.apache.kafka.common.config
logger.config.level = WARN
"""

_JSON_LINE = (
    """{"time":"%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC}","level":"%p","logger":"%c","event":"%enc{%m}{JSON}\""""
    """%notEmpty{,"traceback":"%enc{%throwable}{JSON}"}}%n"""
)
_JSON_LAYOUT = f"""\
appender.out.layout.pattern = {_JSON_LINE}
appender.out.layout.alwaysWriteExceptions = false
"""

LOG4J2_OF: Mapping[LogFormat, str] = {
    "Text": LOG4J2,
    "JSON": LOG4J2.replace(f"{_TEXT_LAYOUT}\n", _JSON_LAYOUT),
}
"""The logging of a node by its format. JSON has the fields of Python controllers.

Kafka's distribution has no module for JSON templates; a pattern needs none.
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
