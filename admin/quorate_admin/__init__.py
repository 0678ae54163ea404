# ruff: noqa: I001 - one statement for each module, though the names are exported by `as`
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
        CLIENT_ID as CLIENT_ID,
        IP as IP,
        USER as USER,
        AclOperation as AclOperation,
        AclPermissionType as AclPermissionType,
        ConfigOpType as ConfigOpType,
        ConfigResourceType as ConfigResourceType,
        ConfigSource as ConfigSource,
        ConfigType as ConfigType,
        ElectionType as ElectionType,
        PatternType as PatternType,
        QuotaMatch as QuotaMatch,
        ResourceType as ResourceType,
        ScramMechanism as ScramMechanism,
        UpgradeType as UpgradeType,
    )

    from quorate_admin.client import AdminClient as AdminClient
    from quorate_admin.config import (
        Address as Address,
        AdminConfig as AdminConfig,
        MetadataRecoveryStrategy as MetadataRecoveryStrategy,
    )
    from quorate_admin.errors import (
        AdminError as AdminError,
        AuthenticationError as AuthenticationError,
        ConfigError as ConfigError,
        ConnectionFailedError as ConnectionFailedError,
        ForeignProtocolError as ForeignProtocolError,
        ErrorCode as ErrorCode,
        MismatchedEndpointError as MismatchedEndpointError,
        RebootstrapRequiredError as RebootstrapRequiredError,
        RefreshRefusedError as RefreshRefusedError,
        RequestTimeoutError as RequestTimeoutError,
        ServerError as ServerError,
        TlsExpectedError as TlsExpectedError,
        UnreachableError as UnreachableError,
        UnsupportedByServerError as UnsupportedByServerError,
        UnsupportedEndpointError as UnsupportedEndpointError,
    )
    from quorate_admin.metadata_log import (
        LiveImage as LiveImage,
        MetadataFeed as MetadataFeed,
        ObservingError as ObservingError,
        load_live_image as load_live_image,
    )
    from quorate_admin.results import Results as Results
    from quorate_admin.sync import SyncAdminClient as SyncAdminClient
    from quorate_admin.types.acls import (
        ANY_ACL as ANY_ACL,
        WILDCARD as WILDCARD,
        AccessControlEntry as AccessControlEntry,
        AccessControlEntryFilter as AccessControlEntryFilter,
        AclBinding as AclBinding,
        AclBindingFilter as AclBindingFilter,
        AclDeletion as AclDeletion,
        ResourcePattern as ResourcePattern,
        ResourcePatternFilter as ResourcePatternFilter,
    )
    from quorate_admin.types.cluster import (
        ClusterDescription as ClusterDescription,
        ControllerListener as ControllerListener,
        ControllerRegistration as ControllerRegistration,
        FeatureDescription as FeatureDescription,
        FeatureUpdate as FeatureUpdate,
        GroupListing as GroupListing,
        NodeApiVersions as NodeApiVersions,
        NodeDescription as NodeDescription,
        QuorumDescription as QuorumDescription,
        RaftVoterEndpoint as RaftVoterEndpoint,
        ReplicaDescription as ReplicaDescription,
    )
    from quorate_admin.types.configs import (
        AlterConfigOp as AlterConfigOp,
        ConfigEntry as ConfigEntry,
        ConfigResource as ConfigResource,
        ConfigSynonym as ConfigSynonym,
    )
    from quorate_admin.types.credentials import (
        DelegationToken as DelegationToken,
        KafkaPrincipal as KafkaPrincipal,
        ScramCredentialInfo as ScramCredentialInfo,
        UserScramCredentialDeletion as UserScramCredentialDeletion,
        UserScramCredentialsDescription as UserScramCredentialsDescription,
        UserScramCredentialUpsertion as UserScramCredentialUpsertion,
    )
    from quorate_admin.types.partitions import (
        LogDirDescription as LogDirDescription,
        PartitionReassignment as PartitionReassignment,
        ReplicaInfo as ReplicaInfo,
        ReplicaLogDirInfo as ReplicaLogDirInfo,
        TopicPartition as TopicPartition,
        TopicPartitionReplica as TopicPartitionReplica,
    )
    from quorate_admin.types.quotas import (
        ClientQuotaAlteration as ClientQuotaAlteration,
        ClientQuotaEntity as ClientQuotaEntity,
        ClientQuotaFilter as ClientQuotaFilter,
        ClientQuotaFilterComponent as ClientQuotaFilterComponent,
    )
    from quorate_admin.types.topics import (
        CreatedTopic as CreatedTopic,
        NewPartitions as NewPartitions,
        NewTopic as NewTopic,
        PartitionDescription as PartitionDescription,
        TopicDescription as TopicDescription,
        TopicListing as TopicListing,
    )

_MODULES = {
    ".client": "AdminClient",
    ".config": "Address AdminConfig MetadataRecoveryStrategy",
    ".errors": "AdminError AuthenticationError ConfigError ConnectionFailedError ErrorCode "
    "ForeignProtocolError MismatchedEndpointError RebootstrapRequiredError RefreshRefusedError "
    "RequestTimeoutError ServerError TlsExpectedError UnreachableError "
    "UnsupportedByServerError UnsupportedEndpointError",
    ".metadata_log": "LiveImage MetadataFeed ObservingError load_live_image",
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
    ".types.quotas": "ClientQuotaAlteration ClientQuotaEntity ClientQuotaFilter ClientQuotaFilterComponent",
    ".types.topics": "CreatedTopic NewPartitions NewTopic PartitionDescription TopicDescription TopicListing",
    "quorate_protocol.kafka.enums": "CLIENT_ID IP USER "
    "AclOperation AclPermissionType ConfigOpType ConfigResourceType "
    "ConfigSource ConfigType ElectionType PatternType QuotaMatch "
    "ResourceType ScramMechanism UpgradeType",
}
"""The public names by module; the imports above say the same to type checkers, which export what has an `as`."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = tuple(sorted(_MODULE_OF))


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
