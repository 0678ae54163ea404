"""The fields that quorums and pools of brokers share: node ids, listeners, configuration, storage, pods."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice
from typing import Annotated, Literal

from pydantic import Field
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

from quorate_operator.models.base import (
    NODE_ID_MAX,
    Image,
    LogLevels,
    Model,
    NodeId,
    Properties,
)
from quorate_operator.models.exposures import Services
from quorate_operator.models.hosts import differs_by_node
from quorate_operator.models.listeners import BrokerListener, Listener
from quorate_operator.models.node_configs import CustomConfigKeys, NodeKind, check_properties
from quorate_operator.models.nodes import Node, NodeIds, first_node_id
from quorate_operator.models.pod_templates import Metrics, PodTemplate, Rollout
from quorate_operator.models.releases import ReleaseOfLine
from quorate_operator.models.security import AUTHORIZER_KEYS, Authorization
from quorate_operator.models.storage import BrokerStorage, Storage

BROKERS_MAX = 1000
LogFormat = Literal["Text", "JSON"]
_PROTOCOL = "(has({0}.protocol) ? {0}.protocol : 'PLAINTEXT')"
_HAS_SAME_PROTOCOL = (
    "self.listeners.all(listener, listener.name != oldSelf.listeners[0].name || "
    f"{_PROTOCOL.format('listener')} == {_PROTOCOL.format('oldSelf.listeners[0]')})"
)
_BY_ANOTHER = "put a listener of another name before it, and remove this one later"
PROTOCOL_IS_FIXED = {
    "rule": _HAS_SAME_PROTOCOL,
    "message": "listeners[0].protocol can't be changed: running brokers talk to each other by it; "
    + _BY_ANOTHER,
}
PROTOCOL_OF_CONTROLLERS_IS_FIXED = {
    "rule": f"{_HAS_SAME_PROTOCOL} || self.state == 'Hibernated' && oldSelf.state == 'Hibernated'",
    "message": "listeners[0].protocol can't be changed while nodes run, which talk to each other by it: "
    f"{_BY_ANOTHER}, or set state to Hibernated first, and to Running afterwards",
}
NODE_IN_TEMPLATE = "{0}.contains('{{nodeId}}') || {0}.contains('{{offset}}') || {0}.contains('{{pod}}')"


def node_id_rules(span: int, unless: str = "") -> tuple[dict[str, str], ...]:
    """Return the CEL rules for node ids. `unless` is a prefix of each rule for exceptions: `condition || `."""
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
                "self.nodes.all(node, !has(node.advertisedHosts) || node.advertisedHosts.all(name, "
                "self.listeners.exists(listener, listener.name == name)))"
            ),
            "message": "nodes: advertisedHosts: each key must be the name of one of the listeners",
        },
        {
            "rule": "self.listeners.exists(listener, listener.name == oldSelf.listeners[0].name)",
            "message": "listeners[0].name can't be changed: running nodes talk to each other by it; "
            + _BY_ANOTHER,
        },
    )


class PoolSpec(Model):
    """The fields of quorums and pools of brokers."""

    replicas: int
    node_ids: NodeIds | None
    version: ReleaseOfLine = Field(
        default=DEFAULT_RELEASE,
        description="The release of Apache Kafka: a supported one, or with `image` another of a supported line. In "
        f"`quorate play`, the default is {DEFAULT_RELEASE}.",
    )
    image: Image | None = Field(
        default=None, description="The image of the brokers. Default: the operator's --kafka-image."
    )
    config: Properties = Field(
        default_factory=dict,
        description="More properties with Kafka's names, which must be those of `version`. On Kubernetes, quote true "
        "and 0.5.",
    )
    custom_config_keys: CustomConfigKeys = Field(
        default=(),
        description="Names in `config` that Kafka does not have, as plug-ins do, or what they begin with: "
        "client.quota.callback.static.*",
    )
    log_levels: LogLevels = Field(
        default_factory=dict,
        description="Levels of loggers by name: org.apache.kafka.controller: DEBUG. Set while nodes run, without a "
        "restart. A level that is removed here stays until the node restarts.",
    )
    log_format: LogFormat = Field(
        default="Text",
        description="How nodes of stock Kafka write their log on Kubernetes: as Kafka does, or one JSON object a "
        "line, with the fields of Python controllers, which always write JSON. A change restarts the nodes.",
    )
    storage: Storage | BrokerStorage
    template: PodTemplate = Field(
        default_factory=PodTemplate, description="Additions to the pods. A change restarts the nodes."
    )
    rollout: Rollout = Field(default_factory=Rollout, description="How nodes restart and change hosts.")
    services: Services | None = Field(
        default=None,
        description="IP families of the Services of the pool on Kubernetes. A change restarts no node.",
    )
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

    def check_properties(self, known: Collection[str]) -> None:
        """Raise ValueError if nodes of this pool, which know these names besides Kafka's, can't have the config."""
        kind = NodeKind(version=self.version, known=known, custom=self.custom_config_keys)
        check_properties(self.config, kind)

    def check_ids(self, nodes: Sequence[Node], span: int) -> None:
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

    def check_hosts(self, nodes: Sequence[Node], listeners: Sequence[Listener]) -> None:
        names = [listener.name for listener in listeners]
        owners: dict[tuple[str, str], int] = {}
        for node in nodes:
            for name, host in node.advertised_hosts.items():
                where = f"nodes: {node.node_id}: advertisedHosts: {name}"
                if name not in names:
                    raise ValueError(f"{where}: no such listener; there are {', '.join(names)}")
                owner = owners.setdefault((name, host.lower()), node.node_id)
                if owner != node.node_id and not has_ports_by_node(listeners[names.index(name)]):
                    raise ValueError(
                        f"{where}: {host!r} is the host of {owner} already; a host names one node"
                    )


def check_config(
    config: Mapping[str, str], listeners: Sequence[Listener], authorization: Authorization | None
) -> None:
    """Raise ValueError if properties contradict the manifest's security."""
    for key in AUTHORIZER_KEYS if authorization is not None else ():
        if key in config:
            raise ValueError(
                f"config: {key}: follows from authorization of the KafkaController; remove one of them"
            )
    if "config.providers" in config and any(listener.tls or listener.sasl for listener in listeners):
        raise ValueError(
            "config: config.providers: can't be set beside tls or sasl, whose Secrets need their own"
        )


def check_names(listeners: Sequence[Listener]) -> None:
    """Raise ValueError if a name appears twice."""
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ValueError(f"listeners: each name may appear once, got {', '.join(names)}")


def has_ports_by_node(listener: Listener) -> bool:
    """Whether nodes may share a host, because each gets a port of its own."""
    return isinstance(listener, BrokerListener) and listener.exposure.type == "NodePort"


def check_template(where: str, template: str | None, replicas: int) -> None:
    if template is not None and replicas > 1 and not differs_by_node(template):
        raise ValueError(
            f"{where}: {template!r} is the same for all {replicas} nodes; "
            "use {nodeId}, {offset} or {pod}, so that each has a host of its own"
        )
