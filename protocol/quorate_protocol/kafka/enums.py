"""Kafka's enums: a number on the wire, a name in Kafka's tools and documentation."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, Self

__all__ = (
    "AUTHORIZED_OPERATIONS_OMITTED",
    "CLIENT_ID",
    "IP",
    "SCRAM_ITERATIONS_MIN",
    "USER",
    "AclOperation",
    "AclPermissionType",
    "ConfigOpType",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "ControlRecordType",
    "ElectionType",
    "EndpointType",
    "KafkaEnum",
    "LeaderRecoveryState",
    "PatternType",
    "QuotaMatch",
    "ResourceType",
    "ScramMechanism",
    "SecurityProtocol",
    "UpgradeType",
    "bits_of_operations",
    "operations_of_bits",
)


class KafkaEnum(IntEnum):
    """An enum whose member 0 is ``UNKNOWN``: a number that a newer node sends becomes that member.

    A member is formatted as its name.
    """

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls(0) if isinstance(value, int) else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the member of this name, in any case.

        Raises:
            ValueError: no member has this name; the message lists the names.
        """
        member = cls.__members__.get(text.strip().upper())
        if member is None:
            names = ", ".join(name for name in cls.__members__ if name != "UNKNOWN")
            raise ValueError(f"{text!r} is not one of {names}")
        return member

    def __str__(self) -> str:
        return self.name

    def __format__(self, format_spec: str) -> str:
        return format(self.name, format_spec)


# Configs


class ConfigResourceType(KafkaEnum):
    """A type of object with configs (org.apache.kafka.common.config.ConfigResource.Type; also in ConfigRecord)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(KafkaEnum):
    """Where the value of a config comes from (org.apache.kafka.clients.admin.ConfigEntry.ConfigSource)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(KafkaEnum):
    """Type of a config's value (org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOpType(IntEnum):
    """What IncrementalAlterConfigs does with a config (org.apache.kafka.clients.admin.AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# Security


class SecurityProtocol(IntEnum):
    """How a listener is secured (org.apache.kafka.common.security.auth.SecurityProtocol)."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def is_sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class ScramMechanism(KafkaEnum):
    """The hash of a SCRAM credential (org.apache.kafka.clients.admin.ScramMechanism; KIP-554)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """SASL's name of the mechanism: ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash in ``hashlib``: ``sha256``."""
        return "sha" + self.name.rpartition("_")[2]


SCRAM_ITERATIONS_MIN: Final = 4096
"""The fewest iterations of a SCRAM credential that Kafka accepts (RFC 7677)."""


class ResourceType(KafkaEnum):
    """What an ACL protects (org.apache.kafka.common.resource.ResourceType)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(KafkaEnum):
    """How an ACL's resource name is compared (org.apache.kafka.common.resource.PatternType; KIP-290).

    ANY and MATCH occur only in filters.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(KafkaEnum):
    """Whether an ACL allows or denies; a denial wins (org.apache.kafka.common.acl.AclPermissionType)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclOperation(KafkaEnum):
    """An operation on a resource (org.apache.kafka.common.acl.AclOperation; KIP-140, KIP-430)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations on each type of resource, without ALL (org.apache.kafka.security.authorizer.AclEntry)."""

AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
"""The bit field of a response to a request that did not ask for operations (KIP-430; MetadataResponse)."""


def operations_of_bits(bits: int) -> frozenset[AclOperation] | None:
    """Return the authorized operations in a response's bit field (KIP-430); None when they were omitted."""
    if bits == AUTHORIZED_OPERATIONS_OMITTED:
        return None
    operations = frozenset(AclOperation(number) for number in range(31) if bits >> number & 1)
    return operations - {AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL}


def bits_of_operations(operations: Iterable[AclOperation]) -> int:
    """Return the bit field of authorized operations (KIP-430)."""
    return sum(1 << operation for operation in operations)


# The cluster and its partitions


class EndpointType(KafkaEnum):
    """Which nodes DescribeCluster returns (org.apache.kafka.clients.admin.EndpointType; KIP-919)."""

    UNKNOWN = 0
    BROKER = 1
    CONTROLLER = 2


class ElectionType(IntEnum):
    """How ElectLeaders elects (org.apache.kafka.common.ElectionType; KIP-183, KIP-460).

    PREFERRED elects the first replica; UNCLEAN elects any live replica and may lose records.
    """

    PREFERRED = 0
    UNCLEAN = 1


class LeaderRecoveryState(IntEnum):
    """Whether a leader still recovers from an unclean election (KIP-704).

    Source: org.apache.kafka.metadata.LeaderRecoveryState.
    """

    RECOVERED = 0
    RECOVERING = 1


class UpgradeType(IntEnum):
    """In which direction UpdateFeatures may move a level (KIP-778).

    Source: org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


CLIENT_ID: Final = "client-id"
USER: Final = "user"
IP: Final = "ip"
"""The types of entities of client quotas (KIP-546)."""


class QuotaMatch(IntEnum):
    """Which entities a component of a quota filter matches: one by name, the default, or any.

    Source: org.apache.kafka.common.requests.DescribeClientQuotasRequest, MATCH_TYPE_*; KIP-546.
    """

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class ControlRecordType(IntEnum):
    """Type of a control record (KIP-595, KIP-630, KIP-853).

    Source: org.apache.kafka.common.record.internal.ControlRecordType.
    """

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
