"""What builders need besides the manifests: the cluster's namespace, and what Kubernetes has assigned."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import Secret
from quorate_operator.models.started_listeners import StartedListeners
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import Address, DesiredNode, Formation, Implementation, Role

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class ListenerOf(NamedTuple):
    node_id: int
    listener: str


class BootstrapOf(NamedTuple):
    pool: str
    listener: str


IngressHosts = Mapping[ListenerOf, Mapping[str, int | None]]
"""Hosts that lead through an ingress controller or router to a node, and when each was retired, in Unix ms."""

PUBLISHED = "ghcr.io/quorate"
"""The registry path of released images; the chart, the kustomize base and the Dockerfiles have it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images of nodes and lakes for manifests that name none.

    `{version}` in `kafka` is the Kafka release.
    """

    quorate: str
    kafka: str = "apache/kafka:{version}"
    """The image of brokers and Java controllers."""
    lake: str = f"{PUBLISHED}/quorate-lake"
    pull_policy: str | None = None
    user_id: int | None = 1000
    """The user and group of pods, which is that of the images; None: Kubernetes or OpenShift chooses them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The images themselves, which a policy always allows."""
        return self.quorate, self.kafka, self.lake


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What Kubernetes has assigned to a cluster. Objects that do not exist yet are left out."""

    namespace: str
    images: Images
    operator_namespace: str | None = None
    """The operator's namespace, for the NetworkPolicy; None allows any namespace."""
    load_balancers: Mapping[ListenerOf, str] = field(default_factory=dict)
    """The host name or address that each LoadBalancer Service was given."""
    node_ports: Mapping[ListenerOf, int] = field(default_factory=dict)
    """The port that each NodePort Service was given."""
    host_ips: Mapping[int, str] = field(default_factory=dict)
    """The last status.hostIP of each node's pod."""
    node_hosts: Mapping[ListenerOf, str] = field(default_factory=dict)
    """The address of the pod's Kubernetes node in the IP family of the listener's NodePort Service."""
    requested_ms: Mapping[ListenerOf, int] = field(default_factory=dict)
    """When each Service for clients outside of Kubernetes was created, in Unix ms."""
    bootstrap_balancers: Mapping[BootstrapOf, str] = field(default_factory=dict)
    """As `load_balancers`, of the Services that lead to any broker."""
    bootstrap_node_ports: Mapping[BootstrapOf, int] = field(default_factory=dict)
    """As `node_ports`, of the Services that lead to any broker."""
    ingress_hosts: IngressHosts = field(default_factory=dict)
    """As they were stored, see `ingress_hosts.ingress_hosts`."""
    published: Mapping[ListenerOf, frozenset[str]] = field(default_factory=dict)
    """The hosts of the namespace that lead to each listener of a node, also in their overlap."""
    configured: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    """The addresses that each node was started with, used while a load balancer or host is temporarily unknown."""
    listeners: Mapping[int, StartedListeners] = field(default_factory=dict)
    """The listeners that each node was started with, as far as they are known."""
    revisions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """The revision that each node's pod was created with, used where a Secret that it depends on is missing."""
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """The Secrets of the namespace that listeners name."""
    unreadable_secrets: frozenset[str] = frozenset()
    """Names of the Secrets that the operator may not read."""
    unlabelled_secrets: frozenset[str] = frozenset()
    """Names of the Secrets that exist without the label that allows nodes to read them."""
    certificates: Mapping[str, str | None] = field(default_factory=dict)
    """By name of each existing Certificate of the cluster, why it is not issued; None if it is."""
    unissued: Mapping[str, str] = field(default_factory=dict)
    """Why the cluster's own authority has not issued a certificate, by the name of its Secret."""
    formation: Formation | None = None
    volumes: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The ids of the volumes that each node with claims uses from its next start on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A cluster's manifests together with its facts: the first argument of most builders."""

    manifests: Manifests
    facts: Facts

    @property
    def cluster(self) -> str:
        return self.manifests.controllers.metadata.name

    @property
    def namespace(self) -> str:
        return self.facts.namespace

    def pool(self, name: str) -> KafkaController | KafkaBroker:
        """Return the resource of a pool. Raises KeyError."""
        pools: tuple[KafkaController | KafkaBroker, ...] = (
            self.manifests.controllers,
            *self.manifests.brokers,
        )
        for pool in pools:
            if pool.metadata.name == name:
                return pool
        raise KeyError(name)

    def image_of(self, node: DesiredNode) -> str:
        named = self.pool(node.pool).spec.image
        if node.implementation is Implementation.PYTHON:
            return named or self.facts.images.quorate
        if node.role is Role.BROKER and named:
            return named  # a quorum's image is that of its Python controllers
        return self.facts.images.kafka.replace("{version}", node.kafka_version)


def digest(value: object) -> str:
    """Return a short hash of plain data; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
