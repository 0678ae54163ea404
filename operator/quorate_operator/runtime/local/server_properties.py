"""The server.properties of local nodes, which share one machine."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate_protocol.kafka.config_names import HTTP_LISTENER
from quorate_protocol.properties import parse_properties

from quorate_operator.planning.cluster import Address, DesiredNode, Implementation
from quorate_operator.properties import (
    ADVERTISED_LISTENERS,
    QuorumFacts,
    directory_properties,
    internal_topic_properties,
    listener_properties,
    quorum_properties,
)
from quorate_operator.runtime.local.loopback import LOOPBACK, is_loopback
from quorate_operator.security import SecretFiles, node_properties

HTTP = "http"
"""The name under which a Python controller's port for metrics and health is kept; no listener has small letters."""

COMMENT = "Written by quorate play at each start; change the manifest instead."


def controller_properties(
    node: DesiredNode,
    ports: Mapping[str, int],
    quorum: QuorumFacts,
    data: Sequence[Path],
    secrets: SecretFiles,
) -> dict[str, str]:
    """Return the configuration of a controller with its data in `data`; `ports` are its own."""
    properties = {
        "process.roles": "controller",
        "node.id": str(node.node_id),
        **quorum_properties(quorum, node.listeners),
        **_listener_properties(node, ports, {}),
        **node_properties(node, quorum.listener, secrets),
        **directory_properties([str(path) for path in data]),
    }
    if node.implementation is Implementation.PYTHON and HTTP in ports:
        properties[HTTP_LISTENER] = f"{LOOPBACK}:{ports[HTTP]}"
    return properties | dict(node.config)


def broker_properties(
    node: DesiredNode,
    ports: Mapping[str, int],
    quorum: QuorumFacts,
    data: Sequence[Path],
    secrets: SecretFiles,
) -> dict[str, str]:
    """Return the configuration of a broker on a small machine: few threads, small internal topics."""
    rack = {} if node.rack is None else {"broker.rack": node.rack}
    return {
        "process.roles": "broker",
        "node.id": str(node.node_id),
        **quorum_properties(quorum),
        **_listener_properties(node, ports, {quorum.listener.name: quorum.listener.protocol}),
        **node_properties(node, quorum.listener, secrets),
        "inter.broker.listener.name": node.listeners[0].name,
        **directory_properties([str(path) for path in data]),
        **internal_topic_properties(quorum.broker_count),
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **rack,
    } | dict(node.config)


def fault_in(text: str, directory: Path) -> str | None:
    """Return why a kept configuration must not be used: it leads out of the node's directory or off this machine."""
    properties = parse_properties(text)
    for key in ("log.dirs", "log.dir", "metadata.log.dir"):
        for path in filter(None, properties.get(key, "").split(",")):
            if not Path(os.path.normpath(path.strip())).is_relative_to(directory):
                return f"{key}: {path}: is not in {directory}"
    for listener in filter(None, properties.get("listeners", "").split(",")):
        host = listener.partition("://")[2].rpartition(":")[0]
        if not is_loopback(Address(host, 0)):
            return f"listeners: {listener}: is not in 127.0.0.0/8"
    return None


def advertised_in(text: str) -> dict[str, Address]:
    """Return the advertised addresses by listener name in a text of `render_properties`."""
    listeners = parse_properties(text).get(ADVERTISED_LISTENERS, "")
    found = re.findall(r"([A-Z][A-Z0-9_]*)://\[?([^,\]]+?)\]?:(\d+)", listeners)
    return {name: Address(host, int(port)) for name, host, port in found}


def _listener_properties(
    node: DesiredNode, ports: Mapping[str, int], others: Mapping[str, str]
) -> dict[str, str]:
    own = {listener.name: Address(LOOPBACK, ports[listener.name]) for listener in node.listeners}
    return listener_properties(node.listeners, own, {**own, **node.advertised}, others)
