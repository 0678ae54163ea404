"""Reassignments of one topic, as the tests of kafka-reassign-partitions read and write them."""

import json
from typing import Any

from quorate_admin.types.partitions import PartitionReassignment, TopicPartition, TopicPartitionReplica

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
R01 = TopicPartitionReplica("t", 0, 1)
MOVING = PartitionReassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))


def moves_file(*partitions: dict[str, Any]) -> str:
    """The content of a --reassignment-json-file."""
    return json.dumps({"version": 1, "partitions": partitions})


def to(*replicas: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    """One partition of `t` in such a file."""
    return {"topic": "t", "partition": partition, "replicas": list(replicas), **more}
