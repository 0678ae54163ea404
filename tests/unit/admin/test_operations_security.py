"""Operations on ACLs, quotas, SCRAM credentials and delegation tokens, against a cluster of the test's answers."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.fake_cluster import FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError, UnsupportedEndpointError
from quorate_admin.types.acls import (
    ANY_ACL,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
    ResourcePatternFilter,
)
from quorate_admin.types.credentials import (
    DelegationToken,
    KafkaPrincipal,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorate_admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    CLIENT_ID,
    IP,
    USER,
    AclOperation,
    AclPermissionType,
    PatternType,
    QuotaMatch,
    ResourceType,
    ScramMechanism,
    operations_of_bits,
)
from quorate_protocol.wire.server import Request

ALICE = "User:alice"


def binding(
    name: str = "t",
    operation: AclOperation = AclOperation.READ,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    """Alice may read a topic."""
    return AclBinding(
        pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=name, pattern_type=pattern_type),
        entry=AccessControlEntry(principal=ALICE, operation=operation),
    )


async def test_acls_are_described() -> None:
    """Filter and bindings cross the wire whole."""
    acl_filter = AclBindingFilter(
        pattern=ResourcePatternFilter(
            resource_type=ResourceType.TOPIC, name="t", pattern_type=PatternType.MATCH
        ),
        entry=AccessControlEntryFilter(
            principal=ALICE,
            host="h",
            operation=AclOperation.WRITE,
            permission_type=AclPermissionType.DENY,
        ),
    )
    resources = tuple(
        nested(
            "DescribeAcls",
            "DescribeAclsResource",
            resource_type=2,
            resource_name=name,
            pattern_type=pattern_type,
            acls=tuple(
                nested(
                    "DescribeAcls",
                    "AclDescription",
                    principal=ALICE,
                    host="*",
                    operation=operation,
                    permission_type=3,
                )
                for operation in operations
            ),
        )
        for name, pattern_type, operations in (("t", 3, (3, 4)), ("p", 4, (99,)))
    )
    async with FakeCluster() as cluster:
        cluster.handle("DescribeAcls", lambda _: response_to("DescribeAcls", resources=resources))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            found = await admin.describe_acls(acl_filter)
            await admin.describe_acls()
        narrow, wide = (request.body for request in cluster.received("DescribeAcls"))
    assert found == (
        binding(),
        binding(operation=AclOperation.WRITE),
        binding("p", AclOperation.UNKNOWN, PatternType.PREFIXED),
    )
    assert _filter_of(narrow) == (2, "t", 2, ALICE, "h", 4, 2)
    assert _filter_of(wide) == (1, None, 1, None, None, 1, 1)


def _filter_of(body: Any) -> tuple[Any, ...]:
    return (
        body.resource_type_filter,
        body.resource_name_filter,
        body.pattern_type_filter,
        body.principal_filter,
        body.host_filter,
        body.operation,
        body.permission_type,
    )


async def test_an_unknown_filter_matches_nothing_and_is_refused() -> None:
    acl_filter = AclBindingFilter(pattern=ResourcePatternFilter(resource_type=ResourceType.UNKNOWN))
    async with AdminClient(bootstrap_servers=["127.0.0.1:1"]) as admin:
        with pytest.raises(ServerError, match="INVALID_REQUEST: the filter's resource type is UNKNOWN"):
            await admin.describe_acls(acl_filter)


@pytest.mark.parametrize("is_controllers", [False, True])
async def test_acls_are_created_each_with_its_result(is_controllers: bool) -> None:
    results = (
        nested("CreateAcls", "AclCreationResult"),
        nested(
            "CreateAcls", "AclCreationResult", error_code=ErrorCode.security_disabled, error_message="off"
        ),
    )
    indefinite = [
        binding(operation=AclOperation.ANY),
        binding(operation=AclOperation.UNKNOWN),
        binding(pattern_type=PatternType.MATCH),
    ]
    async with FakeCluster(is_controllers=is_controllers) as cluster:
        cluster.handle("CreateAcls", lambda _: response_to("CreateAcls", results=results))
        addresses = {"bootstrap_controllers" if is_controllers else "bootstrap_servers": cluster.bootstrap}
        async with AdminClient(**addresses) as admin:
            given = await admin.create_acls(
                [indefinite[0], binding("a"), *indefinite[1:], binding("b"), binding("a")]
            )
        (request,) = cluster.received("CreateAcls")
    assert [
        (
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
        )
        for creation in request.body.creations
    ] == [(2, "a", 3, ALICE, "*"), (2, "b", 3, ALICE, "*")]
    assert set(given.values) == {binding("a")}
    assert given.errors[binding("b")].error_code is ErrorCode.security_disabled
    for acl in indefinite:
        assert given.errors[acl].error_code is ErrorCode.invalid_request


async def test_acls_are_deleted_by_filters() -> None:
    by_name = AclBindingFilter.of(binding("a"))

    def matching(name: str, code: ErrorCode) -> Any:
        return nested(
            "DeleteAcls",
            "DeleteAclsMatchingAcl",
            error_code=code,
            resource_type=2,
            resource_name=name,
            pattern_type=3,
            principal=ALICE,
            host="*",
            operation=3,
            permission_type=3,
        )

    matched = (matching("a", ErrorCode.none), matching("b", ErrorCode.unknown_server_error))
    results = (
        nested("DeleteAcls", "DeleteAclsFilterResult", matching_acls=matched),
        nested("DeleteAcls", "DeleteAclsFilterResult", error_code=ErrorCode.cluster_authorization_failed),
    )
    async with FakeCluster() as cluster:
        cluster.handle("DeleteAcls", lambda _: response_to("DeleteAcls", filter_results=results))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            given = await admin.delete_acls([ANY_ACL, by_name])
        (request,) = cluster.received("DeleteAcls")
    assert [_filter_of(acl_filter) for acl_filter in request.body.filters] == [
        (1, None, 1, None, None, 1, 1),
        (2, "a", 3, ALICE, "*", 3, 3),
    ]
    deleted, kept = given[ANY_ACL]
    assert (deleted.binding, deleted.error) == (binding("a"), None)
    assert kept.binding == binding("b")
    assert kept.error is not None
    assert given.errors[by_name].error_code is ErrorCode.cluster_authorization_failed


@given(st.sets(st.sampled_from([operation for operation in AclOperation if operation > AclOperation.ALL])))
def test_authorized_operations_are_read_from_bits(operations: set[AclOperation]) -> None:
    """KIP-430's bit field."""
    bits = sum(1 << operation for operation in operations)
    assert operations_of_bits(bits) == operations
    assert operations_of_bits(bits | 1 << 30 | 0b111) == operations
    assert operations_of_bits(-(2**31)) is None


