"""The actions of `quorate reassign-partitions`: generate, execute, verify, cancel, list.

Each action prints the text of Kafka's tool as it proceeds, and returns the result for JSON.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quorate_admin.errors import ErrorCode, ServerError
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_admin.types.topics import TopicDescription
from quorate_protocol.placement import PlacementError, Placer, UsableBroker
from quorate_protocol.plain_data import dataclass

from quorate.console import CommandError
from quorate.console.java_text import hash_order, joined
from quorate.tools.reassign_partitions import throttles
from quorate.tools.reassign_partitions.files import (
    Assignment,
    Reassignment,
    reassignment_content,
    reassignment_text,
)
from quorate.tools.reassign_partitions.states import (
    LogDirMove,
    MoveState,
    by_broker,
    log_dir_move,
    moves_text,
    partition_json,
    partition_states,
    partitions_text,
    replica_json,
    states_json,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.types.cluster import NodeDescription

Say = Callable[[str], None]

MOVE_RETRY_S = 0.1
"""The pause before a broker is asked again to move a replica that it does not have yet, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttles:
    """Bytes per second; negative for none."""

    inter_broker: int
    log_dirs: int


async def generate(
    admin: "AdminClient", say: Say, *, topics: Iterable[str], brokers: Iterable[int], rack_aware: bool
) -> dict[str, Any]:
    """Print the current assignment, and a proposed one for the given brokers."""
    current = {
        partition: replicas
        for description in (await _describe(admin, topics)).values()
        for partition, replicas in _replicas(description)
    }
    nodes = (await admin.describe_cluster()).nodes
    log_dirs = await _log_dirs(admin, current, nodes)
    proposed = propose(current, usable_brokers(nodes, brokers, rack_aware=rack_aware), random.SystemRandom())
    say(f"Current partition replica assignment\n{reassignment_text(current, log_dirs)}\n\n")
    say(f"Proposed partition reassignment configuration\n{reassignment_text(proposed, {})}\n")
    return {
        "current": reassignment_content(current, log_dirs),
        "proposed": reassignment_content(proposed, {}),
    }


def usable_brokers(
    nodes: "Iterable[NodeDescription]", wanted: Iterable[int], *, rack_aware: bool
) -> list[UsableBroker]:
    """The given brokers that are alive. Raises CommandError if only some of them have a rack."""
    ids = set(wanted)
    brokers = [
        UsableBroker(broker_id=node.node_id, rack=node.rack if rack_aware else None, fenced=False)
        for node in nodes
        if node.node_id in ids
    ]
    without_rack = [broker.broker_id for broker in brokers if broker.rack is None]
    if rack_aware and 0 < len(without_rack) < len(brokers):
        raise CommandError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica"
            f" assignment without rack information. Brokers without: {','.join(map(str, sorted(without_rack)))}"
        )
    return brokers


def propose(
    current: Assignment, brokers: list[UsableBroker], rng: random.Random
) -> dict[TopicPartition, tuple[int, ...]]:
    """A new assignment of all partitions of each topic, with the replication factor of the first partition.

    Raises CommandError if there are too few brokers.
    """
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    placer = Placer(brokers, rng)
    for topic in sorted({partition.topic for partition in current}):
        partitions = sorted(partition for partition in current if partition.topic == topic)
        try:
            placed = placer.place(len(partitions), len(current[partitions[0]]))
        except PlacementError as error:
            raise CommandError(f"topic {topic}: {error}") from None
        proposed.update(zip(partitions, placed, strict=True))
    return proposed


async def execute(
    admin: "AdminClient",
    say: Say,
    *,
    wanted: Reassignment,
    limits: Throttles,
    additional: bool,
    allow_replication_factor_change: bool,
    timeout_ms: int,
) -> dict[str, Any]:
    """Start to reassign partitions, then to move replicas between log directories."""
    wanted.check_to_execute()
    proposed = wanted.assignment
    under_way = await admin.list_partition_reassignments()
    if under_way and not additional:
        raise CommandError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override"
            " this and create a new partition assignment in addition to the existing one. The --additional flag"
            " can also be used to change the throttle by resubmitting the current reassignment."
        )
    nodes = (await admin.describe_cluster()).nodes
    known = {node.node_id for node in nodes}
    for partition, replicas in wanted.targets:
        for broker in replicas:
            if broker not in known:
                raise CommandError(f"Unknown broker id {broker} among the replicas of {partition}")
    current = await _existing_replicas(admin, proposed)
    log_dirs = await _log_dirs(admin, current, nodes)
    say(
        f"Current partition replica assignment\n\n{reassignment_text(current, log_dirs)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
    )
    await _throttle(admin, limits, throttles.moves_of(under_way, proposed, current), wanted, say)
    results = await admin.alter_partition_reassignments(
        proposed, allow_replication_factor_change=allow_replication_factor_change
    )
    _raise_listed("Error reassigning partition(s):", results.errors)
    say(f"Successfully started partition reassignment{_plural(proposed)} for {joined(sorted(proposed))}\n")
    await _move_replicas(admin, wanted.log_dirs, timeout_ms, say)
    return {
        "current": reassignment_content(current, log_dirs),
        "started": [partition_json(partition) for partition in sorted(proposed)],
        "logDirMoves": _moves_json(wanted.log_dirs),
    }


