"""Two clusters that differ in their controllers alone: Java's in one, ours in the other."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from kit.differential.node_requests import registration_of
from kit.differential.nodes import Node
from kit.java.cluster import PASSWORDS, JavaCluster
from kit.java.tools import JavaTools
from kit.metadata import end_offset, image_of
from kit.waiting import eventually

CONTROLLERS: Final = 3
BROKERS: Final = 2
GONE: Final = 7
"""A broker that is registered and does not exist: partitions that are moved to it stay on their way."""
_WAIT_S: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A cluster of a comparison."""

    name: str
    """`stock` or `ours`."""
    cluster: JavaCluster
    words: Mapping[str, str]
    """What templates of arguments stand for."""
    masks: Mapping[str, str]
    """What is this cluster's own -> what is printed instead."""

    def await_brokers(self) -> None:
        """Wait until the brokers have fetched all that is committed."""
        brokers = set(self.cluster.brokers)

        def caught_up() -> bool:
            quorum = self.cluster.quorum()
            return quorum is not None and brokers <= {
                observer.node_id
                for observer in quorum.observers
                if observer.log_end_offset >= quorum.high_watermark >= 0
            }

        eventually(
            caught_up, _WAIT_S, "brokers that have caught up", lambda: self.cluster.describe(self.name)
        )

    def content(self) -> str:
        """What the log of the leader holds now, without what is each cluster's own; a line for each thing."""
        log = self.cluster.metadata(self.cluster.await_leader())
        image = image_of(log, end_offset(log))
        lines = [f"feature {name}: {level}" for name, level in image.features.items()]
        lines += [f"configs {key}: {sorted(values.items())}" for key, values in image.configs.items()]
        lines += [f"quotas {key}: {sorted(values.items())}" for key, values in image.client_quotas.items()]
        lines += [f"acl {acl}" for acl in image.acls.values()]
        lines += [
            f"user {name}: {kind} {credential.iterations}" for (kind, name), credential in image.scram.items()
        ]
        lines += [
            f"token of {delegation_token.owner} {delegation_token.renewers}"
            for delegation_token in image.delegation_tokens.values()
        ]
        lines += [
            f"broker {broker.broker_id} fenced={broker.fenced}" for broker in image.cluster.brokers.values()
        ]
        for topic in image.topics.by_name.values():
            replicas = sorted(len(partition.replicas) for partition in topic.partitions.values())
            lines.append(f"topic {topic.name}: {replicas}")
        return "\n".join(sorted(lines))


@contextmanager
def both(directory: Path, jars: Path, tools: JavaTools) -> Iterator[tuple[Side, Side]]:
    """The two clusters, running: stock Kafka's controllers, then ours."""
    with ExitStack() as closing_both:
        clusters = {}
        for name in ("stock", "ours"):
            clusters[name] = JavaCluster.prepared(
                directory / name,
                jars,
                tools,
                controllers=CONTROLLERS,
                brokers=BROKERS,
                java_controllers=name == "stock",
                properties={"auto.leader.rebalance.enable": "false"},
            )
            closing_both.callback(clusters[name].close)
        for cluster in clusters.values():
            cluster.start(*cluster.controllers, *cluster.brokers)
        for cluster in clusters.values():
            cluster.start_all()
            _register_gone(cluster)
        stock, ours = (_side(name, cluster, directory) for name, cluster in clusters.items())
        yield stock, ours


def _register_gone(cluster: JavaCluster) -> None:
    leader = cluster.await_leader()
    identity = cluster.layout.identity.cluster_id
    with closing(Node("", cluster.address(leader), cluster.metadata(leader), identity)) as node:
        response = node.ask(registration_of(identity, GONE, 0, (UUID(int=GONE << 65),)))
        assert not response.error_code, response


def _side(name: str, cluster: JavaCluster, directory: Path) -> Side:
    words = {
        "server": f"--bootstrap-server {cluster.bootstrap_servers}",
        "controller": f"--bootstrap-controller {cluster.bootstrap_controllers}",
        "dir": str(directory),
        "voter": str(cluster.controllers[0]),
    }
    for user in PASSWORDS:
        file = cluster.client_config(user, cluster.sasl_properties(user))
        words[user] = f"--bootstrap-server {cluster.sasl_servers} --command-config {file}"
        words[f"{user}_controller"] = (
            f"--bootstrap-controller {cluster.sasl_controllers} --command-config {file}"
        )
    masks = {cluster.layout.identity.cluster_id: "<cluster id>", f"{directory / name}": "<directory>"}
    for node_id in (*cluster.controllers, *cluster.brokers):
        for listener, port in _ports(cluster, node_id).items():
            masks[str(port)] = f"<port of {node_id} {listener}>"
    for node_id in (*cluster.controllers, *cluster.brokers):
        directory_id = cluster.directory_id(node_id)
        words[f"directory_of_{node_id}"] = directory_id
        masks[directory_id] = f"<directory id of {node_id}>"
    return Side(name=name, cluster=cluster, words=words, masks=masks)


def _ports(cluster: JavaCluster, node_id: int) -> dict[str, int]:
    layout = cluster.layout
    return {**layout.identity.nodes[node_id].ports, **layout.secured_ports[node_id]}
