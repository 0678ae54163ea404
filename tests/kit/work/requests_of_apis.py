"""Requests of each API at their legal worst, of any number of items: a table of cases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.work.large_image import LARGE, SENDER, directory, topic_id, topic_name
from quorate_controller.control.delegation_tokens import token_hmac
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from quorate_protocol.kafka.generated import alter_client_quotas_request as quotas
from quorate_protocol.kafka.generated import alter_configs_request as replace_configs
from quorate_protocol.kafka.generated import alter_partition_reassignments_request as reassign
from quorate_protocol.kafka.generated import alter_partition_request as isrs
from quorate_protocol.kafka.generated import alter_user_scram_credentials_request as scram
from quorate_protocol.kafka.generated import assign_replicas_to_dirs_request as directories
from quorate_protocol.kafka.generated import broker_registration_request as registration
from quorate_protocol.kafka.generated import create_acls_request as create_acls
from quorate_protocol.kafka.generated import create_partitions_request as grow
from quorate_protocol.kafka.generated import create_topics_request as create
from quorate_protocol.kafka.generated import delete_acls_request as delete_acls
from quorate_protocol.kafka.generated import delete_topics_request as delete
from quorate_protocol.kafka.generated import describe_topic_partitions_request as describe_topics
from quorate_protocol.kafka.generated import elect_leaders_request as elect
from quorate_protocol.kafka.generated import incremental_alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import list_partition_reassignments_request as listing
from quorate_protocol.kafka.generated import update_features_request as features
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.describe_client_quotas_request import DescribeClientQuotasRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kit.work.large_image import Size
    from quorate_protocol.image import MetadataImage

RECORDS: Final = 9_990
"""The most records that a request may have, rounded down."""
ITEMS: Final = 20_000
"""Items that write nothing; only the size of the request bounds them."""
MINUTE: Final = timedelta(minutes=1)
TOKEN_SECRET: Final = "secret"
TOPIC: Final = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is made."""

    size: Size
    image: MetadataImage

    def others(self, count: int) -> range:
        """The numbers of topics other than the large one, at most `count`."""
        return range(1, min(self.size.topics, count + 1))

    @property
    def of_large(self) -> int:
        """The partitions of the large topic."""
        return len(self.image.topics.by_id[topic_id(0)].partitions)


class Run(Enum):
    """How a case is run."""

    DECISION = "a request is decided, replayed and appended"
    REPLAY = "records are replayed, as on a standby"
    TICK = "something that no request asks for is decided"


@dataclass(frozen=True, slots=True)
class Case:
    """An API, what is asked of it, and how many items a request may have at most."""

    api: str
    """Or the type of a record, or a task."""
    what: str
    items: int
    make: Callable[[Place, int], Any]
    follows_cluster: str = ""
    """Why the work grows with the cluster, too."""
    indivisible: str = ""
    """Why a step may exceed the budget of steps."""
    run: Run = Run.DECISION


def _topics(
    count: int, partitions: int = 1, replicas: int = 3, prefix: str = "new"
) -> create.CreateTopicsRequest:
    topics = tuple(
        create.CreatableTopic(
            name=f"{prefix}-{number}",
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=(),
        )
        for number in range(count)
    )
    return create.CreateTopicsRequest(topics=topics, timeout=MINUTE)


def _assigned_topics(count: int) -> create.CreateTopicsRequest:
    given = (create.CreatableReplicaAssignment(partition_index=0, broker_ids=(0, 1, 2)),)
    configs = (create.CreatableTopicConfig(name="retention.ms", value="5"),)
    return create.CreateTopicsRequest(
        topics=tuple(
            create.CreatableTopic(
                name=f"new.{number}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=given,
                configs=configs,
            )
            for number in range(count)
        ),
        timeout=MINUTE,
    )


def _growth(*counts: tuple[str, int]) -> grow.CreatePartitionsRequest:
    topics = tuple(
        grow.CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts
    )
    return grow.CreatePartitionsRequest(topics=topics, timeout=MINUTE, validate_only=False)


def _deletion(*names: str) -> delete.DeleteTopicsRequest:
    topics = tuple(delete.DeleteTopicState(name=name, topic_id=None) for name in names)
    return delete.DeleteTopicsRequest(topics=topics, timeout=MINUTE)


def _alteration(place: Place, count: int) -> alter_configs.IncrementalAlterConfigsRequest:
    change = (alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="7"),)
    return alter_configs.IncrementalAlterConfigsRequest(
        resources=tuple(
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC, resource_name=topic_name(number), configs=change
            )
            for number in place.others(count)
        ),
        validate_only=False,
    )


