"""The resources of `quorate.dev/v1alpha1`: KafkaController, a quorum, and KafkaBroker, a pool of brokers.

Fields are camelCase in YAML and snake_case here. Unknown fields are refused, values are taken strictly
(a quoted number is not a number), and what a field allows stands in its type, so that an error can say it.
`crds/` is generated from these models; the CEL rules beside them are what the API server checks by itself.
"""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from quorate_operator.models.base import (
    ClusterId,
    Image,
    Metadata,
    MetadataVersion,
    Model,
    NodeId,
    ResourceName,
    rules,
)
from quorate_operator.models.drains import Drain
from quorate_operator.models.entities import EntityNamespaces
from quorate_operator.models.exposures import check_node_ports
from quorate_operator.models.history import History
from quorate_operator.models.hosts import HostTemplate
from quorate_operator.models.listeners import (
    BrokerListener,
    BrokerListeners,
    ControllerListener,
    ControllerListeners,
)
from quorate_operator.models.node_configs import BROKER_KEYS, CONTROLLER_KEYS
from quorate_operator.models.nodes import BrokerNode, ControllerNode, NodeIds, own_host
from quorate_operator.models.placement import (
    PLACEMENT_RULES,
    Placement,
    check_placement,
    placement_field,
)
from quorate_operator.models.pod_templates import (
    ControllerRollout,
    ControllersNetworkPolicy,
    DisruptionBudgets,
    NetworkPolicy,
    Rack,
)
from quorate_operator.models.pools import (
    BROKERS_MAX,
    NODE_IN_TEMPLATE,
    PROTOCOL_IS_FIXED,
    PROTOCOL_OF_CONTROLLERS_IS_FIXED,
    PoolSpec,
    check_config,
    check_names,
    check_template,
    has_ports_by_node,
    node_id_rules,
)
from quorate_operator.models.recovery import Recovery
from quorate_operator.models.releases import IMAGE_RULE, SupportedRelease, check_release_of_image
from quorate_operator.models.security import (
    AUTHORIZER_KEYS,
    OAUTHBEARER,
    TOKENS_ALONE_RULE,
    Authorization,
    ClusterAuthority,
    ScramUsers,
)
from quorate_operator.models.storage import BrokerStorage, Storage

API_VERSION = "quorate.dev/v1alpha1"
KAFKA_VERSION = DEFAULT_RELEASE
CONTROLLERS_MAX = 9
CONTROLLER_IDS = 100
"""The number of node ids of a quorum: nodeIds.first to nodeIds.first + 99, including decommissioned ones."""
BROKER_IDS = 10_000
"""As CONTROLLER_IDS, for a pool of brokers."""


State = Literal["Running", "Paused", "Hibernated"]
_HOSTNAME = "kubernetes.io/hostname"
_ON_ONE_NODE = (
    "ReadWriteOnce is for controllers on one Kubernetes node: must be ReadWriteMany when replicas is more than 1, "
    f"unless template.nodeSelector names a {_HOSTNAME}"
)


