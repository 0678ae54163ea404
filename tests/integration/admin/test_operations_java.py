"""Operations of the AdminClient on topics, configs and partitions of stock Kafka: its brokers and controllers."""

import uuid

import pytest
from confluent_kafka import Producer
from kit.asking import Asking
from kit.java.cluster import JavaCluster
from kit.java.fixtures import NewJavaCluster
from kit.names import unused
from kit.waiting import eventually
from quorate_admin.errors import ServerError, UnsupportedEndpointError
from quorate_admin.operations.base import ThrottlingQuotaExceededError
from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity
from quorate_admin.types.topics import NewPartitions, NewTopic, TopicDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    CLIENT_ID,
    AclOperation,
    ConfigOpType,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ElectionType,
)

pytestmark = pytest.mark.integration

TIMEOUT_S = 30
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


def described(ask: Asking, topic: str) -> TopicDescription | None:
    """A topic, if the broker that is asked knows it already."""
    return ask(lambda admin: admin.describe_topics([topic])).values.get(topic)


def create(ask: Asking, *topics: NewTopic) -> None:
    """Create topics and wait until they are known."""
    ask(lambda admin: admin.create_topics(topics)).raise_any()
    for topic in topics:
        eventually(lambda name=topic.name: described(ask, name), TIMEOUT_S, f"topic {topic.name}")


