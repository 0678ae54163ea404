"""The progress of reassignments and moves, as text and JSON."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from quorate_admin.types.partitions import (
    PartitionReassignment,
    ReplicaLogDirInfo,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate_protocol.plain_data import dataclass

from quorate.console.java_text import joined
from quorate.tools.reassign_partitions.files import Reassignment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The current and target replicas of a partition, and whether its reassignment is complete."""

    current_replicas: tuple[int, ...]
    target_replicas: tuple[int, ...]
    done: bool


class MoveState(StrEnum):
    """The progress of a replica that moves to another log directory."""

    COMPLETED = "completed"
    ACTIVE = "active"
    CANCELLED = "cancelled"
    MISSING_REPLICA = "missingReplica"
    MISSING_LOG_DIR = "missingLogDir"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirMove:
    """A replica that moves to another log directory."""

    state: MoveState
    target_log_dir: str
    current_log_dir: str | None = None
    future_log_dir: str | None = None


PartitionStates = Mapping[TopicPartition, PartitionState]
LogDirMoves = Mapping[TopicPartitionReplica, LogDirMove]


def partition_states(
    wanted: Reassignment,
    under_way: Mapping[TopicPartition, PartitionReassignment],
    replicas: Mapping[TopicPartition, tuple[int, ...]],
) -> dict[TopicPartition, PartitionState]:
    """The state of each partition. `replicas` has the existing partitions that are not being reassigned."""
    return {
        partition: PartitionState(
            current_replicas=under_way[partition].replicas
            if partition in under_way
            else replicas.get(partition, ()),
            target_replicas=target,
            done=partition not in under_way,
        )
        for partition, target in wanted.targets
    }


def partitions_text(states: PartitionStates) -> str:
    """Kafka's text, sorted."""
    return "Status of partition reassignment:\n" + "".join(
        f"{_partition_line(partition, states[partition])}\n" for partition in sorted(states)
    )


def _partition_line(partition: TopicPartition, state: PartitionState) -> str:
    if not state.done:
        return f"Reassignment of partition {partition} is still in progress."
    if state.current_replicas == state.target_replicas:
        return f"Reassignment of partition {partition} is completed."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is"
        f" {joined(state.current_replicas)} rather than {joined(state.target_replicas)}."
    )


def log_dir_move(info: ReplicaLogDirInfo | None, target: str) -> LogDirMove:
    """The state of a replica that moves to `target`; None if it is unknown."""
    if info is None:
        return LogDirMove(state=MoveState.MISSING_REPLICA, target_log_dir=target)
    if info.current_log_dir is None:
        return LogDirMove(state=MoveState.MISSING_LOG_DIR, target_log_dir=target)
    if info.future_log_dir is not None:
        state = MoveState.ACTIVE
    elif info.current_log_dir == target:
        state = MoveState.COMPLETED
    else:
        state = MoveState.CANCELLED
    return LogDirMove(
        state=state,
        target_log_dir=target,
        current_log_dir=info.current_log_dir,
        future_log_dir=info.future_log_dir,
    )


def by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    """The sort key of replicas."""
    return replica.broker_id, replica.topic, replica.partition


def moves_text(moves: LogDirMoves) -> str:
    """Kafka's text, sorted by broker; an empty line without moves."""
    return "\n".join(_move_line(replica, moves[replica]) for replica in sorted(moves, key=by_broker)) + "\n"


def _move_line(replica: TopicPartitionReplica, move: LogDirMove) -> str:
    partition = f"Partition {replica.topic}-{replica.partition}"
    if move.state is MoveState.MISSING_LOG_DIR:
        return (
            f"{partition} is not found in any live log dir on broker {replica.broker_id}."
            " There is likely an offline log directory on the broker."
        )
    if move.state is MoveState.MISSING_REPLICA:
        return f"{partition} cannot be found in any live log directory on broker {replica.broker_id}."
    if move.state is MoveState.COMPLETED:
        return f"Reassignment of replica {replica} completed successfully."
    if move.state is MoveState.CANCELLED:
        return (
            f"{partition} on broker {replica.broker_id} is not being moved from log dir"
            f" {move.current_log_dir} to {move.target_log_dir}."
        )
    if move.target_log_dir == move.future_log_dir:
        return f"Reassignment of replica {replica} is still in progress."
    return (
        f"{partition} on broker {replica.broker_id} is being moved to log dir {move.future_log_dir}"
        f" instead of {move.target_log_dir}."
    )


def states_json(states: PartitionStates, moves: LogDirMoves) -> dict[str, Any]:
    """Both as JSON."""
    return {
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "done": states[partition].done,
                "currentReplicas": list(states[partition].current_replicas),
                "targetReplicas": list(states[partition].target_replicas),
            }
            for partition in sorted(states)
        ],
        "logDirMoves": [
            {
                **replica_json(replica),
                "state": moves[replica].state.value,
                "currentLogDir": moves[replica].current_log_dir,
                "targetLogDir": moves[replica].target_log_dir,
                "futureLogDir": moves[replica].future_log_dir,
            }
            for replica in sorted(moves, key=by_broker)
        ],
    }


def partition_json(partition: TopicPartition) -> dict[str, Any]:
    """A partition as JSON."""
    return {"topic": partition.topic, "partition": partition.partition}


def replica_json(replica: TopicPartitionReplica) -> dict[str, Any]:
    """A replica as JSON."""
    return {"topic": replica.topic, "partition": replica.partition, "brokerId": replica.broker_id}


def reassignments_text(under_way: Mapping[TopicPartition, PartitionReassignment]) -> str:
    """What --list prints."""
    if not under_way:
        return "No partition reassignments found.\n"
    lines = []
    for partition in sorted(under_way):
        moving = under_way[partition]
        line = f"{partition}: replicas: {joined(moving.replicas)}."
        if moving.adding_replicas:
            line += f" adding: {joined(moving.adding_replicas)}."
        if moving.removing_replicas:
            line += f" removing: {joined(moving.removing_replicas)}."
        lines.append(f"{line}\n")
    return "Current partition reassignments:\n" + "".join(lines)


def reassignments_json(under_way: Mapping[TopicPartition, PartitionReassignment]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "reassignments": [
            {
                **partition_json(partition),
                "replicas": list(under_way[partition].replicas),
                "addingReplicas": list(under_way[partition].adding_replicas),
                "removingReplicas": list(under_way[partition].removing_replicas),
            }
            for partition in sorted(under_way)
        ]
    }
