"""Policies in Python for topics and configs (KIP-108, KIP-133): what they see and refuse, how they are loaded."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from quorate_controller.control.policies import (
    NO_POLICIES,
    AlteredConfigs,
    NewTopic,
    Policies,
    PolicyViolationError,
)
from quorate_controller.process import StartError, load_policies
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated import alter_configs_request as alter
from quorate_protocol.kafka.generated import create_topics_request as create
from quorate_protocol.kafka.generated import incremental_alter_configs_request as incremental

TIMEOUT = timedelta(seconds=10)
TOPIC = ConfigResourceType.TOPIC
SET, DELETE = 0, 1


class Seeing:
    """A policy that keeps what it sees, and refuses names that begin with `bad`."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def validate(self, given: NewTopic | AlteredConfigs) -> None:
        self.seen.append(given)
        name = given.name if isinstance(given, NewTopic) else given.resource_name
        if name.startswith("bad"):
            raise PolicyViolationError(f"{name} is a bad name")


class Rig:
    """A cluster with three brokers and policies that keep what they see."""

    def __init__(self, new_harness: Any) -> None:
        self.topics, self.configs = Seeing(), Seeing()
        policies = Policies(create_topic=self.topics, alter_config=self.configs)
        self.harness = new_harness(policies=policies, num_partitions=2, default_replication_factor=3)
        for broker_id in range(3):
            self.harness.start_broker(broker_id)

    def create(self, *topics: create.CreatableTopic, validate_only: bool = False) -> dict[str, Any]:
        """The results of new topics, by name."""
        request = create.CreateTopicsRequest(topics=topics, timeout=TIMEOUT, validate_only=validate_only)
        return {topic.name: topic for topic in self.harness.apply(request).topics}


@pytest.fixture
def rig(new_harness: Any) -> Rig:
    """The cluster."""
    return Rig(new_harness)


def topic(name: str, *assigned: tuple[int, ...], **configs: str) -> create.CreatableTopic:
    """A topic with default numbers, or with these replicas."""
    return create.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            create.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in enumerate(assigned)
        ),
        configs=tuple(
            create.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def test_a_policy_sees_a_topic_with_its_defaults_or_its_replicas(rig: Rig) -> None:
    results = rig.create(topic("a", retention_ms="5"), topic("b", (0, 1), (1, 2)))
    assert {result.error_code for result in results.values()} == {ErrorCode.none}
    assert rig.topics.seen == [
        NewTopic(
            name="a",
            num_partitions=2,
            replication_factor=3,
            assignments=None,
            configs={"retention.ms": "5"},
        ),
        NewTopic(
            name="b",
            num_partitions=None,
            replication_factor=None,
            assignments={0: (0, 1), 1: (1, 2)},
            configs={},
        ),
    ]
    # Of a new topic, its configs are judged by the other policy, too.
    assert rig.configs.seen == [
        AlteredConfigs(resource_type=TOPIC, resource_name="a", configs={"retention.ms": "5"})
    ]


def test_a_topic_that_is_refused_is_not_created(rig: Rig) -> None:
    """POLICY_VIOLATION for this topic alone, with the policy's words, also when nothing is to be created."""
    for validate_only in (True, False):
        results = rig.create(topic("bad"), topic("good"), topic("no such"), validate_only=validate_only)
        assert (results["bad"].error_code, results["bad"].error_message) == (
            ErrorCode.policy_violation,
            "bad is a bad name",
        )
        assert results["good"].error_code is ErrorCode.none
        assert results["no such"].error_code is ErrorCode.invalid_topic_exception
    assert set(rig.harness.image.topics.by_name) == {"good"}
    assert [topic.name for topic in rig.topics.seen] == ["bad", "good"] * 2


def test_a_policy_sees_what_a_request_changes(rig: Rig) -> None:
    """Changed values, and deletions that were asked for; not those that AlterConfigs implies."""
    rig.create(topic("a", retention_ms="5", segment_ms="6"))
    rig.configs.seen.clear()
    changes = (("retention.ms", SET, "7"), ("segment.ms", DELETE, None), ("cleanup.policy", SET, "compact"))
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="a",
        configs=tuple(
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ),
    )
    rig.harness.apply(incremental.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    replaced = alter.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="a",
        configs=(alter.AlterableConfig(name="retention.ms", value="8"),),
    )
    rig.harness.apply(alter.AlterConfigsRequest(resources=(replaced,), validate_only=False))
    assert [altered.configs for altered in rig.configs.seen] == [
        {"retention.ms": "7", "segment.ms": None, "cleanup.policy": "compact"},
        {"retention.ms": "8"},
    ]


def test_a_change_that_is_refused_is_not_made(rig: Rig) -> None:
    resources = tuple(
        incremental.AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP,
            resource_name=name,
            configs=(
                incremental.AlterableConfig(
                    name="consumer.session.timeout.ms", config_operation=SET, value="50000"
                ),
            ),
        )
        for name in ("bad", "good")
    )
    response = rig.harness.apply(
        incremental.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    )
    assert [(resource.error_code, resource.error_message) for resource in response.responses] == [
        (ErrorCode.policy_violation, "bad is a bad name"),
        (ErrorCode.none, None),
    ]
    assert [name for _, name in rig.harness.image.configs] == ["good"]


# Loading

MODULE = """
class Topics:
    def configure(self, properties):
        self.most = int(properties["node.id"])

    def validate(self, topic):
        raise AssertionError

class Configs:
    def validate(self, altered):
        raise AssertionError

class Neither:
    pass

class Broken:
    def __init__(self):
        raise RuntimeError("out of order")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with classes of a user."""
    name = "policies_of_a_test"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def properties_with(topics: str = "", configs: str = "") -> Mapping[str, str]:
    """A controller's properties that name policies."""
    return {
        "node.id": "7",
        "create.topic.policy.class.name": topics,
        "alter.config.policy.class.name": configs,
    }


def test_the_classes_that_are_named_are_loaded(module: str) -> None:
    policies = load_policies(properties_with(f"{module}:Topics", f" {module}:Configs "))
    assert type(policies.create_topic).__name__ == "Topics"
    assert vars(policies.create_topic) == {"most": 7}
    assert type(policies.alter_config).__name__ == "Configs"
    assert load_policies(properties_with()) == NO_POLICIES
    assert load_policies({}) == NO_POLICIES


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("{}:Absent", "has no attribute 'Absent'"),
        ("{}_absent:Topics", "No module named"),
        ("{}:Broken", "out of order"),
        ("{}:Neither", "the class has no method validate"),
    ],
)
def test_what_cannot_be_loaded_is_named(module: str, name: str, reason: str) -> None:
    """Key, value and reason in one line; nothing is allowed by mistake."""
    with pytest.raises(StartError, match=reason) as refused:
        load_policies(properties_with(name.format(module)))
    assert str(refused.value).startswith(f"create.topic.policy.class.name={name.format(module)}: ")
