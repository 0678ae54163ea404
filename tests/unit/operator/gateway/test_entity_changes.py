"""Changes of topics and users as requests: many in one, each with its own result."""

from typing import Any, cast
from uuid import UUID

import pytest
from kit.scripted_admin import ScriptedAdmin
from quorate_admin.errors import AdminError, ErrorCode, ServerError, UnreachableError
from quorate_admin.results import Results
from quorate_admin.types.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclDeletion,
    ResourcePattern,
)
from quorate_operator.entities.topics import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    ReassignReplicas,
)
from quorate_operator.entities.users import (
    AddAcls,
    AlterQuotas,
    DeleteCredentials,
    RemoveAcls,
    SetCredentials,
)
from quorate_operator.gateway.batches import CHANGES_PER_REQUEST_MAX, WEIGHT_PER_REQUEST_MAX
from quorate_operator.gateway.topics import TopicChange, change_topics
from quorate_operator.gateway.users import UserChange, change_users
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

REFUSED = ServerError(ErrorCode.invalid_request)


def of_topics(admin: ScriptedAdmin, *changes: TopicChange) -> Any:
    return change_topics(cast("Any", admin), changes)


def of_users(admin: ScriptedAdmin, *changes: UserChange) -> Any:
    return change_users(cast("Any", admin), changes)


def binding(user: str, topic: str = "t") -> AclBinding:
    return AclBinding(
        pattern=ResourcePattern(
            resource_type=ResourceType.TOPIC, name=topic, pattern_type=PatternType.LITERAL
        ),
        entry=AccessControlEntry(
            principal=f"User:{user}",
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermissionType.ALLOW,
        ),
    )


def sizes(admin: ScriptedAdmin, name: str) -> list[int]:
    """How many objects each request has."""
    return [len(list(call.args[0])) for call in admin.calls_of(name)]


async def test_300_topics_are_deleted_with_few_requests(admin: ScriptedAdmin) -> None:
    """A topic that is gone already is no error."""
    ids = [UUID(int=number) for number in range(1, 300)]
    gone, kept = ServerError(ErrorCode.unknown_topic_id), ServerError(ErrorCode.topic_authorization_failed)
    admin.responses["delete_topics"] = lambda keys: Results(
        {}, {key: gone if key == ids[0] else kept for key in keys if key in (ids[0], ids[1], "by-name")}
    )
    changes = [DeleteTopic(topic=f"t-{key.int}", topic_id=key) for key in ids]
    errors = await of_topics(admin, *changes, DeleteTopic(topic="by-name", topic_id=None))
    assert sizes(admin, "delete_topics") == [CHANGES_PER_REQUEST_MAX] * 6
    assert errors == [None, kept, *[None] * 297, kept]


async def test_large_topics_share_no_request(admin: ScriptedAdmin) -> None:
    """A controller refuses what leads to too many records."""
    admin.responses["create_topics"] = lambda _: Results()
    half = WEIGHT_PER_REQUEST_MAX // 2
    numbers = (half, half, 1, 10 * half, None)
    errors = await of_topics(
        admin,
        *(
            CreateTopic(topic=f"t-{number}", partitions=partitions, replication_factor=1)
            for number, partitions in enumerate(numbers)
        ),
    )
    assert errors == [None] * 5
    asked = [[topic.name for topic in call.args[0]] for call in admin.calls_of("create_topics")]
    assert asked == [["t-0", "t-1"], ["t-2"], ["t-3"], ["t-4"]]


