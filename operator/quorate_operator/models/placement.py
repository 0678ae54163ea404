"""Where controllers run: in pods of their own, or in those of brokers."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from quorate_operator.models.base import Model, ResourceName, rules
from quorate_operator.models.pod_templates import PodTemplate

_POOL_GOES_WITH_TYPE = "pool: is needed with type WithBrokers, and only there"


class Placement(Model):
    """Where the controllers of a quorum run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {"rule": "(self.type == 'WithBrokers') == has(self.pool)", "message": _POOL_GOES_WITH_TYPE}
        )
    )

    type: Literal["Separate", "WithBrokers"] = Field(
        default="Separate",
        description="Separate: each controller has a pod of its own. WithBrokers: each runs as a container of its "
        "own in the pod of the broker with the same offset in its pool, for small clusters. For dynamic quorums of "
        "Python controllers.",
    )
    pool: ResourceName | None = Field(
        default=None,
        description="With WithBrokers, the name of the KafkaBroker. It needs a broker for each controller.",
    )

    @property
    def is_with_brokers(self) -> bool:
        return self.type == "WithBrokers"

    @model_validator(mode="after")
    def _pool_goes_with_type(self) -> Self:
        if self.is_with_brokers != (self.pool is not None):
            raise ValueError(_POOL_GOES_WITH_TYPE)
        return self


_OF_PODS = {
    "labels": "labels",
    "annotations": "annotations",
    "node_selector": "nodeSelector",
    "tolerations": "tolerations",
    "sidecars": "sidecars",
    "image_pull_secrets": "imagePullSecrets",
    "affinity": "affinity",
    "topology_spread_constraints": "topologySpreadConstraints",
    "service_account_name": "serviceAccountName",
    "security_context": "securityContext",
    "priority_class_name": "priorityClassName",
}
"""Fields of a template that are about pods and not about the node's container, and their names in manifests."""
_ALWAYS_THERE = ("labels", "annotations", "nodeSelector", "tolerations", "sidecars", "imagePullSecrets")
"""Those of them that the API server fills in."""
_IN_TEMPLATE_OF_POOL = (
    "with placement.type WithBrokers, pods are those of brokers: set it in their KafkaBroker"
)
_JAVA = (
    "stock Kafka's controller can't run in the pod of a broker, where its memory would be that of a second JVM: "
    "remove implementation: java, or set placement.type: Separate"
)
_STATIC = "WithBrokers is for dynamic quorums, whose voters follow the brokers: set quorum: dynamic"
_FIXED = {
    "rule": "self == oldSelf",
    "message": "can't be changed: the voters are known by the addresses of their pods; create another cluster",
}


def placement_field() -> Placement:
    """Return the field of a spec."""
    field: Placement = Field(
        default_factory=Placement,
        description="Where the controllers run on Kubernetes. It can't be changed.",
        json_schema_extra=rules(_FIXED),
    )
    return field


PLACEMENT_RULES = (
    {
        "rule": "self.placement.type != 'WithBrokers' || self.quorum == 'dynamic'",
        "message": f"placement.type: {_STATIC}",
    },
    {
        "rule": "self.placement.type != 'WithBrokers' || "
        "self.nodes.all(node, !has(node.implementation) || node.implementation == 'python')",
        "message": f"nodes: implementation: {_JAVA}",
    },
    *(
        {
            "rule": "self.placement.type != 'WithBrokers' || "
            + (
                f"size(self.template.{name}) == 0" if name in _ALWAYS_THERE else f"!has(self.template.{name})"
            ),
            "message": f"template.{name}: {_IN_TEMPLATE_OF_POOL}",
        }
        for name in _OF_PODS.values()
    ),
)


def check_placement(placement: Placement, quorum: str, template: PodTemplate, java: Sequence[int]) -> None:
    """Raise ValueError if controllers of this quorum can't run in the pods of brokers. `java` are those of Kafka."""
    if not placement.is_with_brokers:
        return
    if quorum != "dynamic":
        raise ValueError(f"placement.type: {_STATIC}")
    if java:
        raise ValueError(f"nodes: {java[0]}: implementation: {_JAVA}")
    for field, name in _OF_PODS.items():
        value = getattr(template, field)
        if value if name in _ALWAYS_THERE else value is not None:
            raise ValueError(f"template.{name}: {_IN_TEMPLATE_OF_POOL}")
