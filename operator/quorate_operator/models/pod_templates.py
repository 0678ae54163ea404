"""The settings of a pool for its pods and restarts."""

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, Field, StringConstraints

from quorate_operator.models.affinity import Affinity
from quorate_operator.models.base import (
    Amount,
    Annotations,
    AnyObject,
    Duration,
    LabelKey,
    Labels,
    LabelValue,
    Model,
    ResourceName,
    Text,
    duration_ms,
)

KUBERNETES_OBJECTS_MAX = 64
SIDECARS_MAX = 8
OWN_CONTAINERS = ("await-rack", "format", "metrics-agent", "node", "ship")
"""The names of containers in pods of nodes."""

Amounts = Annotated[dict[Text, Amount], Field(max_length=16)]
WINDOWS_MAX = 20
PEERS_MAX = 64
NetworkPolicyPeers = Annotated[
    tuple[AnyObject, ...],
    Field(
        strict=False,
        min_length=1,
        max_length=PEERS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    ),
]
Weekday = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)
TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
WindowDuration = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}[mhd]$", max_length=5)]
"""More than nothing: a window that never opens would keep renewed certificates away for ever."""


class Resources(Model):
    """The requests and limits of the node's container."""

    requests: Amounts = Field(default_factory=dict, description="Reserved resources: cpu, memory.")
    limits: Amounts = Field(
        default_factory=dict, description="Maximum resources. Half of a broker's memory becomes heap."
    )


class SecretReference(Model):
    """A Secret of the same namespace."""

    name: ResourceName = Field(description="The Secret's name.")


_Objects = Annotated[
    tuple[AnyObject, ...],
    Field(
        strict=False,
        max_length=KUBERNETES_OBJECTS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    ),
]


_Count = Annotated[int, Field(ge=1, le=3600)]


class Probe(Model):
    """Times of a probe; a time that is not given keeps its default. The request of the probe can't be changed."""

    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600)] | None = Field(
        default=None, description="As in a container."
    )
    period_seconds: _Count | None = Field(default=None, description="As in a container.")
    timeout_seconds: _Count | None = Field(default=None, description="As in a container.")
    failure_threshold: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        default=None, description="As in a container."
    )


class Probes(Model):
    """Times of the probes of a node."""

    startup: Probe = Field(
        default_factory=Probe,
        description="How long a node may take to start, until it is killed: its period times its failures, by "
        "default 5 minutes for Python controllers and a day for other nodes.",
    )
    liveness: Probe = Field(default_factory=Probe, description="When a node that does not answer is killed.")
    readiness: Probe = Field(default_factory=Probe, description="How soon a change of readiness is seen.")


def _check_sidecar(container: dict[str, Any]) -> dict[str, Any]:
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("name: missing; it must be given")
    if name in OWN_CONTAINERS:
        raise ValueError(
            f"name: {name!r}: is that of a container of Quorate, as are {', '.join(OWN_CONTAINERS)}"
        )
    return container


_Sidecars = Annotated[
    tuple[Annotated[AnyObject, AfterValidator(_check_sidecar)], ...],
    Field(
        strict=False,
        max_length=SIDECARS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    ),
]


class PodTemplate(Model):
    """What is added to the pods of a pool. A change of it rolls them."""

    resources: Resources = Field(
        default_factory=Resources,
        description="Requests and limits of a node. Default requests, where there is no limit: 100m and 256Mi for "
        "Python controllers, 100m and 1280Mi for Java controllers, 250m and 1536Mi for brokers.",
    )
    helper_resources: Resources = Field(
        default_factory=Resources,
        description="Requests and limits of each other container that Quorate adds: init containers, tasks on the "
        "volume of a stopped node, the container that ships the history. Quotas of limits.cpu need a limit. Default: "
        "requests of 50m and 64Mi, 10m and 64Mi where it ships, and limits of 256Mi and 128Mi.",
    )
    labels: Labels = Field(default_factory=dict, description="Labels besides those that Quorate sets.")
    annotations: Annotations = Field(
        default_factory=dict, description="Annotations besides those that Quorate sets."
    )
    node_selector: Annotated[dict[Text, LabelValue], Field(max_length=KUBERNETES_OBJECTS_MAX)] = Field(
        default_factory=dict, description="Labels of the Kubernetes nodes that may run the pods."
    )
    tolerations: Annotated[tuple[AnyObject, ...], Field(strict=False, max_length=KUBERNETES_OBJECTS_MAX)] = (
        Field(default=(), description="Tolerations, as in a pod.")
    )
    affinity: Affinity | None = Field(default=None, description="As in a pod.")
    topology_spread_constraints: _Objects | None = Field(
        default=None,
        description="As in a pod. A constraint without a labelSelector is for the pods of the cluster that have the "
        "same role. Default: pods are spread over Kubernetes nodes and zones where possible; pods with new volumes "
        "must be spread over Kubernetes nodes, or over racks where the pool has `rack`.",
    )
    env: _Objects = Field(
        default=(),
        description="Environment variables of the node's container, as in a container. They replace Quorate's, as "
        "KAFKA_HEAP_OPTS.",
    )
    volumes: _Objects = Field(default=(), description="Volumes besides those that Quorate adds, as in a pod.")
    volume_mounts: _Objects = Field(
        default=(), description="Where the node's container has these volumes, as in a container."
    )
    sidecars: _Sidecars = Field(
        default=(),
        description="Containers beside the node's, as in a pod. They mount what `volumes` names, and the pod is "
        "ready when they are, too.",
    )
    probes: Probes = Field(default_factory=Probes, description="Times of the probes of the node's container.")
    service_account_name: ResourceName | None = Field(
        default=None, description="As in a pod. Its token is not mounted."
    )
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=3600)] | None = Field(
        default=None,
        description="How long a node may take to stop, before it is killed. Default: 30 for controllers, "
        "120 for brokers, which hand their leaderships over first.",
    )
    security_context: AnyObject | None = Field(
        default=None,
        description="As in a pod, in place of the operator's --user-id. With {}, Kubernetes or OpenShift chooses "
        "user and group. runAsNonRoot and seccompProfile keep their values unless they are given here.",
    )
    priority_class_name: ResourceName | None = Field(default=None, description="As in a pod.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="As in a container."
    )
    image_pull_secrets: Annotated[
        tuple[SecretReference, ...],
        Field(strict=False, max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), description="Secrets for the registry of the image.")


