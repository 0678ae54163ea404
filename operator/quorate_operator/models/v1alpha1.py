"""The resources of `quorate.dev/v1alpha1`: KafkaController, a quorum, and KafkaBroker, a pool of brokers.

Fields are camelCase in YAML and snake_case here. Unknown fields are refused, values are taken strictly
(a quoted number is not a number), and what a field allows stands in its type, so that an error can say it.
`crds/` is generated from these models; the CEL rules beside them are what the API server checks by itself.
"""

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from quorate_operator.models.base import (
    NODE_ID_MAX,
    ClusterId,
    ControllersVersion,
    Image,
    KafkaVersion,
    LogLevels,
    Metadata,
    MetadataVersion,
    Model,
    NodeId,
    Properties,
    ResourceName,
    rules,
)
from quorate_operator.models.history import History
from quorate_operator.models.hosts import HostTemplate, differs_by_node
from quorate_operator.models.listeners import (
    BrokerListener,
    BrokerListeners,
    ControllerListener,
    ControllerListeners,
    Listener,
)
from quorate_operator.models.nodes import BrokerNode, ControllerNode, Node, NodeIds, first_node_id, own_host
from quorate_operator.models.pod_templates import (
    ControllerRollout,
    ControllersNetworkPolicy,
    Metrics,
    NetworkPolicy,
    PodTemplate,
    Rack,
    Rollout,
)
from quorate_operator.models.security import (
    AUTHORIZER_KEYS,
    OAUTHBEARER,
    TOKENS_ALONE_RULE,
    Authorization,
    ScramUsers,
)
from quorate_operator.models.storage import BrokerStorage, Storage

API_VERSION = "quorate.dev/v1alpha1"
KAFKA_VERSION = DEFAULT_RELEASE
CONTROLLERS_MAX = 9
BROKERS_MAX = 1000
CONTROLLER_IDS = 100
"""The number of node ids of a quorum: nodeIds.first to nodeIds.first + 99, including decommissioned ones."""
BROKER_IDS = 10_000
"""As CONTROLLER_IDS, for a pool of brokers."""


def _window_rules(span: int, unless: str = "") -> tuple[dict[str, str], ...]:
    """Returns the CEL rules for node ids. `unless` is a prefix of each rule for exceptions: `condition || `."""
    ids = f"self.nodeIds.first to nodeIds.first + {span - 1}".removeprefix("self.")
    inside = f"{{0}} >= self.nodeIds.first && {{0}} < self.nodeIds.first + {span}"
    return (
        {
            "rule": f"{unless}self.decommission.all(id, {inside.format('id')})",
            "message": f"decommission: node ids of this pool go from {ids}",
        },
        {
            "rule": f"{unless}self.nodes.all(node, {inside.format('node.nodeId')})",
            "message": f"nodes: node ids of this pool go from {ids}",
        },
        {
            "rule": f"{unless}self.nodeIds.first + self.replicas + size(self.decommission) - 1 <= {NODE_ID_MAX}",
            "message": f"nodeIds.first: the ids of the replicas go beyond {NODE_ID_MAX}, which is the last",
        },
        {
            "rule": (
                "self.nodes.all(node, node.advertisedHosts.all(name, "
                "self.listeners.exists(listener, listener.name == name)))"
            ),
            "message": "nodes: advertisedHosts: each key must be the name of one of the listeners",
        },
        {
            "rule": "self.listeners[0].name == oldSelf.listeners[0].name",
            "message": "listeners[0].name can't be changed: running nodes talk to each other by it",
        },
    )


_PROTOCOL_IS_FIXED = {
    "rule": "self.listeners[0].protocol == oldSelf.listeners[0].protocol",
    "message": "listeners[0].protocol can't be changed: running brokers talk to each other by it; add a listener, or "
    "create another pool",
}
_PROTOCOL_OF_CONTROLLERS_IS_FIXED = {
    "rule": "self.listeners[0].protocol == oldSelf.listeners[0].protocol || self.hibernated && oldSelf.hibernated",
    "message": "listeners[0].protocol can't be changed while nodes run, which talk to each other by it: set "
    "hibernated to true first, and to false afterwards",
}


