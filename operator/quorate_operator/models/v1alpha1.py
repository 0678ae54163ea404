"""The resources of `quorate.dev/v1alpha1`: KafkaController, a quorum, and KafkaBroker, a pool of brokers.

Fields are camelCase in YAML and snake_case here. Unknown fields are refused, values are taken strictly
(a quoted number is not a number), and what a field allows stands in its type, so that an error can say it.
"""

import base64
import binascii
import re
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

API_VERSION = "quorate.dev/v1alpha1"
KAFKA_VERSION = "4.3.1"
NODE_ID_MAX = 2**31 - 1
CONTROLLERS_MAX = 9
BROKERS_MAX = 1000

# What Quorate derives from the rest of the manifest: two sources for one property would drift apart.
DERIVED_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)


def _check_cluster_id(value: str) -> str:
    try:
        decoded = base64.b64decode(value + "==", altchars=b"-_", validate=True)
    except binascii.Error:
        decoded = b""
    if len(value) != 22 or len(decoded) != 16:
        raise ValueError("must be a UUID as Kafka prints it: 22 characters of A-Z, a-z, 0-9, - and _")
    return value


def _property_text(value: object) -> object:
    """A property value as Kafka reads it; YAML numbers and booleans are common (`num.partitions: 3`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value


def _check_property(key: str) -> str:
    if key in DERIVED_PROPERTIES or key.startswith("advertised."):
        raise ValueError("is derived from the rest of the manifest and can't be set here")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", key):
        raise ValueError("must be a Kafka property name: letters, digits, '.', '_' and '-'")
    return key


def _checked_ids(ids: range) -> range:
    if ids and ids[-1] > NODE_ID_MAX:
        raise ValueError(
            f"nodeIds.first: {ids.start}: the ids go up to {ids[-1]}, and {NODE_ID_MAX} is the last"
        )
    return ids


ResourceName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
NodeId = Annotated[int, Field(ge=0, le=NODE_ID_MAX)]
ClusterId = Annotated[str, AfterValidator(_check_cluster_id)]
MetadataVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(-IV[0-9]+)?$")]
KafkaVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
PropertyName = Annotated[str, AfterValidator(_check_property)]
PropertyValue = Annotated[str, BeforeValidator(_property_text)]
ListenerName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=63)]


class Model(BaseModel):
    """What every part of a manifest shares."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, validate_default=False
    )


class Metadata(Model):
    """The part of Kubernetes' ObjectMeta that a manifest writes."""

    name: ResourceName
    namespace: ResourceName | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class NodeIds(Model):
    """The range that a pool takes its node ids from: `first`, `first + 1`, ..."""

    first: NodeId


class Listener(Model):
    """A listener of each node of the pool.

    Local processes share one host, so the node at place i listens on `port + i`; without a port, a free one
    is chosen and kept.
    """

    name: ListenerName
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    protocol: Literal["PLAINTEXT"] = "PLAINTEXT"


class ControllerNode(Model):
    """What differs for one controller; `implementation` is for mixed quorums and for migrations."""

    node_id: NodeId
    implementation: Literal["python", "java"] = "python"


class KafkaControllerSpec(Model):
    """One controller quorum."""

    replicas: Annotated[int, Field(ge=1, le=CONTROLLERS_MAX)] = 3
    node_ids: NodeIds = NodeIds(first=3000)
    cluster_id: ClusterId | None = None
    version: KafkaVersion = KAFKA_VERSION
    metadata_version: MetadataVersion | None = None
    quorum: Literal["dynamic", "static"] = "dynamic"
    listeners: Annotated[tuple[Listener, ...], Field(min_length=1, max_length=1, strict=False)] = (
        Listener(name="CONTROLLER"),
    )
    nodes: Annotated[tuple[ControllerNode, ...], Field(strict=False)] = ()
    config: dict[PropertyName, PropertyValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _nodes_are_of_this_quorum(self) -> Self:
        ids = _checked_ids(self.all_node_ids())
        listed = [node.node_id for node in self.nodes]
        for node_id in listed:
            if node_id not in ids:
                raise ValueError(f"nodes: {node_id} is none of this quorum's node ids, {ids[0]} to {ids[-1]}")
            if listed.count(node_id) > 1:
                raise ValueError(f"nodes: {node_id} is listed more than once")
        return self

    def all_node_ids(self) -> range:
        """The node ids of this quorum, in order."""
        return range(self.node_ids.first, self.node_ids.first + self.replicas)

    def implementation_of(self, node_id: int) -> Literal["python", "java"]:
        """What runs the controller `node_id`."""
        return next((node.implementation for node in self.nodes if node.node_id == node_id), "python")


class KafkaBrokerSpec(Model):
    """One pool of stock Kafka brokers that belongs to the quorum named by `controllers`."""

    controllers: ResourceName
    replicas: Annotated[int, Field(ge=0, le=BROKERS_MAX)] = 3
    node_ids: NodeIds = NodeIds(first=0)
    version: KafkaVersion = KAFKA_VERSION
    listeners: Annotated[tuple[Listener, ...], Field(min_length=1, max_length=8, strict=False)] = (
        Listener(name="PLAINTEXT"),
    )
    config: dict[PropertyName, PropertyValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ids_and_listeners_are_possible(self) -> Self:
        _checked_ids(self.all_node_ids())
        names = [listener.name for listener in self.listeners]
        if len(set(names)) != len(names):
            raise ValueError(f"listeners: each name may appear once, got {', '.join(names)}")
        return self

    def all_node_ids(self) -> range:
        """The node ids of this pool, in order."""
        return range(self.node_ids.first, self.node_ids.first + self.replicas)


class KafkaController(Model):
    """`kind: KafkaController`."""

    api_version: Literal["quorate.dev/v1alpha1"]
    kind: Literal["KafkaController"]
    metadata: Metadata
    spec: KafkaControllerSpec = KafkaControllerSpec()


class KafkaBroker(Model):
    """`kind: KafkaBroker`."""

    api_version: Literal["quorate.dev/v1alpha1"]
    kind: Literal["KafkaBroker"]
    metadata: Metadata
    spec: KafkaBrokerSpec


Resource = KafkaController | KafkaBroker
KINDS: dict[str, type[KafkaController] | type[KafkaBroker]] = {
    "KafkaController": KafkaController,
    "KafkaBroker": KafkaBroker,
}
