"""The steps that Kafka does: requests, results that count as done, and messages of failures."""

import inspect
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from quorate_admin.errors import ConnectionFailedError, ErrorCode, ServerError, UnsupportedByServerError
from quorate_admin.results import Results
from quorate_admin.types.cluster import (
    FeatureDescription,
    FeatureUpdate,
    QuorumDescription,
    RaftVoterEndpoint,
    ReplicaDescription,
)
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_operator.gateway import actions
from quorate_operator.gateway.actions import Leader, perform, perform_at_node
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import Address
from quorate_operator.planning.steps import (
    AddVoter,
    CordonDirectories,
    ElectPreferredLeaders,
    FinalizeFeature,
    KafkaAction,
    MoveBetweenDirectories,
    ReassignPartitions,
    RefreshRegistration,
    RemoveVoter,
    SetThrottles,
    StepError,
    UnregisterBroker,
    UnregisterController,
)
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ElectionType, UpgradeType
from quorate_protocol.uuids import uuid_to_text

DISK = UUID(int=7 << 100)
ADD = AddVoter(
    node_id=3001,
    directory_id=uuid_to_text(DISK),
    endpoints={"CONTROLLER": Address("c1", 9093)},
    reason="r",
)
REMOVE = RemoveVoter(node_id=3001, directory_id=uuid_to_text(DISK), reason="r")
UNREGISTER = UnregisterController(node_id=3001, reason="r")
REFRESH = RefreshRegistration(node_id=3001, reason="r")
UNREGISTER_BROKER = UnregisterBroker(node_id=1, reason="r")
FINALIZE = FinalizeFeature(feature="metadata.version", level=30, reason="r")
ELECT = ElectPreferredLeaders(reason="r")
A0, A1 = PartitionId("a", 0), PartitionId("a", 1)
REASSIGN = ReassignPartitions(node_id=1, targets={A0: (2, 3), A1: ()}, reason="r")
T0, T1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Client:
    """Answers, or raises, what the test says by method; remembers what was asked."""

    def __init__(self, **responses: Any) -> None:
        self._responses = responses
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any, **named: Any) -> Any:
            self.asked.append((name, arguments, named))
            response = self._responses.get(name)
            if inspect.isfunction(response):
                response = response(*arguments)
            if isinstance(response, Exception):
                raise response
            return response

        return ask


def voters(*replicas: tuple[int, UUID]) -> QuorumDescription:
    """A quorum of these."""
    return QuorumDescription(
        leader_id=3000,
        leader_epoch=1,
        high_watermark=1,
        voters=tuple(
            ReplicaDescription(
                node_id=node_id,
                directory_id=directory_id,
                log_end_offset=1,
                last_fetch_ms=None,
                last_caught_up_ms=None,
            )
            for node_id, directory_id in replicas
        ),
        observers=(),
    )


async def do(action: KafkaAction, client: Client, metadata: Any, *, is_last_attempt: bool = True) -> bool:
    """Do it with what the image has."""
    leader = Leader(client=client, cluster_id="c", image=metadata.image)
    return await perform(action, leader, is_last_attempt=is_last_attempt)


async def test_voters_come_and_go(metadata) -> None:
    client = Client()
    assert await do(ADD, client, metadata)
    assert await do(REMOVE, client, metadata)
    endpoint = RaftVoterEndpoint(name="CONTROLLER", host="c1", port=9093)
    assert client.asked == [
        ("add_raft_voter", (3001, DISK, [endpoint]), {"cluster_id": "c"}),
        ("remove_raft_voter", (3001, DISK), {"cluster_id": "c"}),
    ]


async def test_a_voter_that_is_there_already(metadata) -> None:
    duplicate = ServerError(ErrorCode.duplicate_voter, "it is a voter")
    same = Client(add_raft_voter=duplicate, describe_metadata_quorum=voters((3001, DISK)))
    assert await do(ADD, same, metadata)
    other = Client(add_raft_voter=duplicate, describe_metadata_quorum=voters((3001, UUID(int=9 << 100))))
    with pytest.raises(
        StepError, match="controller 3001 was not made a voter: DUPLICATE_VOTER: it is a voter"
    ):
        await do(ADD, other, metadata)


