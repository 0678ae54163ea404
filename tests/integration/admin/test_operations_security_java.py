"""Operations of the AdminClient on ACLs, quotas, credentials and tokens of stock Kafka."""

from collections.abc import Mapping

import pytest
from kit.asking import Asking
from kit.java.cluster import JavaCluster
from kit.waiting import eventually
from quorate_admin.errors import AuthenticationError, ServerError, UnreachableError
from quorate_admin.types.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
    ResourcePatternFilter,
)
from quorate_admin.types.credentials import (
    KafkaPrincipal,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorate_admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from quorate_admin.types.topics import NewTopic
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    CLIENT_ID,
    USER,
    AclOperation,
    PatternType,
    ResourceType,
    ScramMechanism,
)

pytestmark = pytest.mark.integration

TIMEOUT_S = 30


@pytest.mark.parametrize("endpoint", ["broker", "controller"])
def test_acls_are_created_found_and_deleted(ask: Asking, ask_controllers: Asking, endpoint: str) -> None:
    asking = ask if endpoint == "broker" else ask_controllers
    topic = f"acl-{endpoint}"

    def binding(name: str, pattern_type: PatternType) -> AclBinding:
        return AclBinding(
            pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=name, pattern_type=pattern_type),
            entry=AccessControlEntry(principal="User:carol", operation=AclOperation.READ),
        )

    literal, prefixed = binding(topic, PatternType.LITERAL), binding(topic[:-1], PatternType.PREFIXED)
    wrong = binding("", PatternType.LITERAL)
    results = asking(lambda admin: admin.create_acls([literal, wrong, prefixed]))
    assert set(results.values) == {literal, prefixed}
    assert set(results.errors) == {wrong}
    matching = AclBindingFilter(
        pattern=ResourcePatternFilter(
            resource_type=ResourceType.TOPIC, name=topic, pattern_type=PatternType.MATCH
        )
    )
    eventually(
        lambda: set(asking(lambda admin: admin.describe_acls(matching))) == {literal, prefixed},
        TIMEOUT_S,
        "the ACLs",
    )
    by_name = AclBindingFilter.of(literal)
    assert asking(lambda admin: admin.describe_acls(by_name)) == (literal,)
    deleted = asking(lambda admin: admin.delete_acls([by_name, matching]))
    assert [deletion.binding for deletion in deleted[by_name]] == [literal]
    assert {deletion.binding for deletion in deleted[matching]} == {literal, prefixed}
    assert all(deletion.error is None for deletion in deleted[matching])
    eventually(lambda: asking(lambda admin: admin.describe_acls(matching)) == (), TIMEOUT_S, "no ACLs")


