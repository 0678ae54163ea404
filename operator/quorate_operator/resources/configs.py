"""The ConfigMap of a node: server.properties with Kafka's names, and the logging of stock Kafka."""

import json
from collections.abc import Mapping

from quorate_protocol.kafka.config_names import HTTP_LISTENER

from quorate_operator import security
from quorate_operator.models.pools import LogFormat
from quorate_operator.models.started_listeners import started_text
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Implementation, Role
from quorate_operator.planning.rollout import COPIES
from quorate_operator.properties import (
    ADVERTISED_LISTENERS,
    ANY_HOST,
    LOG4J2_OF,
    LOG_DIRS,
    METADATA_LOG_DIR,
    QuorumFacts,
    Voter,
    directory_properties,
    internal_topic_copies,
    internal_topic_properties,
    listener_properties,
    quorum_properties,
    render_properties,
)
from quorate_operator.resources.data_volumes import data_directory, volumes_in_use
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.jmx_metrics import agent_rules, has_agent, rules_file
from quorate_operator.resources.names import (
    ANNOTATION_ADVERTISED,
    ANNOTATION_LISTENERS,
    labels_of,
    metadata,
    pod_name,
)
from quorate_operator.resources.pod_addresses import contact, http_port, listener_port
from quorate_operator.resources.topology import rack_properties
from quorate_operator.security import SecretFiles

CONFIG_DIRECTORY = "/etc/quorate"
PROPERTIES_FILE = "server.properties"
SECRETS_DIRECTORY = "/etc/quorate-secrets"
COMMENT = "Written by Quorate's operator; change the KafkaController or KafkaBroker instead."


def config_map(
    context: Context, desired: DesiredCluster, node: DesiredNode, advertised: Mapping[str, Address]
) -> Object:
    """Return the configuration for the node's next start, with these advertised addresses by listener name."""
    data = {PROPERTIES_FILE: render_properties(node_properties(context, desired, node, advertised), COMMENT)}
    if node.implementation is Implementation.JAVA:
        data[log4j2_file(context, node)] = LOG4J2_OF[_log_format(context, node)]
    if has_agent(context, node):
        metrics = context.pool(node.pool).spec.metrics
        data[rules_file(metrics)] = agent_rules(metrics)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            context,
            pod_name(node.pool, node.node_id),
            labels_of(context, node),
            owner=context.pool(node.pool),
            annotations={
                ANNOTATION_ADVERTISED: advertised_text(advertised),
                ANNOTATION_LISTENERS: listeners_text(context, node),
            },
        ),
        "data": data,
    }


def log4j2_file(context: Context, node: DesiredNode) -> str:
    """Return the file of a node's logging. Another format has another name, by which the pod differs."""
    return "log4j2.properties" if _log_format(context, node) == "Text" else "log4j2-json.properties"


def _log_format(context: Context, node: DesiredNode) -> LogFormat:
    return context.pool(node.pool).spec.log_format


def node_properties(
    context: Context, desired: DesiredCluster, node: DesiredNode, advertised: Mapping[str, Address]
) -> dict[str, str]:
    """Return the node's properties. The manifest's config overrides mere defaults."""
    quorum = quorum_facts(context, desired, node)
    is_broker = node.role is Role.BROKER
    others = {} if node.role is Role.CONTROLLER else {quorum.listener.name: quorum.listener.protocol}
    bound = {listener.name: Address(ANY_HOST, listener_port(node, listener)) for listener in node.listeners}
    properties = {
        "process.roles": node.role.value,
        "node.id": str(node.node_id),
        **quorum_properties(quorum, () if is_broker else node.listeners),
        **listener_properties(node.listeners, bound, {**node.advertised, **advertised}, others),
        **secured_properties(context, node),
        **directory_properties([data_directory(volume) for volume in volumes_in_use(context, node)]),
    }
    if is_broker:
        properties["inter.broker.listener.name"] = node.listeners[0].name
        properties |= internal_topic_properties(quorum.broker_count)
        properties |= rack_properties(context, node)
    elif node.implementation is Implementation.PYTHON:
        properties[HTTP_LISTENER] = f"0.0.0.0:{http_port(node)}"
    return properties | dict(node.config)


def config_revision(context: Context, desired: DesiredCluster, node: DesiredNode) -> Mapping[str, str]:
    """Return the properties that need a restart.

    Addresses and volumes are planned separately; bootstrap servers of a dynamic quorum may differ from node to node,
    and so may what follows from the number of brokers, see `copies_revision`.
    """
    properties = node_properties(context, desired, node, node.advertised)
    skipped = {ADVERTISED_LISTENERS, "controller.quorum.bootstrap.servers", METADATA_LOG_DIR, *_counted(node)}
    # Volumes are a part of the revision of their own, with the ids in place of all that follows from them.
    first = {LOG_DIRS: data_directory(METADATA_VOLUME)}
    return {name: value for name, value in (properties | first).items() if name not in skipped}


def copies_revision(desired: DesiredCluster, node: DesiredNode) -> Mapping[str, str]:
    """Return the replication factor of topics that a broker creates, unless the manifest has all such properties."""
    if not _counted(node):
        return {}
    return {COPIES: str(internal_topic_copies(len(desired.of_role(Role.BROKER))))}


def _counted(node: DesiredNode) -> frozenset[str]:
    """Return the properties of a broker that follow from the number of brokers."""
    if node.role is not Role.BROKER:
        return frozenset()
    return frozenset(internal_topic_properties(1)) - node.config.keys()


def quorum_facts(context: Context, desired: DesiredCluster, node: DesiredNode) -> QuorumFacts:
    """Return the quorum for the configuration of a node. Directory ids are those settled at formation."""
    formation = context.facts.formation
    initial = formation.initial_voters if formation else {}
    controllers = desired.of_role(Role.CONTROLLER)
    listener = context.manifests.controllers_listener(node.controllers_listener)
    return QuorumFacts(
        voters=tuple(
            Voter(
                node_id=voter.node_id,
                contact=contact(context, voter, listener),
                advertised=voter.advertised.get(listener.name, contact(context, voter, listener)),
                directory_id=initial.get(voter.node_id),
            )
            for voter in controllers
        ),
        dynamic=desired.dynamic_quorum,
        listener=listener,
        broker_count=len(desired.of_role(Role.BROKER)),
    )


def advertised_text(advertised: Mapping[str, Address]) -> str:
    """Return the annotation that stores the addresses of a node's start."""
    return json.dumps({name: str(address) for name, address in sorted(advertised.items())})


def listeners_text(context: Context, node: DesiredNode) -> str:
    """Return the annotation that stores the listeners of a node's start."""
    controllers = context.manifests.controllers_listener(node.controllers_listener)
    ports = {listener.name: listener_port(node, listener) for listener in node.listeners}
    return started_text(node.listeners, controllers.name, ports)


def secret_files(context: Context) -> SecretFiles:
    """Return where the Secrets are mounted: certificates and passwords are in no ConfigMap."""
    return SecretFiles(root=SECRETS_DIRECTORY, secrets=context.facts.secrets)


def secured_properties(context: Context, node: DesiredNode) -> dict[str, str]:
    """Return the node's properties of secured listeners, with references to mounted Secrets."""
    controllers = context.manifests.controllers_listener(node.controllers_listener)
    return security.node_properties(node, controllers, secret_files(context))
