"""Records of each type for a replay, and the tasks that no request asks for: tables of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.work.large_image import acl_id, directory, topic_id, topic_name
from kit.work.requests_of_apis import Case, Place, Run
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from quorate_protocol.records import generated as records

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.control.api import ControlResult
    from quorate_controller.control.controller import QuorumController

MANY: Final = 2_000


def _each(api: str, make: Callable[[int], Any], **stated: str) -> Case:
    """Many records of one type."""
    return Case(
        api,
        "many",
        MANY,
        lambda place, n: [make(number) for number in range(min(n, place.size.users, place.size.acls))],
        run=Run.REPLAY,
        **stated,
    )


def _one(api: str, what: str, make: Callable[[Place], Any], **stated: str) -> Case:
    return Case(api, what, 1, lambda place, _n: make(place), run=Run.REPLAY, **stated)


def _partition(number: int) -> records.PartitionRecord:
    """Of the large topic, behind its last one."""
    return records.PartitionRecord(
        partition_id=1_000_000 + number,
        topic_id=topic_id(0),
        replicas=(0, 1, 2),
        isr=(0, 1, 2),
        removing_replicas=(),
        adding_replicas=(),
        leader=0,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory(0), directory(1), directory(2)),
    )


def _moved(place: Place, number: int) -> records.PartitionChangeRecord:
    brokers = tuple((number + step) % place.size.brokers for step in (5, 6, 7))
    return records.PartitionChangeRecord(
        partition_id=number,
        topic_id=topic_id(0),
        replicas=brokers,
        isr=brokers,
        leader=brokers[0],
        directories=tuple(map(directory, brokers)),
    )


def _acl(number: int) -> records.AccessControlEntryRecord:
    return records.AccessControlEntryRecord(
        id=UUID(int=(1 << 80) + number),
        resource_type=ResourceType.TOPIC,
        resource_name=f"new-{number}",
        pattern_type=PatternType.LITERAL,
        principal="User:bob",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )


def _token(number: int) -> records.DelegationTokenRecord:
    return records.DelegationTokenRecord(
        owner="User:bob",
        requester="User:bob",
        renewers=(),
        issue_timestamp=0,
        max_timestamp=9,
        expiration_timestamp=9,
        token_id=f"new-{number}",
    )


def _credential(number: int) -> records.UserScramCredentialRecord:
    return records.UserScramCredentialRecord(
        name=f"new-{number}",
        mechanism=ScramMechanism.SCRAM_SHA_256,
        salt=b"salt",
        stored_key=b"key",
        server_key=b"key",
        iterations=4096,
    )


def _quota(number: int) -> records.ClientQuotaRecord:
    user = records.EntityData(entity_type="user", entity_name=f"user-{number}")
    return records.ClientQuotaRecord(entity=(user,), key="producer_byte_rate", value=2.0, remove=False)


def _broker(place: Place, number: int) -> records.RegisterBrokerRecord:
    broker_id = place.size.brokers + number
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=7,
        incarnation_id=UUID(int=9),
        end_points=(),
        features=(),
        rack=None,
        fenced=True,
        log_dirs=(directory(broker_id),),
    )


def _with_elr(place: Place, number: int) -> records.PartitionChangeRecord:
    """A partition of the large topic below min.insync.replicas."""
    return records.PartitionChangeRecord(
        partition_id=number % place.of_large, topic_id=topic_id(0), eligible_leader_replicas=(0,)
    )


def _transaction(*inside: Any) -> list[Any]:
    return [records.BeginTransactionRecord(name="work"), *inside]


def _topic(number: int) -> records.TopicRecord:
    return records.TopicRecord(name=f"new-{number}", topic_id=UUID(int=(1 << 81) + number))


def _config(number: int) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=2, resource_name=topic_name(number), name="a", value="b")


def _with(kind: type, make: Callable[[Place, int], Any]) -> Case:
    return Case(
        kind.__name__,
        "many",
        MANY,
        lambda place, n: [make(place, number) for number in range(min(n, place.of_large))],
        run=Run.REPLAY,
    )


REPLAYS: Final[tuple[Case, ...]] = (
    _with(records.RegisterBrokerRecord, _broker),
    _one(
        "UnregisterBrokerRecord",
        "one",
        lambda _: [records.UnregisterBrokerRecord(broker_id=1, broker_epoch=1_001)],
    ),
    _one("FenceBrokerRecord", "one", lambda _: [records.FenceBrokerRecord(id=1, epoch=1_001)]),
    _one("UnfenceBrokerRecord", "one", lambda _: [records.UnfenceBrokerRecord(id=1, epoch=1_001)]),
    _one(
        "BrokerRegistrationChangeRecord",
        "one",
        lambda _: [records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1_001, fenced=1)],
    ),
    _one(
        "RegisterControllerRecord",
        "one",
        lambda _: [
            records.RegisterControllerRecord(
                controller_id=9,
                incarnation_id=UUID(int=9),
                zk_migration_ready=False,
                end_points=(),
                features=(),
            )
        ],
    ),
    _one(
        "UnregisterControllerRecord",
        "one",
        lambda _: [records.UnregisterControllerRecord(controller_id=3001)],
    ),
    _each("TopicRecord", _topic),
    _each("PartitionRecord", _partition),
    _with(records.PartitionChangeRecord, _moved),
    _one("RemoveTopicRecord", "a small topic", lambda _: [records.RemoveTopicRecord(topic_id=topic_id(1))]),
    _one(
        "RemoveTopicRecord",
        "the largest topic",
        lambda _: [records.RemoveTopicRecord(topic_id=topic_id(0))],
        follows_cluster="a look at each of its partitions",
        indivisible="a topic is removed as a whole",
    ),
    _each("ConfigRecord", _config),
    _each("ClientQuotaRecord", _quota),
    _one(
        "ProducerIdsRecord", "one", lambda _: [records.ProducerIdsRecord(broker_id=0, next_producer_id=9_999)]
    ),
    _one(
        "FeatureLevelRecord",
        "one",
        lambda _: [records.FeatureLevelRecord(name="group.version", feature_level=1)],
    ),
    _each("AccessControlEntryRecord", _acl),
    _each("RemoveAccessControlEntryRecord", lambda n: records.RemoveAccessControlEntryRecord(id=acl_id(n))),
    _each("UserScramCredentialRecord", _credential),
    _each(
        "RemoveUserScramCredentialRecord",
        lambda n: records.RemoveUserScramCredentialRecord(
            name=f"user-{n}", mechanism=ScramMechanism.SCRAM_SHA_256
        ),
    ),
    _each("DelegationTokenRecord", _token),
    _each(
        "RemoveDelegationTokenRecord", lambda n: records.RemoveDelegationTokenRecord(token_id=f"token-{n}")
    ),
    _one("ClearElrRecord", "no partition has any", lambda _: [records.ClearElrRecord(topic_name="")]),
    Case(
        "ClearElrRecord",
        "partitions that have any",
        10_000,
        lambda place, n: [
            *(_with_elr(place, number) for number in range(n)),
            records.ClearElrRecord(topic_name=""),
        ],
        indivisible="one record changes each of these partitions",
        run=Run.REPLAY,
    ),
    _one("NoOpRecord", "one", lambda _: [records.NoOpRecord()]),
    _one("ZkMigrationStateRecord", "one", lambda _: [records.ZkMigrationStateRecord(zk_migration_state=0)]),
    _one("BeginTransactionRecord", "one", lambda _: _transaction()),
    _one("EndTransactionRecord", "one", lambda _: _transaction(records.EndTransactionRecord())),
    Case(
        "AbortTransactionRecord",
        "a transaction with many topics",
        10_000,
        lambda _, n: _transaction(*map(_topic, range(n)), records.AbortTransactionRecord(reason="work")),
        indivisible="one record undoes each of these",
        run=Run.REPLAY,
    ),
)


def _tick_when_due(control: QuorumController, after_ms: int) -> ControlResult | None:
    return control.tick(1_000_000 + after_ms)


TASKS: Final[tuple[Case, ...]] = (
    Case(
        "tick",
        "a broker's session expires",
        1,
        lambda _, _n: lambda control: _tick_when_due(control, 60_000),
        "the first look at the partitions of its topics",
        run=Run.TICK,
    ),
    Case(
        "tick",
        "preferred leaders",
        1,
        lambda _, _n: lambda control: control._elections.balance_leaders()[0],
        "up to 1,000 elections in a step",
        run=Run.TICK,
    ),
    Case(
        "tick",
        "unclean elections",
        1,
        lambda _, _n: lambda control: control._elections.elect_unclean_leaders()[0],
        run=Run.TICK,
    ),
    Case(
        "tick",
        "old tokens",
        1,
        lambda _, _n: lambda control: control._tokens.sweep(1 << 41)[0],
        "a look at tokens until enough are found",
        run=Run.TICK,
    ),
    Case(
        "tick",
        "no old token",
        1,
        lambda _, _n: lambda control: control._tokens.sweep(1)[0],
        "a look at each token",
        run=Run.TICK,
    ),
    Case(
        "activation",
        "behind the log of another leader",
        1,
        lambda _, _n: lambda control: (control.deactivate(), control.activate(1_000_000))[1],
        "each broker gets a session",
        run=Run.TICK,
    ),
    # The last case: behind a copy, the topics of an image are cloned before they change.
    Case(
        "snapshot",
        "the copy of the tables",
        1,
        lambda _, _n: lambda control: control._image.committed_copy() and None,
        "rows are copied, but not partitions",
        indivisible="a copy is of one moment",
        run=Run.TICK,
    ),
)
