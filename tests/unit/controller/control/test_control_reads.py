"""What controllers describe as brokers do: topics page by page, quotas, users of SCRAM, delegation tokens."""

from typing import Any, Final
from uuid import UUID

import pytest
from kit.authorization import acl_of
from quorate_controller.control.describe_topics import PARTITIONS_MAX
from quorate_controller.security.access import RestrictedAccess
from quorate_controller.security.authorizer import Authorizer
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
    ScramMechanism,
    bits_of_operations,
)
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from quorate_protocol.kafka.generated.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from quorate_protocol.kafka.generated.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    ClientQuotaRecord,
    EntityData,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

SECRET: Final = "a secret"
ALICE: Final = {"principal": "User:alice", "forwarded": True}
BOB: Final = {"principal": "User:bob", "forwarded": True}
DIRECTORY: Final = UUID(int=1000)


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"."))


def topic(name: str, partitions: int = 1, replicas: tuple[int, ...] = (0, 1, 2)) -> list[Any]:
    """The records of a topic that is led by its first replica."""
    return [
        TopicRecord(name=name, topic_id=topic_id(name)),
        *(
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id(name),
                replicas=replicas,
                isr=replicas[:2],
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0],
                leader_epoch=7,
                partition_epoch=9,
                directories=(DIRECTORY,) * len(replicas),
            )
            for number in range(partitions)
        ),
    ]


def broker(broker_id: int, *, fenced: bool = False, directory: UUID = DIRECTORY) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=UUID(int=broker_id + 1),
        end_points=(BrokerEndpoint(name="PLAINTEXT", host="b", port=9092, security_protocol=0),),
        features=(),
        rack=None,
        fenced=fenced,
        log_dirs=(directory,),
    )


def pages(*names: str, most: int = 2_000, cursor: tuple[str, int] | None = None) -> Any:
    return DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=most,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def shown(response: Any) -> list[tuple[str, list[int]]]:
    """The topics of a page, with the numbers of their partitions."""
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def access(harness: Any, *acls: Any, principal: str = "User:alice") -> RestrictedAccess:
    """What these ACLs allow a user."""
    harness.replay(*(acl.to_record(UUID(int=number + 500)) for number, acl in enumerate(acls)))
    return RestrictedAccess(
        Authorizer(harness.image),
        principal=principal,
        host="127.0.0.1",
        api="",
        audit=lambda _: None,
        audits_allowed=False,
    )


# Topics


def test_partitions_are_described_as_by_a_broker(harness: Any) -> None:
    """Leader, ISR and offline replicas while no broker runs."""
    harness.replay(broker(0), broker(1, fenced=True), broker(2, directory=UUID(int=7_000)))
    harness.replay(*topic("orders", replicas=(0, 1, 2, 9)), *topic("led-by-none", replicas=(9, 0)))
    described, lost = harness.apply(pages("orders", "led-by-none")).topics[::-1]
    (partition,) = described.partitions
    assert (described.error_code, described.topic_id, described.is_internal) == (
        ErrorCode.none,
        topic_id("orders"),
        False,
    )
    assert (partition.leader_id, partition.leader_epoch) == (0, 7)
    assert (partition.replica_nodes, partition.isr_nodes) == ((0, 1, 2, 9), (0, 1))
    assert partition.offline_replicas == (1, 2, 9)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert described.topic_authorized_operations == bits_of_operations(
        SUPPORTED_OPERATIONS[ResourceType.TOPIC]
    )
    assert lost.partitions[0].leader_id == -1


def test_pages_end_where_the_next_one_begins(harness: Any) -> None:
    harness.replay(*topic("b", 4), *topic("a"), *topic("c", 2))
    for names in ((), ("c", "b", "a", "a")):
        found, cursor = [], None
        while True:
            response = harness.apply(pages(*names, most=3, cursor=cursor))
            found.append(shown(response))
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert found == [[("a", [0]), ("b", [0, 1])], [("b", [2, 3]), ("c", [0])], [("c", [1])]]


@pytest.mark.parametrize("most", [0, -1, 1])
def test_a_page_has_a_partition_at_least_and_a_bounded_number_at_most(harness: Any, most: int) -> None:
    harness.replay(*topic("wide", PARTITIONS_MAX + 1))
    least = harness.apply(pages(most=most))
    assert (shown(least), least.next_cursor.partition_index) == ([("wide", [0])], 1)
    widest = harness.apply(pages(most=2**31 - 1))
    assert len(widest.topics[0].partitions) == widest.next_cursor.partition_index == PARTITIONS_MAX


