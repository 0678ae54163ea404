"""The server's side of PLAIN and SCRAM: the RFC's example, our own client, and every refusal."""

import base64
import gc
import hashlib
import hmac
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_controller.control.delegation_tokens import token_hmac
from quorate_controller.control.scram_credentials import credential_record
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.security.sasl import (
    SCRAM_MECHANISMS,
    Authenticated,
    Decoys,
    LoginHeldBackError,
    Passwords,
    PlainServer,
    SaslRefusalError,
    ScramServer,
    decoy_secret,
)
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import DelegationToken
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.security.scram import SALT_BITS, ScramClient, check_server, salt_of

SHA_256 = ScramMechanism.SCRAM_SHA_256
INVALID = "Authentication failed: Invalid username or password"
SECRET = "the secret of the cluster"
DECOYS = Decoys(b"secret of the decoys")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
"""The server's part in RFC 7677's example of SCRAM-SHA-256."""


def credentials(*users: tuple[str, str, ScramMechanism, bytes]) -> ImageCredentials:
    """The credentials of an image with these users (name, password, mechanism, salt), and one delegation token."""
    image = MetadataImage()
    token = DelegationToken(
        token_id="token-1",
        owner="User:alice",
        requester="User:alice",
        renewers=(),
        issue_timestamp_ms=1,
        max_timestamp_ms=9_000,
        expiration_timestamp_ms=5_000,
    )
    records = [token.to_record()]
    for name, password, mechanism, salt in users:
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, 4096)
        records.append(credential_record(name, mechanism, salt=salt, salted_password=salted, iterations=4096))
    image.replay_all(records, base_offset=0)
    return ImageCredentials(image, SECRET)


