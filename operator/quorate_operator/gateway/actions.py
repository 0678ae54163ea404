"""The steps of a plan that are done by Kafka's RPCs.

Requests go to the leader, those for levels of loggers and for log directories to the node itself. A step that was
done before succeeds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from quorate_admin.client import AdminClient
from quorate_admin.errors import (
    AdminError,
    ConnectionFailedError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedByServerError,
)
from quorate_admin.results import Results
from quorate_admin.types.cluster import FeatureUpdate, RaftVoterEndpoint
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.views import partitions_of_broker
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ElectionType, UpgradeType
from quorate_protocol.uuids import uuid_from_text

from quorate_operator.gateway.facts import CORDONED_LOG_DIRS, unpreferred_partitions
from quorate_operator.planning import steps
from quorate_operator.planning.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

PARTITIONS_PER_REQUEST_MAX = 1_000
_ELSEWHERE = frozenset({ErrorCode.not_controller, ErrorCode.not_leader_or_follower})
_ELECTION_OVER = frozenset(
    {
        ErrorCode.none,
        ErrorCode.election_not_needed,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Results of an election that is no longer needed, or not possible, since the partition was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The active controller that is asked, and the cluster's metadata as it was a moment ago."""

    client: AdminClient
    cluster_id: str
    image: MetadataImage


async def perform(action: steps.KafkaAction, leader: Leader, *, is_last_attempt: bool) -> bool:
    """Apply a step. Returns False if another leader must be asked, which is an error at the last attempt.

    Raises:
        StepError: the step failed. The message is for people.
    """
    try:
        await _PERFORMED[type(action)](action, leader)  # type: ignore[operator]
    except AdminError as error:
        is_elsewhere = isinstance(error, ServerError) and error.error_code in _ELSEWHERE
        is_lost = isinstance(error, (ConnectionFailedError, UnreachableError, RequestTimeoutError))
        if (is_elsewhere or is_lost) and not is_last_attempt:
            return False
        raise steps.StepError(f"{_intended(action)}: {_reason(error)}") from error
    return True


async def _add_voter(action: steps.AddVoter, leader: Leader) -> None:
    try:
        await leader.client.add_raft_voter(
            action.node_id,
            uuid_from_text(action.directory_id),
            [
                RaftVoterEndpoint(name=name, host=at.host, port=at.port)
                for name, at in action.endpoints.items()
            ],
            cluster_id=leader.cluster_id,
        )
    except ServerError as error:
        if error.error_code is not ErrorCode.duplicate_voter:
            raise
        described = await leader.client.describe_metadata_quorum()
        directory_id = uuid_from_text(action.directory_id)
        if (action.node_id, directory_id) not in {
            (voter.node_id, voter.directory_id) for voter in described.voters
        }:
            raise


async def _remove_voter(action: steps.RemoveVoter, leader: Leader) -> None:
    try:
        await leader.client.remove_raft_voter(
            action.node_id, uuid_from_text(action.directory_id), cluster_id=leader.cluster_id
        )
    except ServerError as error:
        if error.error_code is not ErrorCode.voter_not_found:
            raise


async def _unregister_controller(action: steps.UnregisterController, leader: Leader) -> None:
    if action.node_id not in leader.image.cluster.controllers:
        return
    try:
        await leader.client.unregister_controller(action.node_id)
    except ServerError as error:
        if error.error_code is not ErrorCode.controller_id_not_registered:
            raise


async def _refresh_registration(action: steps.RefreshRegistration, leader: Leader) -> None:
    # This must not register a new controller. A controller that is not registered blocks nothing.
    if action.node_id in leader.image.cluster.controllers:
        await leader.client.refresh_controller(action.node_id, allow_unlisted=True)


async def _unregister_broker(action: steps.UnregisterBroker, leader: Leader) -> None:
    registered = leader.image.cluster.brokers.get(action.node_id)
    if registered is None:
        return
    if not registered.fenced:
        raise steps.StepError(f"{_intended(action)}: it is in service; stop it first")
    held = next(iter(partitions_of_broker(leader.image, action.node_id)), None)
    if held is not None:
        topic, number, _ = held
        raise steps.StepError(
            f"{_intended(action)}: it holds replicas, of {topic.name}-{number} among others"
        )
    try:
        await leader.client.unregister_broker(action.node_id)
    except ServerError as error:
        if error.error_code is not ErrorCode.broker_id_not_registered:
            raise


async def _finalize_feature(action: steps.FinalizeFeature, leader: Leader) -> None:
    features = await leader.client.describe_features()
    if features.finalized.get(action.feature, 0) == action.level:
        return
    direction = UpgradeType.SAFE_DOWNGRADE if action.is_downgrade else UpgradeType.UPGRADE
    update = FeatureUpdate(max_level=action.level, upgrade_type=direction)
    await leader.client.update_features({action.feature: update})


async def _reassign_partitions(action: steps.ReassignPartitions, leader: Leader) -> None:
    targets = {
        TopicPartition(key.topic, key.number): tuple(replicas) or None
        for key, replicas in action.targets.items()
    }
    for chunk in _chunks(targets):
        results = await leader.client.alter_partition_reassignments(
            {partition: targets[partition] for partition in chunk}
        )
        # For a deleted topic or a complete reassignment, nothing is left to be done.
        _raise_unless(results, {ErrorCode.no_reassignment_in_progress, ErrorCode.unknown_topic_or_partition})


