"""Files for clients of a played cluster: client properties of its users, and scripts that run Kafka's tools."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quorate_operator.models.listeners import Listener
from quorate_operator.models.secrets import plain_users
from quorate_operator.planning.cluster import Role
from quorate_operator.properties import TOOLS_LOG4J2, render_properties
from quorate_operator.runtime.local.aot_cache import COLLECTOR
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.stock_kafka import Kafka
from quorate_operator.security import client_properties

COMMENT = "Written by quorate play, with secrets: for --command-config, and for clients."
NODE_CLIENT = "client"
"""The file for a listener without users, where clients may show a certificate."""


def write_client_files(layout: Layout) -> None:
    """Write a file for each user of the brokers' first listener, and one for the controllers'. Raises PlayError."""
    secrets, directory = layout.manifests.secrets, layout.directory
    listener = first_listener(layout, Role.BROKER)
    for user, login in _users(layout, listener) if listener is not None else ():
        assert listener is not None
        properties = client_properties(listener, secrets, login)
        directory.write(client_file(layout, user), render_properties(properties, COMMENT))
    listener = first_listener(layout, Role.CONTROLLER)
    if listener is not None:
        properties = client_properties(listener, secrets)
        directory.write(directory.controllers_client, render_properties(properties, COMMENT))


def first_listener(layout: Layout, role: Role) -> Listener | None:
    """Return the listener at the bootstrap addresses; None if it is missing or not secured."""
    nodes = layout.desired.of_role(role)
    listener = nodes[0].listeners[0] if nodes else None
    return None if listener is None or listener.protocol == "PLAINTEXT" else listener


def client_config(layout: Layout) -> Path | None:
    """Return the file for clients of the brokers: the first super user's, or the first user's without any."""
    listener = first_listener(layout, Role.BROKER)
    if listener is None:
        return None
    users = [user for user, _ in _users(layout, listener)]
    authorization = layout.manifests.controllers.spec.authorization
    superior = (
        []
        if authorization is None
        else [super_user.removeprefix("User:") for super_user in authorization.super_users]
    )
    return client_file(layout, next((user for user in superior if user in users), users[0]))


def controllers_client_config(layout: Layout) -> Path | None:
    """Return the file for clients of the controllers."""
    return None if first_listener(layout, Role.CONTROLLER) is None else layout.directory.controllers_client


def client_file(layout: Layout, user: str) -> Path:
    return layout.directory.clients / f"{user}.properties"


def _users(layout: Layout, listener: Listener) -> Iterator[tuple[str, tuple[str, str, str] | None]]:
    """Yield users with their login, those of SCRAM first."""
    sasl, secrets = listener.sasl, layout.manifests.secrets
    if sasl is None:
        yield NODE_CLIENT, None
        return
    users = layout.manifests.controllers.spec.scram_users
    known: set[str] = set()
    if users is not None and users.mechanism in sasl.mechanisms:
        for user, password in sorted(secrets[users.secret_name].values.items()):
            known.add(user)
            yield user, (users.mechanism, user, password)
    names = plain_users(sasl, secrets) if "PLAIN" in sasl.mechanisms else (sasl.user,)
    mechanism = "PLAIN" if "PLAIN" in sasl.mechanisms else sasl.mechanisms[0]
    for user in names:
        if user not in known:
            yield user, (mechanism, user, secrets[sasl.secret].values[user])


# A tool's JVM runs for about a second: without the C2 compiler, a parallel collector, and files in /tmp.
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", COLLECTOR, "-XX:-UsePerfData")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and its main class. `address_last`: it takes --bootstrap-* after its subcommand."""

    name: str
    main_class: str
    takes_address: bool = True
    address_last: bool = False


TOOLS = (
    Tool("kafka-acls", "org.apache.kafka.tools.AclCommand"),
    Tool("kafka-broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand"),
    Tool("kafka-cluster", "org.apache.kafka.tools.ClusterTool", address_last=True),
    Tool("kafka-configs", "kafka.admin.ConfigCommand"),
    Tool("kafka-console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    Tool("kafka-console-producer", "org.apache.kafka.tools.ConsoleProducer"),
    Tool("kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    Tool("kafka-consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance"),
    Tool("kafka-dump-log", "org.apache.kafka.tools.DumpLogSegments", takes_address=False),
    Tool("kafka-features", "org.apache.kafka.tools.FeatureCommand"),
    Tool("kafka-get-offsets", "org.apache.kafka.tools.GetOffsetShell"),
    Tool("kafka-groups", "org.apache.kafka.tools.GroupsCommand"),
    Tool("kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand"),
    Tool("kafka-log-dirs", "org.apache.kafka.tools.LogDirsCommand"),
    Tool("kafka-metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand"),
    Tool("kafka-metadata-shell", "org.apache.kafka.shell.MetadataShell", takes_address=False),
    Tool("kafka-producer-perf-test", "org.apache.kafka.tools.ProducerPerformance"),
    Tool("kafka-reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    Tool("kafka-storage", "kafka.tools.StorageTool", takes_address=False),
    Tool("kafka-topics", "org.apache.kafka.tools.TopicCommand"),
    Tool("kafka-transactions", "org.apache.kafka.tools.TransactionsCommand"),
)


def write_tools(layout: Layout, kafka: Kafka) -> None:
    """Write the scripts into the directory's `bin`. Raises PlayError."""
    directory = layout.directory
    log4j = directory.tools / "log4j2.properties"
    directory.write(log4j, TOOLS_LOG4J2)
    jvm = (*JVM, f"-Dlog4j2.configurationFile={log4j}")
    for tool in TOOLS:
        command = shlex.join(kafka.command(tool.main_class, jvm=jvm))
        release = kafka.version_of(tool.main_class)
        head = f"#!/bin/sh\n# {tool.name} of Apache Kafka {release}, written by quorate play\n"
        script = head + _script(tool, command, layout)
        directory.write(directory.tools / tool.name, script, mode=0o700)


def _script(tool: Tool, command: str, layout: Layout) -> str:
    if not tool.takes_address:
        return f'exec {command} "$@"\n'
    address = f"--bootstrap-server {layout.bootstrap(Role.BROKER)}"
    with_address = f'"$@" {address}' if tool.address_last else f'{address} "$@"'
    return (
        f"{_with_client(tool, layout)}"
        'case " $* " in\n'
        f'*" --bootstrap-"*|*" --help "*|*" --version "*) exec {command} "$@" ;;\n'
        f"*) exec {command} {with_address} ;;\n"
        "esac\n"
    )


def _with_client(tool: Tool, layout: Layout) -> str:
    """Return lines that add the properties of a client, where a listener needs them and no others are named."""
    found = {Role.CONTROLLER: controllers_client_config(layout), Role.BROKER: client_config(layout)}
    option = {
        role: "" if file is None else f"--command-config {shlex.quote(str(file))} "
        for role, file in found.items()
    }
    if not any(option.values()):
        return ""
    added = {
        role: f'set -- "$@" {arguments}' if tool.address_last else f'set -- {arguments}"$@"'
        for role, arguments in option.items()
    }
    return (
        'case " $* " in\n'
        '*" --command-config"*|*" --producer.config "*|*" --consumer.config "*) ;;\n'
        f'*" --bootstrap-controller"*) {added[Role.CONTROLLER]} ;;\n'
        f"*) {added[Role.BROKER]} ;;\n"
        "esac\n"
    )