class KafkaControllerSpec(PoolSpec):
    """One controller quorum."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *node_id_rules(CONTROLLER_IDS),
            PROTOCOL_OF_CONTROLLERS_IS_FIXED,
            {
                "rule": "!has(self.authorization) || "
                f"{list(AUTHORIZER_KEYS)}.all(key, !(key in self.config))",
                "message": f"config: authorization stands for {' and '.join(AUTHORIZER_KEYS)}",
            },
            {
                "rule": "has(self.scramUsers) || !has(oldSelf.scramUsers)",
                "message": "scramUsers can't be removed",
            },
            {
                "rule": "!has(oldSelf.clusterId) || has(self.clusterId) && self.clusterId == oldSelf.clusterId",
                "message": "clusterId can't be changed or removed once it is set: it is on every disk",
            },
            {
                "rule": "self.quorum == oldSelf.quorum || self.quorum == 'dynamic'",
                "message": "quorum can go from static to dynamic, and not back: must stay dynamic",
            },
            {
                "rule": "!has(self.advertisedHost) || self.replicas <= 1 || "
                + NODE_IN_TEMPLATE.format("self.advertisedHost"),
                "message": "advertisedHost: must have {nodeId}, {offset} or {pod} in it when replicas is "
                "more than 1, so that each node has a host of its own",
            },
            {
                "rule": "!has(self.history) || !has(self.history.storage) || self.replicas <= 1 || "
                "self.history.storage.accessMode != 'ReadWriteOnce' || "
                f"'{_HOSTNAME}' in self.template.nodeSelector",
                "message": f"history.storage.accessMode: {_ON_ONE_NODE}",
            },
            *PLACEMENT_RULES,
        )
    )

    replicas: Annotated[int, Field(ge=1, le=CONTROLLERS_MAX)] = Field(
        default=3, description="Number of voters; an odd number is best."
    )
    node_ids: NodeIds = Field(default=NodeIds(first=3000), description="The range of node ids.")
    cluster_id: ClusterId | None = Field(
        default=None,
        description="The cluster id, as kafka-storage random-uuid prints one. Default: random. "
        "It can't be changed.",
    )
    version: SupportedRelease = Field(
        default=KAFKA_VERSION,
        description=f"The release of Apache Kafka. In `quorate play`, the default is {KAFKA_VERSION}.",
    )
    image: Image | None = Field(
        default=None,
        description="The image of the Python controllers. Default: the operator's --image. Java controllers have "
        "its --kafka-image.",
    )
    metadata_version: MetadataVersion | None = Field(
        default=None,
        description="The metadata.version: 4.4 or 4.4-IV2. It is finalized when every registered node supports it. "
        "Default: that of the oldest spec.version for a new cluster, and no change later.",
    )
    quorum: Literal["dynamic", "static"] = Field(
        default="dynamic",
        description="dynamic: voters can be added and removed (KIP-853). static can be changed to dynamic.",
    )
    advertised_host: HostTemplate | None = Field(
        default=None,
        description="Template of the controllers' advertised hosts, as in a broker's listener. "
        'Default: "{pod}.{service}.{namespace}.svc" on Kubernetes, 127.0.0.1 for local processes.',
    )
    listeners: ControllerListeners = Field(
        default=(ControllerListener(name="CONTROLLER"),),
        description="The controllers' listener; or two, while nodes move from one to the other: nodes connect to "
        "controllers by the first one.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    placement: Placement = placement_field()
    network_policy: ControllersNetworkPolicy = Field(
        default_factory=ControllersNetworkPolicy,
        description="Peers that may connect to the controllers, where the network enforces it.",
    )
    disruption_budgets: DisruptionBudgets | None = Field(
        default=None,
        description="The PodDisruptionBudgets of controllers and brokers. Default: both are kept.",
    )
    storage: Storage = Field(default_factory=Storage, description="The volume of each node.")
    authorization: Authorization | None = Field(
        default=None,
        description="Authorization by ACLs on controllers and brokers. Without it, every client that connects may do "
        "everything.",
    )
    authority: ClusterAuthority = Field(
        default_factory=ClusterAuthority,
        description="The authority of the certificates that the operator issues.",
    )
    scram_users: ScramUsers | None = Field(
        default=None,
        description="SCRAM users that a new cluster begins with (kafka-storage format --add-scram).",
    )
    nodes: Annotated[tuple[ControllerNode, ...], Field(strict=False, max_length=CONTROLLER_IDS)] = Field(
        default=(),
        description="Settings of single controllers. An entry may precede its controller.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeId"]},
    )
    rollout: ControllerRollout = Field(
        default_factory=ControllerRollout, description="How controllers restart and change hosts."
    )
    decommission: Annotated[
        tuple[NodeId, ...],
        Field(strict=False, max_length=CONTROLLER_IDS, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(
        default=(),
        description="Node ids that leave the quorum and are not used again; other ids take their place.",
    )
    state: State = Field(
        default="Running",
        description="Running: the nodes are as the manifest says. Paused: the cluster is not changed; its status is "
        "still updated. Hibernated: every node is stopped, brokers first; volumes and registrations are kept.",
    )
    recovery: Recovery | None = Field(
        default=None,
        description="Rebuilds the quorum after the loss of a majority of disks. It is for one loss, and may stay.",
    )
    entity_namespaces: EntityNamespaces = Field(
        default=(),
        description="Other namespaces whose KafkaTopics and KafkaUsers may name this cluster, or * for all. Their "
        "owners may then manage any topic, and the ACLs of any principal.",
    )
    history: History | None = Field(
        default=None,
        description="Keeps the history of the metadata log, and makes a lake of it. Off without it.",
    )

    @model_validator(mode="after")
    def _nodes_are_of_this_quorum(self) -> Self:
        check_config(self.config, self.listeners, self.authorization)
        check_names(self.listeners)
        self._check_custom_keys()
        java = [node.node_id for node in self.nodes if node.implementation == "java"]
        check_placement(self.placement, self.quorum, self.template, java)
        self.check_properties(CONTROLLER_KEYS)
        self.check_ids(self.nodes, CONTROLLER_IDS)
        self.check_hosts(self.nodes, self.listeners)
        check_template("advertisedHost", self.advertised_host, self.replicas)
        storage = self.history.storage if self.history else None
        is_on_one_node = self.replicas <= 1 or _HOSTNAME in self.template.node_selector
        if storage is not None and storage.access_mode == "ReadWriteOnce" and not is_on_one_node:
            raise ValueError(f"history.storage.accessMode: {storage.access_mode!r}: {_ON_ONE_NODE}")
        return self

    def _check_custom_keys(self) -> None:
        python = [node_id for node_id in self.all_node_ids() if self.implementation_of(node_id) == "python"]
        if self.custom_config_keys and python:
            raise ValueError(
                f"customConfigKeys: {self.custom_config_keys[0]!r}: is for quorums of Java controllers alone; "
                f"controller {python[0]} is one of Quorate's, which do not start with unknown properties: remove it, "
                "or set implementation: java in nodes for each"
            )

    def implementation_of(self, node_id: int) -> Literal["python", "java"]:
        """What runs the controller `node_id`."""
        return next((node.implementation for node in self.nodes if node.node_id == node_id), "python")

    def host_template(self, node_id: int, listener: str) -> str | None:
        """Return the host of a controller's listener in the manifest, or its template; None if it has neither."""
        return own_host(self.nodes, node_id, listener) or self.advertised_host