async def _set_throttles(action: steps.SetThrottles, leader: Leader) -> None:
    """Set rates before the replicas to which they apply, and remove them before these."""
    rates = {
        ConfigResource(ConfigResourceType.BROKER, str(broker_id)): [
            _altered(name, None if rate is None else str(rate)) for name in (LEADER_RATE, FOLLOWER_RATE)
        ]
        for broker_id, rate in action.rates.items()
    }
    if rates:
        (await leader.client.incremental_alter_configs(rates)).raise_any()
    topics = {
        ConfigResource(ConfigResourceType.TOPIC, topic): [
            _altered(name, text or None)
            for name, text in zip((LEADER_REPLICAS, FOLLOWER_REPLICAS), lists, strict=True)
        ]
        for topic, lists in action.topics.items()
    }
    if topics:
        altered = await leader.client.incremental_alter_configs(topics)
        altered.raise_any({ErrorCode.unknown_topic_or_partition})  # deleted since


def _altered(name: str, value: str | None) -> AlterConfigOp:
    if value is None:
        return AlterConfigOp(name=name, operation=ConfigOpType.DELETE)
    return AlterConfigOp(name=name, value=value)


async def _elect_preferred_leaders(_: steps.ElectPreferredLeaders, leader: Leader) -> None:
    wanted = [TopicPartition(key.topic, key.number) for key in unpreferred_partitions(leader.image)]
    for chunk in _chunks(wanted):
        _raise_unless(await leader.client.elect_leaders(ElectionType.PREFERRED, chunk), _ELECTION_OVER)


NodeAction = steps.SetLogLevels | steps.CordonDirectories | steps.MoveBetweenDirectories
"""The steps that a node does by itself: no other node has a part in them."""


async def perform_at_node(action: NodeAction, client: AdminClient | None) -> None:
    """Apply a step at the node itself, by its `client`.

    Raises:
        StepError: the step failed. The message is for people.
    """
    if client is None:
        raise steps.StepError(f"{_intended(action)}: it does not run")
    try:
        match action:
            case steps.SetLogLevels():
                await _set_log_levels(action, client)
            case steps.CordonDirectories():
                await _cordon_directories(action, client)
            case steps.MoveBetweenDirectories():
                await _move_between_directories(action, client)
    except AdminError as error:
        raise steps.StepError(f"{_intended(action)}: {error}") from error


async def _set_log_levels(action: steps.SetLogLevels, client: AdminClient) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, str(action.node_id))
    changes = [AlterConfigOp(name=name, value=level) for name, level in action.levels.items()]
    (await client.incremental_alter_configs({resource: changes})).raise_any()


async def _cordon_directories(action: steps.CordonDirectories, client: AdminClient) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, str(action.node_id))
    change = _altered(CORDONED_LOG_DIRS, ",".join(action.directories) or None)
    (await client.incremental_alter_configs({resource: [change]})).raise_any()


async def _move_between_directories(action: steps.MoveBetweenDirectories, client: AdminClient) -> None:
    results = await client.alter_replica_log_dirs(
        {
            TopicPartitionReplica(key.topic, key.number, action.node_id): path
            for key, path in action.targets.items()
        }
    )
    # The replica may have been deleted since, or moved to another broker.
    _raise_unless(results, {ErrorCode.unknown_topic_or_partition, ErrorCode.replica_not_available})


_PERFORMED = {
    steps.AddVoter: _add_voter,
    steps.RemoveVoter: _remove_voter,
    steps.UnregisterController: _unregister_controller,
    steps.RefreshRegistration: _refresh_registration,
    steps.UnregisterBroker: _unregister_broker,
    steps.FinalizeFeature: _finalize_feature,
    steps.ReassignPartitions: _reassign_partitions,
    steps.SetThrottles: _set_throttles,
    steps.ElectPreferredLeaders: _elect_preferred_leaders,
}


def _chunks(partitions: Iterable[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    left = iter(partitions)
    while chunk := tuple(islice(left, PARTITIONS_PER_REQUEST_MAX)):
        yield chunk


def _raise_unless(
    results: Results[TopicPartition, None] | Results[TopicPartitionReplica, None], fine: Iterable[ErrorCode]
) -> None:
    allowed = frozenset(fine)
    for partition, error in results.errors.items():
        if error.error_code not in allowed:
            raise ServerError(error.error_code, f"{partition}: {error.message or ''}".rstrip(": "))


def _intended(action: steps.KafkaAction) -> str:
    """Return what was not done, as the beginning of a message."""
    match action:
        case steps.AddVoter(node_id=node_id):
            return f"controller {node_id} was not made a voter"
        case steps.RemoveVoter(node_id=node_id):
            return f"controller {node_id} was not taken out of the voters"
        case steps.UnregisterController(node_id=node_id) | steps.UnregisterBroker(node_id=node_id):
            return f"node {node_id} was not unregistered"
        case steps.RefreshRegistration(node_id=node_id):
            return f"the registration of controller {node_id} was not refreshed"
        case steps.FinalizeFeature(feature=feature, level=level):
            return f"{feature} was not set to {level}"
        case steps.ReassignPartitions(targets=targets):
            return f"{len(targets)} partitions were not reassigned"
        case steps.SetThrottles():
            return "throttles of replicas were not set"
        case steps.ElectPreferredLeaders():
            return "preferred leaders were not elected"
        case steps.SetLogLevels(node_id=node_id):
            return f"log levels of node {node_id} were not set"
        case steps.CordonDirectories(node_id=node_id):
            return f"log directories of broker {node_id} were not cordoned"
        case steps.MoveBetweenDirectories(node_id=node_id, targets=targets):
            return f"{len(targets)} replicas of broker {node_id} were not moved to other log directories"


def _reason(error: AdminError) -> str:
    if isinstance(error, UnsupportedByServerError):
        return f"the active controller can't do that: {error}"
    return str(error)