def test_a_client_without_rights_is_refused(java_cluster: JavaCluster) -> None:
    alice = Asking(servers=java_cluster.sasl_servers, properties=java_cluster.sasl_properties("alice"))
    new = NewTopic(name="alices", partitions=1, replication_factor=1)
    results = alice(lambda admin: admin.create_topics([new]))
    assert results.errors["alices"].error_code is ErrorCode.topic_authorization_failed
    with pytest.raises(ServerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        alice(lambda admin: admin.describe_acls())
    assert "alices" not in alice(lambda admin: admin.list_topics())
    dirs = alice(lambda admin: admin.describe_log_dirs(java_cluster.brokers))
    assert {error.error_code for error in dirs.errors.values()} == {ErrorCode.cluster_authorization_failed}


@pytest.mark.parametrize("endpoint", ["broker", "controller"])
def test_quotas_are_set_found_and_removed(ask: Asking, ask_controllers: Asking, endpoint: str) -> None:
    altering = ask if endpoint == "broker" else ask_controllers
    user = f"quota-{endpoint}"
    entity = ClientQuotaEntity.of({USER: user, CLIENT_ID: None})
    wrong = ClientQuotaEntity.of({USER: f"{user}-wrong"})
    results = altering(
        lambda admin: admin.alter_client_quotas(
            [
                ClientQuotaAlteration(
                    entity=entity, values={"producer_byte_rate": 1000.0, "request_percentage": 12.5}
                ),
                ClientQuotaAlteration(entity=wrong, values={"no_such_rate": 1.0}),
            ]
        )
    )
    assert set(results.values) == {entity}
    assert results.errors[wrong].error_code is ErrorCode.invalid_request

    def found(*components: ClientQuotaFilterComponent, is_strict: bool = False) -> Mapping[object, object]:
        quota_filter = ClientQuotaFilter(components=components, is_strict=is_strict)
        return ask(lambda admin: admin.describe_client_quotas(quota_filter))

    of_user = ClientQuotaFilterComponent.of_entity(USER, user)
    default_client = ClientQuotaFilterComponent.of_entity(CLIENT_ID, None)
    wanted = {entity: {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    eventually(lambda: found(of_user) == wanted, TIMEOUT_S, "the quotas", lambda: found(of_user))
    assert found(of_user, default_client, is_strict=True) == wanted
    assert found(of_user, is_strict=True) == {}
    assert entity in ask(lambda admin: admin.describe_client_quotas())
    gone = ClientQuotaAlteration(
        entity=entity, values={"producer_byte_rate": None, "request_percentage": None}
    )
    altering(lambda admin: admin.alter_client_quotas([gone])).raise_any()
    eventually(lambda: found(of_user) == {}, TIMEOUT_S, "no quotas")


def test_a_scram_credential_lets_its_user_in(java_cluster: JavaCluster, ask: Asking) -> None:
    mechanisms = {ScramMechanism.SCRAM_SHA_256: 4096, ScramMechanism.SCRAM_SHA_512: 8192}
    upsertions = [
        UserScramCredentialUpsertion(
            user="dora", mechanism=mechanism, password="dora's p\u00e4ssword", iterations=iterations
        )
        for mechanism, iterations in mechanisms.items()
    ]
    few = UserScramCredentialUpsertion(
        user="few", mechanism=ScramMechanism.SCRAM_SHA_256, password="x", iterations=10
    )
    results = ask(lambda admin: admin.alter_user_scram_credentials([upsertions[0], few]))
    assert set(results.values) == {"dora"}
    assert results.errors["few"].error_code is ErrorCode.unacceptable_credential
    ask(lambda admin: admin.alter_user_scram_credentials(upsertions[1:])).raise_any()
    twice = ask(lambda admin: admin.alter_user_scram_credentials(upsertions))
    assert twice.errors["dora"].error_code is ErrorCode.duplicate_resource  # one at a time (KRaft)

    def credentials() -> dict[ScramMechanism, int]:
        reported = ask(lambda admin: admin.describe_user_scram_credentials(["dora"])).values.get("dora")
        return (
            {credential.mechanism: credential.iterations for credential in reported.credentials}
            if reported
            else {}
        )

    eventually(lambda: credentials() == mechanisms, TIMEOUT_S, "both credentials", credentials)
    assert "dora" in ask(lambda admin: admin.describe_user_scram_credentials()).values
    for mechanism in mechanisms:
        properties = java_cluster.sasl_properties(
            "dora", "dora's p\u00e4ssword", mechanism=mechanism.mechanism_name
        )
        dora = Asking(servers=java_cluster.sasl_servers, properties=properties)
        assert dora(lambda admin: admin.describe_cluster()).cluster_id
    deletions = [UserScramCredentialDeletion(user="dora", mechanism=mechanism) for mechanism in mechanisms]
    for deletion in deletions:
        ask(lambda admin, change=deletion: admin.alter_user_scram_credentials([change])).raise_any()
    eventually(lambda: credentials() == {}, TIMEOUT_S, "no credentials")
    gone = ask(lambda admin: admin.describe_user_scram_credentials(["dora"]))
    assert gone.errors["dora"].error_code is ErrorCode.resource_not_found
    with pytest.raises((AuthenticationError, UnreachableError)):
        dora(lambda admin: admin.describe_cluster())


def test_a_token_is_created_used_renewed_and_expired(java_cluster: JavaCluster, ask: Asking) -> None:
    admins = Asking(servers=java_cluster.sasl_servers, properties=java_cluster.sasl_properties("admin"))
    alice, bob = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
    token = admins(
        lambda admin: admin.create_delegation_token(
            owner=alice, renewers=[bob, KafkaPrincipal("User", "admin")], max_lifetime_ms=3_600_000
        )
    )
    assert (token.owner, token.requester) == (alice, KafkaPrincipal("User", "admin"))
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 3_600_000
    assert token.issue_timestamp_ms < token.expiry_timestamp_ms <= token.max_timestamp_ms

    def tokens(*owners: KafkaPrincipal) -> list[str]:
        return [
            token.token_id for token in admins(lambda admin: admin.describe_delegation_tokens(owners or None))
        ]

    eventually(lambda: token.token_id in tokens(alice), TIMEOUT_S, "the token")
    assert token.token_id in tokens()
    assert token.token_id in tokens(bob)  # who may renew it
    assert tokens(KafkaPrincipal("User", "nobody")) == []
    (reported,) = (
        described
        for described in admins(lambda admin: admin.describe_delegation_tokens([alice]))
        if described.token_id == token.token_id
    )
    assert (reported.owner, reported.hmac, set(reported.renewers)) == (alice, token.hmac, set(token.renewers))

    login = java_cluster.sasl_properties(
        token.token_id, token.hmac_base64, mechanism="SCRAM-SHA-256", options='tokenauth="true"'
    )
    with_token = Asking(servers=java_cluster.sasl_servers, properties=login)
    assert with_token(lambda admin: admin.describe_cluster()).cluster_id
    with pytest.raises(ServerError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
        with_token(lambda admin: admin.create_delegation_token())
    with pytest.raises(ServerError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
        ask(lambda admin: admin.create_delegation_token())  # over PLAINTEXT

    renewed_ms = admins(lambda admin: admin.renew_delegation_token(token.hmac, renew_period_ms=1_800_000))
    assert token.issue_timestamp_ms < renewed_ms < token.max_timestamp_ms
    with pytest.raises(ServerError, match="DELEGATION_TOKEN_NOT_FOUND"):
        admins(lambda admin: admin.renew_delegation_token(b"no such token"))
    expired_ms = admins(lambda admin: admin.expire_delegation_token(token.hmac))
    assert expired_ms < renewed_ms
    eventually(lambda: token.token_id not in tokens(alice), TIMEOUT_S, "the token to be gone")
