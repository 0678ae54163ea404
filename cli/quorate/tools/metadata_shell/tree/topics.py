"""/image/topics: every topic twice, by name and by id."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from quorate_protocol.image import ImageState, PartitionRegistration, TopicImage
from quorate_protocol.uuids import uuid_from_text, uuid_to_text

from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node, fixed, number_of, value


def topics(image: ImageState) -> Directory:
    """byName and byId."""
    return fixed({"byName": lambda: _by_name(image), "byId": lambda: _by_id(image)})


def _by_name(image: ImageState) -> Directory:
    def child(name: str) -> Node | None:
        topic = image.topics.by_name.get(name)
        return _topic(topic) if topic else None

    return Directory(lambda: image.topics.by_name, child)


def _by_id(image: ImageState) -> Directory:
    def child(name: str) -> Node | None:
        try:
            topic = image.topics.by_id.get(uuid_from_text(name))
        except ValueError:
            return None
        return _topic(topic) if topic else None

    return Directory(lambda: map(uuid_to_text, image.topics.by_id), child)


def _topic(topic: TopicImage) -> Directory:
    def child(name: str) -> Node | None:
        if name == "name":
            return value(topic.name)
        if name == "id":
            return value(uuid_to_text(topic.topic_id))
        number = number_of(name)
        partition = None if number is None else topic.partitions.get(number)
        return _partition(partition) if partition else None

    return Directory(lambda: ("name", "id", *map(str, topic.partitions)), child)


def _partition(partition: PartitionRegistration) -> Leaf:
    return Leaf(lambda: partition_text(partition), lambda: _partition_data(partition))


def partition_text(partition: PartitionRegistration) -> str:
    """As PartitionRegistration.toString."""
    return (
        f"PartitionRegistration(replicas={_list(partition.replicas)}, "
        f"directories={_list(_uuids(partition.directories))}, isr={_list(partition.isr)}, "
        f"removingReplicas={_list(partition.removing_replicas)}, "
        f"addingReplicas={_list(partition.adding_replicas)}, elr={_list(partition.elr)}, "
        f"lastKnownElr={_list(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={partition.leader_recovery_state.name}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _uuids(uuids: Iterable[UUID]) -> list[str]:
    return list(map(uuid_to_text, uuids))


def _partition_data(partition: PartitionRegistration) -> dict[str, Any]:
    return {
        "replicas": list(partition.replicas),
        "directories": _uuids(partition.directories),
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