async def test_quotas_are_described() -> None:
    entry = nested(
        "DescribeClientQuotas",
        "EntryData",
        entity=(
            nested("DescribeClientQuotas", "EntityData", entity_type=USER, entity_name="alice"),
            nested("DescribeClientQuotas", "EntityData", entity_type=CLIENT_ID, entity_name=None),
        ),
        values=(nested("DescribeClientQuotas", "ValueData", key="producer_byte_rate", value=1.5),),
    )
    quota_filter = ClientQuotaFilter.contains_only(
        [
            ClientQuotaFilterComponent.of_entity(USER, "alice"),
            ClientQuotaFilterComponent.of_entity(CLIENT_ID, None),
            ClientQuotaFilterComponent(entity_type=IP),
        ]
    )
    async with FakeCluster() as cluster:
        cluster.handle(
            "DescribeClientQuotas", lambda _: response_to("DescribeClientQuotas", entries=(entry,))
        )
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            found = await admin.describe_client_quotas(quota_filter)
            await admin.describe_client_quotas()
        narrow, wide = (request.body for request in cluster.received("DescribeClientQuotas"))
    entity = ClientQuotaEntity.of({CLIENT_ID: None, USER: "alice"})
    assert found == {entity: {"producer_byte_rate": 1.5}}
    assert str(entity) == "client-id default, user alice"
    assert [
        (component.entity_type, component.match_type, component.match) for component in narrow.components
    ] == [
        (USER, QuotaMatch.EXACT, "alice"),
        (CLIENT_ID, QuotaMatch.DEFAULT, None),
        (IP, QuotaMatch.SPECIFIED, None),
    ]
    assert (narrow.strict, wide.strict, wide.components) == (True, False, ())