@pytest.mark.parametrize(
    ("action", "method", "code"),
    [
        (REMOVE, "remove_raft_voter", ErrorCode.voter_not_found),
        (UNREGISTER, "unregister_controller", ErrorCode.controller_id_not_registered),
        (UNREGISTER_BROKER, "unregister_broker", ErrorCode.broker_id_not_registered),
    ],
)
async def test_what_is_gone_is_done(metadata, action: KafkaAction, method: str, code: ErrorCode) -> None:
    metadata.controller(3001)
    metadata.broker(1, fenced=True)
    client = Client(**{method: ServerError(code)})
    assert await do(action, client, metadata)
    assert [asked[0] for asked in client.asked] == [method]


@pytest.mark.parametrize("action", [UNREGISTER, REFRESH, UNREGISTER_BROKER])
async def test_nothing_is_asked_about_who_is_not_registered(metadata, action: KafkaAction) -> None:
    client = Client()
    assert await do(action, client, metadata)
    assert client.asked == []


async def test_a_ghost_is_refreshed(metadata) -> None:
    metadata.controller(3001)
    client = Client()
    assert await do(REFRESH, client, metadata)
    assert client.asked == [("refresh_controller", (3001,), {"allow_unlisted": True})]


async def test_a_broker_that_is_needed_stays(metadata) -> None:
    metadata.broker(1)
    with pytest.raises(StepError, match="node 1 was not unregistered: it is in service; stop it first"):
        await do(UNREGISTER_BROKER, Client(), metadata)
    metadata.broker(1, fenced=True)
    metadata.topic("a", ((1,), (1,)))
    with pytest.raises(StepError, match="it holds replicas, of a-0 among others"):
        await do(UNREGISTER_BROKER, Client(), metadata)


async def test_features_go_up_and_safely_down(metadata) -> None:
    levels = FeatureDescription(finalized={"metadata.version": 30}, finalized_epoch=1, supported={})
    client = Client(describe_features=levels)
    assert await do(FINALIZE, client, metadata)
    assert await do(replace(FINALIZE, level=33), client, metadata)
    assert await do(replace(FINALIZE, level=27, is_downgrade=True), client, metadata)
    updates = [arguments[0] for name, arguments, _ in client.asked if name == "update_features"]
    assert updates == [
        {"metadata.version": FeatureUpdate(max_level=33)},
        {"metadata.version": FeatureUpdate(max_level=27, upgrade_type=UpgradeType.SAFE_DOWNGRADE)},
    ]


async def test_partitions_are_reassigned_in_bounded_requests(
    metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "PARTITIONS_PER_REQUEST_MAX", 1)
    gone = {T1: ServerError(ErrorCode.no_reassignment_in_progress)}
    client = Client(alter_partition_reassignments=lambda asked: Results(errors=gone if T1 in asked else {}))
    assert await do(REASSIGN, client, metadata)
    assert [arguments for _, arguments, _ in client.asked] == [({T0: (2, 3)},), ({T1: None},)]


async def test_a_partition_that_can_not_be_reassigned(metadata) -> None:
    errors = {
        T0: ServerError(ErrorCode.unknown_topic_or_partition),
        T1: ServerError(ErrorCode.invalid_replica_assignment, "no such broker"),
    }
    client = Client(alter_partition_reassignments=Results(errors=errors))
    expected = "2 partitions were not reassigned: INVALID_REPLICA_ASSIGNMENT: a-1: no such broker"
    with pytest.raises(StepError, match=expected):
        await do(REASSIGN, client, metadata)


async def test_preferred_leaders_where_they_can_lead(metadata) -> None:
    for node_id in (1, 2):
        metadata.broker(node_id)
    metadata.topic("a", ((1, 2), (2, 1)), ((1, 2), (1, 2)), ((1, 2), (2,)))
    over = Results(errors={T0: ServerError(ErrorCode.election_not_needed)})
    client = Client(elect_leaders=over)
    assert await do(ELECT, client, metadata)
    assert client.asked == [("elect_leaders", (ElectionType.PREFERRED, (T0,)), {})]
    refused = Client(elect_leaders=Results(errors={T0: ServerError(ErrorCode.cluster_authorization_failed)}))
    with pytest.raises(StepError, match="preferred leaders were not elected: CLUSTER_AUTHORIZATION_FAILED"):
        await do(ELECT, refused, metadata)


