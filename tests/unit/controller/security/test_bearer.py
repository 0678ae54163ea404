"""The server's side of OAUTHBEARER, message by message. What tokens say is another test's matter."""

import pytest
from quorate_controller.security.bearer import BearerServer, BearerToken, InvalidTokenError
from quorate_controller.security.sasl import Authenticated, SaslRefusalError
from quorate_protocol.security.dialogues import BearerDialogue


def validate(token: str) -> BearerToken:
    """One token is valid."""
    if token != "a.b.c":
        raise InvalidTokenError("it is none of ours")
    return BearerToken(name="alice", expires_at_ms=7_000, scopes=frozenset({"x"}))


def test_a_valid_token_is_all_that_is_needed() -> None:
    for message in (
        BearerDialogue("a.b.c", {"cluster": "blue", "traceId": "1 2"}).first(),
        b"n,a=alice,\x01auth=bearer   a.b.c\x01\x01",
        b"n,,\x01x=1\x01auth=Bearer a.b.c\x01\x01",
    ):
        server = BearerServer(validate)
        assert server.authenticated is None
        assert server.evaluate(message) == b""
        assert server.authenticated == Authenticated(name="alice", expires_at_ms=7_000)


def test_an_invalid_token_is_answered_and_then_refused() -> None:
    """RFC 7628's JSON first, and Kafka's message after it."""
    server = BearerServer(validate)
    response = server.evaluate(BearerDialogue("x.y.z").first())
    assert response == b'{"status":"invalid_token"}'
    assert BearerDialogue("x.y.z").next(response) == b"\x01"
    with pytest.raises(SaslRefusalError, match="it is none of ours") as refused:
        server.evaluate(b"\x01")
    assert refused.value.shown == '{"status":"invalid_token"}'
    with pytest.raises(SaslRefusalError, match="malformed"):
        server.evaluate(b"\x01")
    assert server.authenticated is None
    server.evaluate(BearerDialogue("x.y.z").first())
    assert server.evaluate(BearerDialogue("a.b.c").first()) == b""
    assert server.authenticated is not None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "malformed"),
        (b"\x01", "malformed"),
        (b"n,,\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a.b.c\x01", "malformed"),
        (b"y,,\x01auth=Bearer a.b.c\x01\x01", "malformed"),
        (b"n,,\x01auth=Basic a.b.c\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer \x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer a.b.c\x01k1=v\x01\x01", "malformed"),
        (b"n,,\x01auth=Bearer a.b.c\x01k=\x01\x01", "malformed"),
        (b"n,,\x01auth=Bearer a.b.c\x01k=\xff\x01\x01", "malformed"),
        (b"n,a=a=b,\x01auth=Bearer a.b.c\x01\x01", "malformed"),
        (b"\0alice\0secret", "malformed"),
    ],
)
def test_other_messages_are_refused(message: bytes, said: str) -> None:
    """What Kafka's server takes for malformed is."""
    with pytest.raises(SaslRefusalError, match=said) as refused:
        BearerServer(validate).evaluate(message)
    assert refused.value.shown is None


def test_the_authorization_id_has_to_be_the_principal() -> None:
    with pytest.raises(SaslRefusalError) as refused:
        BearerServer(validate).evaluate(b"n,a=bob,\x01auth=Bearer a.b.c\x01\x01")
    assert refused.value.shown == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )
