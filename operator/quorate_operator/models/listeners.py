"""Listeners of a pool: where its nodes listen, and which addresses clients get."""

from ipaddress import ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from quorate_operator.models.base import Annotations, ListenerName, Model, Port, rules
from quorate_operator.models.hosts import Host, HostTemplate
from quorate_operator.models.pod_templates import NetworkPolicyPeers
from quorate_operator.models.security import BrokerSasl, ControllerSasl, Protocol, Sasl, Tls

LISTENERS_MAX = 8
SOURCE_RANGES_MAX = 64

ExposureType = Literal["Internal", "LoadBalancer", "NodePort", "Ingress", "Route", "External"]
BY_HOST: tuple[ExposureType, ...] = ("Ingress", "Route")
"""The types where one address leads to all nodes; the server name of the TLS handshake (SNI) selects the node."""
NAMED: tuple[ExposureType, ...] = (*BY_HOST, "External")
"""The types that need a host in the manifest, because nothing assigns one."""
PASSTHROUGH_PORT = 443
"""The port where ingress controllers and routers listen for TLS."""

_TLS_RULE = "is needed with protocol SSL or SASL_SSL, and allowed with no other"
_SASL_RULE = "is needed with protocol SASL_SSL, and allowed with no other"
_NAMED_RULE = (
    "is required with exposure.type Ingress, Route and External: the name under which clients reach the node"
)
_BY_HOST_RULE = (
    "must be SSL or SASL_SSL with exposure.type Ingress and Route: the TLS handshake names the node"
)
_OF_TYPE: dict[str, tuple[ExposureType, ...]] = {
    "loadBalancerClass": ("LoadBalancer",),
    "sourceRanges": ("LoadBalancer",),
    "ingressClassName": ("Ingress",),
    "bootstrapHost": BY_HOST,
}
"""The types of exposure with which a field is allowed."""


def _of_type_rule(field: str) -> str:
    return f"is allowed with type {' and '.join(_OF_TYPE[field])} only"


def _check_network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError("must be a network like 10.0.0.0/8 or 2001:db8::/32, without host bits") from error
    return text


_SourceRange = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_network)]
SourceRanges = Annotated[
    tuple[_SourceRange, ...],
    Field(
        strict=False,
        min_length=1,
        max_length=SOURCE_RANGES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    ),
]


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
            )
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

    ingress_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None,
        description="ingressClassName of the Ingresses. Default: the default class of Kubernetes.",
    )
    bootstrap_host: Host | None = Field(
        default=None,
        description="With Ingress and Route: a host that leads to any broker, for clients to begin with. Default: "
        "clients begin with those of the brokers.",
    )

    @model_validator(mode="after")
    def _each_type_has_what_is_its(self) -> Self:
        named = {
            "loadBalancerClass": self.load_balancer_class,
            "sourceRanges": self.source_ranges,
            "ingressClassName": self.ingress_class_name,
            "bootstrapHost": self.bootstrap_host,
        }
        for field, value in named.items():
            if value is not None and self.type not in _OF_TYPE[field]:
                raise ValueError(f"{field}: {_of_type_rule(field)}; type is {self.type}")
        return self


_HAS_TYPE = "has(self.exposure) && has(self.exposure.type)"
_SECURED = (
    # Without defaults, which lists do not store: fields that are left out have the value that the rule allows.
    {
        "rule": "(has(self.protocol) && self.protocol in ['SSL', 'SASL_SSL']) == has(self.tls)",
        "message": f"tls {_TLS_RULE}",
    },
    {
        "rule": "(has(self.protocol) && self.protocol == 'SASL_SSL') == has(self.sasl)",
        "message": f"sasl {_SASL_RULE}",
    },
)


