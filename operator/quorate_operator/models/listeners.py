"""Listeners of a pool: where its nodes listen, and which addresses clients get."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from quorate_operator.models.base import ListenerName, Model, Port, rules
from quorate_operator.models.exposures import BY_HOST, NAMED, PASSTHROUGH_PORT, Exposure
from quorate_operator.models.hosts import HostTemplate
from quorate_operator.models.pod_templates import NetworkPolicyPeers
from quorate_operator.models.security import BrokerSasl, ControllerSasl, Protocol, Sasl, Tls

LISTENERS_MAX = 8
CONTROLLER_LISTENERS_MAX = 2
"""One, and while nodes move to another one both."""

_TLS = ("SSL", "SASL_SSL")
_TLS_RULE = "is allowed with protocol SSL and SASL_SSL only"
_SASL_RULE = "is needed with protocol SASL_SSL, and allowed with no other"
_NAMED_RULE = (
    "is required with exposure.type Ingress, Route and External: the name under which clients reach the node"
)
_BY_HOST_RULE = (
    "must be SSL or SASL_SSL with exposure.type Ingress and Route: the TLS handshake names the node"
)
_HAS_TYPE = "has(self.exposure) && has(self.exposure.type)"
_SECURED = (
    # Without defaults, which lists do not store: fields that are left out have the value that the rule allows.
    {
        "rule": "!has(self.tls) || has(self.protocol) && self.protocol in ['SSL', 'SASL_SSL']",
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
        default=None,
        description="The certificate, with protocol SSL and SASL_SSL. Default: one that the operator issues.",
    )
    sasl: Sasl | None = Field(default=None, description="Authentication; required with protocol SASL_SSL.")

    @property
    def has_tokens_alone(self) -> bool:
        """Whether clients log in with tokens alone; nodes and the operator can't."""
        return self.sasl is not None and self.sasl.has_tokens_alone

    @model_validator(mode="before")
    @classmethod
    def _with_default_of_tls(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("protocol") in _TLS and given.get("tls") is None:
            return {**given, "tls": {}}
        return given

    @model_validator(mode="after")
    def _protocol_has_what_it_needs(self) -> Self:
        if self.tls is not None and self.protocol not in _TLS:
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
    network_policy_peers: NetworkPolicyPeers | None = Field(
        default=None,
        description="The peers that may connect besides the nodes of the cluster and the operator, as `from` of a "
        "NetworkPolicy: admin clients, and brokers or controllers that run elsewhere. Default: no others.",
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
    tuple[ControllerListener, ...], Field(min_length=1, max_length=CONTROLLER_LISTENERS_MAX, strict=False)
]
BrokerListeners = Annotated[
    tuple[BrokerListener, ...], Field(min_length=1, max_length=LISTENERS_MAX, strict=False)
]