async def _throttle(
    admin: "AdminClient", limits: Throttles, moves: throttles.Moves, wanted: Reassignment, say: Say
) -> None:
    if limits.inter_broker < 0 and limits.log_dirs < 0:
        return
    say(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle"
        " is removed.\n"
    )
    if limits.inter_broker >= 0:
        await _change(admin, throttles.throttle_topics(moves))
        await _change(admin, throttles.throttle_brokers(moves, limits.inter_broker))
        say(f"The inter-broker throttle limit was set to {limits.inter_broker} B/s\n")
    if limits.log_dirs >= 0:
        brokers = {replica.broker_id for replica in wanted.log_dirs}
        await _change(admin, throttles.throttle_log_dirs(brokers, limits.log_dirs))
        say(f"The replica-alter-dir throttle limit was set to {limits.log_dirs} B/s\n")


async def verify(
    admin: "AdminClient", say: Say, *, wanted: Reassignment, preserve_throttles: bool
) -> dict[str, Any]:
    """Print the progress; remove the throttles when all reassignments are complete."""
    under_way = await admin.list_partition_reassignments()
    described = await admin.describe_topics(
        {partition.topic for partition in wanted.assignment if partition not in under_way}
    )
    for error in described.errors.values():
        if error.error_code is not ErrorCode.unknown_topic_or_partition:
            raise error
    replicas = {
        partition: brokers for topic in described.values.values() for partition, brokers in _replicas(topic)
    }
    states = partition_states(wanted, under_way, replicas)
    say(partitions_text(states))
    moves = await _log_dir_moves(admin, wanted)
    say(moves_text(moves))
    is_over = not under_way and all(move.state is not MoveState.ACTIVE for move in moves.values())
    if is_over and not preserve_throttles:
        await _clear_throttles(admin, wanted, say)
    return {
        **states_json(states, moves),
        "reassignmentsOngoing": bool(under_way),
        "throttlesCleared": is_over and not preserve_throttles,
    }


async def cancel(
    admin: "AdminClient", say: Say, *, wanted: Reassignment, preserve_throttles: bool, timeout_ms: int
) -> dict[str, Any]:
    """Cancel all reassignments that are still in progress."""
    under_way = await admin.list_partition_reassignments(wanted.assignment)
    moving = sorted(
        partition
        for partition, state in under_way.items()
        if state.adding_replicas or state.removing_replicas
    )
    if moving:
        results = await admin.alter_partition_reassignments(dict.fromkeys(moving))
        _raise_listed(
            f"Error cancelling partition reassignment{_plural(results.errors)} for:", results.errors
        )
        say(f"Successfully cancelled partition reassignment{_plural(moving)} for: {joined(moving)}\n")
    else:
        say("None of the specified partition reassignments are active.\n")
    back = {
        replica: move.current_log_dir
        for replica, move in (await _log_dir_moves(admin, wanted)).items()
        if move.state is MoveState.ACTIVE and move.current_log_dir is not None
    }
    if back:
        await _move_replicas(admin, back, timeout_ms, say)
    else:
        say("None of the specified partition moves are active.")  # Kafka's tool ends no line here
    if not preserve_throttles:
        await _clear_throttles(admin, wanted, say)
    return {
        "cancelled": [partition_json(partition) for partition in moving],
        "logDirMoves": _moves_json(back),
        "throttlesCleared": not preserve_throttles,
    }


async def _describe(admin: "AdminClient", topics: Iterable[str]) -> dict[str, TopicDescription]:
    """The descriptions of topics. Raises CommandError for a topic that does not exist."""
    names = sorted(set(topics))
    results = await admin.describe_topics(names)
    for name, error in results.errors.items():
        if error.error_code is ErrorCode.unknown_topic_or_partition:
            raise CommandError(f"Topic {name} not found.")
        raise error
    return {name: results[name] for name in names}