def test_the_life_of_a_topic(ask: Asking) -> None:
    """Create, refuse, describe, list, grow, delete."""
    name = unused("life")
    new = NewTopic(name=name, partitions=2, replication_factor=2, configs={"retention.ms": "3600000"})
    assert ask(lambda admin: admin.create_topics([new], validate_only=True))[name].partitions == 2
    assert name not in ask(lambda admin: admin.list_topics())
    results = ask(lambda admin: admin.create_topics([new, NewTopic(name="no/name")]))
    topic = results[name]
    assert (topic.partitions, topic.replication_factor) == (2, 2)
    assert topic.topic_id is not None
    entry = next(config for config in topic.configs or () if config.name == "retention.ms")
    assert (entry.value, entry.source) == ("3600000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert results.errors["no/name"].error_code is ErrorCode.invalid_topic_exception
    with pytest.raises(ServerError, match=rf"TOPIC_ALREADY_EXISTS: Topic '{name}' already exists\."):
        ask(lambda admin: admin.create_topics([new])).raise_any()
    first = eventually(lambda: described(ask, name), TIMEOUT_S, "the topic")
    assert first.topic_id == topic.topic_id
    assert ask(lambda admin: admin.list_topics())[name].topic_id == topic.topic_id

    grown = {name: NewPartitions(total_count=5), "nobody": NewPartitions(total_count=2)}
    results = ask(lambda admin: admin.create_partitions(grown))
    assert set(results.values) == {name}
    assert results.errors["nobody"].error_code is ErrorCode.unknown_topic_or_partition
    eventually(lambda: len(described(ask, name).partitions) == 5, TIMEOUT_S, "five partitions")

    deleted = ask(lambda admin: admin.delete_topics([topic.topic_id, "nobody"]))
    assert set(deleted.values) == {topic.topic_id}
    assert deleted.errors["nobody"].error_code is ErrorCode.unknown_topic_or_partition
    eventually(lambda: name not in ask(lambda admin: admin.list_topics()), TIMEOUT_S, "deletion")


def test_topics_are_described_page_by_page_as_at_once(java_cluster: JavaCluster, ask: Asking) -> None:
    first, second = java_cluster.brokers
    names = ["paged-a", "paged-b", "paged-c"]
    create(
        ask,
        NewTopic(name="paged-a", partitions=3, replication_factor=1),
        NewTopic(name="paged-b", assignments={0: [second, first], 1: [first, second]}),
        NewTopic(name="paged-c", partitions=1, replication_factor=2),
    )

    def whole(name: str) -> bool:
        topic = described(ask, name)
        return topic is not None and all(partition.leader is not None for partition in topic.partitions)

    for name in names:
        eventually(lambda name=name: whole(name), TIMEOUT_S, f"leaders of {name}")
    at_once = ask(lambda admin: admin.describe_topics(names, include_authorized_operations=True))
    assert [len(at_once[name].partitions) for name in names] == [3, 2, 1]
    assert at_once["paged-b"].partitions[0].replicas == (second, first)
    assert at_once["paged-b"].partitions[0].leader == second
    assert AclOperation.DELETE in (at_once["paged-a"].authorized_operations or ())
    for size in (1, 2, 3, 4):
        paged = ask(
            lambda admin, size=size: admin.describe_topics(
                [*names, "missing"], include_authorized_operations=True, partitions_per_response=size
            )
        )
        assert paged.values == at_once.values
        assert paged.errors["missing"].error_code is ErrorCode.unknown_topic_or_partition
    missing = uuid.uuid4()
    ids = [at_once[name].topic_id for name in names]
    by_id = ask(lambda admin: admin.describe_topics([*ids, missing]))
    assert [by_id[id_].name for id_ in ids] == names
    assert [partition.replicas for partition in by_id[ids[1]].partitions] == [
        (second, first),
        (first, second),
    ]
    assert by_id.errors[missing].error_code is ErrorCode.unknown_topic_id


def test_a_throttled_client_waits_and_goes_on(java_cluster: JavaCluster, ask: Asking) -> None:
    """KIP-599."""
    entity = ClientQuotaEntity.of({CLIENT_ID: "hasty"})
    quota = ClientQuotaAlteration(entity=entity, values={"controller_mutation_rate": 2.0})
    ask(lambda admin: admin.alter_client_quotas([quota])).raise_any()
    hasty = Asking(servers=java_cluster.bootstrap_servers, client_id="hasty")
    names = (f"hasty-{number}" for number in range(1000))

    def throttled() -> ThrottlingQuotaExceededError | None:
        name = next(names)
        new = NewTopic(name=name, partitions=12, replication_factor=1)
        results = hasty(lambda admin: admin.create_topics([new], retry_on_quota_violation=False))
        error = results.errors.get(name)
        return error if isinstance(error, ThrottlingQuotaExceededError) else None

    error = eventually(throttled, TIMEOUT_S, "the quota to take effect")
    assert error.throttle_time_ms > 0
    patient = NewTopic(name="patient", partitions=1, replication_factor=1)
    assert hasty(lambda admin: admin.create_topics([patient]))["patient"].partitions == 1
    gone = ClientQuotaAlteration(entity=entity, values={"controller_mutation_rate": None})
    ask(lambda admin: admin.alter_client_quotas([gone])).raise_any()


def configs(ask: Asking, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """The configs of a resource by name."""
    entries = ask(lambda admin: admin.describe_configs([resource], include_synonyms=True))[resource]
    return {entry.name: entry for entry in entries}


def change(ask: Asking, resource: ConfigResource, *changes: AlterConfigOp) -> None:
    """Change configs of a resource."""
    ask(lambda admin: admin.incremental_alter_configs({resource: changes})).raise_any()


def test_configs_of_topics_are_changed_one_by_one(ask: Asking) -> None:
    """Set, append, subtract, delete, and replace."""
    name = unused("configured")
    create(ask, NewTopic(name=name, partitions=1, replication_factor=1))
    topic, missing = ConfigResource(TOPIC, name), ConfigResource(TOPIC, "nobody")
    change(
        ask,
        topic,
        AlterConfigOp(name="retention.ms", value="5000"),
        AlterConfigOp(name="cleanup.policy", value="compact", operation=ConfigOpType.APPEND),
    )

    def value(config: str) -> str | None:
        return configs(ask, topic)[config].value

    eventually(lambda: value("retention.ms") == "5000", TIMEOUT_S, "the config")
    entry = configs(ask, topic)["retention.ms"]
    assert (entry.source, entry.type) == (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigType.LONG)
    assert entry.synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    policies = [(synonym.name, synonym.source) for synonym in configs(ask, topic)["cleanup.policy"].synonyms]
    assert ("log.cleanup.policy", ConfigSource.DEFAULT_CONFIG) in policies
    assert set(value("cleanup.policy").split(",")) == {"delete", "compact"}
    change(
        ask,
        topic,
        AlterConfigOp(name="retention.ms", operation=ConfigOpType.DELETE),
        AlterConfigOp(name="cleanup.policy", value="delete", operation=ConfigOpType.SUBTRACT),
    )
    eventually(lambda: value("cleanup.policy") == "compact", TIMEOUT_S, "what was subtracted")
    eventually(lambda: configs(ask, topic)["retention.ms"].is_default, TIMEOUT_S, "the default")
    ask(lambda admin: admin.alter_configs({topic: {"segment.ms": "77"}})).raise_any()
    eventually(lambda: value("segment.ms") == "77", TIMEOUT_S, "the replaced configs")
    # Each request may be answered by another broker, of which one is behind.
    eventually(lambda: configs(ask, topic)["cleanup.policy"].is_default, TIMEOUT_S, "the default")
    results = ask(
        lambda admin: admin.incremental_alter_configs(
            {
                topic: [AlterConfigOp(name="retention.ms", value="soon")],
                missing: [AlterConfigOp(name="retention.ms", value="1")],
            }
        )
    )
    assert results.errors[topic].error_code is ErrorCode.invalid_config
    assert results.errors[missing].error_code is ErrorCode.unknown_topic_or_partition
    assert not results.values
    documented = ask(lambda admin: admin.describe_configs([topic], include_documentation=True))[topic]
    assert all(entry.documentation for entry in documented)


def test_configs_of_nodes_are_asked_of_the_nodes(java_cluster: JavaCluster, ask: Asking) -> None:
    brokers = [ConfigResource(BROKER, str(broker_id)) for broker_id in java_cluster.brokers]
    everyone = ConfigResource(BROKER, "")
    results = ask(lambda admin: admin.describe_configs([*brokers, everyone]))
    for broker in brokers:
        entries = {entry.name: entry for entry in results[broker]}
        assert entries["node.id"].value == broker.name
        assert entries["node.id"].is_read_only
        secret = entries["delegation.token.secret.key"]
        assert (secret.value, secret.is_sensitive) == (None, True)
    first, second = brokers
    change(ask, everyone, AlterConfigOp(name="log.cleaner.threads", value="2"))
    change(ask, first, AlterConfigOp(name="log.cleaner.threads", value="1"))

    def values() -> list[str | None]:
        return [configs(ask, resource)["log.cleaner.threads"].value for resource in (first, second)]

    eventually(lambda: values() == ["1", "2"], TIMEOUT_S, "the dynamic configs", values)
    with pytest.raises(ServerError, match="INVALID_REQUEST: 'x' is not the id of a node"):
        ask(lambda admin: admin.describe_configs([ConfigResource(BROKER, "x"), first])).raise_any()
    for resource in (everyone, first):
        change(ask, resource, AlterConfigOp(name="log.cleaner.threads", operation=ConfigOpType.DELETE))


def test_controllers_take_configs_without_brokers(
    java_cluster: JavaCluster, ask: Asking, ask_controllers: Asking
) -> None:
    """KIP-919."""
    topic = ConfigResource(TOPIC, unused("direct"))
    create(ask, NewTopic(name=topic.name, partitions=1, replication_factor=1))
    change(ask_controllers, topic, AlterConfigOp(name="retention.ms", value="6000"))
    assert configs(ask_controllers, topic)["retention.ms"].value == "6000"
    broker = ConfigResource(BROKER, str(java_cluster.brokers[0]))
    change(ask_controllers, broker, AlterConfigOp(name="log.cleaner.threads", value="2"))
    eventually(
        lambda: configs(ask, broker)["log.cleaner.threads"].value == "2",
        TIMEOUT_S,
        "the config at the broker",
    )
    change(ask_controllers, broker, AlterConfigOp(name="log.cleaner.threads", operation=ConfigOpType.DELETE))
    controller = java_cluster.controllers[0]
    assert configs(ask_controllers, ConfigResource(BROKER, str(controller)))["node.id"].value == str(
        controller
    )


@pytest.mark.parametrize("endpoint", ["broker", "controller"])
def test_log_levels_are_those_of_their_node(
    java_cluster: JavaCluster, ask: Asking, ask_controllers: Asking, endpoint: str
) -> None:
    """BROKER_LOGGER through both endpoints (KIP-412, KIP-919)."""
    is_broker = endpoint == "broker"
    node_id = java_cluster.brokers[1] if is_broker else java_cluster.controllers[0]
    asking = ask if is_broker else ask_controllers
    loggers = ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node_id))
    name = "kafka.server.KafkaApis" if is_broker else "org.apache.kafka.controller.QuorumController"
    change(asking, loggers, AlterConfigOp(name=name, value="ERROR"))
    entry = configs(asking, loggers)[name]
    assert (entry.value, entry.source) == ("ERROR", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
    change(asking, loggers, AlterConfigOp(name=name, operation=ConfigOpType.DELETE))
    results = asking(
        lambda admin: admin.incremental_alter_configs({loggers: [AlterConfigOp(name=name, value="LOUD")]})
    )
    assert results.errors[loggers].error_code is ErrorCode.invalid_config


def test_log_levels_of_inactive_controllers_are_their_own(new_java_cluster: NewJavaCluster) -> None:
    """The one request that goes past the active controller (KIP-919)."""
    cluster = new_java_cluster(controllers=3, brokers=0).start_all()
    leader = cluster.await_leader()
    asking = Asking(controllers=cluster.bootstrap_controllers)
    inactive = next(controller for controller in cluster.controllers if controller != leader)
    name = "org.apache.kafka.controller.QuorumController"
    of_all = {
        controller: ConfigResource(ConfigResourceType.BROKER_LOGGER, str(controller))
        for controller in cluster.controllers
    }
    change(asking, of_all[inactive], AlterConfigOp(name=name, value="TRACE"))
    levels = {node_id: configs(asking, resource)[name].value for node_id, resource in of_all.items()}
    assert [node_id for node_id, level in levels.items() if level == "TRACE"] == [inactive]


def test_all_that_has_configs_is_listed(java_cluster: JavaCluster, ask: Asking) -> None:
    """KIP-1142."""
    others = set(ask(lambda admin: admin.list_config_resources([ConfigResourceType.GROUP])))
    topic = ConfigResource(TOPIC, unused("listed"))
    create(ask, NewTopic(name=topic.name, partitions=1, replication_factor=1))
    group = ConfigResource(ConfigResourceType.GROUP, unused("listed-group"))
    metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, unused("listed-metrics"))
    change(ask, group, AlterConfigOp(name="consumer.session.timeout.ms", value="46000"))
    change(ask, metrics, AlterConfigOp(name="interval.ms", value="5000"))
    wanted = {
        group,
        metrics,
        topic,
        ConfigResource(BROKER, str(java_cluster.brokers[0])),
        ConfigResource(ConfigResourceType.BROKER_LOGGER, str(java_cluster.brokers[1])),
    }
    eventually(
        lambda: wanted <= set(ask(lambda admin: admin.list_config_resources())), TIMEOUT_S, "all resources"
    )
    groups = ask(lambda admin: admin.list_config_resources([ConfigResourceType.GROUP]))
    assert set(groups) == others | {group}
    assert {resource.type for resource in groups} == {ConfigResourceType.GROUP}
    assert configs(ask, metrics)["interval.ms"].source is ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    assert configs(ask, group)["consumer.session.timeout.ms"].source is ConfigSource.DYNAMIC_GROUP_CONFIG


