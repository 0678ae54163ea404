"""The operation that each request needs on the cluster, as stock Kafka's ControllerApis (4.4.0) demands it, or
KafkaApis of its brokers where its controllers do not serve the request.

The other tests take the operation from the product's table, so that they can't see a wrong one.
"""

from quorate_controller.server.authorization import ON_CLUSTER
from quorate_protocol.kafka.apis import ApiKey, ExtensionKey
from quorate_protocol.kafka.enums import AclOperation

KAFKA = {
    AclOperation.CLUSTER_ACTION: {
        # What nodes ask each other: replication and elections, the life of brokers and controllers.
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ExtensionKey.CONTROLLER_HEARTBEAT,  # Quorate's own, between controllers (KIP-631)
    },
    AclOperation.ALTER: {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    },
    AclOperation.ALTER_CONFIGS: {ApiKey.ALTER_CLIENT_QUOTAS},
    AclOperation.DESCRIBE_CONFIGS: {ApiKey.DESCRIBE_CLIENT_QUOTAS},
    AclOperation.DESCRIBE: {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    },
}


def test_each_request_needs_the_operation_that_kafka_demands() -> None:
    needed: dict[AclOperation, set[int]] = {}
    for key, operation in ON_CLUSTER.items():
        needed.setdefault(operation, set()).add(key)
    assert needed == KAFKA