def _replacement(place: Place, count: int) -> replace_configs.AlterConfigsRequest:
    change = (replace_configs.AlterableConfig(name="retention.ms", value="7"),)
    return replace_configs.AlterConfigsRequest(
        resources=tuple(
            replace_configs.AlterConfigsResource(
                resource_type=TOPIC, resource_name=topic_name(number), configs=change
            )
            for number in place.others(count)
        ),
        validate_only=False,
    )


def _acls(count: int) -> create_acls.CreateAclsRequest:
    return create_acls.CreateAclsRequest(
        creations=tuple(
            create_acls.AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name=f"new-{number}",
                resource_pattern_type=PatternType.LITERAL,
                principal=SENDER,
                host="*",
                operation=AclOperation.READ,
                permission_type=AclPermissionType.ALLOW,
            )
            for number in range(count)
        )
    )


def _filters(count: int) -> delete_acls.DeleteAclsRequest:
    return delete_acls.DeleteAclsRequest(
        filters=tuple(
            delete_acls.DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter=topic_name(number),
                pattern_type_filter=PatternType.LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=AclPermissionType.ANY,
            )
            for number in range(count)
        )
    )


def _election(place: Place, count: int) -> elect.ElectLeadersRequest:
    """Of partitions of the large topic, a twentieth of which need one."""
    partitions = tuple(range(min(count, place.of_large)))
    topics = (elect.TopicPartitions(topic=LARGE, partitions=partitions),)
    return elect.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout=MINUTE)


def _reassignment(place: Place, count: int) -> reassign.AlterPartitionReassignmentsRequest:
    brokers = place.size.brokers
    partitions = tuple(
        reassign.ReassignablePartition(
            partition_index=number, replicas=tuple((number + step) % brokers for step in (11, 12, 13))
        )
        for number in range(min(count, place.of_large))
    )
    return reassign.AlterPartitionReassignmentsRequest(
        timeout=MINUTE, topics=(reassign.ReassignableTopic(name=LARGE, partitions=partitions),)
    )


def _listing(place: Place, count: int) -> listing.ListPartitionReassignmentsRequest:
    topic = listing.ListPartitionReassignmentsTopics(
        name=LARGE, partition_indexes=tuple(range(min(count, place.of_large)))
    )
    return listing.ListPartitionReassignmentsRequest(timeout=MINUTE, topics=(topic,))


def _quotas(count: int) -> quotas.AlterClientQuotasRequest:
    op = (quotas.OpData(key="producer_byte_rate", value=7.0, remove=False),)
    return quotas.AlterClientQuotasRequest(
        entries=tuple(
            quotas.EntryData(
                entity=(quotas.EntityData(entity_type="user", entity_name=f"user-{number}"),), ops=op
            )
            for number in range(count)
        ),
        validate_only=False,
    )


def _credentials(place: Place, count: int) -> scram.AlterUserScramCredentialsRequest:
    half = min(count // 2, place.size.users)
    return scram.AlterUserScramCredentialsRequest(
        deletions=tuple(
            scram.ScramCredentialDeletion(name=f"user-{number}", mechanism=ScramMechanism.SCRAM_SHA_256)
            for number in range(half)
        ),
        upsertions=tuple(
            scram.ScramCredentialUpsertion(
                name=f"new-{number}",
                mechanism=ScramMechanism.SCRAM_SHA_256,
                iterations=4096,
                salt=b"salt",
                salted_password=b"password",
            )
            for number in range(half)
        ),
    )


def _isrs(place: Place, count: int) -> isrs.AlterPartitionRequest:
    """Of partitions that the sender leads, as long as there are some, then of others."""
    topic = place.image.topics.by_id[topic_id(0)]
    numbers = sorted(
        range(min(count, len(topic.partitions))),
        key=lambda partition_id: topic.partitions[partition_id].leader,
    )
    leader = topic.partitions[numbers[0]].leader
    partitions = tuple(
        isrs.PartitionData(
            partition_index=number,
            leader_epoch=0,
            partition_epoch=0,
            new_isr_with_epochs=(isrs.BrokerState(broker_id=leader, broker_epoch=1_000 + leader),),
        )
        for number in numbers
    )
    topics = (isrs.TopicData(topic_id=topic_id(0), partitions=partitions),)
    return isrs.AlterPartitionRequest(broker_id=leader, broker_epoch=1_000 + leader, topics=topics)


def _directories(place: Place, count: int) -> directories.AssignReplicasToDirsRequest:
    partitions = tuple(
        directories.PartitionData(partition_index=number) for number in range(min(count, place.of_large))
    )
    topics = (directories.TopicData(topic_id=topic_id(0), partitions=partitions),)
    given = (directories.DirectoryData(id_=directory(0), topics=topics),)
    return directories.AssignReplicasToDirsRequest(broker_id=0, broker_epoch=1_000, directories=given)


def _described(place: Place, count: int) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=topic_name(number), configuration_keys=None
            )
            for number in place.others(count)
        )
    )


