"""The files of `quorate reassign-partitions`: topics to move, and assignments."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_protocol.plain_data import dataclass

from quorate.console import INT32_MAX, CommandError, UsageError, parse_ids, parse_json
from quorate.console.java_text import joined

ANY_LOG_DIR = "any"
_VERSION = 1

Assignment = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """The content of a file: brokers of partitions, in the order of the file, and log directories of replicas."""

    targets: tuple[tuple[TopicPartition, tuple[int, ...]], ...]
    log_dirs: Mapping[TopicPartitionReplica, str]

    @property
    def assignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The brokers by partition; the last entry, if a partition occurs twice."""
        return dict(self.targets)

    @property
    def topics(self) -> list[str]:
        """The topics, each once."""
        return list(dict.fromkeys(partition.topic for partition, _ in self.targets))

    def check_to_execute(self) -> None:
        """Check that the content can be executed, not only verified. Raises CommandError."""
        if not self.targets:
            raise CommandError("Partition reassignment list cannot be empty")
        for partition, replicas in self.targets:
            if not replicas:
                raise CommandError(f"Partition replica list cannot be empty: that of {partition} is")
        twice = _repeated(partition for partition, _ in self.targets)
        if twice:
            raise CommandError(f"Partition reassignment contains duplicate topic partitions: {joined(twice)}")
        for partition, replicas in self.targets:
            brokers = _repeated(replicas)
            if brokers:
                raise CommandError(
                    "Partition replica lists may not contain duplicate entries:"
                    f" {partition} contains multiple entries for {joined(brokers)}"
                )


def parse_reassignment(text: str) -> Reassignment:
    """From `{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […], "log_dirs": […]}]}`.

    Raises CommandError, which names the field, its value and what is allowed.
    """
    targets = []
    log_dirs: dict[TopicPartitionReplica, str] = {}
    for index, fields in enumerate(_items(_document(text), "partitions")):
        where = f"partitions[{index}]"
        partition = TopicPartition(
            _field(fields, "topic", str, where), _field(fields, "partition", int, where)
        )
        replicas = tuple(_list(fields, "replicas", int, where))
        targets.append((partition, replicas))
        if "log_dirs" in fields:
            directories = _list(fields, "log_dirs", str, where)
            if len(directories) != len(replicas):
                raise CommandError(
                    f"{where}: the size of replicas {list(replicas)} is different from the size of log_dirs"
                    f" {directories} of partition {partition}"
                )
            for broker_id, directory in zip(replicas, directories, strict=True):
                if directory != ANY_LOG_DIR:
                    log_dirs[TopicPartitionReplica(partition.topic, partition.partition, broker_id)] = (
                        directory
                    )
    return Reassignment(targets=tuple(targets), log_dirs=log_dirs)


def parse_topics(text: str) -> list[str]:
    """The names in `{"version": 1, "topics": [{"topic": …}]}`. Raises CommandError."""
    topics = [
        _field(fields, "topic", str, f"topics[{index}]")
        for index, fields in enumerate(_items(_document(text), "topics"))
    ]
    twice = _repeated(topics)
    if twice:
        raise CommandError(f"List of topics to reassign contains duplicate entries: {joined(twice)}")
    return topics


def parse_broker_list(text: str) -> list[int]:
    """The ids of --broker-list, which are separated by commas. Raises UsageError."""
    try:
        brokers = parse_ids(text, ",")
    except ValueError:
        raise UsageError(
            f"--broker-list {text!r}: it must be broker ids from 0 to {INT32_MAX} separated by commas, as in 0,1,2"
        ) from None
    twice = _repeated(brokers)
    if twice:
        raise UsageError(f"--broker-list: Broker list contains duplicate entries: {joined(twice)}")
    return brokers


def reassignment_content(
    assignment: Assignment, log_dirs: Mapping[TopicPartitionReplica, str]
) -> dict[str, Any]:
    """What `parse_reassignment` reads, sorted by topic and partition."""
    return {
        "version": _VERSION,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(assignment[partition]),
                "log_dirs": [
                    log_dirs.get(
                        TopicPartitionReplica(partition.topic, partition.partition, broker_id), ANY_LOG_DIR
                    )
                    for broker_id in assignment[partition]
                ],
            }
            for partition in sorted(assignment)
        ],
    }


def reassignment_text(assignment: Assignment, log_dirs: Mapping[TopicPartitionReplica, str]) -> str:
    """The same as text, on one line."""
    content = reassignment_content(assignment, log_dirs)
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _document(text: str) -> dict[str, Any]:
    document = parse_json(text)
    if not isinstance(document, dict):
        raise CommandError("it must hold one JSON object")
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise CommandError(f"version {version!r} is not supported; it must be {_VERSION}")
    return document


def _items(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    items = document.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise CommandError(f"{name} must be a list of objects")
    return items


def _field(fields: Mapping[str, Any], name: str, kind: type[Any], where: str) -> Any:
    if name not in fields:
        raise CommandError(f"{where} has no {name!r}")
    value = fields[name]
    if not _is(value, kind):
        raise CommandError(f"{where}.{name} {value!r} is not {_words(kind)}")
    return value


def _list(fields: Mapping[str, Any], name: str, kind: type[Any], where: str) -> list[Any]:
    values = _field(fields, name, list, where)
    for value in values:
        if not _is(value, kind):
            raise CommandError(f"{where}.{name} {values!r}: {value!r} is not {_words(kind)}")
    return list(values)


def _is(value: object, kind: type[Any]) -> bool:
    return isinstance(value, kind) and (kind is not int or (type(value) is int and 0 <= value <= INT32_MAX))


def _words(kind: type[Any]) -> str:
    return {str: "a text", int: f"a whole number from 0 to {INT32_MAX}", list: "a list"}[kind]


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]
