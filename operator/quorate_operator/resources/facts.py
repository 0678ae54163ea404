"""What the builders need to know beside the manifests: where the cluster lives, and what Kubernetes has assigned."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import Address, DesiredNode, Formation, Implementation, Role

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class ListenerOf(NamedTuple):
    """One listener of one node."""

    node_id: int
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """What runs the nodes, and makes lakes, where the manifests name no image.

    `{version}` in `kafka` is the Kafka release.
    """

    quorate: str
    kafka: str = "apache/kafka:{version}"
    lake: str = "quorate-lake"
    pull_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFacts:
    """A Secret that listeners use: its resourceVersion, or any text that changes with it, and its keys."""

    version: str
    keys: frozenset[str]

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a listener needs and it has not."""
        return tuple(key for key in ("tls.crt", "tls.key") if key not in self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What Kubernetes tells of one cluster's surroundings.

    Whatever is not there yet is left out, and filled in when it is seen.
    """

    namespace: str
    images: Images
    operator_namespace: str | None = None
    """Where the operator runs, for the NetworkPolicy; None: in any namespace."""
    load_balancers: Mapping[ListenerOf, str] = field(default_factory=dict)
    """The host name or address that each LoadBalancer Service was given."""
    node_ports: Mapping[ListenerOf, int] = field(default_factory=dict)
    """The port that each NodePort Service was given."""
    machines: Mapping[int, str] = field(default_factory=dict)
    """The address of the machine that each node's pod is on, or was on last."""
    configured: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    """What each node was started with: kept while a load balancer or machine is not known for a moment."""
    revisions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """What each node's pod was made with: kept where a Secret that it depends on is missing."""
    secrets: Mapping[str, SecretFacts] = field(default_factory=dict)
    """The Secrets of the namespace that listeners name."""
    formation: Formation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A cluster's manifests together with its surroundings: the first argument of most builders."""

    manifests: Manifests
    facts: Facts

    @property
    def cluster(self) -> str:
        """The name of the KafkaController."""
        return self.manifests.controllers.metadata.name

    @property
    def namespace(self) -> str:
        """Where everything is."""
        return self.facts.namespace

    def pool(self, name: str) -> KafkaController | KafkaBroker:
        """The resource that a pool comes from. Raises KeyError."""
        pools: tuple[KafkaController | KafkaBroker, ...] = (
            self.manifests.controllers,
            *self.manifests.brokers,
        )
        for pool in pools:
            if pool.metadata.name == name:
                return pool
        raise KeyError(name)

    def image_of(self, node: DesiredNode) -> str:
        """What runs the node."""
        named = self.pool(node.pool).spec.image
        if node.implementation is Implementation.PYTHON:
            return named or self.facts.images.quorate
        if node.role is Role.BROKER and named:
            return named  # a quorum's image is that of its Python controllers
        return self.facts.images.kafka.replace("{version}", node.kafka_version)


def digest(value: object) -> str:
    """A short hash of plain data, the same for the same data in any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
