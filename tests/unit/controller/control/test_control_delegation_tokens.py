"""Delegation tokens: who gets them, who may renew and expire them, when they end."""

import hmac
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quorate_controller.control.delegation_tokens import SWEPT_TOKENS_MAX, TIMESTAMP_MS_MAX
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.security import DelegationToken
from quorate_protocol.kafka.enums import ConfigResourceType, SecurityProtocol
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.kafka.generated.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.records.generated import DelegationTokenRecord, RemoveDelegationTokenRecord

SECRET = "a secret"
LIFETIME_MS, RENEWAL_MS, CHECK_MS = 10_000, 4_000, 60_000
SETTINGS = {
    "delegation_token_secret": SECRET,
    "delegation_token_max_lifetime_ms": LIFETIME_MS,
    "delegation_token_expiry_time_ms": RENEWAL_MS,
    "delegation_token_expiry_check_interval_ms": CHECK_MS,
    "max_idle_interval_ms": 0,
}
ALICE = {"principal": "User:alice", "forwarded": True}
BOB = {"principal": "User:bob", "forwarded": True}
EVE = {"principal": "User:eve", "forwarded": True}


def ms(value: Any) -> int:
    """Unix milliseconds of a response's time."""
    unix_ms: int = (value - EPOCH) // MILLISECOND
    return unix_ms


def create(
    *renewers: tuple[str, str], owner: tuple[str | None, str] | None = None, lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=owner[0] if owner else None,
        owner_principal_name=owner[1] if owner else None,
        renewers=tuple(
            CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers
        ),
        max_lifetime=timedelta(milliseconds=lifetime_ms),
    )


def renew(token_hmac: bytes, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=token_hmac, renew_period=timedelta(milliseconds=period_ms))


def expire(token_hmac: bytes, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period=timedelta(milliseconds=period_ms))


@pytest.fixture
def tokens(new_harness: Any) -> Any:
    """A cluster with tokens."""
    return new_harness(**SETTINGS)


def test_a_token_is_its_owners(tokens: Any) -> None:
    """Response, record and image say the same, and the HMAC is Kafka's."""
    response = tokens.apply(create(("User", "carol"), owner=("User", "bob")), **ALICE)
    assert response.error_code is ErrorCode.none
    assert (response.principal_type, response.principal_name) == ("User", "bob")
    assert response.token_requester_principal_name == "alice"
    assert response.hmac == hmac.digest(SECRET.encode(), response.token_id.encode(), "sha512")
    now_ms = tokens.now_ms
    assert tokens.image.delegation_tokens[response.token_id] == DelegationToken(
        token_id=response.token_id,
        owner="User:bob",
        requester="User:alice",
        renewers=("User:carol",),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms + LIFETIME_MS,
        expiration_timestamp_ms=now_ms + RENEWAL_MS,
    )
    times = (response.issue_timestamp, response.expiry_timestamp, response.max_timestamp)
    assert [ms(time) - now_ms for time in times] == [0, RENEWAL_MS, LIFETIME_MS]
    assert SECRET not in repr(tokens.config)


@pytest.mark.parametrize(
    ("lifetime_ms", "given_ms"),
    [(-1, LIFETIME_MS), (0, LIFETIME_MS), (LIFETIME_MS + 1, LIFETIME_MS), (5_000, 5_000), (7, 7)],
)
def test_a_lifetime_is_at_most_the_clusters(tokens: Any, lifetime_ms: int, given_ms: int) -> None:
    """No token outlives `delegation.token.max.lifetime.ms`."""
    response = tokens.apply(create(lifetime_ms=lifetime_ms), **ALICE)
    assert ms(response.max_timestamp) - tokens.now_ms == given_ms
    assert ms(response.expiry_timestamp) - tokens.now_ms == min(given_ms, RENEWAL_MS)


def test_the_longest_lifetime_that_can_be_configured(new_harness: Any) -> None:
    harness = new_harness(**{**SETTINGS, "delegation_token_max_lifetime_ms": 2**63 - 1})
    response = harness.apply(create(), **ALICE)
    assert ms(response.max_timestamp) == TIMESTAMP_MS_MAX


def test_the_requester_is_named_since_version_3(tokens: Any) -> None:
    """An old client gets a response in its version."""
    response = tokens.apply(create(), 2, **ALICE)
    assert (response.error_code, response.principal_name) == (ErrorCode.none, "alice")
    assert response.token_requester_principal_type == response.token_requester_principal_name == ""


