"""KafkaUser: credentials, ACLs and quotas of a principal of a Kafka cluster, as a resource."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from quorate_protocol.kafka.enums import SUPPORTED_OPERATIONS, ResourceType

from quorate_operator.models.base import Duration, Model, ResourceName, duration_ms, rules
from quorate_operator.models.entities import (
    SHARED_ENTITY_RULES,
    DeletionPolicy,
    EntityMetadata,
    EntityStatus,
    SharedEntitySpec,
)
from quorate_operator.models.security import ISSUED_RULES, IssuerRef, Principal, check_validity
from quorate_operator.models.status import StatusModel

ACLS_MAX = 200
OPERATIONS_MAX = 16
USER_NAME_LENGTH_MAX = 249
COMMON_NAME_LENGTH_MAX = 64
"""Of the common name of a certificate (RFC 5280, ub-common-name)."""
CLUSTER_NAME = "kafka-cluster"

AuthenticationType = Literal["scram-sha-512", "scram-sha-256", "tls"]
AclResourceType = Literal["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
Operation = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
    "TwoPhaseCommit",
]
KAFKA_USER_NAME = r"^[A-Za-z0-9._@+-]+$"
KafkaUserName = Annotated[
    str, StringConstraints(pattern=KAFKA_USER_NAME, min_length=1, max_length=USER_NAME_LENGTH_MAX)
]

_ONLY_SCRAM = "secretName: is for scram-sha-512 and scram-sha-256"
_ONLY_OF_SCRAM = "overlap and createdSecretName: are for scram-sha-512 and scram-sha-256"
_ONE_SOURCE = "createdSecretName: is not allowed with secretName, which names a Secret of yours"
_OVERLAP_MIN = "1m"
_ONLY_TLS = "principal: is for tls; else it is User: and the name"
_ISSUED_FOR_TLS = "issuerRef: is for tls"
COMMON_NAME = (
    f"spec.userName: is the common name of the certificate, which has at most {COMMON_NAME_LENGTH_MAX} characters; "
    "by default metadata.name"
)
_OF_CLUSTER = f"name: the resource of type Cluster is {CLUSTER_NAME}, with pattern Literal"


# The API server compares an integer with the minimum as an integer, and would take 0.
ByteRate = Annotated[int, Field(ge=1, le=2**53 - 1)]
"""Bytes per second. Kafka has doubles, which have all integers up to there."""
Rate = Annotated[
    float,
    Field(ge=0.01, json_schema_extra=rules({"rule": "self >= 0.01", "message": "must be at least 0.01"})),
]


class Authentication(Model):
    """What the user logs in with."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {"rule": "!has(self.secretName) || self.type != 'tls'", "message": _ONLY_SCRAM},
            {
                "rule": "!has(self.overlap) && !has(self.createdSecretName) || self.type != 'tls'",
                "message": _ONLY_OF_SCRAM,
            },
            {"rule": "!has(self.createdSecretName) || !has(self.secretName)", "message": _ONE_SOURCE},
            {"rule": "!has(self.principal) || self.type == 'tls'", "message": _ONLY_TLS},
            {"rule": "!has(self.issuerRef) || self.type == 'tls'", "message": _ISSUED_FOR_TLS},
            *ISSUED_RULES,
        )
    )

    type: AuthenticationType = Field(
        description="scram-sha-512 and scram-sha-256: a password in a Secret. tls: a certificate of "
        "issuerRef, or one that is issued elsewhere; then only ACLs and quotas of its principal are managed."
    )
    secret_name: ResourceName | None = Field(
        default=None,
        description="A Secret of yours with the key password. Default: one of the resource's name is made, with "
        "username, password and sasl.jaas.config. Another password in it becomes that of the user.",
    )
    created_secret_name: ResourceName | None = Field(
        default=None,
        description="In place of secretName: the name of the Secret that is made. Another name makes another "
        "password. Default: the resource's name.",
    )
    overlap: Duration | None = Field(
        default=None,
        description="When type changes from one SCRAM mechanism to the other: how long the password of the former "
        "one stays valid, 1m or more. Kafka has one password for each user and mechanism, so a rotation changes type "
        "and the Secret together. Without it, the former password is deleted at once.",
    )
    principal: Principal | None = Field(
        default=None,
        description="The principal of the certificate, as brokers see it. Default: User:CN= and the name.",
    )
    issuer_ref: IssuerRef | None = Field(
        default=None,
        description="With tls: the issuer from which cert-manager gets a certificate whose common name is the user's "
        "name. The operator keeps a Certificate; it and the Secret with tls.crt, tls.key and ca.crt have the "
        "resource's name.",
    )
    duration: Duration | None = Field(
        default=None,
        description="With issuerRef: how long a certificate is valid, 1h or more. Default: cert-manager's, 90 days.",
    )
    renew_before: Duration | None = Field(
        default=None,
        description="With issuerRef: how long before its end a certificate is renewed, 5m or more. Default: "
        "cert-manager's, a third of the duration.",
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type == "tls" and self.secret_name is not None:
            raise ValueError(_ONLY_SCRAM)
        if self.type == "tls" and (self.overlap is not None or self.created_secret_name is not None):
            raise ValueError(_ONLY_OF_SCRAM)
        if self.created_secret_name is not None and self.secret_name is not None:
            raise ValueError(_ONE_SOURCE)
        if self.overlap is not None and duration_ms(self.overlap) < duration_ms(_OVERLAP_MIN):
            raise ValueError(f"overlap: {self.overlap!r}: must be {_OVERLAP_MIN} or more")
        if self.type != "tls" and self.principal is not None:
            raise ValueError(_ONLY_TLS)
        if self.type != "tls" and self.issuer_ref is not None:
            raise ValueError(_ISSUED_FOR_TLS)
        check_validity(self.duration, self.renew_before, is_issued=self.issuer_ref is not None)
        return self


class AclResource(Model):
    """The resource pattern of an ACL."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": f"self.type != 'Cluster' || self.name == '{CLUSTER_NAME}' && "
                "(!has(self.pattern) || self.pattern == 'Literal')",
                "message": _OF_CLUSTER,
            }
        )
    )

    type: AclResourceType = Field(description="The type of the resource.")
    name: Annotated[str, StringConstraints(min_length=1, max_length=249)] = Field(
        description=f"Its name, or the prefix of names; * for all; {CLUSTER_NAME} for the cluster."
    )
    pattern: Literal["Literal", "Prefixed"] = Field(
        default="Literal", description="Whether the name is that of one resource or a prefix."
    )

    @model_validator(mode="after")
    def _cluster_has_one_name(self) -> Self:
        if self.type == "Cluster" and (self.name, self.pattern) != (CLUSTER_NAME, "Literal"):
            raise ValueError(_OF_CLUSTER)
        return self


class Acl(Model):
    """What the user may do or may not do."""

    permission: Literal["Allow", "Deny"] = Field(default="Allow", description="Deny wins over Allow.")
    resource: AclResource = Field(description="What it is about.")
    operations: Annotated[
        tuple[Operation, ...],
        Field(
            strict=False,
            min_length=1,
            max_length=OPERATIONS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = Field(description="Operations with Kafka's names. Read and Write include Describe.")
    host: Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f:.*/]+$", max_length=64)] = Field(
        default="*", description="The address that the user connects from; * for every address."
    )

    @model_validator(mode="after")
    def _operations_are_of_the_type(self) -> Self:
        supported = [
            "".join(part.capitalize() for part in operation.name.split("_"))
            for operation in SUPPORTED_OPERATIONS[ResourceType[enum_name(self.resource.type)]]
        ]
        for operation in self.operations:
            if self.operations.count(operation) > 1:
                raise ValueError(f"operations: {operation} is listed more than once")
            if operation != "All" and operation not in supported:
                allowed = ", ".join(("All", *supported))
                raise ValueError(
                    f"operations: {operation} is not an operation of {self.resource.type}; allowed are {allowed}"
                )
        return self


def enum_name(name: str) -> str:
    """Return `DescribeConfigs` as `DESCRIBE_CONFIGS`."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).strip("_").upper()


class Quotas(Model):
    """Limits of the user, for each broker. A missing limit does not apply."""

    producer_byte_rate: ByteRate | None = Field(
        default=None, description="producer_byte_rate: bytes per second."
    )
    consumer_byte_rate: ByteRate | None = Field(
        default=None, description="consumer_byte_rate: bytes per second."
    )
    request_percentage: Rate | None = Field(
        default=None, description="request_percentage: of the time of a request thread; 100 is one thread."
    )
    controller_mutation_rate: Rate | None = Field(
        default=None,
        description="controller_mutation_rate: partitions created or deleted per second (KIP-599).",
    )


class KafkaUserSpec(SharedEntitySpec):
    """A user: credentials, ACLs and quotas. What the spec does not name stays as it is."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *SHARED_ENTITY_RULES,
            {
                "rule": "has(self.userName) == has(oldSelf.userName) && "
                "(!has(self.userName) || self.userName == oldSelf.userName)",
                "message": "userName can't be changed: create another resource",
            },
            {
                "rule": "(has(self.authentication) && has(self.authentication.principal) ? "
                "self.authentication.principal : '') == (has(oldSelf.authentication) && "
                "has(oldSelf.authentication.principal) ? oldSelf.authentication.principal : '') && "
                "(has(self.authentication) && self.authentication.type == 'tls') == "
                "(has(oldSelf.authentication) && oldSelf.authentication.type == 'tls')",
                "message": "authentication: the principal can't be changed: create another resource",
            },
        )
    )

    user_name: KafkaUserName | None = Field(
        default=None, description="The name in Kafka. Default: metadata.name. It can't be changed."
    )
    authentication: Authentication | None = Field(
        default=None,
        description="What the user logs in with. Without it credentials are not kept here; the principal is User: "
        "and the name.",
    )
    acls: (
        Annotated[
            tuple[Acl, ...],
            Field(strict=False, max_length=ACLS_MAX, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = Field(
        default=None,
        description="All ACLs of the principal: others are removed. Without the field, ACLs stay as they are.",
    )
    quotas: Quotas | None = Field(
        default=None,
        description="All quotas of the user, for any client id. Without the field, quotas stay as they are.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Delete",
        description="What happens to what the spec names (credentials, ACLs, quotas) when the resource is deleted.",
    )


class KafkaUser(Model):
    """`kind: KafkaUser`."""

    api_version: Literal["quorate.dev/v1alpha1"]
    kind: Literal["KafkaUser"]
    metadata: EntityMetadata
    spec: KafkaUserSpec

    @model_validator(mode="after")
    def _name_fits_a_certificate(self) -> Self:
        if self.is_issued and len(self.user_name) > COMMON_NAME_LENGTH_MAX:
            raise ValueError(COMMON_NAME)
        return self

    @property
    def user_name(self) -> str:
        """The name in Kafka."""
        return self.spec.user_name or self.metadata.name

    @property
    def principal(self) -> str:
        """`User:alice`: whose ACLs and quotas these are."""
        authentication = self.spec.authentication
        if authentication is None or authentication.type != "tls":
            return f"User:{self.user_name}"
        return authentication.principal or f"User:CN={self.user_name}"

    @property
    def mechanism(self) -> str | None:
        """The SCRAM mechanism, SCRAM-SHA-512 for instance, or None."""
        authentication = self.spec.authentication
        return None if authentication is None or authentication.type == "tls" else authentication.type.upper()

    @property
    def secret_name(self) -> str | None:
        """The Secret with the password, or with the certificate that is issued."""
        authentication = self.spec.authentication
        if authentication is None or (self.mechanism is None and not self.is_issued):
            return None
        return authentication.secret_name or authentication.created_secret_name or self.metadata.name

    @property
    def is_issued(self) -> bool:
        """Whether the operator asks cert-manager for a certificate."""
        return self.spec.authentication is not None and self.spec.authentication.issuer_ref is not None

    @property
    def has_own_secret(self) -> bool:
        """Whether the Secret is made for it."""
        return self.spec.authentication is not None and self.spec.authentication.secret_name is None


class FormerPasswordStatus(StatusModel):
    """The password that the current one replaced, while both are valid."""

    mechanism: str | None = Field(default=None, description="The SCRAM mechanism that it is for.")
    secret_version: str | None = Field(
        default=None, description="The uid and resourceVersion of the Secret that it came from."
    )
    replaced_at: str | None = Field(
        default=None,
        description="When the current password was set.",
        json_schema_extra={"format": "date-time"},
    )
    valid_until: str | None = Field(
        default=None,
        description="When its credentials are deleted. Connections that are open then stay open.",
        json_schema_extra={"format": "date-time"},
    )


class KafkaUserStatus(EntityStatus):
    """The observed state of a user."""

    principal: str | None = Field(default=None, description="The principal of the ACLs and quotas.")
    mechanism: str | None = Field(default=None, description="The SCRAM mechanism of the current password.")
    secret_name: str | None = Field(
        default=None, description="The Secret with the password or the certificate."
    )
    secret_version: str | None = Field(
        default=None, description="The uid and resourceVersion of the Secret whose password Kafka has."
    )
    former_password: FormerPasswordStatus | None = Field(
        default=None, description="The password that stays valid for a time beside the current one."
    )
    acls: int | None = Field(
        default=None, description="Number of the principal's ACLs, one for each operation."
    )
