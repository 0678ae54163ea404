"""Nodes' configuration files: server.properties with Kafka's names, its text, and log4j2.properties. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate_protocol.properties import format_properties

from quorate_operator.models.listeners import Listener
from quorate_operator.planning.cluster import Address

ADVERTISED_LISTENERS = "advertised.listeners"
ANY_HOST = ""
"""In `listeners`: on every interface of the machine or pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A controller as the others need to know it.

    `contact` is where it is found as long as it lives, `advertised` what it says of itself at the moment.
    """

    node_id: int
    contact: Address
    advertised: Address
    directory_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    """What every node's configuration says about the controller quorum."""

    voters: tuple[Voter, ...]
    dynamic: bool
    listener: Listener
    """That of the controllers."""
    broker_count: int


def initial_controllers(voters: Sequence[Voter]) -> str:
    """The argument of `--initial-controllers`: `id@host:port:directory-id`, separated by commas."""
    return ",".join(f"{voter.node_id}@{voter.advertised}:{voter.directory_id}" for voter in voters)


def quorum_properties(quorum: QuorumFacts) -> dict[str, str]:
    """How the node finds the quorum: a dynamic one by any of its controllers, a static one by its voters."""
    properties = {"controller.listener.names": quorum.listener.name}
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
    """The node's own listeners: where each is bound and what is advertised, by its name.

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
    """How often Kafka's own topics are copied: three times, or as often as there are brokers."""
    return max(1, min(3, broker_count))


def internal_topic_properties(broker_count: int) -> dict[str, str]:
    """The properties for `internal_topic_copies`, which brokers read when they create a topic."""
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


def _endpoints(listeners: Sequence[Listener], addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{listener.name}://{addresses[listener.name]}" for listener in listeners)


def render_properties(properties: Mapping[str, str], comment: str) -> str:
    """Returns the text of a .properties file; `comment` is its first line."""
    return f"# {comment}\n{format_properties(properties, is_plain=True)}"


# Without a hook of its own, log4j2 writes what a node says while it shuts down.
LOG4J2 = """\
status = error
shutdownHook = disable
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