class Rack(Model):
    """The rack of each broker, by a label of the Kubernetes node of its pod."""

    topology_key: LabelKey = Field(
        description="The label, for instance topology.kubernetes.io/zone. A pod on a Kubernetes node without it "
        "waits."
    )


class MaintenanceWindow(Model):
    """A time of the week at which automatic restarts may begin."""

    days: Annotated[
        tuple[Weekday, ...],
        Field(strict=False, min_length=1, max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(
        default=WEEKDAYS,
        description="The days on which it begins. Default: each day.",
    )
    start: TimeOfDay = Field(description="When it begins, in UTC: 22:30.")
    duration: WindowDuration = Field(description="How long it lasts: 90m, 4h, 2d.")

    @property
    def start_ms(self) -> int:
        """`start` in milliseconds from midnight."""
        hours, minutes = self.start.split(":")
        return (int(hours) * 60 + int(minutes)) * 60_000

    @property
    def duration_ms(self) -> int:
        """`duration` in milliseconds."""
        return duration_ms(self.duration)


class Rollout(Model):
    """How nodes are restarted and renamed."""

    overlap: Duration = Field(
        default="10m",
        description="How long an old address keeps leading to its node: 90s, 10m, 2h, 1d.",
    )
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="How many nodes of the pool may restart at the same time."
    )
    windows: Annotated[
        tuple[MaintenanceWindow, ...],
        Field(strict=False, max_length=WINDOWS_MAX, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(
        default=(),
        description="When healthy nodes may be restarted for another image or other values in a Secret, as of a "
        "renewed certificate. All other restarts wait for no window. Default: at any time.",
    )

    @property
    def overlap_ms(self) -> int:
        """`overlap` in milliseconds."""
        return duration_ms(self.overlap)


class ControllerRollout(Rollout):
    """How controllers are restarted and renamed: always one at a time, the leader last."""

    max_unavailable: Annotated[int, Field(ge=1, le=1)] = Field(
        default=1, description="Controllers are restarted one at a time."
    )


class ControllersNetworkPolicy(Model):
    """Which clients may connect to controllers, beside the nodes of the cluster and the operator."""

    enabled: bool = Field(
        default=True,
        description="Whether the operator keeps a NetworkPolicy: brokers of the cluster, controllers and the "
        "operator reach the controllers, others only if networkPolicyPeers of their listener names them.",
    )
    metrics_from: NetworkPolicyPeers | None = Field(
        default=None,
        description=(
            "Peers that may connect to port 9404, where metrics and probes are served, as `from` of a NetworkPolicy. "
            "The operator may reach that of brokers. Default: all pods of the Kubernetes cluster, and nothing from "
            "outside."
        ),
    )


class DisruptionBudgets(Model):
    """The PodDisruptionBudgets of a cluster."""

    enabled: bool = Field(
        default=True,
        description="Whether the operator keeps a PodDisruptionBudget for the controllers and one for all brokers. "
        "Without them, a drain of Kubernetes nodes may take the quorum or partitions out of service, unless you keep "
        "others.",
    )


class NetworkPolicy(ControllersNetworkPolicy):
    """Which clients may connect to the brokers of a pool."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether the operator keeps a NetworkPolicy: brokers of the cluster and the operator reach each "
            "listener, clients those that admit them by networkPolicyPeers, and metricsFrom the metrics."
        ),
    )


def _check_rule(rule: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(rule) - _RULE_FIELDS)
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown field; allowed: {', '.join(sorted(_RULE_FIELDS))}")
    pattern = rule.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise ValueError("pattern: missing; it must be given")
    return rule


_RULE_FIELDS: Final = frozenset(
    {"attrNameSnakeCase", "cache", "help", "labels", "name", "pattern", "type", "value", "valueFactor"}
)
RULES_MAX = 200
ExporterRules = Annotated[
    tuple[Annotated[AnyObject, AfterValidator(_check_rule)], ...],
    Field(strict=False, max_length=RULES_MAX, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]
ObjectNames = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^:]+:.+$", max_length=253)], ...],
    Field(strict=False, max_length=RULES_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
]


class Metrics(Model):
    """Metrics of nodes that run stock Kafka."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether Prometheus' JMX exporter runs in them, as an agent of the JVM: it serves /metrics at port 9404. "
            "A change restarts the nodes."
        ),
    )
    rules: ExporterRules = Field(
        default=(),
        description="Rules of the JMX exporter, as in its configuration. They come before Quorate's, and the first "
        "that matches an attribute applies.",
    )
    object_names: ObjectNames = Field(
        default=(),
        description="MBeans that these rules are about, besides those of Quorate's rules: "
        "kafka.server:type=DelayedOperationPurgatory,*.",
    )
