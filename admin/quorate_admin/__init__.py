"""An asynchronous admin client for Apache Kafka, with the names of Kafka's Admin, and the diagnosis of a cluster.

    from quorate_admin import AdminClient, NewTopic

    async with AdminClient(bootstrap_servers=["localhost:9092"]) as admin:
        created = await admin.create_topics([NewTopic(name="orders", partitions=3)])
        created.raise_any()

`SyncAdminClient` has the same methods for code without an event loop. `LiveImage` and `MetadataFeed` follow the
metadata log of a cluster. `quorate_admin.diagnosis` finds problems of a cluster and blockers of its upgrades.

Names are loaded on first use (PEP 562), so that a program that needs only the errors does not load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate_protocol.kafka.enums import (
        AclOperation,
        AclPermissionType,
        ConfigOpType,
        ConfigResourceType,
        ConfigSource,
        ConfigType,
        ElectionType,
        PatternType,
        QuotaMatch,
        ResourceType,
        ScramMechanism,
        UpgradeType,
    )

    from quorate_admin.client import AdminClient
    from quorate_admin.config import Address, AdminConfig, MetadataRecoveryStrategy
    from quorate_admin.errors import (
        AdminError,
        AuthenticationError,
        ConfigError,
        ConnectionFailedError,
        ErrorCode,
        MismatchedEndpointError,
        RebootstrapRequiredError,
        RefreshRefusedError,
        RequestTimeoutError,
        ServerError,
        TlsExpectedError,
        UnreachableError,
        UnsupportedByServerError,
        UnsupportedEndpointError,
    )
    from quorate_admin.observing import LiveImage, MetadataFeed, ObservingError, load_live_image
    from quorate_admin.results import Results
    from quorate_admin.sync import SyncAdminClient
    from quorate_admin.types.acls import (
        ANY_ACL,
        WILDCARD,
        AccessControlEntry,
        AccessControlEntryFilter,
        AclBinding,
        AclBindingFilter,
        AclDeletion,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from quorate_admin.types.cluster import (
        ClusterDescription,
        ControllerListener,
        ControllerRegistration,
        FeatureDescription,
        FeatureUpdate,
        GroupListing,
        NodeApiVersions,
        NodeDescription,
        QuorumDescription,
        RaftVoterEndpoint,
        ReplicaDescription,
    )
    from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource, ConfigSynonym
    from quorate_admin.types.credentials import (
        DelegationToken,
        KafkaPrincipal,
        ScramCredentialInfo,
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )
    from quorate_admin.types.partitions import (
        LogDirDescription,
        PartitionReassignment,
        ReplicaInfo,
        ReplicaLogDirInfo,
        TopicPartition,
        TopicPartitionReplica,
    )
    from quorate_admin.types.quotas import (
        CLIENT_ID,
        IP,
        USER,
        ClientQuotaAlteration,
        ClientQuotaEntity,
        ClientQuotaFilter,
        ClientQuotaFilterComponent,
    )
    from quorate_admin.types.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        TopicDescription,
        TopicListing,
    )

__all__ = (
    "ANY_ACL",
    "CLIENT_ID",
    "IP",
    "USER",
    "WILDCARD",
    "AccessControlEntry",
    "AccessControlEntryFilter",
    "AclBinding",
    "AclBindingFilter",
    "AclDeletion",
    "AclOperation",
    "AclPermissionType",
    "Address",
    "AdminClient",
    "AdminConfig",
    "AdminError",
    "AlterConfigOp",
    "AuthenticationError",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigError",
    "ConfigOpType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConnectionFailedError",
    "ControllerListener",
    "ControllerRegistration",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "ErrorCode",
    "FeatureDescription",
    "FeatureUpdate",
    "GroupListing",
    "KafkaPrincipal",
    "LiveImage",
    "LogDirDescription",
    "MetadataFeed",
    "MetadataRecoveryStrategy",
    "MismatchedEndpointError",
    "NewPartitions",
    "NewTopic",
    "NodeApiVersions",
    "NodeDescription",
    "ObservingError",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "QuorumDescription",
    "QuotaMatch",
    "RaftVoterEndpoint",
    "RebootstrapRequiredError",
    "RefreshRefusedError",
    "ReplicaDescription",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "RequestTimeoutError",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ServerError",
    "SyncAdminClient",
    "TlsExpectedError",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "UnreachableError",
    "UnsupportedByServerError",
    "UnsupportedEndpointError",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
    "load_live_image",
)

_MODULES = {
    ".client": "AdminClient",
    ".config": "Address AdminConfig MetadataRecoveryStrategy",
    ".errors": "AdminError AuthenticationError ConfigError ConnectionFailedError ErrorCode "
    "MismatchedEndpointError RebootstrapRequiredError RefreshRefusedError "
    "RequestTimeoutError ServerError TlsExpectedError UnreachableError "
    "UnsupportedByServerError UnsupportedEndpointError",
    ".observing": "LiveImage MetadataFeed ObservingError load_live_image",
    ".results": "Results",
    ".sync": "SyncAdminClient",
    ".types.acls": "ANY_ACL WILDCARD AccessControlEntry AccessControlEntryFilter AclBinding "
    "AclBindingFilter AclDeletion ResourcePattern ResourcePatternFilter",
    ".types.cluster": "ClusterDescription ControllerListener ControllerRegistration "
    "FeatureDescription FeatureUpdate GroupListing NodeApiVersions NodeDescription "
    "QuorumDescription RaftVoterEndpoint ReplicaDescription",
    ".types.configs": "AlterConfigOp ConfigEntry ConfigResource ConfigSynonym",
    ".types.credentials": "DelegationToken KafkaPrincipal ScramCredentialInfo "
    "UserScramCredentialDeletion UserScramCredentialsDescription "
    "UserScramCredentialUpsertion",
    ".types.partitions": "LogDirDescription PartitionReassignment ReplicaInfo ReplicaLogDirInfo "
    "TopicPartition TopicPartitionReplica",
    ".types.quotas": "CLIENT_ID IP USER ClientQuotaAlteration ClientQuotaEntity ClientQuotaFilter "
    "ClientQuotaFilterComponent",
    ".types.topics": "CreatedTopic NewPartitions NewTopic PartitionDescription TopicDescription TopicListing",
    "quorate_protocol.kafka.enums": "AclOperation AclPermissionType ConfigOpType ConfigResourceType "
    "ConfigSource ConfigType ElectionType PatternType QuotaMatch "
    "ResourceType ScramMechanism UpgradeType",
}
"""The public names that each module defines; the imports above say the same to type checkers."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """The public name, from the module that defines it. Called once for each: the value is kept here.

    Raises:
        AttributeError: the package exports no such name.
    """
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not, beside what every module has."""
    return sorted({*globals(), *__all__})
