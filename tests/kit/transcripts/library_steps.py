"""What the admin clients of librdkafka and kafka-python are asked to do: a name of each call, and the call.

A call returns what the client answers, or raises what the client raises: both are compared as text.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Final

import kafka.admin as kafka_python
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError
from kit.transcripts.clusters import GONE

TIMEOUT_S: Final = 30
Calls = Mapping[str, Callable[[Any], Any]]


def result_text(call: Callable[[Any], Any], client: Any) -> str:
    """What a call returns or raises, as text."""
    try:
        return _text(call(client))
    except (KafkaException, KafkaError) as error:
        return f"{type(error).__name__}: {error}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(sorted(f"{_text(key)}: {_text(part)}" for key, part in value.items()))
    if isinstance(value, (list, tuple, set)):
        return "\n".join(sorted(map(_text, value)))
    return str(value)


def _each(futures: Mapping[Any, Any]) -> dict[str, str]:
    """The outcome of each future."""
    return {
        str(key): result_text(lambda future: future.result(TIMEOUT_S), future)
        for key, future in futures.items()
    }


# librdkafka


def _change(kind: ResourceType, name: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> Any:
    configs = [ConfigEntry(key, value, incremental_operation=op) for key, value, op in entries]
    resource = ConfigResource(kind, name, incremental_configs=configs)
    return lambda admin: _each(admin.incremental_alter_configs([resource]))


def _created(*topics: NewTopic, **options: Any) -> Any:
    return lambda admin: _each(admin.create_topics(list(topics), **options))


def _acl(principal: str, operation: AclOperation = AclOperation.READ) -> AclBinding:
    return AclBinding(
        *(ResourceType.TOPIC, "librdkafka", ResourcePatternType.PREFIXED, principal, "*"),
        *(operation, AclPermissionType.ALLOW),
    )


def _filter(principal: str | None) -> AclBindingFilter:
    return AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, principal, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )


def _described_acls(admin: AdminClient) -> Any:
    return admin.describe_acls(_filter("User:librdkafka")).result(TIMEOUT_S)


_SET, _DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
_APPEND, _SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
_TOPIC, _BROKER = ResourceType.TOPIC, ResourceType.BROKER
_NAME = "librdkafka-topic"

LIBRDKAFKA: Final[Calls] = {
    "create": _created(NewTopic(_NAME, 2, replica_assignment=[[0, 1], [1, 0]], config={"retention.ms": "7"})),
    "create what is there": _created(NewTopic(_NAME, 1, 1)),
    "create wrong ones": _created(
        NewTopic("a b", 1, 1),
        NewTopic("wide", 1, 9),
        NewTopic("none", 0, 1),
        NewTopic("odd", 1, 1, config={"nothing": "1"}),
        NewTopic("odder", 1, 1, config={"retention.ms": "x"}),
        NewTopic("far", 1, replica_assignment=[[0, 77]]),
    ),
    "create only to see": _created(NewTopic("seen", 2, 2), NewTopic(_NAME, 1, 1), validate_only=True),
    "more partitions": lambda admin: _each(
        admin.create_partitions(
            [NewPartitions(_NAME, 3, [[0, 1]]), NewPartitions("absent", 2), NewPartitions("..", 2)]
        )
    ),
    "fewer partitions": lambda admin: _each(admin.create_partitions([NewPartitions(_NAME, 1)])),
    "set": _change(_TOPIC, _NAME, ("cleanup.policy", "compact", _SET), ("flush.ms", "5", _SET)),
    "append": _change(_TOPIC, _NAME, ("cleanup.policy", "delete", _APPEND)),
    "subtract": _change(_TOPIC, _NAME, ("cleanup.policy", "compact", _SUBTRACT)),
    "delete": _change(_TOPIC, _NAME, ("flush.ms", None, _DELETE)),
    "append to no list": _change(_TOPIC, _NAME, ("flush.ms", "1", _APPEND)),
    "set what is wrong": _change(_TOPIC, _NAME, ("retention.ms", "x", _SET)),
    "set what is unknown": _change(_TOPIC, _NAME, ("nothing", "x", _SET)),
    "set of a topic that is not there": _change(_TOPIC, "absent", ("retention.ms", "1", _SET)),
    "set of a broker": _change(_BROKER, "1", ("log.cleaner.threads", "2", _SET)),
    "set of a broker what is fixed": _change(_BROKER, "1", ("node.id", "2", _SET)),
    "acls": lambda admin: _each(
        admin.create_acls([_acl("User:librdkafka"), _acl("User:librdkafka", AclOperation.WRITE)])
    ),
    "acls again": lambda admin: _each(admin.create_acls([_acl("User:librdkafka")])),
    "acl of nobody": lambda admin: _each(admin.create_acls([_acl("nobody")])),
    "described acls": _described_acls,
    "deleted acls": lambda admin: _each(
        {"all": admin.delete_acls([_filter("User:librdkafka")])[_filter("User:librdkafka")]}
    ),
    "users": lambda admin: _each(
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    "librdkafka", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"password"
                ),
                UserScramCredentialUpsertion(
                    "too-few", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 1), b"password"
                ),
                UserScramCredentialDeletion("absent", ScramMechanism.SCRAM_SHA_256),
            ]
        )
    ),
    "elections": lambda admin: {
        str(partition): str(error)
        for partition, error in admin.elect_leaders(
            ElectionType.PREFERRED,
            [TopicPartition(_NAME, 0), TopicPartition(_NAME, 9), TopicPartition("absent", 0)],
        )
        .result(TIMEOUT_S)
        .items()
    },
    "delete topics": lambda admin: _each(admin.delete_topics([_NAME, "absent"])),
}


# kafka-python


def _altered(kind: str, name: str, configs: Mapping[str, Any]) -> Any:
    resource = kafka_python.ConfigResource(kind, name, dict(configs))
    return lambda admin: admin.alter_configs([resource], raise_on_unknown=False)


def _python_acl(principal: str) -> Any:
    pattern = kafka_python.ResourcePattern(kafka_python.ResourceType.TOPIC, "kafka-python")
    operation, permission = kafka_python.ACLOperation.READ, kafka_python.ACLPermissionType.ALLOW
    return kafka_python.ACL(principal, "*", operation, permission, pattern)


_OWN = "kafka-python-topic"
_OP = kafka_python.AlterConfigOp

KAFKA_PYTHON: Final[Calls] = {
    "create": lambda admin: admin.create_topics({_OWN: {"assignments": {0: [0, 1], 1: [1, 0]}}}),
    "create what is there": lambda admin: admin.create_topics(
        {_OWN: {"num_partitions": 1, "replication_factor": 1}}, raise_errors=False
    ),
    "create wrong ones": lambda admin: admin.create_topics(
        {
            "wide": {"num_partitions": 1, "replication_factor": 9},
            "none": {"num_partitions": 0, "replication_factor": 1},
            "odd": {"configs": {"nothing": "1"}},
            "odder": {"configs": {"retention.ms": "x"}},
            "far": {"assignments": {0: [77]}},
            "gap": {"assignments": {1: [0]}},
        },
        raise_errors=False,
    ),
    "more partitions": lambda admin: admin.create_partitions(
        {_OWN: kafka_python.NewPartitions(3, [[0, 1]]), "absent": kafka_python.NewPartitions(2)},
        raise_errors=False,
    ),
    "set": _altered(
        "TOPIC", _OWN, {"retention.ms": (_OP.SET, "7"), "cleanup.policy": (_OP.APPEND, "compact")}
    ),
    "set what is wrong": _altered("TOPIC", _OWN, {"retention.ms": (_OP.SET, "x")}),
    "set of a broker": _altered("BROKER", "1", {"log.cleaner.threads": (_OP.SET, "3")}),
    "acls": lambda admin: admin.create_acls([_python_acl("User:kafka-python"), _python_acl("nobody")]),
    "users": lambda admin: admin.alter_user_scram_credentials(
        [
            kafka_python.UserScramCredentialUpsertion("kafka-python", "SCRAM-SHA-512", "password"),
            kafka_python.UserScramCredentialUpsertion("too-few", "SCRAM-SHA-512", "password", 5),
            kafka_python.UserScramCredentialDeletion("absent", "SCRAM-SHA-256"),
        ]
    ),
    "reassignments": lambda admin: admin.alter_partition_reassignments(
        {
            KafkaPythonPartition(_OWN, 0): [0, GONE],
            KafkaPythonPartition(_OWN, 1): [0, 77],
            KafkaPythonPartition(_OWN, 9): [0],
            KafkaPythonPartition("absent", 0): [0],
        }
    ),
    "what is reassigned": lambda admin: admin.list_partition_reassignments(),
    "cancel": lambda admin: admin.alter_partition_reassignments(
        {KafkaPythonPartition(_OWN, 0): None, KafkaPythonPartition(_OWN, 1): None}
    ),
    "elections": lambda admin: admin.elect_leaders(0, {_OWN: [0, 9], "absent": [0]}, raise_errors=False),
    "features": lambda admin: admin.update_features({"group.version": 9, "nothing": 1}),
    "features to see": lambda admin: admin.update_features({"group.version": 1}, validate_only=True),
    "delete": lambda admin: admin.delete_topics([_OWN, "absent"], raise_errors=False),
}
LIBRARIES: Final[Mapping[str, tuple[Callable[[str], AbstractContextManager[Any]], Calls]]] = {
    "librdkafka": (lambda servers: nullcontext(AdminClient({"bootstrap.servers": servers})), LIBRDKAFKA),
    "kafka-python": (lambda servers: closing(KafkaAdminClient(bootstrap_servers=servers)), KAFKA_PYTHON),
}
"""How a client is made and closed, which one of librdkafka does itself, and what it is asked to do, in this order."""
