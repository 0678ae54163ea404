"""Values of broker configs that brokers forward and no node applies, beside a stock controller."""

from pathlib import Path
from typing import Final

import pytest
from kit.differential.comparison import Compared
from kit.differential.nodes import started
from kit.differential.question import Caller, Question, always
from kit.releases import RELEASE
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import describe_configs_request as describe_configs
from quorate_protocol.kafka.generated import incremental_alter_configs_request as incremental

pytestmark = pytest.mark.integration

NODE_ID: Final = "3000"
BROKER_ID: Final = 1
TOPIC: Final = "topic"
TOPIC_CONFIGS: Final = ("min.insync.replicas", "retention.ms")
OUT_OF_RANGE = (
    ("min.insync.replicas", "0"),
    ("log.cleaner.threads", "many"),
    ("log.retention.ms", "5000"),
    ("unknown", "1"),
)
NOT_DYNAMIC = (("num.partitions", "3"), ("ssl.keystore.type", "PEM"), ("log.cleaner.threads", "2"))


def forwarded(name: str, configs: tuple[tuple[str, str], ...]) -> Question:
    """Set configs of a broker, or of all, through a broker: the controller does not check them."""
    request = incremental.IncrementalAlterConfigsRequest(
        resources=(
            incremental.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name=name,
                configs=tuple(
                    incremental.AlterableConfig(name=key, config_operation=0, value=value)
                    for key, value in configs
                ),
            ),
        ),
        validate_only=False,
    )
    return Question("IncrementalAlterConfigs", always(request), Caller(user="alice"))


def described(resource_type: ConfigResourceType, name: str, keys: tuple[str, ...] | None) -> Question:
    """Ask for configs with their synonyms."""
    request = describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            ),
        ),
        include_synonyms=True,
    )
    return Question("DescribeConfigs", always(request))


def test_what_nodes_ignore_is_not_described(tmp_path: Path) -> None:
    names = tuple({name for name, _ in (*OUT_OF_RANGE, *NOT_DYNAMIC)})
    placed = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=(BROKER_ID,))
    topic = create_topics.CreatableTopic(
        name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=(placed,), configs=()
    )
    with started(RELEASE, tmp_path / "stock") as stock, started("Quorate", tmp_path / "ours") as ours:
        compared = Compared(stock, ours)
        compared.ask(Question("CreateTopics", always(create_topics.CreateTopicsRequest(topics=(topic,)))))
        for configs in (OUT_OF_RANGE, NOT_DYNAMIC):
            for name in ("", NODE_ID):
                compared.ask(forwarded(name, configs))
                compared.ask(described(ConfigResourceType.BROKER, "", None))
                compared.ask(described(ConfigResourceType.BROKER, NODE_ID, names))
                compared.ask(described(ConfigResourceType.TOPIC, TOPIC, TOPIC_CONFIGS))
        compared.compare_images()
    assert not compared.differences, "\n".join(compared.differences)