@pytest.mark.parametrize("endpoint", ["broker", "controller"])
def test_partitions_move_and_leaders_are_elected(
    java_cluster: JavaCluster, ask: Asking, ask_controllers: Asking, endpoint: str
) -> None:
    asking = ask if endpoint == "broker" else ask_controllers
    first, second = java_cluster.brokers
    topic = unused(f"moving-{endpoint}")
    create(ask, NewTopic(name=topic, assignments={0: [first, second], 1: [first, second]}))
    moved, turned, missing = (TopicPartition(topic, number) for number in (0, 1, 2))
    eventually(lambda: described(ask, topic).partitions[1].isr == (first, second), TIMEOUT_S, "the replicas")
    results = asking(
        lambda admin: admin.alter_partition_reassignments(
            {moved: [second], turned: [second, first], missing: [first]}
        )
    )
    assert set(results.values) == {moved, turned}
    assert results.errors[missing].error_code is ErrorCode.unknown_topic_or_partition
    eventually(
        lambda: not asking(lambda admin: admin.list_partition_reassignments([moved, turned])),
        TIMEOUT_S,
        "the end of the reassignment",
    )
    assert asking(lambda admin: admin.list_partition_reassignments()) == {}
    replicas = [(second,), (second, first)]
    eventually(
        lambda: [partition.replicas for partition in described(ask, topic).partitions] == replicas,
        TIMEOUT_S,
        "the replicas",
    )
    cancelled = asking(lambda admin: admin.alter_partition_reassignments({moved: None}))
    assert cancelled.errors[moved].error_code is ErrorCode.no_reassignment_in_progress

    assert described(ask, topic).partitions[1].leader == first
    elected = asking(lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [turned, moved, missing]))
    assert set(elected.values) == {turned}
    assert elected.errors[moved].error_code is ErrorCode.election_not_needed
    assert elected.errors[missing].error_code is ErrorCode.unknown_topic_or_partition
    eventually(lambda: described(ask, topic).partitions[1].leader == second, TIMEOUT_S, "the leader")
    assert turned not in asking(lambda admin: admin.elect_leaders(ElectionType.PREFERRED)).values
    unclean = asking(lambda admin: admin.elect_leaders(ElectionType.UNCLEAN, [turned]))
    assert unclean.errors[turned].error_code is ErrorCode.election_not_needed