async def test_each_type_has_its_requests_and_results_keep_their_order(admin: ScriptedAdmin) -> None:
    admin.responses |= {
        "create_topics": lambda _: Results(
            {}, {"a": ServerError(ErrorCode.topic_already_exists), "b": REFUSED}
        ),
        "create_partitions": UnreachableError({"b:1": "refused"}),
        "incremental_alter_configs": lambda changes: Results(
            {}, {resource: REFUSED for resource in changes if resource.name == "g"}
        ),
        "alter_partition_reassignments": lambda replicas: Results(
            {}, {key: REFUSED for key in replicas if (key.topic, key.partition) == ("h", 1)}
        ),
    }
    errors = await of_topics(
        admin,
        CreateTopic(topic="a", partitions=1, replication_factor=1),
        AddPartitions(topic="e", present=1, count=2),
        CreateTopic(topic="b", partitions=1, replication_factor=1),
        AlterConfig(topic="f", values={"retention.ms": "1"}),
        AlterConfig(topic="g", resets=("retention.ms",)),
        ReassignReplicas(topic="h", replicas={0: (1,), 1: (2,)}, replication_factor=1),
        ReassignReplicas(topic="i", replicas={1: (2,)}, replication_factor=1),
    )
    assert [type(error) for error in errors] == [
        type(None),
        UnreachableError,
        ServerError,
        type(None),
        ServerError,
        ServerError,
        type(None),
    ]
    assert {name: len(admin.calls_of(name)) for name in admin.responses} == dict.fromkeys(admin.responses, 1)


async def test_users_are_changed_together(admin: ScriptedAdmin) -> None:
    """The credentials of a user are deleted one mechanism after the other: one may be gone already."""
    both = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    gone = ServerError(ErrorCode.resource_not_found)
    deletions = iter([Results({}, {"a": gone}), Results({}, {"b": REFUSED})])
    admin.responses |= {
        "alter_user_scram_credentials": lambda _: next(deletions),
        "create_acls": lambda _: Results({}, {binding("b", "u"): REFUSED}),
        "delete_acls": lambda filters: Results(
            {
                acl_filter: (
                    AclDeletion(
                        binding=binding("a"), error=REFUSED if acl_filter.pattern.name == "u" else None
                    ),
                )
                for acl_filter in filters
            }
        ),
        "alter_client_quotas": lambda _: Results(),
    }
    assert await of_users(
        admin,
        DeleteCredentials(user="a", mechanisms=both),
        DeleteCredentials(user="b", mechanisms=both),
        DeleteCredentials(user="c", mechanisms=both[:1]),
    ) == [None, REFUSED, None]
    asked = [[deletion.user for deletion in call.args[0]] for call in admin.calls]
    assert asked == [["a", "b", "c"], ["a", "b"]]
    assert await of_users(
        admin,
        AddAcls(bindings=(binding("a"),)),
        AddAcls(bindings=(binding("b"), binding("b", "u"))),
        RemoveAcls(bindings=(binding("c"), binding("c", "u"))),
        RemoveAcls(bindings=(binding("d"),)),
        AlterQuotas(user="a", values={"producer_byte_rate": 1.0}),
        AlterQuotas(user="b", values={"producer_byte_rate": None}),
    ) == [None, REFUSED, REFUSED, None, None, None]
    assert sizes(admin, "delete_acls") == sizes(admin, "create_acls") == [3]
    assert sizes(admin, "alter_client_quotas") == [2]
    assert AclBindingFilter.of(binding("d")) in list(admin.calls_of("delete_acls")[0].args[0])


async def test_passwords_are_set_together(admin: ScriptedAdmin) -> None:
    admin.responses["alter_user_scram_credentials"] = lambda _: Results({}, {"b": REFUSED})
    changes = [
        SetCredentials(user=user, mechanism="SCRAM-SHA-256", password="p", secret_version="1", text="t")
        for user in "abc"
    ]
    assert await of_users(admin, *changes) == [None, REFUSED, None]
    assert sizes(admin, "alter_user_scram_credentials") == [3]


@pytest.mark.parametrize("error", [UnreachableError({"b:1": "refused"}), REFUSED])
async def test_a_request_that_fails_fails_for_each_of_its_changes(
    error: AdminError, admin: ScriptedAdmin
) -> None:
    admin.responses["delete_topics"] = error
    changes = [DeleteTopic(topic=name, topic_id=None) for name in ("a", "b")]
    assert await of_topics(admin, *changes) == [error, error]