@pytest.mark.parametrize(
    "caller",
    [
        {},
        {"principal": "User:alice"},
        {"security_protocol": SecurityProtocol.SSL},
        {"principal": "User:alice", "forwarded": True, "token_authenticated": True},
        {
            "principal": "User:alice",
            "security_protocol": SecurityProtocol.SASL_SSL,
            "token_authenticated": True,
        },
    ],
)
def test_tokens_are_for_those_who_logged_in_without_one(tokens: Any, caller: dict[str, Any]) -> None:
    """A token can't prolong itself, and no client gets one on a listener without authentication."""
    token = tokens.apply(create(), **ALICE)
    created = tokens.apply(create(), **caller)
    assert (created.error_code, ms(created.issue_timestamp), created.hmac) == (
        ErrorCode.delegation_token_request_not_allowed,
        -1,
        b"",
    )
    for request in (renew(token.hmac), expire(token.hmac)):
        response = tokens.apply(request, **caller)
        assert response.error_code is ErrorCode.delegation_token_request_not_allowed
        assert ms(response.expiry_timestamp) == -1
        assert tokens.records == []


@pytest.mark.parametrize(
    ("principal", "protocol"),
    [
        ("User:alice", SecurityProtocol.SSL),
        ("User:alice", SecurityProtocol.SASL_PLAINTEXT),
        ("User:alice", SecurityProtocol.SASL_SSL),
        ("User:ANONYMOUS", SecurityProtocol.SASL_PLAINTEXT),
    ],
)
def test_tokens_are_for_clients_that_authenticate_at_a_controller(
    tokens: Any, principal: str, protocol: SecurityProtocol
) -> None:
    """No broker is needed for a token (KIP-919)."""
    caller = {"principal": principal, "security_protocol": protocol}
    token = tokens.apply(create(), **caller)
    assert (token.error_code, f"User:{token.principal_name}") == (ErrorCode.none, principal)
    for request in (renew(token.hmac), expire(token.hmac)):
        assert tokens.apply(request, **caller).error_code is ErrorCode.none


def test_clusters_without_tokens(new_harness: Any) -> None:
    for harness, error_code in (
        (new_harness(), ErrorCode.delegation_token_auth_disabled),
        (new_harness(13, **SETTINGS), ErrorCode.unsupported_version),
    ):
        created = harness.apply(create(("Group", "x")), **ALICE)
        assert (created.error_code, created.principal_name) == (error_code, "alice")
        assert ms(created.issue_timestamp) == ms(created.max_timestamp) == 0
        for request in (renew(b"x"), expire(b"x")):
            assert harness.apply(request, **ALICE).error_code is error_code
    assert new_harness(14, **SETTINGS).apply(create(), **ALICE).error_code is ErrorCode.none


def test_principals_that_cannot_be(tokens: Any) -> None:
    response = tokens.apply(create(("User", "bob"), ("Group", "g")), **ALICE)
    assert response.error_code is ErrorCode.invalid_principal_type
    request = create(owner=(None, "bob"))
    assert tokens.refusal(request).error_code is ErrorCode.unknown_server_error


def test_renewal_ends_with_the_tokens_life(tokens: Any) -> None:
    """Expiry moves by at most the cluster's period, never behind the end."""
    token = tokens.apply(create(("User", "bob")), **ALICE)
    start_ms = tokens.now_ms
    for passed_ms, period_ms, left_ms, caller in (
        (1_000, -1, RENEWAL_MS, ALICE),
        (2_000, 1_500, 1_500, BOB),
        (3_400, 99_999, RENEWAL_MS, BOB),
        (7_000, 0, LIFETIME_MS - 7_000, ALICE),
    ):
        tokens.now_ms = start_ms + passed_ms
        response = tokens.apply(renew(token.hmac, period_ms), **caller)
        assert response.error_code is ErrorCode.none
        assert ms(response.expiry_timestamp) - tokens.now_ms == left_ms
        stored = tokens.image.delegation_tokens[token.token_id]
        assert stored.expiration_timestamp_ms == ms(response.expiry_timestamp)
        assert stored.max_timestamp_ms == start_ms + LIFETIME_MS


def test_expiry_now_and_later(tokens: Any) -> None:
    """A period moves the expiry, a negative one removes the token, also one that is over."""
    token = tokens.apply(create(), **ALICE)
    response = tokens.apply(expire(token.hmac, 99_999), **ALICE)
    assert ms(response.expiry_timestamp) == tokens.now_ms + LIFETIME_MS
    response = tokens.apply(expire(token.hmac, 0), **ALICE)
    assert ms(response.expiry_timestamp) == tokens.now_ms
    tokens.now_ms += 1
    assert tokens.apply(expire(token.hmac, 1), **ALICE).error_code is ErrorCode.delegation_token_expired
    assert tokens.apply(renew(token.hmac), **ALICE).error_code is ErrorCode.delegation_token_expired
    assert tokens.records == []
    response = tokens.apply(expire(token.hmac), **ALICE)
    assert (response.error_code, ms(response.expiry_timestamp)) == (ErrorCode.none, tokens.now_ms)
    assert tokens.records == [RemoveDelegationTokenRecord(token_id=token.token_id)]
    assert tokens.apply(renew(token.hmac), **ALICE).error_code is ErrorCode.delegation_token_not_found