@pytest.mark.parametrize(
    "error", [ServerError(ErrorCode.not_controller), ConnectionFailedError("host:1: it was closed")]
)
async def test_another_leader_may_have_taken_over(metadata, error: Exception) -> None:
    client = Client(add_raft_voter=error)
    assert not await do(ADD, client, metadata, is_last_attempt=False)
    with pytest.raises(StepError, match="controller 3001 was not made a voter: "):
        await do(ADD, client, metadata)


async def test_what_the_leader_is_too_old_for(metadata) -> None:
    metadata.controller(3001)
    client = Client(unregister_controller=UnsupportedByServerError("host:1 has no UnregisterController"))
    expected = "node 3001 was not unregistered: the active controller can't do that: host:1 has no Unregister"
    with pytest.raises(StepError, match=expected):
        await do(UNREGISTER, client, metadata, is_last_attempt=False)


async def test_throttles_are_set_and_removed(metadata) -> None:
    """Rates first, so that no list is left without them."""
    broker, topic = (
        ConfigResource(ConfigResourceType.BROKER, "1"),
        ConfigResource(ConfigResourceType.TOPIC, "a"),
    )
    names = [
        ("leader.replication.throttled.rate", "follower.replication.throttled.rate"),
        ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
    ]
    client = Client(incremental_alter_configs=Results({}))
    await do(SetThrottles(rates={1: 5}, topics={"a": ("0:1", "0:2")}, reason="r"), client, metadata)
    await do(SetThrottles(rates={1: None}, topics={"a": ("", "")}, reason="r"), client, metadata)
    await do(SetThrottles(rates={}, topics={}, reason="r"), client, metadata)
    assert [arguments for _, arguments, _ in client.asked] == [
        ({broker: [AlterConfigOp(name=name, value="5") for name in names[0]]},),
        (
            {
                topic: [
                    AlterConfigOp(name=names[1][0], value="0:1"),
                    AlterConfigOp(name=names[1][1], value="0:2"),
                ]
            },
        ),
        ({broker: [AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in names[0]]},),
        ({topic: [AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in names[1]]},),
    ]
    gone = Client(
        incremental_alter_configs=Results(errors={topic: ServerError(ErrorCode.unknown_topic_or_partition)})
    )
    await do(SetThrottles(rates={}, topics={"a": ("", "")}, reason="r"), gone, metadata)


async def test_directories_are_changed_at_the_broker_itself() -> None:
    """Replicas move to the paths of the plan, and a cordon is set whole."""
    key = TopicPartitionReplica("a", 0, 1)
    move = MoveBetweenDirectories(node_id=1, targets={A0: "/two"}, reason="r")
    client = Client(alter_replica_log_dirs=Results({key: None}), incremental_alter_configs=Results({}))
    await perform_at_node(move, client)
    for directories in (("/one", "/two"), ()):
        await perform_at_node(CordonDirectories(node_id=1, directories=directories, reason="r"), client)
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    assert [arguments for _, arguments, _ in client.asked] == [
        ({key: "/two"},),
        ({broker: [AlterConfigOp(name="cordoned.log.dirs", value="/one,/two")]},),
        ({broker: [AlterConfigOp(name="cordoned.log.dirs", operation=ConfigOpType.DELETE)]},),
    ]
    for code, is_fine in ((ErrorCode.replica_not_available, True), (ErrorCode.log_dir_not_found, False)):
        refused = Client(alter_replica_log_dirs=Results(errors={key: ServerError(code)}))
        if is_fine:
            await perform_at_node(move, refused)
        else:
            with pytest.raises(StepError, match="1 replicas of broker 1 were not moved"):
                await perform_at_node(move, refused)
    with pytest.raises(StepError, match="broker 1 were not cordoned: it does not run"):
        await perform_at_node(CordonDirectories(node_id=1, directories=(), reason="r"), None)