_KEYS_OF_RACK = ("broker.rack", "config.providers")
"""The properties that Quorate sets for `spec.rack`."""


class KafkaBrokerSpec(PoolSpec):
    """One pool of stock Kafka brokers that belongs to the quorum named by `controllers`."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *node_id_rules(BROKER_IDS, unless="!has(self.nodeIds) || "),
            PROTOCOL_IS_FIXED,
            IMAGE_RULE,
            {
                "rule": "!has(self.rack) || self.nodes.all(node, !has(node.rack))",
                "message": "rack: gives each node a rack; remove nodes[].rack, or rack",
            },
            {
                "rule": f"!has(self.rack) || {[*_KEYS_OF_RACK]}.all(key, !(key in self.config))",
                "message": f"rack: stands for {' and '.join(_KEYS_OF_RACK)} of config; remove them, or rack",
            },
            *(
                {
                    "rule": f"self.replicas <= 1 || self.listeners.all(l, !has(l.{field}) || "
                    f"{NODE_IN_TEMPLATE.format(f'l.{field}')}{unless})",
                    "message": f"listeners: {field}: must have {{nodeId}}, {{offset}} or {{pod}} in it when "
                    "replicas is more than 1, so that each node has a host of its own",
                }
                for field, unless in (
                    (
                        "advertisedHost",
                        " || has(l.exposure) && has(l.exposure.type) && l.exposure.type == 'NodePort'",
                    ),
                    ("interimHost", ""),
                )
            ),
        )
    )

    controllers: ResourceName = Field(
        description="The name of the KafkaController of this pool.",
        json_schema_extra=rules(
            {
                "rule": "self == oldSelf",
                "message": "can't be changed: brokers' disks belong to one cluster; create another pool",
            }
        ),
    )
    replicas: Annotated[int, Field(ge=0, le=BROKERS_MAX)] = Field(default=3, description="Number of brokers.")
    node_ids: NodeIds | None = Field(
        default=None,
        description="The range of node ids. Default: chosen once, from the first thousand ids (0, 1000, 2000, ...) "
        "that no other node of the cluster is in.",
    )
    listeners: BrokerListeners = Field(
        default=(BrokerListener(name="PLAINTEXT"),),
        description="The brokers' listeners; brokers use the first one among themselves.",
        json_schema_extra={
            **rules(
                {
                    "rule": "!has(self[0].sasl) || has(self[0].sasl.username)",
                    "message": TOKENS_ALONE_RULE,
                }
            ),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    network_policy: NetworkPolicy = Field(
        default_factory=NetworkPolicy,
        description="Peers that may connect to the brokers, where the network enforces it.",
    )
    storage: BrokerStorage = Field(
        default_factory=BrokerStorage, description="The volume of each node, or its volumes."
    )
    drain: Drain = Field(default_factory=Drain, description="How brokers are drained that leave the pool.")
    rack: Rack | None = Field(
        default=None,
        description="Where broker.rack comes from on Kubernetes. Default: nodes[].rack. `quorate play` ignores it.",
    )
    nodes: Annotated[tuple[BrokerNode, ...], Field(strict=False, max_length=BROKERS_MAX)] = Field(
        default=(),
        description="Settings of single brokers. An entry may precede its broker.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeId"]},
    )

    @model_validator(mode="after")
    def _ids_and_listeners_are_possible(self) -> Self:
        check_config(self.config, self.listeners, None)
        check_release_of_image(self.version, self.image)
        self.check_properties(BROKER_KEYS)
        self.check_ids(self.nodes, BROKER_IDS)
        self._check_rack()
        check_names(self.listeners)
        if self.listeners[0].has_tokens_alone:
            raise ValueError(f"listeners[0].sasl.mechanisms: {OAUTHBEARER}: {TOKENS_ALONE_RULE}")
        self.check_hosts(self.nodes, self.listeners)
        check_node_ports([listener.exposure for listener in self.listeners])
        for place, listener in enumerate(self.listeners):
            where = f"listeners[{place}]"
            if not has_ports_by_node(listener):
                check_template(f"{where}.advertisedHost", listener.advertised_host, self.replicas)
            check_template(f"{where}.interimHost", listener.interim_host, self.replicas)
        return self

    def _check_rack(self) -> None:
        if self.rack is None:
            return
        named = [node.node_id for node in self.nodes if node.rack is not None]
        if named:
            raise ValueError(f"nodes: {named[0]}: rack: spec.rack gives each node a rack; remove one of them")
        for key in _KEYS_OF_RACK:
            if key in self.config:
                raise ValueError(f"config: {key}: follows from spec.rack; remove one of them")

    def named_node_ids(self) -> frozenset[int]:
        """The node ids that the manifest names one by one."""
        return frozenset((*self.decommission, *(node.node_id for node in self.nodes)))

    def rack_of(self, node_id: int) -> str | None:
        """The rack of the broker `node_id`."""
        return next((node.rack for node in self.nodes if node.node_id == node_id), None)

    def host_template(self, node_id: int, listener: str) -> str | None:
        """Return the host of a broker's listener in the manifest, or its template; None if it has neither."""
        templates = {own.name: own.advertised_host for own in self.listeners}
        return own_host(self.nodes, node_id, listener) or templates.get(listener)

    def interim_template(self, listener: str) -> str | None:
        """The template of the hosts that belong to one node for ever."""
        return next((own.interim_host for own in self.listeners if own.name == listener), None)


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