def _pages(
    names: Iterable[str] = (), count: int = 2**31 - 1
) -> describe_topics.DescribeTopicPartitionsRequest:
    """A page of at most `count` partitions, of some topics or of all."""
    topics = tuple(describe_topics.TopicRequest(name=name) for name in names)
    return describe_topics.DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=count, cursor=None
    )


def _registration(broker_id: int) -> registration.BrokerRegistrationRequest:
    return registration.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="cluster",
        incarnation_id=UUID(int=77),
        listeners=(registration.Listener(name="PLAINTEXT", host="b", port=9092, security_protocol=0),),
        features=(
            registration.Feature(name="metadata.version", min_supported_version=7, max_supported_version=33),
            registration.Feature(
                name="eligible.leader.replicas.version", min_supported_version=0, max_supported_version=1
            ),
        ),
        rack="rack-1",
        log_dirs=(directory(broker_id),),
    )


def _heartbeat(broker_id: int, *, want_fence: bool) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=1_000 + broker_id,
        current_metadata_offset=1,
        want_fence=want_fence,
        want_shut_down=False,
    )


def _every_acl() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


ONE_TOPIC: Final = "a topic is written with all its partitions"
COMPARED: Final = "its log directories are compared with those of each broker"
CASES: Final[tuple[Case, ...]] = (
    Case("CreateTopics", "topics of one partition", RECORDS // 2, lambda _, n: _topics(n)),
    Case(
        "CreateTopics", "topics with configs and assignments", RECORDS // 3, lambda _, n: _assigned_topics(n)
    ),
    Case("CreateTopics", "one topic", RECORDS, lambda _, n: _topics(1, n), indivisible=ONE_TOPIC),
    Case("CreateTopics", "topics that exist", ITEMS, lambda _, n: _topics(n, prefix="topic")),
    Case(
        "CreatePartitions",
        "one partition for each topic",
        RECORDS,
        lambda place, n: _growth(*((topic_name(other), 100) for other in place.others(n // 98))),
    ),
    Case(
        "CreatePartitions",
        "one topic",
        RECORDS,
        lambda place, n: _growth((LARGE, place.of_large + n)),
        indivisible=ONE_TOPIC,
    ),
    Case(
        "DeleteTopics", "small topics", RECORDS, lambda place, n: _deletion(*map(topic_name, place.others(n)))
    ),
    Case(
        "DeleteTopics",
        "topics that do not exist",
        ITEMS,
        lambda _, n: _deletion(*(f"no-{i}" for i in range(n))),
    ),
    Case(
        "DeleteTopics",
        "the largest topic",
        1,
        lambda _, _n: _deletion(LARGE),
        "a look at each of its partitions",
        indivisible="a topic is removed as a whole",
    ),
    Case("IncrementalAlterConfigs", "a config of each topic", RECORDS, _alteration),
    Case("AlterConfigs", "a config of each topic", RECORDS, _replacement),
    Case("CreateAcls", "new ACLs", RECORDS, lambda _, n: _acls(n)),
    Case("DeleteAcls", "filters", 10, lambda _, n: _filters(n), "each filter is compared with each ACL"),
    Case("DescribeAcls", "all ACLs", 1, lambda _, _n: _every_acl(), "its response lists the ACLs"),
    Case(
        "DescribeTopicPartitions", "partitions of the largest topic", 2_000, lambda _, n: _pages((LARGE,), n)
    ),
    Case(
        "DescribeTopicPartitions",
        "topics that do not exist",
        ITEMS,
        lambda _, n: _pages(f"absent-{number}" for number in range(n)),
    ),
    Case(
        "DescribeTopicPartitions",
        "the first page of all topics",
        1,
        lambda _, _n: _pages(),
        "their names are sorted",
    ),
    Case(
        "DescribeClientQuotas",
        "all quotas",
        1,
        lambda _, _n: DescribeClientQuotasRequest(components=(), strict=False),
        "its response lists the quotas",
    ),
    Case(
        "DescribeUserScramCredentials",
        "users",
        ITEMS,
        lambda _, n: DescribeUserScramCredentialsRequest(
            users=tuple(UserName(name=f"user-{number}") for number in range(n))
        ),
    ),
    Case(
        "DescribeUserScramCredentials",
        "all users",
        1,
        lambda _, _n: DescribeUserScramCredentialsRequest(users=None),
        "its response lists the users",
    ),
    Case(
        "DescribeDelegationToken",
        "all tokens",
        1,
        lambda _, _n: DescribeDelegationTokenRequest(owners=None),
        "its response lists the tokens",
    ),
    Case("DescribeConfigs", "all configs of each topic", 2_000, _described),
    Case(
        "DescribeCluster",
        "all controllers",
        1,
        lambda _, _n: DescribeClusterRequest(
            include_cluster_authorized_operations=True, endpoint_type=2, include_fenced_brokers=True
        ),
    ),
    Case("ElectLeaders", "partitions of the largest topic", ITEMS, _election),
    Case(
        "ElectLeaders",
        "all leaderless partitions",
        1,
        lambda _, _n: elect.ElectLeadersRequest(election_type=1, topic_partitions=None, timeout=MINUTE),
        "its response lists the topics",
    ),
    Case("AlterPartitionReassignments", "partitions of the largest topic", RECORDS, _reassignment),
    Case("ListPartitionReassignments", "partitions of the largest topic", ITEMS, _listing),
    Case(
        "ListPartitionReassignments",
        "all that run",
        1,
        lambda _, _n: listing.ListPartitionReassignmentsRequest(timeout=MINUTE, topics=None),
    ),
    Case("AlterClientQuotas", "users", RECORDS, lambda _, n: _quotas(n)),
    Case("AlterUserScramCredentials", "users that come and go", RECORDS, _credentials),
    Case("AlterPartition", "partitions of the largest topic", ITEMS, _isrs),
    Case("AssignReplicasToDirs", "partitions of the largest topic", ITEMS, _directories),
    Case(
        "CreateDelegationToken",
        "one",
        1,
        lambda _, _n: CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime=MINUTE
        ),
    ),
    Case(
        "RenewDelegationToken",
        "the first one after an election",
        1,
        lambda _, _n: RenewDelegationTokenRequest(
            hmac=token_hmac(TOKEN_SECRET, "token-0"), renew_period=MINUTE
        ),
        "the HMACs of all tokens are computed once",
    ),
    Case(
        "ExpireDelegationToken",
        "an unknown token",
        1,
        lambda _, _n: ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period=MINUTE),
        "as above",
    ),
    Case(
        "UpdateFeatures",
        "a level",
        1,
        lambda _, _n: features.UpdateFeaturesRequest(
            timeout=MINUTE,
            feature_updates=(features.FeatureUpdateKey(feature="group.version", max_version_level=1),),
        ),
        "each broker has to support it",
    ),
    Case(
        "UpdateFeatures",
        "eligible leader replicas",
        1,
        lambda _, _n: features.UpdateFeaturesRequest(
            timeout=MINUTE,
            feature_updates=(
                features.FeatureUpdateKey(
                    feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2
                ),
            ),
        ),
        "each broker has to support it",
    ),
    Case(
        "BrokerRegistration", "a new broker", 1, lambda place, _n: _registration(place.size.brokers), COMPARED
    ),
    Case("BrokerHeartbeat", "alive", 1, lambda _, _n: _heartbeat(1, want_fence=False)),
    Case(
        "BrokerHeartbeat",
        "wants to be fenced",
        1,
        lambda _, _n: _heartbeat(1, want_fence=True),
        "topics of a broker",
    ),
    Case(
        "UnregisterBroker", "one", 1, lambda _, _n: UnregisterBrokerRequest(broker_id=1), "topics of a broker"
    ),
    Case(
        "AllocateProducerIds",
        "one block",
        1,
        lambda _, _n: AllocateProducerIdsRequest(broker_id=1, broker_epoch=1_001),
    ),
    Case(
        "ControllerRegistration",
        "one",
        1,
        lambda _, _n: ControllerRegistrationRequest(
            controller_id=3001,
            incarnation_id=UUID(int=78),
            zk_migration_ready=False,
            listeners=(),
            features=(),
        ),
    ),
    Case("UnregisterController", "one", 1, lambda _, _n: UnregisterControllerRequest(controller_id=3001)),
)

NOT_CONTROL: Final = {
    "Fetch": "Raft: bytes up to fetch.max.bytes, at any offset of an indexed log",
    "FetchSnapshot": "Raft: bytes up to the maximum of a request",
    "Vote": "Raft: the voters",
    "BeginQuorumEpoch": "Raft: the voters",
    "EndQuorumEpoch": "Raft: the voters",
    "AddRaftVoter": "Raft: the voters",
    "RemoveRaftVoter": "Raft: the voters",
    "UpdateRaftVoter": "Raft: the voters",
    "DescribeQuorum": "Raft: voters and observers",
    "ApiVersions": "the listener, from finalized levels",
    "SaslHandshake": "the listener",
    "SaslAuthenticate": "the listener",
    "Envelope": "the listener opens it; the request inside has a row of its own",
    "ControllerHeartbeat": "the node, from the registered controllers",
}
"""APIs that control does not decide, each with what its work depends on."""