async def test_quotas_are_altered() -> None:
    """Values set and removed, a result for each entity."""
    alice, default = ClientQuotaEntity.of({USER: "alice"}), ClientQuotaEntity.of({USER: None})

    def result(request: Request) -> Any:
        return response_to(
            "AlterClientQuotas",
            entries=tuple(
                nested(
                    "AlterClientQuotas",
                    "EntryData",
                    error_code=ErrorCode.invalid_request if part.entity_name is None else ErrorCode.none,
                    entity=(
                        nested(
                            "AlterClientQuotas", "EntityData", entity_type=USER, entity_name=part.entity_name
                        ),
                    ),
                )
                for entry in request.body.entries
                for part in entry.entity
            ),
        )

    async with FakeCluster((1,), is_controllers=True) as cluster:
        cluster.handle("AlterClientQuotas", result)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            results = await admin.alter_client_quotas(
                [
                    ClientQuotaAlteration(entity=alice, values={"producer_byte_rate": 1.0}),
                    ClientQuotaAlteration(entity=default, values={"x": 2.0}),
                    ClientQuotaAlteration(entity=alice, values={"consumer_byte_rate": None}),
                ],
                validate_only=True,
            )
        (request,) = cluster.received("AlterClientQuotas")
    assert request.body.validate_only
    assert [[(op.key, op.value, op.remove) for op in entry.ops] for entry in request.body.entries] == [
        [("producer_byte_rate", 1.0, False), ("consumer_byte_rate", 0.0, True)],
        [("x", 2.0, False)],
    ]
    assert set(results.values) == {alice}
    assert results.errors[default].error_code is ErrorCode.invalid_request


async def test_scram_credentials_are_described() -> None:
    def result(user: str, code: ErrorCode = ErrorCode.none, infos: tuple[tuple[int, int], ...] = ()) -> Any:
        return nested(
            "DescribeUserScramCredentials",
            "DescribeUserScramCredentialsResult",
            user=user,
            error_code=code,
            credential_infos=tuple(
                nested(
                    "DescribeUserScramCredentials",
                    "CredentialInfo",
                    mechanism=mechanism,
                    iterations=iterations,
                )
                for mechanism, iterations in infos
            ),
        )

    results = (result("alice", infos=((1, 4096), (2, 8192))), result("bob", ErrorCode.resource_not_found))
    async with FakeCluster() as cluster:
        cluster.handle(
            "DescribeUserScramCredentials",
            lambda _: response_to("DescribeUserScramCredentials", results=results),
        )
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            found = await admin.describe_user_scram_credentials(["alice", "bob"])
            await admin.describe_user_scram_credentials()
        named, of_all = (request.body for request in cluster.received("DescribeUserScramCredentials"))
    assert [user.name for user in named.users] == ["alice", "bob"]
    assert of_all.users is None
    assert found["alice"].credentials == (
        ScramCredentialInfo(mechanism=ScramMechanism.SCRAM_SHA_256, iterations=4096),
        ScramCredentialInfo(mechanism=ScramMechanism.SCRAM_SHA_512, iterations=8192),
    )
    assert found.errors["bob"].error_code is ErrorCode.resource_not_found


def scram_results(*users: str) -> Any:
    """All alterations of these users are made."""
    return response_to(
        "AlterUserScramCredentials",
        results=tuple(
            nested("AlterUserScramCredentials", "AlterUserScramCredentialsResult", user=user)
            for user in users
        ),
    )