def _replicas(topic: TopicDescription) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    return [(TopicPartition(topic.name, info.partition), info.replicas) for info in topic.partitions]


async def _existing_replicas(
    admin: "AdminClient", wanted: Assignment
) -> dict[TopicPartition, tuple[int, ...]]:
    """The current replicas of partitions. Raises CommandError for partitions that do not exist."""
    described = await _describe(admin, (partition.topic for partition in wanted))
    existing = {
        partition: replicas for topic in described.values() for partition, replicas in _replicas(topic)
    }
    missing = sorted(partition for partition in wanted if partition not in existing)
    if missing:
        raise CommandError(f"Unable to find partition: {', '.join(map(str, missing))}")
    return {partition: existing[partition] for partition in wanted}


async def _log_dirs(
    admin: "AdminClient", assignment: Assignment, nodes: "Iterable[NodeDescription]"
) -> dict[TopicPartitionReplica, str]:
    """The log directories of the replicas on live brokers."""
    live = {node.node_id for node in nodes}
    replicas = [
        TopicPartitionReplica(partition.topic, partition.partition, broker)
        for partition, brokers in assignment.items()
        for broker in brokers
        if broker in live
    ]
    if not replicas:
        return {}
    results = await admin.describe_replica_log_dirs(replicas)
    results.raise_any()
    return {
        replica: info.current_log_dir
        for replica, info in results.values.items()
        if info.current_log_dir is not None
    }


async def _log_dir_moves(
    admin: "AdminClient", wanted: Reassignment
) -> dict[TopicPartitionReplica, LogDirMove]:
    if not wanted.log_dirs:
        return {}
    results = await admin.describe_replica_log_dirs(wanted.log_dirs)
    results.raise_any()
    return {
        replica: log_dir_move(results.values.get(replica), target)
        for replica, target in wanted.log_dirs.items()
    }


async def _move_replicas(
    admin: "AdminClient", wanted: Mapping[TopicPartitionReplica, str], timeout_ms: int, say: Say
) -> None:
    """Move replicas to log directories, with retries for replicas that their brokers do not have yet.

    Raises CommandError after the timeout, or if a replica can't be moved for another reason.
    """
    pending = dict(wanted)
    deadline_s = time.monotonic() + timeout_ms / 1000
    while pending:
        results = await admin.alter_replica_log_dirs(dict(pending))
        for replica, error in results.errors.items():
            if error.error_code is not ErrorCode.replica_not_available:
                raise CommandError(f"Failed to alter dir for {replica}: {error}")
        for replica in sorted(results.values, key=by_broker):
            say(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica"
                f" {replica.topic}-{replica.partition} with broker {replica.broker_id} \n"
            )
        if pending and time.monotonic() >= deadline_s:
            late = sorted(pending, key=by_broker)
            raise CommandError(
                f"Timed out before log directory move{_plural(late)} could be started for: {joined(late)}"
            )
        if pending:
            await asyncio.sleep(MOVE_RETRY_S)


async def _clear_throttles(admin: "AdminClient", wanted: Reassignment, say: Say) -> None:
    """Remove the throttles of all brokers, because it is not known which of them took part."""
    brokers = {node.node_id for node in (await admin.describe_cluster()).nodes}
    brokers |= {broker for _, replicas in wanted.targets for broker in replicas}
    say(f"Clearing broker-level throttles on broker{_plural(brokers)} {joined(hash_order(brokers))}\n")
    await _change(admin, throttles.clear_brokers(brokers))
    topics = hash_order(wanted.topics)
    say(f"Clearing topic-level throttles on topic{_plural(topics)} {joined(topics)}\n")
    await _change(admin, throttles.clear_topics(topics))


async def _change(admin: "AdminClient", changes: throttles.ConfigChanges) -> None:
    if changes:
        (await admin.incremental_alter_configs(changes)).raise_any()


def _raise_listed(heading: str, errors: Mapping[TopicPartition, ServerError]) -> None:
    if errors:
        lines = (
            f"{partition}: {errors[partition].message or errors[partition]}" for partition in sorted(errors)
        )
        raise CommandError("\n".join((heading, *lines)))


def _moves_json(moves: Mapping[TopicPartitionReplica, str]) -> list[dict[str, Any]]:
    return [
        {**replica_json(replica), "targetLogDir": moves[replica]} for replica in sorted(moves, key=by_broker)
    ]


def _plural(things: Iterable[object]) -> str:
    return "" if len(list(things)) == 1 else "s"
