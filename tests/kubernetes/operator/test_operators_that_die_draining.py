"""Operators come and go while brokers give their replicas to others and leave."""

from typing import Any

import pytest
from confluent_kafka import Producer
from kit.ledger import consume_numbers
from kit.operators.dying_operators import final_state, kill_after_each_step
from kit.operators.operated import BROKER_PORT, BROKERS, CONTROLLERS_FIRST, SMALL_FILES, Operated
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource

STAYS, SECOND, FIRST = NODES = range(3)
TOPIC = "orders"
PARTITIONS = range(6)
RECORDS = 600
# Throttled, drained, without throttles, stopped, unregistered, forgotten.
DRAIN_KILLS_MIN = 6
# Three brokers of Java start, and each operator takes seconds, where others use the processors.
TIMEOUT_S = 900
BROKERS_TIMEOUT_S = 300
FLUSH_TIMEOUT_S = 60


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_while_a_broker_is_drained(brokered: Operated) -> None:
    """No record and no replica is lost on the way, nor any step left half done."""
    operated = brokered
    operated.create(replicas=1)
    # One broker is to be enough for groups, too.
    config = {**SMALL_FILES, "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2"}
    drain = {"throttleBytesPerSecond": "20Mi"}
    operated.create_brokers(replicas=len(NODES), config=config, drain=drain)
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(*NODES), "three brokers to be ready", BROKERS_TIMEOUT_S)
    _produce(operated)

    operated.patch_brokers(replicas=2, decommission=[FIRST])
    operated.wait(lambda: _has_left(operated, FIRST), "the first broker to have left")
    expected = _drained(operated, STAYS, SECOND)
    operated.operators[-1].kill()

    assert _drained(operated, STAYS)["misplaced"], "the second one has replicas that must not be lost"
    operated.patch_brokers(replicas=1, decommission=[FIRST, SECOND])
    kills = kill_after_each_step(operated, lambda: _has_left(operated, FIRST, SECOND))
    assert _drained(operated, STAYS) == expected
    assert expected["numbers"] == list(range(RECORDS))
    assert _throttles(operated) == []
    assert kills >= DRAIN_KILLS_MIN


def _has_left(operated: Operated, *gone: int) -> bool:
    staying = [node_id for node_id in NODES if node_id not in gone]
    return (
        operated.brokers_settled(*staying)
        and operated.settled(CONTROLLERS_FIRST)
        and not operated.status().get("refusals")
    )


def _throttles(operated: Operated) -> list[str]:
    """The throttles that are left."""
    topic, broker = (
        ConfigResource(ConfigResourceType.TOPIC, TOPIC),
        ConfigResource(ConfigResourceType.BROKER, f"{STAYS}"),
    )
    described = operated.asking(STAYS)(lambda client: client.describe_configs([topic, broker]))
    dynamic = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
    return [
        entry.name
        for resource in (topic, broker)
        for entry in described[resource]
        if "throttled" in entry.name and entry.source in dynamic
    ]


def _produce(operated: Operated) -> None:
    """A record for each number, in partitions that have one replica each, on all brokers."""
    placed = {partition: [NODES[partition % len(NODES)]] for partition in PARTITIONS}
    operated.asking(STAYS)(
        lambda client: client.create_topics([NewTopic(name=TOPIC, assignments=placed)])
    ).raise_any()
    producer = Producer({"bootstrap.servers": _servers(operated), "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{number}".encode(), partition=PARTITIONS[number % len(PARTITIONS)])
    assert producer.flush(FLUSH_TIMEOUT_S) == 0


def _drained(operated: Operated, *staying: int) -> dict[str, Any]:
    """The final state of the cluster, without what depends on the broker that left."""
    ask = operated.asking(STAYS)
    topic = ask(lambda client: client.describe_topics([TOPIC]))[TOPIC]
    state = final_state(operated)
    left = [node_id for node_id in NODES if node_id not in staying]
    return {
        "numbers": sorted(consume_numbers(_servers(operated), TOPIC, PARTITIONS)),
        "misplaced": [
            partition.partition
            for partition in topic.partitions
            if not set(partition.replicas) <= set(staying)
        ],
        "out of sync": [
            partition.partition
            for partition in topic.partitions
            if set(partition.isr) != set(partition.replicas)
        ],
        "moving": ask(lambda client: client.list_partition_reassignments()),
        "strangers": [
            node.node_id
            for node in ask(lambda client: client.describe_cluster(include_fenced_brokers=True)).nodes
            if node.node_id not in staying
        ],
        "configured": [node_id for node_id in left if f"V1ConfigMap {BROKERS}-{node_id}" in state["objects"]],
        "volumes": [name for name in operated.claims() if BROKERS in name],
        "controllers": {part: state[part] for part in ("voters", "registrations", "levels", "refusals")},
    }


def _servers(operated: Operated) -> str:
    return f"{operated.agent.address_of(f'{BROKERS}-{STAYS}')}:{BROKER_PORT}"