def test_a_reassignment_under_way_is_listed_and_cancelled(java_cluster: JavaCluster, ask: Asking) -> None:
    first, second = java_cluster.brokers
    create(ask, NewTopic(name="slow", assignments={0: [first]}))
    slow = TopicPartition("slow", 0)
    throttle = ConfigResource(TOPIC, "slow")
    change(
        ask,
        throttle,
        AlterConfigOp(name="leader.replication.throttled.replicas", value="*"),
        AlterConfigOp(name="follower.replication.throttled.replicas", value="*"),
    )
    for broker in java_cluster.brokers:
        change(
            ask,
            ConfigResource(BROKER, str(broker)),
            AlterConfigOp(name="leader.replication.throttled.rate", value="1"),
            AlterConfigOp(name="follower.replication.throttled.rate", value="1"),
        )
    _produce(java_cluster, "slow", 200_000)
    ask(lambda admin: admin.alter_partition_reassignments({slow: [second]})).raise_any()
    listed = ask(lambda admin: admin.list_partition_reassignments())
    assert set(listed) == {slow}
    assert (listed[slow].adding_replicas, listed[slow].removing_replicas) == ((second,), (first,))
    assert set(listed[slow].replicas) == {first, second}
    ask(lambda admin: admin.alter_partition_reassignments({slow: None})).raise_any()
    assert ask(lambda admin: admin.list_partition_reassignments([slow])) == {}
    for broker in java_cluster.brokers:
        change(
            ask,
            ConfigResource(BROKER, str(broker)),
            AlterConfigOp(name="leader.replication.throttled.rate", operation=ConfigOpType.DELETE),
            AlterConfigOp(name="follower.replication.throttled.rate", operation=ConfigOpType.DELETE),
        )


