"""Plans of users: credentials, ACLs and quotas that differ from the resource, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
from kit.kafka_model import kafka_of
from quorate_operator.entities.users import (
    NO_AUTHORIZER,
    NO_CERTIFICATES,
    NOTHING_STORED,
    RESERVED,
    SECRET_MISSING,
    SECRET_STALE,
    SECRET_TAKEN,
    AddAcls,
    AlterQuotas,
    ApplyCertificate,
    CreateSecret,
    DeleteCredentials,
    ObservedCertificate,
    ObservedSecret,
    ObservedUser,
    RemoveAcls,
    SetCredentials,
    StoredUser,
    acl_text,
    bindings_of,
    plan_user,
    plan_user_deletion,
)
from quorate_operator.handlers.entities.kind_handlers import has_other_login, secret_of_user
from quorate_operator.models.manifests import ManifestError, load_entity
from quorate_operator.models.users import KafkaUser
from quorate_operator.resources.certificates import certificate_of_user

KAFKA = kafka_of([None])
SCRAM, OTHER = "SCRAM-SHA-512", "SCRAM-SHA-256"
PASSWORD = "a-kept-secret"
READ = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["Read", "DescribeConfigs"]}
DENY = {
    "permission": "Deny",
    "resource": {"type": "Group", "name": "team-", "pattern": "Prefixed"},
    "operations": ["Read"],
    "host": "10.0.0.1",
}


def user(**spec: Any) -> KafkaUser:
    """A resource as the API server has it."""
    manifest = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaUser",
        "metadata": {"name": "alice", "namespace": "kafka", "uid": "u"},
        "spec": {"cluster": "quorum", **spec},
    }
    loaded = load_entity(manifest, "namespace kafka")
    assert isinstance(loaded, KafkaUser)
    return loaded


def scram(**more: Any) -> KafkaUser:
    """One who logs in with SCRAM."""
    return user(authentication={"type": "scram-sha-512", **more})


def secret(
    version: str = "s/1", password: str | None = PASSWORD, *, is_own: bool = True, is_labelled: bool = True
) -> ObservedSecret:
    """What is stored."""
    return ObservedSecret(version=version, password=password, is_own=is_own, is_labelled=is_labelled)


STORED = StoredUser(is_managed=True, mechanism=SCRAM, secret_version="s/1")


def test_a_secret_is_made_and_then_its_password_is_set() -> None:
    asked = scram()
    (made,) = plan_user(asked, ObservedUser(), KAFKA).changes
    assert isinstance(made, CreateSecret)
    assert made.text == "create the Secret alice with a random password"
    plan = plan_user(
        asked, ObservedUser(secret=secret()), KAFKA, stored=StoredUser(is_managed=True, mechanism=SCRAM)
    )
    (change,) = plan.changes
    assert isinstance(change, SetCredentials)
    assert (change.user, change.mechanism, change.password) == ("alice", SCRAM, PASSWORD)
    done = ObservedUser(secret=secret(), mechanisms=frozenset({SCRAM}))
    assert not plan_user(asked, done, KAFKA, stored=STORED).changes


def test_no_text_has_the_password() -> None:
    observed = ObservedUser(secret=secret())
    plan = plan_user(scram(), observed, KAFKA)
    reported = f"{plan!r} {observed!r} {plan.status} {[change.text for change in plan.changes]}"
    assert SCRAM in reported
    assert PASSWORD not in reported


def test_another_secret_or_lost_credentials_are_set_again() -> None:
    there = frozenset({SCRAM})
    changed = ObservedUser(secret=secret("s/2"), mechanisms=there)
    assert [type(change) for change in plan_user(scram(), changed, KAFKA, stored=STORED).changes] == [
        SetCredentials
    ]
    lost = ObservedUser(secret=secret())
    assert [type(change) for change in plan_user(scram(), lost, KAFKA, stored=STORED).changes] == [
        SetCredentials
    ]


def test_a_password_that_was_edited_alone_is_reported() -> None:
    """It becomes that of the user. Clients that read `sasl.jaas.config` still have the former one."""
    change = CreateSecret(name="alice", user="alice", mechanism=SCRAM, text="")
    made = secret_of_user(scram(), change, PASSWORD)["stringData"]
    assert not has_other_login(scram(), made)
    assert not has_other_login(scram(), {"password": "another"})
    assert has_other_login(scram(), made | {"sasl.mechanism": OTHER})
    edited = made | {"password": "another"}
    assert has_other_login(scram(), edited)
    stale = replace(secret("s/2", "another"), has_other_login=True)
    observed = ObservedUser(secret=stale, mechanisms=frozenset({SCRAM}))
    (change_of_password,) = plan_user(scram(), observed, KAFKA, stored=STORED).changes
    assert isinstance(change_of_password, SetCredentials)
    done = plan_user(scram(), observed, KAFKA, stored=replace(STORED, secret_version="s/2"))
    (refusal,) = done.refusals
    assert (done.changes, refusal.code) == ((), SECRET_STALE)
    assert "another" not in refusal.message.replace("another password", "")
    assert not plan_user(
        scram(secretName="alice"), observed, KAFKA, stored=replace(STORED, secret_version="s/2")
    ).refusals


def test_a_second_way_in_is_closed_after_the_first_is_open() -> None:
    before = ObservedUser(secret=secret(), mechanisms=frozenset({OTHER}))
    stored = StoredUser(is_managed=True, mechanism=OTHER, secret_version="s/1")
    assert [type(change) for change in plan_user(scram(), before, KAFKA, stored=stored).changes] == [
        SetCredentials
    ]
    both = ObservedUser(secret=secret(), mechanisms=frozenset({SCRAM, OTHER}))
    (closed,) = plan_user(scram(), both, KAFKA, stored=STORED).changes
    assert closed == DeleteCredentials(user="alice", mechanisms=(OTHER,))
    assert closed.text == "delete the credentials of alice for SCRAM-SHA-256"
    none = plan_user(user(), both, KAFKA, stored=STORED)
    assert none.changes == (DeleteCredentials(user="alice", mechanisms=(SCRAM,)),)
    assert none.status["mechanism"] == SCRAM, "it is known until it is gone"
    assert not plan_user(user(), both, KAFKA).changes, "credentials that others set stay"


@pytest.mark.parametrize(
    ("authentication", "found", "code"),
    [
        ({"secretName": "mine"}, None, SECRET_MISSING),
        ({}, secret(is_own=False), SECRET_TAKEN),
        ({"secretName": "theirs"}, secret(is_own=False, is_labelled=False), SECRET_MISSING),
        ({"secretName": "mine"}, secret(password=None), SECRET_MISSING),
        ({"secretName": "mine"}, secret(password=f"{PASSWORD}\n"), SECRET_MISSING),
    ],
)
def test_secrets_that_can_not_be_used(
    authentication: dict[str, str], found: ObservedSecret | None, code: str
) -> None:
    plan = plan_user(scram(**authentication), ObservedUser(secret=found), KAFKA)
    (refusal,) = plan.refusals
    assert refusal.code == code
    assert PASSWORD not in refusal.message
    assert not plan.changes


def test_acls_are_those_of_the_spec_and_no_others() -> None:
    """What another client added goes, what is missing comes."""
    asked = user(acls=[READ, DENY])
    (add,) = plan_user(asked, ObservedUser(), KAFKA).changes
    assert isinstance(add, AddAcls)
    assert add.text == (
        "add Deny Read on Group prefix team- from 10.0.0.1; Allow Read on Topic orders; "
        "Allow DescribeConfigs on Topic orders"
    )
    extra = bindings_of(user(acls=[{**READ, "operations": ["Write"]}]).spec.acls[0], "User:alice")[0]  # type: ignore[index]
    everything = ObservedUser(acls=frozenset((*add.bindings, extra)))
    (remove,) = plan_user(asked, everything, KAFKA).changes
    assert remove == RemoveAcls(bindings=(extra,))
    assert acl_text(extra) == "Allow Write on Topic orders"
    assert not plan_user(user(), everything, KAFKA).changes, "without the field they stay"
    (emptied,) = plan_user(user(acls=[]), everything, KAFKA).changes
    assert isinstance(emptied, RemoveAcls)
    assert {*emptied.bindings} == everything.acls


def test_acls_without_an_authorizer_are_refused() -> None:
    (refusal,) = plan_user(user(acls=[READ]), ObservedUser(acls=None), KAFKA).refusals
    assert refusal.code == NO_AUTHORIZER
    assert not plan_user(user(acls=[]), ObservedUser(acls=None), KAFKA).refusals


def test_quotas_are_those_of_the_spec_and_no_others() -> None:
    observed = ObservedUser(quotas={"producer_byte_rate": 5.0, "request_percentage": 50.0})
    (change,) = plan_user(user(quotas={"producerByteRate": 6}), observed, KAFKA).changes
    assert isinstance(change, AlterQuotas)
    assert change.values == {"producer_byte_rate": 6.0, "request_percentage": None}
    assert change.text == "producer_byte_rate: 6, not 5; request_percentage: none, not 50"
    assert not plan_user(user(), observed, KAFKA).changes
    named = user(
        authentication={"type": "tls", "principal": "User:CN=a,O=b"}, quotas={"requestPercentage": 1}
    )
    (of_tls,) = plan_user(named, ObservedUser(), KAFKA).changes
    assert isinstance(of_tls, AlterQuotas)
    assert of_tls.user == "CN=a,O=b"


def test_nodes_and_super_users_are_nobodys_resource() -> None:
    kafka = kafka_of([None], reserved=frozenset({"User:alice"}))
    plan = plan_user(scram(), ObservedUser(secret=secret()), kafka)
    assert [refusal.code for refusal in plan.refusals] == [RESERVED]
    assert not plan.changes
    assert "principal" not in plan.status, "its deletion would revoke what nodes have"


@pytest.mark.parametrize("reserved", ["User:CN=alice", "User:alice"])
def test_no_certificate_of_a_node_is_issued(reserved: str) -> None:
    asked = issued(principal="User:somebody")
    plan = plan_user(asked, ObservedUser(), kafka_of([None], reserved=frozenset({reserved})))
    assert [refusal.code for refusal in plan.refusals] == [RESERVED]
    assert reserved in plan.refusals[0].message
    assert not plan.changes


def test_a_deletion_revokes_what_the_spec_names() -> None:
    """She is refused afterwards, and what others gave stays."""
    acls = frozenset(bindings_of(user(acls=[READ]).spec.acls[0], "User:alice"))  # type: ignore[index]
    observed = ObservedUser(
        mechanisms=frozenset({SCRAM, OTHER}), acls=acls, quotas={"producer_byte_rate": 5.0}, secret=secret()
    )
    whole = user(authentication={"type": "scram-sha-512"}, acls=[READ], quotas={})
    assert plan_user_deletion(whole, observed, STORED).changes == (
        DeleteCredentials(user="alice", mechanisms=(SCRAM,)),
        RemoveAcls(bindings=tuple(sorted(acls))),
        AlterQuotas(user="alice", values={"producer_byte_rate": None}, present={"producer_byte_rate": 5.0}),
    )
    assert not plan_user_deletion(whole, ObservedUser(acls=None), STORED).changes
    assert not plan_user_deletion(user(), observed, StoredUser(is_managed=True)).changes
    assert not plan_user_deletion(whole, observed, NOTHING_STORED).changes
    assert not plan_user_deletion(user(acls=[], deletionPolicy="Retain"), observed, STORED).changes


def test_the_secret_goes_with_its_user() -> None:
    (change,) = plan_user(scram(), ObservedUser(), KAFKA).changes
    assert isinstance(change, CreateSecret)
    made = secret_of_user(scram(), change, PASSWORD)
    assert made["stringData"] == {
        "username": "alice",
        "password": PASSWORD,
        "sasl.mechanism": SCRAM,
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{PASSWORD}";',
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("KafkaUser", "u")


ISSUED_SECRET = ObservedSecret(version="s/1", password=None, is_own=False, certificate="alice")
ISSUED = ObservedCertificate(is_own=True, is_as_wanted=True)


def issued(**more: Any) -> KafkaUser:
    """One who logs in with a certificate of an issuer."""
    return user(authentication={"type": "tls", "issuerRef": {"name": "ca"}, **more})


def test_a_user_with_an_issuer_is_ready_when_its_secret_is_there() -> None:
    (asked,) = plan_user(issued(), ObservedUser(), KAFKA).changes
    assert asked == ApplyCertificate(text="ask the Issuer ca for a certificate of CN=alice")
    for observed, wait in (
        (ObservedUser(certificate=ObservedCertificate(is_own=True, is_as_wanted=True, problem="no")), "no"),
        (ObservedUser(certificate=ISSUED), "there is no Secret alice yet"),
    ):
        plan = plan_user(issued(), observed, KAFKA)
        assert (plan.changes, plan.refusals) == ((), ())
        assert plan.waits == (f"the certificate of CN=alice: {wait}",)
    done = plan_user(issued(), ObservedUser(certificate=ISSUED, secret=ISSUED_SECRET), KAFKA)
    assert (done.changes, done.waits, done.refusals) == ((), (), ())
    assert (done.status["principal"], done.status["secretName"]) == ("User:CN=alice", "alice")
    other = ObservedUser(certificate=ObservedCertificate(is_own=True), secret=ISSUED_SECRET)
    assert [type(change) for change in plan_user(issued(), other, KAFKA).changes] == [ApplyCertificate]


@pytest.mark.parametrize(
    ("observed", "code", "expected"),
    [
        (
            ObservedUser(certificate=ObservedCertificate(unusable="this Kubernetes has no Certificate")),
            NO_CERTIFICATES,
            "issuerRef: 'ca': this Kubernetes has no Certificate: install cert-manager, or leave issuerRef out",
        ),
        (
            ObservedUser(certificate=ObservedCertificate(is_own=False)),
            SECRET_TAKEN,
            "the Certificate alice was not made for this resource",
        ),
        (ObservedUser(secret=secret()), SECRET_TAKEN, "the Secret alice is not that of the certificate"),
    ],
)
def test_certificates_that_can_not_be_had(observed: ObservedUser, code: str, expected: str) -> None:
    plan = plan_user(
        user(authentication={"type": "tls", "issuerRef": {"name": "ca"}}, acls=[READ]), observed, KAFKA
    )
    (refusal,) = plan.refusals
    assert refusal.code == code
    assert expected in refusal.message
    assert [type(change) for change in plan.changes] == [AddAcls]


def test_the_certificate_of_a_user() -> None:
    made = certificate_of_user(issued(duration="90d", renewBefore="30m"))
    (owner,) = made["metadata"]["ownerReferences"]
    assert (made["metadata"]["name"], owner["uid"]) == ("alice", "u")
    assert made["spec"] == {
        "secretName": "alice",
        "issuerRef": {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"},
        "commonName": "alice",
        "privateKey": {"encoding": "PKCS8", "rotationPolicy": "Always"},
        "duration": "2160h0m0s",
        "renewBefore": "0h30m0s",
        "usages": ["digital signature", "key encipherment", "client auth"],
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"authentication": {"type": "scram-sha-512", "issuerRef": {"name": "ca"}}},
            "issuerRef: is for tls",
        ),
        ({"authentication": {"type": "tls", "duration": "90d"}}, "duration: is allowed with issuerRef only"),
        (
            {"authentication": {"type": "tls", "issuerRef": {"name": "ca"}, "renewBefore": "90d"}},
            "renewBefore: '90d': must be less than duration, which is 90d",
        ),
        (
            {"authentication": {"type": "tls", "issuerRef": {"name": "ca"}}, "userName": "a" * 65},
            "spec.userName: is the common name of the certificate, which has at most 64 characters",
        ),
        ({"authentication": {"type": "plain"}}, "spec.authentication.type: 'plain': must be"),
        ({"authentication": {"type": "tls", "secretName": "s"}}, "secretName: is for scram-sha-512"),
        ({"authentication": {"type": "scram-sha-512", "principal": "User:a"}}, "principal: is for tls"),
        (
            {"acls": [{**READ, "operations": ["ClusterAction"]}]},
            "operations: ClusterAction is not an operation of Topic; allowed",
        ),
        ({"acls": [{**READ, "operations": []}]}, "spec.acls[0].operations"),
        (
            {"acls": [{**READ, "resource": {"type": "Cluster", "name": "c"}}]},
            "the resource of type Cluster is",
        ),
        ({"quotas": {"producerByteRate": 0}}, "spec.quotas.producerByteRate: 0: must be greater"),
        ({"userName": 'a"b'}, "spec.userName"),
    ],
)
def test_what_the_models_refuse(spec: dict[str, Any], message: str) -> None:
    """Errors name field, value and what is allowed."""
    with pytest.raises(ManifestError) as error:
        user(**spec)
    assert message in str(error.value)