def rfc_server() -> ScramServer:
    """The server of RFC 7677's example."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    return ScramServer(SHA_256, credentials(("user", "pencil", SHA_256, salt)), lambda: NONCE, DECOYS)


def test_scram_is_as_in_the_rfc() -> None:
    server = rfc_server()
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.authenticated is None
    last = server.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.authenticated == Authenticated(name="user")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values())
@given(
    name=st.text(st.characters(min_codepoint=1, max_codepoint=126), min_size=1), password=st.text(min_size=1)
)
def test_our_client_and_our_server_agree(mechanism: ScramMechanism, name: str, password: str) -> None:
    server = ScramServer(mechanism, credentials((name, password, mechanism, b"salt")), lambda: "x", DECOYS)
    client = ScramClient(mechanism=mechanism.mechanism_name, username=name, password=password, nonce="n")
    challenged = client.challenged(server.evaluate(client.first_message()))
    check_server(challenged, server.evaluate(challenged.message))
    assert server.authenticated == Authenticated(name=name)


def test_a_delegation_token_logs_its_owner_in() -> None:
    """KIP-48."""
    password = base64.b64encode(token_hmac(SECRET, "token-1")).decode()
    given_to = {"mechanism": "SCRAM-SHA-256", "username": "token-1", "password": password, "nonce": "n"}
    server = ScramServer(SHA_256, credentials(), lambda: "x", DECOYS)
    client = ScramClient(**given_to, is_token=True)  # type: ignore[arg-type]
    challenged = client.challenged(server.evaluate(client.first_message()))
    check_server(challenged, server.evaluate(challenged.message))
    assert server.authenticated == Authenticated(name="alice", token_authenticated=True, expires_at_ms=5_000)
    without_secret = ImageCredentials(MetadataImage(), None)
    for found, is_token, reason in (
        (credentials(), False, "no such user"),
        (without_secret, True, "no such token"),
    ):
        server = ScramServer(SHA_256, found, lambda: "x", DECOYS)
        client = ScramClient(**given_to, is_token=is_token)  # type: ignore[arg-type]
        challenged = client.challenged(server.evaluate(client.first_message()))
        with pytest.raises(SaslRefusalError, match=reason) as refused:
            server.evaluate(challenged.message)
        assert refused.value.shown is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (b"y,,n=user,r=n", "malformed"),
        (b"p=tls-unique,,n=user,r=n", "malformed"),
        (b"n,,n=us=er,r=n", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,a=other,n=user,r=n", "authorization id that is different"),
    ],
)
def test_first_messages_that_are_refused(message: bytes, reason: str) -> None:
    """A typed refusal that shows strangers nothing of users."""
    with pytest.raises(SaslRefusalError, match=reason) as refused:
        rfc_server().evaluate(message)
    assert refused.value.shown is None or "different from username" in refused.value.shown


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=nother,p=AAAA",
        b"c=biws,r=n%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=biws,r=n%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + base64.b64encode(bytes(32)),
        b"c=biws,r=n%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + base64.b64encode(bytes(64)),
    ],
)
def test_final_messages_that_are_refused(final: bytes) -> None:
    server = rfc_server()
    server.evaluate(b"n,,n=user,r=n")
    with pytest.raises(SaslRefusalError):
        server.evaluate(final)
    assert server.authenticated is None


def test_a_wrong_password_is_refused() -> None:
    server = rfc_server()
    client = ScramClient(mechanism="SCRAM-SHA-256", username="user", password="pen", nonce="n")
    challenged = client.challenged(server.evaluate(client.first_message()))
    with pytest.raises(SaslRefusalError, match="the password is wrong"):
        server.evaluate(challenged.message)


@given(st.binary(max_size=60), st.binary(max_size=80))
def test_hostile_messages_are_refused(first: bytes, second: bytes) -> None:
    for server, message in (
        (PlainServer(Passwords({"alice": "a"}, b"key")), first),
        (rfc_server(), first),
        (rfc_server(), b"n,,n=user,r=" + first),
    ):
        try:
            server.evaluate(message)
            server.evaluate(second)
        except SaslRefusalError:
            assert server.authenticated is None


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0Secret", INVALID),
        (b"\0bob\0secret", INVALID),
        (b"\0bob\0bob", INVALID),
        (b"\0empty\0aba", INVALID),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_refuses_as_kafka_does(message: bytes, shown: str) -> None:
    server = PlainServer(Passwords({"alice": "secret", "empty": ""}, b"key"))
    with pytest.raises(SaslRefusalError) as refused:
        server.evaluate(message)
    assert refused.value.shown == shown
    assert server.authenticated is None


def kafka_salt(number: int) -> bytes:
    """As ScramFormatter.secureRandomBytes."""
    return salt_of(Random(number).getrandbits(SALT_BITS))


def ask(
    name: str, mechanism: ScramMechanism, found: ImageCredentials, decoys: Decoys
) -> tuple[bytes, int, str]:
    """What a stranger sees who logs in with a wrong password: salt, iterations, and the response to its proof."""
    server = ScramServer(mechanism, found, lambda: "x", decoys)
    client = ScramClient(mechanism=mechanism.mechanism_name, username=name, password="guess", nonce="n")
    first = server.evaluate(client.first_message())
    _, salt, iterations = first.decode().split(",")
    with pytest.raises(SaslRefusalError) as refused:
        server.evaluate(client.challenged(first).message)
    assert refused.value.is_guess
    assert server.authenticated is None
    return base64.b64decode(salt[2:]), int(iterations[2:]), str(refused.value.shown)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values())
def test_scram_does_not_reveal_who_is_a_user(mechanism: ScramMechanism) -> None:
    users = [(f"user-{number}", "x", mechanism, kafka_salt(number)) for number in range(40)]
    other_mechanism = next(candidate for candidate in SCRAM_MECHANISMS.values() if candidate is not mechanism)
    found, of_nobody = credentials(*users), credentials()
    decoys, of_another = (Decoys(decoy_secret("shared by all", "cluster")) for _ in range(2))
    alphabet = set(b"0123456789abcdefghijklmnopqrstuvwxyz")
    for prefix in ("user", "nobody"):
        responses = [ask(f"{prefix}-{number}", mechanism, found, decoys) for number in range(40)]
        assert {response[1:] for response in responses} == {(4096, "None")}
        assert {len(salt) for salt, *_ in responses} <= {24, 25, 26}
        assert all(set(salt) <= alphabet for salt, *_ in responses)
        assert len({salt for salt, *_ in responses}) == 40
        assert responses == [ask(f"{prefix}-{number}", mechanism, found, of_another) for number in range(40)]
    salt, *_ = ask("nobody-1", mechanism, found, decoys)
    assert ask("nobody-1", other_mechanism, of_nobody, decoys)[0] != salt, "no user has one salt for both"
    assert ask("nobody-1", mechanism, found, Decoys(decoy_secret("shared by all", "other")))[0] != salt


def calls_of(act: Callable[[], object]) -> int:
    """How many functions an action calls, those of C included, but not those that a garbage collection calls."""
    counted = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        counted[0] += event in ("call", "c_call")

    gc.disable()  # hypothesis has callbacks for collections
    sys.setprofile(count)
    try:
        with suppress(SaslRefusalError):
            act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_MECHANISMS])
def test_a_refusal_takes_as_much_work_for_nobody_as_for_a_user(mechanism: str) -> None:
    if mechanism == "PLAIN":
        passwords = Passwords({"alice": "secret"}, b"key")
        work = [
            [calls_of(partial(PlainServer(passwords).evaluate, f"\0{name}\0guess".encode()))]
            for name in ("alice", "nobod")
        ]
        assert work[0] == work[1]
        return
    kind = SCRAM_MECHANISMS[mechanism]
    found = credentials(("alice", "secret", kind, kafka_salt(1)))
    work = []
    for name in ("alice", "nobod"):
        server = ScramServer(kind, found, lambda: "x", DECOYS)
        client = ScramClient(mechanism=mechanism, username=name, password="guess", nonce="n")
        first = ScramServer(kind, found, lambda: "x", DECOYS).evaluate(client.first_message())
        last = client.challenged(first).message
        work.append(
            [calls_of(partial(server.evaluate, message)) for message in (client.first_message(), last)]
        )
    (first, last), (first_of_nobody, last_of_nobody) = work
    assert abs(first - first_of_nobody) <= 2, "a user has an outcome"
    assert last == last_of_nobody


def test_decoys_have_the_usual_iterations() -> None:
    image = MetadataImage()
    records = [
        credential_record(name, SHA_256, salt=b"s", salted_password=b"x" * 32, iterations=iterations)
        for name, iterations in (("alice", 9000), ("bob", 9000), ("carol", 4096), ("weak", 100))
    ]
    image.replay_all(records, base_offset=0)
    found = ImageCredentials(image, None)
    assert [ask(name, SHA_256, found, DECOYS)[1] for name in ("alice", "nobody", "weak")] == [9000] * 3


def test_nothing_is_looked_at_when_guesses_are_held_back() -> None:
    """Beyond the bound a right password looks like a wrong one."""
    allowed = [True]
    plain = PlainServer(Passwords({"alice": "secret"}, b"key"), lambda _: allowed[0])
    server = ScramServer(
        SHA_256, credentials(("alice", "secret", SHA_256, b"s")), lambda: "x", DECOYS, lambda _: allowed[0]
    )
    client = ScramClient(mechanism="SCRAM-SHA-256", username="alice", password="secret", nonce="n")
    challenged = client.challenged(server.evaluate(client.first_message()))
    allowed[0] = False
    for held, message in (
        (plain, b"\0alice\0secret"),
        (server, challenged.message),
        (ScramServer(SHA_256, credentials(), lambda: "x", DECOYS, lambda _: False), client.first_message()),
    ):
        with pytest.raises(LoginHeldBackError):
            held.evaluate(message)
        assert held.authenticated is None


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret", "\0zoë\0pässword".encode()])
def test_plain_lets_users_in(message: bytes) -> None:
    server = PlainServer(Passwords({"alice": "secret", "zoë": "pässword"}, b"key"))
    assert server.evaluate(message) == b""
    assert server.authenticated == Authenticated(name=message.decode().split("\0")[1])


def test_token_hmacs_are_kafkas() -> None:
    assert token_hmac("s", "id") == hmac.digest(b"s", b"id", "sha512")


def final_message(server_first: str, nonce: str) -> bytes:
    """The final message of a client with the right password: this nonce, and the proof that belongs to it."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    without_proof = f"c=biws,r={nonce}"
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"n=user,r=client,{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("nonce", "is_accepted"),
    [("clientserver", True), ("client", False), ("clientother", False), ("clientservermore", False)],
)
def test_the_final_message_has_the_nonce_of_both(nonce: str, is_accepted: bool) -> None:
    """RFC 5802, section 5.1."""
    known = credentials(("user", "pencil", SHA_256, b"salt"))
    server = ScramServer(SHA_256, known, lambda: "server", DECOYS)
    message = final_message(server.evaluate(b"n,,n=user,r=client").decode(), nonce)
    if is_accepted:
        server.evaluate(message)
        assert server.authenticated is not None
    else:
        with pytest.raises(SaslRefusalError, match="final message is malformed"):
            server.evaluate(message)
        assert server.authenticated is None
