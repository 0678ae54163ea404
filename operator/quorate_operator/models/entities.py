"""What KafkaTopic, KafkaUser and KafkaRebalance share: their Kafka cluster, their deletion, their status."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from quorate_operator.models.base import Metadata, Model, ResourceName, rules
from quorate_operator.models.security import TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY
from quorate_operator.models.status import Condition, Message, StatusModel

BOOTSTRAP_SERVERS_MAX = 32
CHANGES_MAX = 50
NAME_LENGTH_MAX = 253
NAMESPACES_MAX = 256
USERNAME, PASSWORD, JAAS_CONFIG, SASL_MECHANISM = "username", "password", "sasl.jaas.config", "sasl.mechanism"
"""The keys of a Secret with a login."""

EntityName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", min_length=1, max_length=NAME_LENGTH_MAX),
]
ServerAddress = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$", max_length=260)
]
ClientProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
EntityNamespaces = Annotated[
    tuple[
        Annotated[
            str,
            StringConstraints(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$", min_length=1, max_length=63),
        ],
        ...,
    ],
    Field(strict=False, max_length=NAMESPACES_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
]
"""The namespaces whose topics and users may be in a cluster; `*` stands for all."""
DeletionPolicy = Literal["Retain", "Delete"]

_ONE_CLUSTER = "either cluster or bootstrapServers must be given: which Kafka cluster it is in"
_SECURITY_ALONE = "security: is for bootstrapServers; a cluster of this namespace says how it is secured"
_NAMESPACE_ALONE = "clusterNamespace: is the namespace of cluster; bootstrapServers are in none"
_MECHANISM = "mechanism: is needed with protocol SASL_SSL or SASL_PLAINTEXT, and allowed with no other"
_LOGIN_NEEDED = (
    "secretName: is needed with protocol SASL_SSL or SASL_PLAINTEXT, and not allowed with PLAINTEXT"
)


class ClientSecurity(Model):
    """How the operator connects to brokers that it does not run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {"rule": "self.protocol.startsWith('SASL') == has(self.mechanism)", "message": _MECHANISM},
            {
                "rule": "self.protocol == 'SSL' || self.protocol.startsWith('SASL') == has(self.secretName)",
                "message": _LOGIN_NEEDED,
            },
        )
    )

    protocol: ClientProtocol = Field(description="security.protocol.")
    mechanism: ClientMechanism | None = Field(default=None, description="sasl.mechanism.")
    secret_name: ResourceName | None = Field(
        default=None,
        description=(
            "A Secret with username and password for SASL; ca.crt, the authorities to trust (default: those of the "
            "operator's image); tls.crt and tls.key, a certificate to show."
        ),
    )

    @property
    def has_sasl(self) -> bool:
        """Whether the operator logs in."""
        return self.protocol.startswith("SASL")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.has_sasl != (self.mechanism is not None):
            raise ValueError(_MECHANISM)
        if self.protocol != "SSL" and self.has_sasl != (self.secret_name is not None):
            raise ValueError(_LOGIN_NEEDED)
        return self

    def secret_fault(self, values: Mapping[str, str] | None) -> str | None:
        """Return what is wrong with the Secret, None if nothing is; `values` is None if there is no such Secret."""
        if self.secret_name is None:
            return None
        where = f"spec.security.secretName: {self.secret_name!r}"
        if values is None:
            return f"{where}: no such Secret"
        needs = (USERNAME, PASSWORD) if self.has_sasl else ()
        lacks = [key for key in needs if not values.get(key)]
        if lacks:
            return f"{where}: the Secret has no {' and no '.join(lacks)}"
        if (TLS_CERTIFICATE in values) != (TLS_KEY in values):
            return f"{where}: the Secret must have both {TLS_CERTIFICATE} and {TLS_KEY}, or neither"
        if self.protocol == "SSL" and not {TLS_AUTHORITIES, TLS_CERTIFICATE} & values.keys():
            return f"{where}: the Secret has neither {TLS_AUTHORITIES} nor {TLS_CERTIFICATE} and {TLS_KEY}"
        return None