def test_only_owner_and_renewers_may_touch_a_token(tokens: Any) -> None:
    """Neither strangers nor the requester of another's token may."""
    token = tokens.apply(create(owner=("User", "bob")), **ALICE)
    for caller, error_code in (
        (EVE, ErrorCode.delegation_token_owner_mismatch),
        (ALICE, ErrorCode.delegation_token_owner_mismatch),
        (BOB, ErrorCode.none),
    ):
        assert tokens.apply(renew(token.hmac), **caller).error_code is error_code
        assert tokens.apply(expire(token.hmac, 1_000), **caller).error_code is error_code
    assert tokens.apply(renew(b"unknown"), **BOB).error_code is ErrorCode.delegation_token_not_found


def test_a_token_of_the_leader_before_is_found(tokens: Any) -> None:
    record = DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=(),
        issue_timestamp=0,
        max_timestamp=tokens.now_ms + 5,
        expiration_timestamp=tokens.now_ms + 5,
        token_id="an-id",
    )
    token_hmac = hmac.digest(SECRET.encode(), b"an-id", "sha512")
    for _ in range(2):
        tokens.replay(record)
        assert tokens.apply(renew(token_hmac), **ALICE).error_code is ErrorCode.none
        assert tokens.apply(expire(token_hmac), **ALICE).error_code is ErrorCode.none
        assert tokens.apply(renew(token_hmac), **ALICE).error_code is ErrorCode.delegation_token_not_found


def test_the_sweep_removes_what_is_over(tokens: Any) -> None:
    """Expired tokens leave the log's state, a bounded number at once, and others stay."""
    for number in range(SWEPT_TOKENS_MAX + 1):
        tokens.apply(create(lifetime_ms=1 + number % 2), **ALICE)
    tokens.now_ms += CHECK_MS - 1
    living = tokens.apply(create(), **ALICE).token_id
    due_ms = tokens.control.deadline_ms
    tokens.now_ms = due_ms
    tokens.replay_result(tokens.control.tick(due_ms))
    assert len(tokens.records) == SWEPT_TOKENS_MAX
    assert {type(record) for record in tokens.records} == {RemoveDelegationTokenRecord}
    tokens.run_until(due_ms + 100)
    assert list(tokens.image.delegation_tokens) == [living]


def test_without_a_secret_nothing_is_swept(new_harness: Any) -> None:
    harness = new_harness(max_idle_interval_ms=0)
    token = DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        renewers=(),
        issue_timestamp=0,
        max_timestamp=1,
        expiration_timestamp=1,
        token_id="an-id",
    )
    harness.replay(token)
    assert harness.run_until(harness.now_ms + 86_400_000) == []


def test_the_secret_is_not_described(new_harness: Any) -> None:
    key = "delegation.token.secret.key"
    harness = new_harness(static_configs={key: SECRET}, **SETTINGS)
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="3000", configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=False
    )
    response = harness.apply(request)
    (described,) = (config for config in response.results[0].configs if config.name == key)
    assert described.is_sensitive
    assert SECRET not in repr(response)


callers = st.sampled_from([ALICE, BOB, EVE])
periods_ms = st.sampled_from([-1, 0, 1, 3_000, RENEWAL_MS, LIFETIME_MS, 99_999])
token_numbers = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just("create"), callers, periods_ms),
    st.tuples(st.just("renew"), callers, periods_ms, token_numbers),
    st.tuples(st.just("expire"), callers, periods_ms, token_numbers),
    st.tuples(st.just("wait"), st.sampled_from([1, 3_000, RENEWAL_MS, CHECK_MS])),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(actions, max_size=12))
def test_no_token_outlives_what_it_was_given(new_harness: Any, story: list[tuple[Any, ...]]) -> None:
    """Whatever is asked in whatever order, a token ends at the latest when it was made to, strangers change
    nothing, and what is over is gone after the next check.
    """
    harness = new_harness(**SETTINGS)
    made: list[Any] = []
    for action, *values in story:
        before = dict(harness.image.delegation_tokens)
        if action == "wait":
            harness.run_until(harness.now_ms + values[0])
            continue
        caller, period_ms, *number = values
        if action == "create":
            made.append(harness.apply(create(("User", "bob"), lifetime_ms=period_ms), **caller))
        elif made:
            token = made[number[0] % len(made)]
            request = (renew if action == "renew" else expire)(token.hmac, period_ms)
            response = harness.apply(request, **caller)
            is_stranger = caller["principal"] not in ("User:bob", f"User:{token.principal_name}")
            if is_stranger:
                assert response.error_code is not ErrorCode.none
            assert (response.error_code is ErrorCode.none) == bool(harness.records)
            assert not is_stranger or before == dict(harness.image.delegation_tokens)
        for stored in harness.image.delegation_tokens.values():
            assert stored.issue_timestamp_ms <= stored.max_timestamp_ms
            assert stored.max_timestamp_ms <= stored.issue_timestamp_ms + LIFETIME_MS
            assert stored.expiration_timestamp_ms <= stored.max_timestamp_ms
    harness.run_until(harness.now_ms + LIFETIME_MS + CHECK_MS + 1)
    assert not harness.image.delegation_tokens