class Listener(Model):
    """A listener of each node of the pool."""

    name: ListenerName = Field(
        description="The listener name in Kafka: capital letters, digits and underscores."
    )
    port: Port | None = Field(
        default=None,
        description=(
            "The port. All pods listen on it; local processes listen on port + offset, "
            "or without it on a free port."
        ),
    )
    protocol: Protocol = Field(default="PLAINTEXT", description="The security protocol.")
    tls: Tls | None = Field(
        default=None, description="The certificate; required with protocol SSL and SASL_SSL."
    )
    sasl: Sasl | None = Field(default=None, description="Authentication; required with protocol SASL_SSL.")

    @property
    def has_tokens_alone(self) -> bool:
        """Whether clients log in with tokens alone; nodes and the operator can't."""
        return self.sasl is not None and self.sasl.has_tokens_alone

    @model_validator(mode="after")
    def _protocol_has_what_it_needs(self) -> Self:
        if (self.protocol in ("SSL", "SASL_SSL")) != (self.tls is not None):
            raise ValueError(f"tls: {_TLS_RULE}; protocol is {self.protocol}")
        if (self.protocol == "SASL_SSL") != (self.sasl is not None):
            raise ValueError(f"sasl: {_SASL_RULE}; protocol is {self.protocol}")
        return self


class ControllerListener(Listener):
    """The listener by which controllers and brokers connect to the controllers."""

    model_config = ConfigDict(json_schema_extra=rules(*_SECURED))

    sasl: ControllerSasl | None = Field(
        default=None, description="Authentication; required with protocol SASL_SSL."
    )


class BrokerListener(Listener):
    """A listener of each broker of the pool."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_SECURED,
            {
                "rule": f"!({_HAS_TYPE} && self.exposure.type in {list(NAMED)}) || has(self.advertisedHost)",
                "message": f"advertisedHost {_NAMED_RULE}",
            },
            {
                "rule": f"!({_HAS_TYPE} && self.exposure.type in {list(BY_HOST)}) || "
                "has(self.protocol) && self.protocol != 'PLAINTEXT'",
                "message": f"protocol {_BY_HOST_RULE}",
            },
        )
    )

    sasl: BrokerSasl | None = Field(
        default=None, description="Authentication; required with protocol SASL_SSL."
    )
    advertised_host: HostTemplate | None = Field(
        default=None,
        description=(
            "Template of the advertised host, with {nodeId}, {offset}, {pod}, {pool}, {cluster}, "
            "{service}, {namespace}. Default: the pod's name on Kubernetes, or the address of its "
            "load balancer or Kubernetes node; 127.0.0.1 for local processes."
        ),
    )
    advertised_port: Port | None = Field(
        default=None,
        description="The advertised port, if it differs from the listener's. Default with exposure.type Ingress and "
        f"Route: {PASSTHROUGH_PORT}.",
    )
    interim_host: HostTemplate | None = Field(
        default=None,
        description=(
            "Template of a host that always belongs to the same node: nodes that swap their hosts use it."
        ),
    )
    exposure: Exposure = Field(
        default_factory=Exposure, description="How clients outside Kubernetes reach the listener."
    )
    network_policy_peers: NetworkPolicyPeers | None = Field(
        default=None,
        description="With spec.networkPolicy.enabled: the peers that may connect besides brokers and the operator, "
        "as `from` of a NetworkPolicy. Default: all.",
    )

    @model_validator(mode="after")
    def _what_belongs_together_is_there(self) -> Self:
        if self.exposure.type in NAMED and self.advertised_host is None:
            raise ValueError(f"advertisedHost: {_NAMED_RULE}")
        if self.exposure.type in BY_HOST and self.protocol == "PLAINTEXT":
            raise ValueError(f"protocol: {_BY_HOST_RULE}; it is {self.protocol}")
        return self


ControllerListeners = Annotated[
    tuple[ControllerListener, ...], Field(min_length=1, max_length=1, strict=False)
]
BrokerListeners = Annotated[
    tuple[BrokerListener, ...], Field(min_length=1, max_length=LISTENERS_MAX, strict=False)
]
