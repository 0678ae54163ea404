"""Brokers are evicted one after the other, as when machines are drained in turn."""

from typing import Any

import pytest
from confluent_kafka import Producer
from kit.operators.evictions import evict, is_ready
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import ConfigResourceType

FIRST, SECOND = NODES = (0, 1)
TOPIC = "orders"
IN_SYNC = "quorate.dev/in-sync"
THROTTLE = "follower.replication.throttled"
RECORD = b"r" * 5_000
RECORDS = 400
TIMEOUT_S = 600
BROKERS_TIMEOUT_S = 200
FLUSH_TIMEOUT_S = 60


@pytest.mark.timeout(TIMEOUT_S)
def test_the_next_broker_goes_when_the_last_one_is_in_sync(brokered: Operated) -> None:
    """Machines that are drained in turn leave each partition a replica in sync, also without operator."""
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(
        replicas=len(NODES),
        config={**SMALL_FILES, "replica.fetch.max.bytes": "10000", "offsets.topic.num.partitions": "1"},
    )
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(*NODES), "both brokers to be ready", BROKERS_TIMEOUT_S)
    placed = NewTopic(name=TOPIC, assignments={0: [SECOND, FIRST]}, configs={f"{THROTTLE}.replicas": "*"})
    operated.asking(SECOND)(lambda client: client.create_topics([placed])).raise_any()
    operated.wait(lambda: _is_pod(operated, FIRST) and _is_pod(operated, SECOND), "their pods to be ready")
    _throttle(operated, "1")

    assert evict(operated.core, operated.namespace, f"{BROKERS}-{FIRST}")
    operated.wait(lambda: _isr(operated) == [SECOND], "the broker to be out")
    assert not evict(operated.core, operated.namespace, f"{BROKERS}-{SECOND}")
    # A throttled fetch takes a batch however large it is: many small ones can't be caught up with at once.
    batches = {"batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": _server(operated, SECOND), "acks": 1, **batches})
    for _ in range(RECORDS):
        producer.produce(TOPIC, RECORD)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    operated.wait(lambda: _is_pod(operated, FIRST, "ContainersReady"), "it to run again", BROKERS_TIMEOUT_S)
    operated.wait(lambda: _reason(operated, FIRST) == "ReplicasNotInSync", "the reason to be reported")
    assert not _is_pod(operated, FIRST)
    assert not evict(operated.core, operated.namespace, f"{BROKERS}-{SECOND}")

    operated.operators[-1].kill()
    _throttle(operated, "100000000")
    operated.wait(lambda: _isr(operated) == [FIRST, SECOND], "it to have caught up")
    assert not _is_pod(operated, FIRST), "nobody has told so"
    assert not evict(operated.core, operated.namespace, f"{BROKERS}-{SECOND}")

    operated.start_operator()
    operated.wait(lambda: _is_pod(operated, FIRST), "the broker to count again")
    assert evict(operated.core, operated.namespace, f"{BROKERS}-{SECOND}")
    operated.wait(lambda: operated.brokers_settled(*NODES), "the second one to be back", BROKERS_TIMEOUT_S)


def _is_pod(operated: Operated, node_id: int, kind: str = "Ready") -> bool:
    """Whether a condition of a broker's pod holds; of one that goes, none does."""
    pod = _pod(operated, node_id)
    return pod is not None and is_ready(pod, kind)


def _reason(operated: Operated, node_id: int) -> str | None:
    pod = _pod(operated, node_id)
    return (
        next(
            (condition.reason for condition in pod.status.conditions or () if condition.type == IN_SYNC), None
        )
        if pod
        else None
    )


def _pod(operated: Operated, node_id: int) -> Any:
    for pod in operated.core.list_namespaced_pod(operated.namespace).items:
        if pod.metadata.name == f"{BROKERS}-{node_id}" and pod.metadata.deletion_timestamp is None:
            return pod
    return None


def _isr(operated: Operated) -> list[int]:
    topic = operated.asking(SECOND)(lambda client: client.describe_topics([TOPIC]))[TOPIC]
    return sorted(topic.partitions[0].isr)


def _throttle(operated: Operated, rate: str) -> None:
    """Limit how many bytes a second replicas on the first broker fetch that are not in sync."""
    resource = ConfigResource(ConfigResourceType.BROKER, f"{FIRST}")
    change = AlterConfigOp(name=f"{THROTTLE}.rate", value=rate)
    operated.asking(SECOND)(lambda client: client.incremental_alter_configs({resource: [change]})).raise_any()


def _server(operated: Operated, node_id: int) -> str:
    return f"{operated.agent.address_of(f'{BROKERS}-{node_id}')}:{BROKER_PORT}"