class _PoolSpec(Model):
    """What quorums and pools of brokers share."""

    replicas: int
    node_ids: NodeIds | None
    version: KafkaVersion = Field(default=KAFKA_VERSION, description="The version of Apache Kafka.")
    image: Image | None = Field(
        default=None, description="The image of the brokers. Default: the operator's --kafka-image."
    )
    config: Properties = Field(
        default_factory=dict,
        description="More properties with Kafka's names. On Kubernetes, quote true and 0.5.",
    )
    log_levels: LogLevels = Field(
        default_factory=dict,
        description="Levels of loggers by name: org.apache.kafka.controller: DEBUG. Set while nodes run, without a "
        "restart. A level that is removed here stays until the node restarts.",
    )
    storage: Storage | BrokerStorage
    template: PodTemplate = Field(
        default_factory=PodTemplate, description="Additions to the pods. A change restarts the nodes."
    )
    rollout: Rollout = Field(default_factory=Rollout, description="How nodes restart and change hosts.")
    metrics: Metrics = Field(
        default_factory=Metrics,
        description="Metrics of stock Kafka's nodes on Kubernetes. Python controllers always serve theirs.",
    )
    decommission: Annotated[
        tuple[NodeId, ...],
        Field(strict=False, max_length=BROKERS_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(
        default=(),
        description="Node ids that leave the pool and are not used again; other ids take their place.",
    )

    @property
    def first_node_id(self) -> int:
        """The first node id. A pool without `nodeIds` has none before one was chosen, see `manifests.joined`."""
        assert self.node_ids is not None, "node ids are chosen before they are used"
        return self.node_ids.first

    def all_node_ids(self) -> tuple[int, ...]:
        """The node ids of this pool, in order: the first `replicas` ones that are not decommissioned."""
        leaving = frozenset(self.decommission)
        ids = (node_id for node_id in count(self.first_node_id) if node_id not in leaving)
        return tuple(islice(ids, self.replicas))

    def claimed_node_ids(self) -> tuple[int, ...]:
        """`all_node_ids`, and those that are to leave: no other pool may have any of these."""
        return tuple(sorted({*self.all_node_ids(), *self.decommission}))

    def _check_ids(self, nodes: Sequence[Node], span: int) -> None:
        named = [*self.decommission, *(node.node_id for node in nodes)]
        first = first_node_id(named, ()) if self.node_ids is None else self.node_ids.first
        last = first + span - 1
        ids = () if self.node_ids is None else self.all_node_ids()
        if ids and ids[-1] > NODE_ID_MAX:
            raise ValueError(
                f"nodeIds.first: {first}: the ids go up to {ids[-1]}, and {NODE_ID_MAX} is the last"
            )
        for field, listed in (
            ("nodes", [node.node_id for node in nodes]),
            ("decommission", list(self.decommission)),
        ):
            for node_id in listed:
                if not first <= node_id <= last:
                    raise ValueError(
                        f"{field}: {node_id} is not a node id of this pool, which has {first} to {last}"
                    )
                if listed.count(node_id) > 1:
                    raise ValueError(f"{field}: {node_id} is listed more than once")

    def _check_hosts(self, nodes: Sequence[Node], listeners: Sequence[Listener]) -> None:
        names = [listener.name for listener in listeners]
        owners: dict[tuple[str, str], int] = {}
        for node in nodes:
            for name, host in node.advertised_hosts.items():
                where = f"nodes: {node.node_id}: advertisedHosts: {name}"
                if name not in names:
                    raise ValueError(f"{where}: no such listener; there are {', '.join(names)}")
                owner = owners.setdefault((name, host.lower()), node.node_id)
                if owner != node.node_id and not _has_ports_by_node(listeners[names.index(name)]):
                    raise ValueError(
                        f"{where}: {host!r} is the host of {owner} already; a host names one node"
                    )


def check_config(
    config: Mapping[str, str], listeners: Sequence[Listener], authorization: Authorization | None
) -> None:
    """Raises ValueError if properties contradict what the manifest says of security."""
    for key in AUTHORIZER_KEYS if authorization is not None else ():
        if key in config:
            raise ValueError(
                f"config: {key}: follows from authorization of the KafkaController; remove one of them"
            )
    if "config.providers" in config and any(listener.tls or listener.sasl for listener in listeners):
        raise ValueError(
            "config: config.providers: can't be set beside tls or sasl, whose Secrets need their own"
        )


def _has_ports_by_node(listener: Listener) -> bool:
    """Whether nodes may share a host, because each gets a port of its own."""
    return isinstance(listener, BrokerListener) and listener.exposure.type == "NodePort"


def _check_template(where: str, template: str | None, replicas: int) -> None:
    if template is not None and replicas > 1 and not differs_by_node(template):
        raise ValueError(
            f"{where}: {template!r} is the same for all {replicas} nodes; "
            "use {nodeId}, {offset} or {pod}, so that each has a host of its own"
        )


_NODE_IN_TEMPLATE = "{0}.contains('{{nodeId}}') || {0}.contains('{{offset}}') || {0}.contains('{{pod}}')"


_HOSTNAME = "kubernetes.io/hostname"
_ON_ONE_NODE = (
    "ReadWriteOnce is for controllers on one node: must be ReadWriteMany when replicas is more than 1, unless "
    f"template.nodeSelector names a {_HOSTNAME}"
)


class KafkaControllerSpec(_PoolSpec):
    """One controller quorum."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_window_rules(CONTROLLER_IDS),
            _PROTOCOL_OF_CONTROLLERS_IS_FIXED,
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
                + _NODE_IN_TEMPLATE.format("self.advertisedHost"),
                "message": "advertisedHost: must have {nodeId}, {offset} or {pod} in it when replicas is "
                "more than 1, so that each node has a host of its own",
            },
            {
                "rule": "!has(self.history) || !has(self.history.storage) || self.replicas <= 1 || "
                "self.history.storage.accessMode != 'ReadWriteOnce' || "
                f"'{_HOSTNAME}' in self.template.nodeSelector",
                "message": f"history.storage.accessMode: {_ON_ONE_NODE}",
            },
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
    version: ControllersVersion = Field(
        default=KAFKA_VERSION,
        description="The version of Apache Kafka.",
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
        description="The controllers' listener.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    network_policy: ControllersNetworkPolicy = Field(
        default_factory=ControllersNetworkPolicy,
        description="Peers that may connect to the controllers, where the network enforces it.",
    )
    storage: Storage = Field(default_factory=Storage, description="The volume of each node.")
    authorization: Authorization | None = Field(
        default=None,
        description="Authorization by ACLs on controllers and brokers. Without it, every client that connects may do "
        "everything.",
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
    paused: bool = Field(
        default=False, description="While true, the cluster is not changed; its status is still updated."
    )
    hibernated: bool = Field(
        default=False,
        description="While true, every node is stopped, brokers first; volumes and registrations are kept.",
    )
    history: History | None = Field(
        default=None,
        description="Keeps the history of the metadata log, and makes a lake of it. Off without it.",
    )

    @model_validator(mode="after")
    def _nodes_are_of_this_quorum(self) -> Self:
        check_config(self.config, self.listeners, self.authorization)
        self._check_ids(self.nodes, CONTROLLER_IDS)
        self._check_hosts(self.nodes, self.listeners)
        _check_template("advertisedHost", self.advertised_host, self.replicas)
        storage = self.history.storage if self.history else None
        is_on_one_node = self.replicas <= 1 or _HOSTNAME in self.template.node_selector
        if storage is not None and storage.access_mode == "ReadWriteOnce" and not is_on_one_node:
            raise ValueError(f"history.storage.accessMode: {storage.access_mode!r}: {_ON_ONE_NODE}")
        return self

    def implementation_of(self, node_id: int) -> Literal["python", "java"]:
        """What runs the controller `node_id`."""
        return next((node.implementation for node in self.nodes if node.node_id == node_id), "python")

    def host_template(self, node_id: int, listener: str) -> str | None:
        """Returns the host of a controller's listener in the manifest, or its template; None if it has neither."""
        return own_host(self.nodes, node_id, listener) or self.advertised_host


_KEYS_OF_RACK = ("broker.rack", "config.providers")
"""The properties that Quorate sets for `spec.rack`."""


class KafkaBrokerSpec(_PoolSpec):
    """One pool of stock Kafka brokers that belongs to the quorum named by `controllers`."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_window_rules(BROKER_IDS, unless="!has(self.nodeIds) || "),
            _PROTOCOL_IS_FIXED,
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
                    f"{_NODE_IN_TEMPLATE.format(f'l.{field}')}{unless})",
                    "message": f"listeners: {field}: must have {{nodeId}}, {{offset}} or {{pod}} in it when "
                    "replicas is more than 1, so that each node has a host of its own",
                }
                for field, unless in (
                    ("advertisedHost", " || l.exposure.type == 'NodePort'"),
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
        self._check_ids(self.nodes, BROKER_IDS)
        self._check_rack()
        names = [listener.name for listener in self.listeners]
        if len(set(names)) != len(names):
            raise ValueError(f"listeners: each name may appear once, got {', '.join(names)}")
        if self.listeners[0].has_tokens_alone:
            raise ValueError(f"listeners[0].sasl.mechanisms: {OAUTHBEARER}: {TOKENS_ALONE_RULE}")
        self._check_hosts(self.nodes, self.listeners)
        for place, listener in enumerate(self.listeners):
            where = f"listeners[{place}]"
            if not _has_ports_by_node(listener):
                _check_template(f"{where}.advertisedHost", listener.advertised_host, self.replicas)
            _check_template(f"{where}.interimHost", listener.interim_host, self.replicas)
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
        """Returns the host of a broker's listener in the manifest, or its template; None if it has neither."""
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