def test_topics_that_are_not_there(harness: Any) -> None:
    harness.replay(*topic("a", 2))
    codes = [topic.error_code for topic in harness.apply(pages("a", "absent", "no such")).topics]
    assert codes == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
    ]
    assert shown(harness.apply(pages(cursor=("a", 5)))) == [("a", [])]
    assert shown(harness.apply(pages(cursor=("zz", 0)))) == []
    refused = harness.refusal(pages("a", cursor=("b", 0)))
    assert refused.error_code is ErrorCode.invalid_request
    assert "should contain the cursor topic: b" in refused.message
    assert harness.refusal(pages(cursor=("a", -1))).error_code is ErrorCode.invalid_request


def test_topics_that_the_sender_may_not_describe(harness: Any) -> None:
    harness.replay(*topic("a"), *topic("b"), *topic("c"))
    acl = acl_of(AclOperation.DESCRIBE, principal="User:alice", resource=(ResourceType.TOPIC, "b"))
    of_alice = access(harness, acl)
    named = harness.apply(pages("a", "b", "absent"), access=of_alice)
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in named.topics] == [
        ("b", ErrorCode.none, topic_id("b")),
        ("a", ErrorCode.topic_authorization_failed, None),
        ("absent", ErrorCode.topic_authorization_failed, None),
    ]
    assert named.topics[0].topic_authorized_operations == bits_of_operations({AclOperation.DESCRIBE})
    assert shown(harness.apply(pages(), access=of_alice)) == [("b", [0])]


def test_a_topic_that_is_deleted_between_two_steps(harness: Any) -> None:
    harness.replay(*topic("wide", PARTITIONS_MAX))
    steps = harness.decide(pages("wide")).steps
    assert next(steps) is None
    harness.replay(RemoveTopicRecord(topic_id=topic_id("wide")))
    with pytest.raises(StopIteration) as ended:
        next(steps)
    (described,) = ended.value.value.topics
    assert (described.error_code, described.partitions) == (ErrorCode.unknown_topic_or_partition, ())


# Quotas


def quota(value: float = 5.0, **entity: str | None) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=tuple(
            EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
        ),
        key="connection_creation_rate" if "ip" in entity else "producer_byte_rate",
        value=value,
        remove=False,
    )


def wanted(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ),
        strict=strict,
    )


EXACT, DEFAULT, SPECIFIED = range(3)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (wanted(), {1, 2, 3, 4, 5, 6}),
        (wanted(strict=True), set()),
        (wanted(("user", EXACT, "alice")), {1, 3}),
        (wanted(("user", EXACT, "alice"), strict=True), {1}),
        (wanted(("user", DEFAULT, None)), {2, 6}),
        (wanted(("user", SPECIFIED, None)), {1, 2, 3, 6}),
        (wanted(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), {3, 6}),
        (wanted(("user", DEFAULT, None), ("client-id", EXACT, "c"), strict=True), {6}),
        (wanted(("client-id", SPECIFIED, None), strict=True), {4}),
        (wanted(("ip", EXACT, "10.0.0.1")), {5}),
        (wanted(("ip", EXACT, "10.0.0.2")), set()),
    ],
)
def test_quotas_are_filtered_as_by_a_broker(harness: Any, request_: Any, expected: set[int]) -> None:
    harness.replay(
        quota(1.0, user="alice"),
        quota(2.0, user=None),
        quota(3.0, user="alice", client_id="c"),
        quota(4.0, client_id="c"),
        quota(5.0, ip="10.0.0.1"),
        quota(6.0, user=None, client_id="c"),
    )
    response = harness.apply(request_)
    assert response.error_code is ErrorCode.none
    assert {value.value for entry in response.entries for value in entry.values} == expected


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (wanted(("", EXACT, "x")), ErrorCode.invalid_request, "Invalid empty entity type."),
        (wanted(("group", EXACT, "x")), ErrorCode.unsupported_version, "Unsupported entity type group"),
        (wanted(("user", EXACT, None)), ErrorCode.invalid_request, "MATCH_TYPE_EXACT, but set match string"),
        (wanted(("user", DEFAULT, "x")), ErrorCode.invalid_request, "MATCH_TYPE_DEFAULT, but also"),
        (wanted(("user", SPECIFIED, "x")), ErrorCode.invalid_request, "MATCH_TYPE_SPECIFIED, but also"),
        (wanted(("user", 3, None)), ErrorCode.invalid_request, "Unknown match type 3"),
        (
            wanted(("user", EXACT, "x"), ("user", DEFAULT, None)),
            ErrorCode.invalid_request,
            "user cannot appear more than once",
        ),
        (
            wanted(("user", EXACT, "x"), ("ip", DEFAULT, None)),
            ErrorCode.invalid_request,
            "IP filter component should not be used",
        ),
    ],
)
def test_filters_that_are_not_valid(harness: Any, request_: Any, code: ErrorCode, text: str) -> None:
    refused = harness.refusal(request_)
    assert refused.error_code is code
    assert text in refused.message