def _produce(cluster: JavaCluster, topic: str, size_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(size_bytes // 1000):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(TIMEOUT_S) == 0


def test_log_directories_are_described_and_replicas_moved(java_cluster: JavaCluster, ask: Asking) -> None:
    first, second = java_cluster.brokers
    create(ask, NewTopic(name="stored", assignments={0: [first, second], 1: [second, first]}))
    ask(
        lambda admin: admin.alter_partition_reassignments({TopicPartition("stored", 1): [second]})
    ).raise_any()
    both = TopicPartition("stored", 0)

    def described_by_both() -> bool:
        results = ask(lambda admin: admin.describe_log_dirs([first, second]))
        return all(
            any(both in log_dir.replicas for log_dir in dirs.values()) for dirs in results.values.values()
        )

    eventually(described_by_both, TIMEOUT_S, "the replicas in their directories")
    results = ask(lambda admin: admin.describe_log_dirs([first, second, 77], timeout_ms=2_000))
    assert results.errors[77].error_code is ErrorCode.request_timed_out
    for broker in (first, second):
        ((path, log_dir),) = results[broker].items()
        assert path == str(java_cluster.data(broker))
        assert (log_dir.error, log_dir.is_cordoned) == (None, False)
        assert (log_dir.total_bytes or 0) > (log_dir.usable_bytes or 0) > 0
        assert not log_dir.replicas[both].is_future
    some = ask(lambda admin: admin.describe_log_dirs([second], partitions=[both]))
    ((_, log_dir),) = some[second].items()
    assert set(log_dir.replicas) == {both}

    here, nowhere = (TopicPartitionReplica("stored", 1, broker_id) for broker_id in (second, first))
    places = ask(lambda admin: admin.describe_replica_log_dirs([here, nowhere]))
    assert places[here].current_log_dir == str(java_cluster.data(second))
    assert places[here].future_log_dir is None
    assert places[nowhere].current_log_dir is None
    moves = ask(
        lambda admin: admin.alter_replica_log_dirs(
            {
                here: "/no/such/directory",
                TopicPartitionReplica("stored", 0, first): str(java_cluster.data(first)),
            }
        )
    )
    assert moves.errors[here].error_code is ErrorCode.log_dir_not_found
    assert set(moves.values) == {TopicPartitionReplica("stored", 0, first)}


def test_controllers_are_not_asked_what_they_do_not_answer(ask_controllers: Asking) -> None:
    """KIP-919."""
    for question in (
        lambda admin: admin.list_topics(),
        lambda admin: admin.describe_client_quotas(),
        lambda admin: admin.describe_user_scram_credentials(),
        lambda admin: admin.describe_delegation_tokens(),
        lambda admin: admin.describe_log_dirs([0]),
    ):
        with pytest.raises(UnsupportedEndpointError, match=r"bootstrap[.-]server"):
            ask_controllers(question)
