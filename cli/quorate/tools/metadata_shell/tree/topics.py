"""/image/topics: every topic twice, by name and by id."""

from typing import Any

from quorate_protocol.image import ImageState, PartitionRegistration, TopicImage
from quorate_protocol.uuids import uuid_from_text, uuid_to_text

from quorate.console.java_text import list_text
from quorate.tools.metadata_shell.tree.nodes import Directory, Node, by_key, fixed, number_of, record, value


def topics(image: ImageState) -> Directory:
    """byName and byId."""
    by_name, by_id = image.topics.by_name, image.topics.by_id
    return fixed(
        {
            "byName": lambda: by_key(by_name, _topic),
            "byId": lambda: by_key(by_id, _topic, uuid_from_text, uuid_to_text),
        }
    )


def _topic(topic: TopicImage) -> Directory:
    def child(name: str) -> Node | None:
        if name == "name":
            return value(topic.name)
        if name == "id":
            return value(uuid_to_text(topic.topic_id))
        number = number_of(name)
        partition = None if number is None else topic.partitions.get(number)
        return record(partition_text, _partition_data, partition) if partition else None

    return Directory(lambda: ("name", "id", *map(str, topic.partitions)), child)


def partition_text(partition: PartitionRegistration) -> str:
    """As PartitionRegistration.toString."""
    fields = (
        f"{name}={list_text(part) if isinstance(part, list) else part}"
        for name, part in _partition_data(partition).items()
    )
    return f"PartitionRegistration({', '.join(fields)})"


def _partition_data(partition: PartitionRegistration) -> dict[str, Any]:
    return {
        "replicas": list(partition.replicas),
        "directories": list(map(uuid_to_text, partition.directories)),
        "isr": list(partition.isr),
        "removingReplicas": list(partition.removing_replicas),
        "addingReplicas": list(partition.adding_replicas),
        "elr": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
        "leader": partition.leader,
        "leaderRecoveryState": partition.leader_recovery_state.name,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
    }
