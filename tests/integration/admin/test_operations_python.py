"""Operations of the AdminClient against Python controllers, directly and through their stock broker."""

import pytest
from kit.asking import Asking
from kit.cluster import Cluster
from kit.names import unused
from kit.waiting import eventually
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import TopicPartition
from quorate_admin.types.topics import NewPartitions, NewTopic, TopicDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ElectionType

pytestmark = pytest.mark.integration

TIMEOUT_S = 30


@pytest.fixture
def ask(shared_cluster: Cluster) -> Asking:
    """Ask the broker."""
    return Asking(servers=shared_cluster.bootstrap_servers)


@pytest.fixture
def ask_controllers(shared_cluster: Cluster) -> Asking:
    """Ask the controllers."""
    return Asking(controllers=shared_cluster.bootstrap_controllers)


def described(ask: Asking, topic: str) -> TopicDescription | None:
    """A topic, if the broker knows it already."""
    return ask(lambda admin: admin.describe_topics([topic])).values.get(topic)


def test_the_life_of_a_topic(ask: Asking) -> None:
    name = unused("python-life")
    new = NewTopic(name=name, partitions=2, configs={"retention.ms": "3600000"})
    assert ask(lambda admin: admin.create_topics([new], validate_only=True))[name].partitions == 2
    topic = ask(lambda admin: admin.create_topics([new]))[name]
    assert (topic.partitions, topic.replication_factor) == (2, 1)
    assert ("retention.ms", "3600000", ConfigSource.DYNAMIC_TOPIC_CONFIG) in [
        (config.name, config.value, config.source) for config in topic.configs or ()
    ]
    again = ask(lambda admin: admin.create_topics([new, NewTopic(name="a/b")]))
    assert again.errors[name].error_code is ErrorCode.topic_already_exists
    assert again.errors["a/b"].error_code is ErrorCode.invalid_topic_exception
    eventually(lambda: described(ask, name), TIMEOUT_S, "the topic")
    ask(
        lambda admin: admin.create_partitions({name: NewPartitions(total_count=3, assignments=[[0]])})
    ).raise_any()
    eventually(lambda: len(described(ask, name).partitions) == 3, TIMEOUT_S, "three partitions")
    assert described(ask, name).topic_id == topic.topic_id
    ask(lambda admin: admin.delete_topics([topic.topic_id])).raise_any()
    eventually(lambda: name not in ask(lambda admin: admin.list_topics()), TIMEOUT_S, "deletion")


@pytest.mark.parametrize("endpoint", ["broker", "controllers"])
def test_configs_are_changed_and_described(ask: Asking, ask_controllers: Asking, endpoint: str) -> None:
    asking = ask if endpoint == "broker" else ask_controllers
    name = unused(f"python-configs-{endpoint}")
    ask(lambda admin: admin.create_topics([NewTopic(name=name)])).raise_any()
    eventually(lambda: described(ask, name), TIMEOUT_S, "the topic")
    topic = ConfigResource(ConfigResourceType.TOPIC, name)

    def value(config: str) -> tuple[str | None, ConfigSource]:
        entries = asking(lambda admin: admin.describe_configs([topic]))[topic]
        return next((entry.value, entry.source) for entry in entries if entry.name == config)

    changes = [
        AlterConfigOp(name="retention.ms", value="5000"),
        AlterConfigOp(name="cleanup.policy", value="compact", operation=ConfigOpType.APPEND),
    ]
    asking(lambda admin: admin.incremental_alter_configs({topic: changes})).raise_any()
    eventually(
        lambda: value("retention.ms") == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG), TIMEOUT_S, "the config"
    )
    assert set((value("cleanup.policy")[0] or "").split(",")) == {"delete", "compact"}
    missing = ConfigResource(ConfigResourceType.TOPIC, "python-nobody")
    results = asking(
        lambda admin: admin.incremental_alter_configs(
            {
                topic: [AlterConfigOp(name="retention.ms", value="soon")],
                missing: [AlterConfigOp(name="retention.ms", value="1")],
            }
        )
    )
    assert results.errors[topic].error_code is ErrorCode.invalid_config
    assert results.errors[missing].error_code is ErrorCode.unknown_topic_or_partition
    asking(lambda admin: admin.alter_configs({topic: {"segment.ms": "77"}})).raise_any()
    eventually(lambda: value("segment.ms")[0] == "77", TIMEOUT_S, "the replaced configs")
    assert value("retention.ms")[1] is not ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_each_controller_describes_itself(shared_cluster: Cluster, ask_controllers: Asking) -> None:
    """Routing to inactive controllers (KIP-919)."""
    nodes = [
        ConfigResource(ConfigResourceType.BROKER, str(controller))
        for controller in shared_cluster.controllers
    ]
    results = ask_controllers(lambda admin: admin.describe_configs(nodes))
    for node in nodes:
        assert {entry.name: entry.value for entry in results[node]}["node.id"] == node.name


@pytest.mark.parametrize("endpoint", ["broker", "controllers"])
def test_leaders_are_elected(ask: Asking, ask_controllers: Asking, endpoint: str) -> None:
    asking = ask if endpoint == "broker" else ask_controllers
    name = unused(f"python-leaders-{endpoint}")
    ask(lambda admin: admin.create_topics([NewTopic(name=name)])).raise_any()
    fine, missing = TopicPartition(name, 0), TopicPartition("python-nobody", 0)
    for election in ElectionType:
        results = asking(lambda admin, kind=election: admin.elect_leaders(kind, [fine, missing]))
        assert results.errors[fine].error_code is ErrorCode.election_not_needed
        assert results.errors[missing].error_code is ErrorCode.unknown_topic_or_partition
    assert asking(lambda admin: admin.elect_leaders(ElectionType.PREFERRED)).errors == {}
    assert asking(lambda admin: admin.list_partition_reassignments()) == {}