async def test_a_password_stays_here() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = UserScramCredentialUpsertion(
        user="user", mechanism=ScramMechanism.SCRAM_SHA_256, password="pencil", salt=salt
    )
    chance = UserScramCredentialUpsertion(
        user="user", mechanism=ScramMechanism.SCRAM_SHA_512, password=b"pencil", iterations=5000
    )
    async with FakeCluster() as cluster:
        cluster.handle("AlterUserScramCredentials", lambda _: scram_results("user"))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            for _ in range(2):
                results = await admin.alter_user_scram_credentials([credential, chance])
        bodies = [request.body for request in cluster.received("AlterUserScramCredentials")]
    assert results["user"] is None
    (first, by_chance), (_, again) = (body.upsertions for body in bodies)
    assert (first.name, first.mechanism, first.iterations, first.salt) == ("user", 1, 4096, salt)
    assert _client_proof(first.salted_password) == "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert by_chance.salted_password == hashlib.pbkdf2_hmac("sha512", b"pencil", by_chance.salt, 5000)
    assert len(by_chance.salt) >= 16
    assert by_chance.salt != again.salt
    for body in bodies:
        assert b"pencil" not in repr(body).encode()
    for credential_part in (credential, chance):
        assert "pencil" not in repr(credential_part)
        assert repr(salt) not in repr(credential_part)