ENTITY_RULES: tuple[Mapping[str, str], ...] = (
    {"rule": "has(self.cluster) != has(self.bootstrapServers)", "message": _ONE_CLUSTER},
    {"rule": "!has(self.security) || has(self.bootstrapServers)", "message": _SECURITY_ALONE},
    {
        "rule": "has(self.cluster) == has(oldSelf.cluster) && "
        "(!has(self.cluster) || self.cluster == oldSelf.cluster)",
        "message": "cluster can't be changed: create another resource",
    },
)
"""The rules of every spec for the API server."""

SHARED_ENTITY_RULES: tuple[Mapping[str, str], ...] = (
    *ENTITY_RULES,
    {"rule": "!has(self.clusterNamespace) || has(self.cluster)", "message": _NAMESPACE_ALONE},
    {
        "rule": "has(self.clusterNamespace) == has(oldSelf.clusterNamespace) && "
        "(!has(self.clusterNamespace) || self.clusterNamespace == oldSelf.clusterNamespace)",
        "message": "clusterNamespace can't be changed: create another resource",
    },
)
"""The rules of specs that may name a cluster of another namespace."""


class EntitySpec(Model):
    """The Kafka cluster, and what happens in Kafka when the resource is deleted."""

    cluster: ResourceName | None = Field(
        default=None, description="The name of a KafkaController of this namespace. It can't be changed."
    )
    bootstrap_servers: (
        Annotated[
            tuple[ServerAddress, ...],
            Field(
                strict=False,
                min_length=1,
                max_length=BOOTSTRAP_SERVERS_MAX,
                json_schema_extra={"x-kubernetes-list-type": "set"},
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="host:port of brokers of any Kafka cluster in KRaft mode, instead of cluster. No others are "
        "connected to.",
    )
    security: ClientSecurity | None = Field(
        default=None, description="How to connect to bootstrapServers. Default: PLAINTEXT."
    )

    @model_validator(mode="after")
    def _is_in_one_cluster(self) -> Self:
        if (self.cluster is None) == (self.bootstrap_servers is None):
            raise ValueError(_ONE_CLUSTER)
        if self.security is not None and self.bootstrap_servers is None:
            raise ValueError(_SECURITY_ALONE)
        return self


class SharedEntitySpec(EntitySpec):
    """The same, of a resource whose cluster may be in another namespace."""

    cluster_namespace: ResourceName | None = Field(
        default=None,
        description="The namespace of that KafkaController, which must list the namespace of this resource in its "
        "spec.entityNamespaces. Default: the namespace of this resource. It can't be changed.",
    )

    @model_validator(mode="after")
    def _has_a_cluster_in_the_namespace(self) -> Self:
        if self.cluster_namespace is not None and self.cluster is None:
            raise ValueError(_NAMESPACE_ALONE)
        return self


class EntityMetadata(Metadata):
    """As for clusters, with a name as long as Kubernetes allows, because no pod is named after it."""

    name: EntityName


_CONDITIONS = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class EntityStatus(StatusModel):
    """The fields that the statuses of topics, users and rebalances share."""

    observed_generation: int | None = Field(
        default=None, description="The metadata.generation of the observed spec."
    )
    conditions: Annotated[
        tuple[Condition, ...], Field(strict=False, max_length=8, json_schema_extra=_CONDITIONS)
    ] = Field(default=(), description="Ready, Reconciling and Stalled, as kstatus defines them.")
    cluster_id: str | None = Field(default=None, description="The id of the Kafka cluster that answered.")
    changes: Annotated[
        tuple[Message, ...],
        Field(strict=False, max_length=CHANGES_MAX, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=(), description="How it differs from the spec: what is left to do, or the first of it.")