# Users of SCRAM


def credential(name: str, mechanism: ScramMechanism, iterations: int) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name,
        mechanism=int(mechanism),
        salt=b"salt",
        stored_key=b"stored",
        server_key=b"server",
        iterations=iterations,
    )


def test_users_are_described_without_their_keys(harness: Any) -> None:
    """Mechanisms and iterations, and Kafka's errors."""
    harness.replay(
        credential("alice", ScramMechanism.SCRAM_SHA_512, 8192),
        credential("bob", ScramMechanism.SCRAM_SHA_256, 4096),
        credential("alice", ScramMechanism.SCRAM_SHA_256, 4096),
    )
    for nobody in (None, ()):
        everybody = harness.apply(DescribeUserScramCredentialsRequest(users=nobody))
        assert {
            result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
            for result in everybody.results
        } == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}
    names = ("bob", "carol", "alice", "alice")
    some = harness.apply(
        DescribeUserScramCredentialsRequest(users=tuple(UserName(name=name) for name in names))
    )
    assert [(result.user, result.error_code, len(result.credential_infos)) for result in some.results] == [
        ("bob", ErrorCode.none, 1),
        ("carol", ErrorCode.resource_not_found, 0),
        ("alice", ErrorCode.duplicate_resource, 0),
    ]
    assert b"stored" not in repr(everybody).encode()


# Delegation tokens


def make_token(tokens: Any, caller: dict[str, Any], owner: str | None = None) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner,
        renewers=(),
        max_lifetime=-MILLISECOND,
    )
    return tokens.apply(request, **caller)


def described_tokens(tokens: Any, *owners: str, **caller: Any) -> set[str]:
    asked = tuple(
        DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners
    )
    response = tokens.apply(DescribeDelegationTokenRequest(owners=asked or None), **caller)
    assert response.error_code is ErrorCode.none
    return {token.token_id for token in response.tokens}


def test_tokens_are_shown_to_those_whom_brokers_show_them(new_harness: Any) -> None:
    tokens = new_harness(delegation_token_secret=SECRET)
    own, of_carol, of_bob = (
        make_token(tokens, *arguments).token_id for arguments in ((ALICE,), (ALICE, "carol"), (BOB,))
    )
    nothing = access(tokens, acl_of(AclOperation.DESCRIBE, principal="User:nobody"))
    assert described_tokens(tokens, **ALICE, access=nothing) == {own, of_carol}
    assert described_tokens(tokens, "carol", **ALICE, access=nothing) == {of_carol}
    assert described_tokens(tokens, "bob", **ALICE, access=nothing) == set()
    of_eve = access(
        tokens,
        acl_of(AclOperation.DESCRIBE, principal="User:eve", resource=(ResourceType.DELEGATION_TOKEN, own)),
        acl_of(AclOperation.DESCRIBE_TOKENS, principal="User:eve", resource=(ResourceType.USER, "User:bob")),
        principal="User:eve",
    )
    eve = {"principal": "User:eve", "forwarded": True}
    assert described_tokens(tokens, **eve, access=nothing) == set()
    assert described_tokens(tokens, **eve, access=of_eve) == {own, of_bob}
    no_owners = tokens.apply(DescribeDelegationTokenRequest(owners=()), **ALICE)
    assert (no_owners.error_code, no_owners.tokens) == (ErrorCode.none, ())


def test_a_token_is_described_as_it_was_made(new_harness: Any) -> None:
    tokens = new_harness(delegation_token_secret=SECRET)
    made = make_token(tokens, ALICE, "carol")
    (token,) = tokens.apply(DescribeDelegationTokenRequest(owners=None), **ALICE).tokens
    assert (token.token_id, token.hmac) == (made.token_id, made.hmac)
    assert (token.principal_name, token.token_requester_principal_name) == ("carol", "alice")
    stored = tokens.image.delegation_tokens[made.token_id]
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        stored.issue_timestamp_ms,
        stored.expiration_timestamp_ms,
        stored.max_timestamp_ms,
    )


def test_tokens_are_not_described_to_everybody(new_harness: Any) -> None:
    request = DescribeDelegationTokenRequest(owners=None)
    tokens = new_harness(delegation_token_secret=SECRET)
    assert tokens.apply(request).error_code is ErrorCode.delegation_token_request_not_allowed
    refused = new_harness().apply(request, **ALICE)
    assert refused.error_code is ErrorCode.delegation_token_auth_disabled
