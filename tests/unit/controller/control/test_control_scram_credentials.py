"""AlterUserScramCredentials: who gets a credential, who is refused, what is stored."""

import hashlib
import hmac
from typing import Any

import pytest
from quorate_controller.directories.scram import parse_scram_users
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorate_protocol.records.generated import (
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveUserScramCredentialRecord,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b"a salt"
DUPLICATE = (
    ErrorCode.duplicate_resource,
    "A user credential cannot be altered twice in the same request",
)
DONE = (ErrorCode.none, None)


def upsertion(
    user: str, *, mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = b"salted"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def deletion(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def ask(
    harness: Any, *alterations: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[ErrorCode, str | None]]:
    """The outcome of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(
            alteration for alteration in alterations if isinstance(alteration, ScramCredentialDeletion)
        ),
        upsertions=tuple(
            alteration for alteration in alterations if isinstance(alteration, ScramCredentialUpsertion)
        ),
    )
    results = harness.apply(request).results
    assert len({result.user for result in results}) == len(results)
    return {result.user: (result.error_code, result.error_message) for result in results}


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_stored_credential_is_that_of_formatting(harness: Any, mechanism: ScramMechanism) -> None:
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"secret", SALT, 5000)
    assert ask(harness, upsertion("alice", mechanism=mechanism, iterations=5000, salted=salted)) == {
        "alice": DONE
    }
    entry = f"{mechanism.mechanism_name}=[name=alice,password=secret,iterations=5000]"
    assert harness.records == list(parse_scram_users([entry], generate_salt=lambda: SALT))
    credential = harness.image.scram[mechanism, "alice"]
    assert salted not in (credential.stored_key, credential.server_key)
    assert credential.server_key == hmac.digest(salted, b"Server Key", mechanism.hash_name)


def test_credentials_are_replaced_and_deleted(harness: Any) -> None:
    ask(harness, upsertion("alice"))
    ask(harness, upsertion("alice", mechanism=SHA_512))
    ask(harness, upsertion("alice", iterations=8192))
    assert harness.image.scram[SHA_256, "alice"].iterations == 8192
    assert ask(harness, deletion("alice")) == {"alice": DONE}
    assert RemoveUserScramCredentialRecord(name="alice", mechanism=SHA_256) in harness.records
    assert list(harness.image.scram) == [(SHA_512, "alice")]


def test_deletions_are_a_transaction_and_what_follows_is_another(harness: Any, new_harness: Any) -> None:
    """Kafka's loader applies removals apart from what is before and after them, whose defect would lose
    users.
    """
    begin, end = BeginTransactionRecord(name="SCRAM credentials"), EndTransactionRecord()
    removed = [RemoveUserScramCredentialRecord(name=user, mechanism=SHA_256) for user in ("alice", "bob")]
    ask(harness, upsertion("alice"), upsertion("bob"))
    assert begin not in harness.records
    ask(harness, deletion("alice"), deletion("bob"))
    assert harness.records == [begin, *removed, end, begin, end]
    ask(harness, upsertion("alice"))
    assert ask(harness, upsertion("carol"), deletion("alice")) == {"alice": DONE, "carol": DONE}
    first, *deleted, last = harness.records
    assert (first, last) == (begin, end)
    assert deleted[:3] == [removed[0], end, begin]
    assert [record.name for record in deleted[3:]] == ["carol"]
    old = new_harness(12)
    ask(old, upsertion("alice"), upsertion("bob"))
    ask(old, deletion("alice"), deletion("bob"))
    assert old.records == removed


@pytest.mark.parametrize(
    ("alteration", "result"),
    [
        (upsertion(""), (ErrorCode.unacceptable_credential, "Username must not be empty")),
        (deletion(""), (ErrorCode.unacceptable_credential, "Username must not be empty")),
        (upsertion("x", mechanism=0), (ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")),
        (upsertion("x", mechanism=3), (ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")),
        (deletion("x", -1), (ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")),
        (upsertion("x", iterations=4095), (ErrorCode.unacceptable_credential, "Too few iterations")),
        (upsertion("x", iterations=16385), (ErrorCode.unacceptable_credential, "Too many iterations")),
        (upsertion("x", iterations=16384), DONE),
        (upsertion("x", salted=b""), (ErrorCode.unknown_server_error, None)),
        (
            deletion("x"),
            (ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"),
        ),
    ],
)
def test_a_refused_user_does_not_harm_others(
    harness: Any,
    alteration: ScramCredentialUpsertion | ScramCredentialDeletion,
    result: tuple[ErrorCode, str | None],
) -> None:
    """Each rule with Kafka's code and text."""
    assert ask(harness, alteration, upsertion("good")) == {alteration.name: result, "good": DONE}
    assert len(harness.records) == 1 + (result == DONE)


def test_a_user_that_is_named_twice_keeps_what_it_has(harness: Any) -> None:
    ask(harness, upsertion("alice"))
    credential = harness.image.scram[SHA_256, "alice"]
    for alterations in (
        [deletion("alice"), deletion("alice")],
        [deletion("alice"), upsertion("alice", mechanism=SHA_512)],
        [upsertion("alice"), upsertion("alice", mechanism=SHA_512)],
        [deletion("alice"), upsertion("alice"), upsertion("alice")],
    ):
        assert ask(harness, *alterations) == {"alice": DUPLICATE}
        assert harness.records == []
    assert harness.image.scram[SHA_256, "alice"] == credential


def test_an_old_level_has_no_credentials(new_harness: Any) -> None:
    """No record that older nodes can't read."""
    refused = (ErrorCode.unsupported_version, "The current metadata.version does not support SCRAM")
    assert ask(new_harness(10), upsertion("alice"), deletion("bob")) == {"alice": refused, "bob": refused}
    assert ask(new_harness(11), upsertion("alice")) == {"alice": DONE}
