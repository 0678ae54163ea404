"""`exposure` of a listener: how clients outside of Kubernetes reach it, and the Services that they connect to."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from quorate_operator.models.base import (
    Annotations,
    Model,
    NodeId,
    Port,
    check_network,
    listed_texts,
    rules,
)
from quorate_operator.models.hosts import Host

SOURCE_RANGES_MAX = 64
EXTERNAL_IPS_MAX = 16
EXPOSED_NODES_MAX = 1000

ExposureType = Literal["Internal", "LoadBalancer", "NodePort", "Ingress", "Route", "External"]
AddressVerification = Literal["Probe", "DNS", "None"]
IpFamily = Literal["IPv4", "IPv6"]
IpFamilyPolicy = Literal["SingleStack", "PreferDualStack", "RequireDualStack"]
TrafficPolicy = Literal["Cluster", "Local"]

BY_HOST: tuple[ExposureType, ...] = ("Ingress", "Route")
"""The types where one address leads to all nodes; the server name of the TLS handshake (SNI) selects the node."""
NAMED: tuple[ExposureType, ...] = (*BY_HOST, "External")
"""The types that need a host in the manifest, because nothing assigns one."""
OUTSIDE: tuple[ExposureType, ...] = ("LoadBalancer", "NodePort")
"""The types where each node has a Service that clients connect to."""
WITH_SERVICES: tuple[ExposureType, ...] = (*OUTSIDE, *BY_HOST)
"""The types for which each node has a Service."""
PASSTHROUGH_PORT = 443
"""The port where ingress controllers and routers listen for TLS."""

_OF_TYPE: dict[str, tuple[ExposureType, ...]] = {
    "loadBalancerClass": ("LoadBalancer",),
    "sourceRanges": ("LoadBalancer",),
    "externalTrafficPolicy": OUTSIDE,
    "ipFamilyPolicy": WITH_SERVICES,
    "ipFamilies": WITH_SERVICES,
    "nodes": OUTSIDE,
    "bootstrap": OUTSIDE,
    "ingressClassName": ("Ingress",),
    "bootstrapHost": WITH_SERVICES,
}
"""The types of exposure with which a field is allowed."""
_FAMILIES_RULE = "has one entry with ipFamilyPolicy SingleStack"
_FAMILIES_CEL = {
    "rule": "!has(self.ipFamilies) || size(self.ipFamilies) < 2 || !has(self.ipFamilyPolicy) || "
    "self.ipFamilyPolicy != 'SingleStack'",
    "message": f"ipFamilies {_FAMILIES_RULE}",
}
_BALANCER_IP_RULE = "is allowed with type LoadBalancer only"


def _of_type_rule(field: str) -> str:
    return f"is allowed with type {listed_texts(_OF_TYPE[field])} only"


def _check_ip(text: str) -> str:
    try:
        ip_address(text)
    except ValueError as error:
        raise ValueError("must be an IPv4 or IPv6 address") from error
    return text


def _check_distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("each value may appear once")
    return values


_SET = {"x-kubernetes-list-type": "set"}
_SourceRange = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(check_network)]
SourceRanges = Annotated[
    tuple[_SourceRange, ...],
    Field(strict=False, min_length=1, max_length=SOURCE_RANGES_MAX, json_schema_extra=_SET),
]
IpAddress = Annotated[str, Field(min_length=2, max_length=45), AfterValidator(_check_ip)]
ExternalIps = Annotated[
    tuple[IpAddress, ...],
    Field(strict=False, min_length=1, max_length=EXTERNAL_IPS_MAX, json_schema_extra=_SET),
    AfterValidator(_check_distinct),
]
IpFamilies = Annotated[
    tuple[IpFamily, ...],
    Field(strict=False, min_length=1, max_length=2, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    AfterValidator(_check_distinct),
]


def _check_families(policy: IpFamilyPolicy | None, families: IpFamilies | None) -> None:
    if policy == "SingleStack" and families is not None and len(families) > 1:
        raise ValueError(f"ipFamilies: {_FAMILIES_RULE}; it has {', '.join(families)}")


class Services(Model):
    """The Services of a pool inside of Kubernetes."""

    model_config = ConfigDict(json_schema_extra=rules(_FAMILIES_CEL))

    ip_family_policy: IpFamilyPolicy | None = Field(
        default=None, description="ipFamilyPolicy of the Services. Default: that of Kubernetes, SingleStack."
    )
    ip_families: IpFamilies | None = Field(
        default=None,
        description="ipFamilies of the Services. Kubernetes refuses to change the first one of a Service. Default: "
        "that of the Kubernetes cluster.",
    )

    @model_validator(mode="after")
    def _families_are_possible(self) -> Self:
        _check_families(self.ip_family_policy, self.ip_families)
        return self


class ExposedService(Model):
    """Settings of one Service for clients outside of Kubernetes."""

    node_port: Port | None = Field(
        default=None,
        description="nodePort of the Service, in the range of the Kubernetes cluster. Default: a free one.",
    )
    load_balancer_ip: IpAddress | None = Field(
        default=None,
        alias="loadBalancerIP",
        description="loadBalancerIP of the Service, where the provider supports it.",
    )
    external_ips: ExternalIps | None = Field(
        default=None,
        alias="externalIPs",
        description="externalIPs of the Service: addresses that you lead to Kubernetes nodes. Brokers advertise them "
        "only if advertisedHost or nodes[].advertisedHosts names them.",
    )
    annotations: Annotations | None = Field(
        default=None, description="Annotations of the Service, besides exposure.annotations."
    )


class ExposedNode(ExposedService):
    """Settings of the Service of one broker."""

    node_id: NodeId = Field(description="The node id of the broker.")


class Exposure(Model):
    """How clients outside of the cluster's network reach a listener."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                {
                    "rule": f"!has(self.{field}) || has(self.type) && self.type in {list(types)}",
                    "message": f"{field} {_of_type_rule(field)}",
                }
                for field, types in _OF_TYPE.items()
            ),
            _FAMILIES_CEL,
            {
                "rule": "has(self.type) && self.type == 'LoadBalancer' || "
                "(!has(self.nodes) || self.nodes.all(n, !has(n.loadBalancerIP))) && "
                "(!has(self.bootstrap) || !has(self.bootstrap.loadBalancerIP))",
                "message": f"loadBalancerIP {_BALANCER_IP_RULE}",
            },
        )
    )

    type: ExposureType = Field(
        default="Internal",
        description=(
            "Internal: inside Kubernetes only. LoadBalancer, NodePort: one Service of this type for each node. "
            "Ingress: one Ingress for each node, through which TLS passes; Route: the same on OpenShift. "
            "External: names that are managed elsewhere; the operator waits until each reaches its node."
        ),
    )
    verification: AddressVerification | None = Field(
        default=None,
        description=(
            "How the operator verifies an address before a broker advertises it instead of another one, and that it "
            "still leads to its broker. Probe: it connects to the address. DNS: the name has to resolve, for "
            "addresses that the operator can't connect to (sourceRanges, split-horizon DNS, no hairpin). None: not "
            "at all. Default: Probe."
        ),
    )
    annotations: Annotations = Field(
        default_factory=dict,
        description="Annotations of the Services, Ingresses or Routes, for what provides them. Ingresses have those "
        "of ingress-nginx for ssl-passthrough, unless they are given here.",
    )
    load_balancer_class: Annotated[str, Field(min_length=1, max_length=316)] | None = Field(
        default=None,
        description=(
            "loadBalancerClass of the Services. Kubernetes refuses to change it: to do so, use another listener."
        ),
    )
    source_ranges: SourceRanges | None = Field(
        default=None, description="The networks from which load balancers let clients in. Default: all."
    )
    external_traffic_policy: TrafficPolicy | None = Field(
        default=None,
        description="externalTrafficPolicy of the Services. Default: Local with NodePort, because clients get the "
        "address of the pod's Kubernetes node; with LoadBalancer that of Kubernetes, Cluster.",
    )
    ip_family_policy: IpFamilyPolicy | None = Field(
        default=None,
        description="ipFamilyPolicy of the Services. Without it and ipFamilies, both are those of spec.services.",
    )
    ip_families: IpFamilies | None = Field(
        default=None,
        description="ipFamilies of the Services. Of the addresses of a load balancer or Kubernetes node, brokers "
        "advertise one of the first family.",
    )
    nodes: (
        Annotated[
            tuple[ExposedNode, ...],
            Field(
                strict=False,
                max_length=EXPOSED_NODES_MAX,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeId"]},
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="Settings of the Services of single brokers. An entry may precede its broker.",
    )
    bootstrap: ExposedService | None = Field(
        default=None,
        description="With LoadBalancer and NodePort: adds a Service of this type that leads to any broker, for "
        "clients to begin with. `{}` takes all defaults. Default: clients begin with the addresses of the brokers.",
    )
    ingress_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None,
        description="ingressClassName of the Ingresses. Default: the default class of Kubernetes.",
    )
    bootstrap_host: Host | None = Field(
        default=None,
        description="A host that leads to any broker, for clients to begin with; with LoadBalancer and NodePort, you "
        "lead it to the bootstrap Service. Default: the address of the bootstrap Service, or those of the brokers.",
    )

    def service_of(self, node_id: int) -> ExposedService:
        """Return the settings of a broker's Service."""
        return next((node for node in self.nodes or () if node.node_id == node_id), ExposedService())

    @property
    def has_bootstrap_service(self) -> bool:
        """Whether a Service of its own leads to any broker."""
        return self.type in OUTSIDE and (self.bootstrap is not None or self.bootstrap_host is not None)

    @property
    def exposed_services(self) -> tuple[ExposedService, ...]:
        """The settings of all Services."""
        return (*(self.nodes or ()), *((self.bootstrap,) if self.bootstrap is not None else ()))

    @model_validator(mode="after")
    def _each_type_has_what_is_its(self) -> Self:
        for name, definition in type(self).model_fields.items():
            field = definition.alias or name
            allowed = _OF_TYPE.get(field)
            if allowed is not None and self.type not in allowed and getattr(self, name) is not None:
                raise ValueError(f"{field}: {_of_type_rule(field)}; type is {self.type}")
        _check_families(self.ip_family_policy, self.ip_families)
        if self.type != "LoadBalancer" and any(own.load_balancer_ip for own in self.exposed_services):
            raise ValueError(f"loadBalancerIP: {_BALANCER_IP_RULE}; type is {self.type}")
        node_ids = [node.node_id for node in self.nodes or ()]
        if len(set(node_ids)) != len(node_ids):
            raise ValueError(f"nodes: each nodeId may appear once, got {', '.join(map(str, node_ids))}")
        return self


def check_node_ports(exposures: Sequence[Exposure]) -> None:
    """Check that no two Services of a pool are to have the same node port. Raises ValueError."""
    taken: set[int] = set()
    for exposure in exposures:
        for port in (own.node_port for own in exposure.exposed_services if own.node_port is not None):
            if port in taken:
                raise ValueError(
                    f"listeners: exposure: nodePort {port} is set more than once; each Service needs its own"
                )
            taken.add(port)