def _client_proof(salted_password: bytes) -> str:
    """What the client in the example of RFC 7677 proves with its salted password."""
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    messages = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    client_key = hmac.digest(salted_password, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    signature = hmac.digest(stored_key, messages.encode(), "sha256")
    proof = bytes(byte ^ other for byte, other in zip(client_key, signature, strict=True))
    return base64.b64encode(proof).decode()


async def test_a_user_with_an_impossible_alteration_keeps_all_credentials() -> None:
    good = UserScramCredentialDeletion(user="bad", mechanism=ScramMechanism.SCRAM_SHA_256)
    for bad, code in (
        (
            UserScramCredentialUpsertion(user="bad", mechanism=ScramMechanism.SCRAM_SHA_256, password=""),
            ErrorCode.unacceptable_credential,
        ),
        (
            UserScramCredentialUpsertion(
                user="bad", mechanism=ScramMechanism.SCRAM_SHA_256, password="x", iterations=0
            ),
            ErrorCode.unacceptable_credential,
        ),
        (
            UserScramCredentialDeletion(user="bad", mechanism=ScramMechanism.UNKNOWN),
            ErrorCode.unsupported_sasl_mechanism,
        ),
    ):
        async with FakeCluster() as cluster:
            cluster.handle("AlterUserScramCredentials", lambda _: scram_results("alice"))
            async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
                results = await admin.alter_user_scram_credentials(
                    [
                        good,
                        bad,
                        UserScramCredentialDeletion(user="alice", mechanism=ScramMechanism.SCRAM_SHA_512),
                        UserScramCredentialDeletion(user="", mechanism=ScramMechanism.SCRAM_SHA_512),
                    ]
                )
            (request,) = cluster.received("AlterUserScramCredentials")
        assert [(deletion.name, deletion.mechanism) for deletion in request.body.deletions] == [("alice", 2)]
        assert not request.body.upsertions
        assert set(results.values) == {"alice"}
        assert results.errors["bad"].error_code is code
        assert results.errors[""].error_code is ErrorCode.unacceptable_credential


ISSUED = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ISSUED_MS = 1767323045678
BOB = KafkaPrincipal("User", "bob")


async def test_a_token_is_created() -> None:
    response = response_to(
        "CreateDelegationToken",
        principal_type="User",
        principal_name="alice",
        token_requester_principal_type="User",
        token_requester_principal_name="admin",
        issue_timestamp=ISSUED,
        expiry_timestamp=ISSUED + timedelta(milliseconds=1),
        max_timestamp=ISSUED + timedelta(days=7),
        token_id="id",
        hmac=b"\xff\x00secret",
    )
    async with FakeCluster(handlers={"CreateDelegationToken": lambda _: response}) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            token = await admin.create_delegation_token(
                renewers=[BOB], owner=KafkaPrincipal.parse(ALICE), max_lifetime_ms=5_000
            )
            await admin.create_delegation_token()
        of_alice, own = (request.body for request in cluster.received("CreateDelegationToken"))
    assert token == DelegationToken(
        token_id="id",
        owner=KafkaPrincipal("User", "alice"),
        requester=KafkaPrincipal("User", "admin"),
        renewers=(BOB,),
        issue_timestamp_ms=ISSUED_MS,
        expiry_timestamp_ms=ISSUED_MS + 1,
        max_timestamp_ms=ISSUED_MS + 7 * 86_400_000,
        hmac=b"\xff\x00secret",
    )
    assert token.hmac_base64 == "/wBzZWNyZXQ="
    assert "secret" not in repr(token)
    assert (of_alice.owner_principal_type, of_alice.owner_principal_name) == ("User", "alice")
    assert [(renewer.principal_type, renewer.principal_name) for renewer in of_alice.renewers] == [
        ("User", "bob")
    ]
    assert of_alice.max_lifetime == timedelta(seconds=5)
    assert (own.owner_principal_type, own.renewers, own.max_lifetime) == (
        None,
        (),
        timedelta(milliseconds=-1),
    )


async def test_a_token_that_is_refused_is_an_error() -> None:
    before = datetime.fromtimestamp(0, UTC) - timedelta(milliseconds=1)
    response = response_to(
        "CreateDelegationToken",
        error_code=ErrorCode.delegation_token_auth_disabled,
        issue_timestamp=before,
        expiry_timestamp=before,
        max_timestamp=before,
    )
    async with (
        FakeCluster(handlers={"CreateDelegationToken": lambda _: response}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        with pytest.raises(ServerError, match="DELEGATION_TOKEN_AUTH_DISABLED"):
            await admin.create_delegation_token()


async def test_tokens_are_renewed_and_expired() -> None:
    handlers = {
        name: lambda _, name=name: response_to(name, expiry_timestamp=ISSUED)
        for name in ("RenewDelegationToken", "ExpireDelegationToken")
    }
    async with FakeCluster(handlers=handlers) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            times = (
                await admin.renew_delegation_token(b"h", renew_period_ms=7),
                await admin.renew_delegation_token(b"h"),
                await admin.expire_delegation_token(b"h", expiry_period_ms=8),
                await admin.expire_delegation_token(b"h"),
            )
        renewals = [request.body for request in cluster.received("RenewDelegationToken")]
        expiries = [request.body for request in cluster.received("ExpireDelegationToken")]
    assert times == (ISSUED_MS,) * 4
    assert [(renewal.hmac, renewal.renew_period // timedelta(milliseconds=1)) for renewal in renewals] == [
        (b"h", 7),
        (b"h", -1),
    ]
    assert [expiry.expiry_time_period // timedelta(milliseconds=1) for expiry in expiries] == [8, -1]


async def test_tokens_are_described() -> None:
    described = nested(
        "DescribeDelegationToken",
        "DescribedDelegationToken",
        principal_type="User",
        principal_name="alice",
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"h",
        renewers=(
            nested(
                "DescribeDelegationToken",
                "DescribedDelegationTokenRenewer",
                principal_type="User",
                principal_name="bob",
            ),
        ),
    )
    response = response_to("DescribeDelegationToken", tokens=(described,))
    async with FakeCluster(handlers={"DescribeDelegationToken": lambda _: response}) as cluster:
        for node in cluster.nodes.values():
            node.apis[41] = (1, 2)
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            (token,) = await admin.describe_delegation_tokens([KafkaPrincipal.parse(ALICE), BOB])
            await admin.describe_delegation_tokens()
        named, of_all = (request.body for request in cluster.received("DescribeDelegationToken"))
    assert [owner.principal_name for owner in named.owners] == ["alice", "bob"]
    assert of_all.owners is None
    assert token.requester == token.owner == KafkaPrincipal("User", "alice")
    assert token.renewers == (BOB,)
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms) == (1, 2, 3)


async def test_credentials_are_not_altered_at_controllers() -> None:
    """KIP-919's table of APIs."""
    async with AdminClient(bootstrap_controllers=["127.0.0.1:1"]) as admin:
        with pytest.raises(UnsupportedEndpointError):
            await admin.alter_user_scram_credentials([])
