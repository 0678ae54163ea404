"""SASL dialogues: SCRAM by the RFC's own examples, the others by their messages, and all over a connection."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import AuthenticationError, ConfigError
from quorate_admin.security.config import Mechanism, SaslConfig, SecurityConfig
from quorate_admin.security.sasl import dialogue_for, unsecured_token
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.security.oauth import OAuthLogin
from quorate_protocol.security.scram import ScramClient, ScramError, check_server
from quorate_protocol.security.tokens import TokenKeeper
from quorate_protocol.wire.server import Request

# RFC 7677's example of SCRAM-SHA-256.
RFC_CLIENT = ScramClient(
    mechanism="SCRAM-SHA-256", username="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO"
)
RFC_SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_CLIENT_LAST = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_is_as_in_the_rfc() -> None:
    assert RFC_CLIENT.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenged = RFC_CLIENT.challenged(RFC_SERVER_FIRST)
    assert challenged.message == RFC_CLIENT_LAST
    check_server(challenged, RFC_SERVER_LAST)


def test_names_are_escaped_and_tokens_are_marked() -> None:
    """KIP-48's extension, and names with signs that mean something."""
    client = replace(RFC_CLIENT, username="a=b,c", nonce="n", is_token=True)
    assert client.first_message() == b"n,,n=a=3Db=2Cc,r=n,tokenauth=true"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "malformed"),
        (b"\xff", "not UTF-8"),
        (b"r=other,s=W22Z,i=4096", "does not begin with ours"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "does not begin with ours"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1", "1 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999", "99999999 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W=2Z,i=4096", "not base64"),
    ],
)
def test_a_servers_wrong_challenge_is_refused(message: bytes, said: str) -> None:
    with pytest.raises(ScramError, match=said):
        RFC_CLIENT.challenged(message)


@pytest.mark.parametrize("message", [b"", b"e=other-error", b"v=AAAA", RFC_SERVER_LAST[:-3] + b"A=="])
def test_a_server_that_does_not_know_the_password_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        check_server(RFC_CLIENT.challenged(RFC_SERVER_FIRST), message)


async def test_plain_is_as_in_the_rfc() -> None:
    dialogue = await dialogue_for(SaslConfig(mechanism=Mechanism.PLAIN, username="ü", password="p"))
    assert dialogue.first() == b"\0\xc3\xbc\0p"
    assert dialogue.next(b"") is None


async def test_bearer_tokens_come_fresh_from_their_file(tmp_path: Path) -> None:
    """A renewed file is read at the next connection."""
    file = tmp_path / "token"
    login = OAuthLogin(file=str(file), extensions={"cluster": "blue"})

    def config() -> SaslConfig:
        return SaslConfig(mechanism=Mechanism.OAUTHBEARER, tokens=TokenKeeper(login))

    used = config()
    for name in ("alice", "bob"):
        token = unsecured_token({"unsecuredLoginStringClaim_sub": name}, time.time())
        file.write_text(token + "\n")
        expected = f"n,,\x01auth=Bearer {token}\x01cluster=blue\x01\x01".encode()
        assert (await dialogue_for(used)).first() == expected
    for content in (b"", b"two words", b"\xff", b"a.b.c"):
        file.write_bytes(content)
        assert (await dialogue_for(used)).first() == expected, "the former token is valid still"
        with pytest.raises(AuthenticationError, match=r"file:.*token: (it is not|its claims)"):
            await dialogue_for(config())
    file.unlink()
    with pytest.raises(AuthenticationError, match=r"file:.*token: No such file"):
        await dialogue_for(config())


async def test_an_error_of_oauth_is_acknowledged() -> None:
    config = SaslConfig(mechanism=Mechanism.OAUTHBEARER, claims={"unsecuredLoginStringClaim_sub": "u"})
    dialogue = await dialogue_for(config)
    assert dialogue.next(b'{"status":"invalid_token"}') == b"\x01"
    assert dialogue.next(b"") is None


def test_unsecured_tokens_have_the_claims_that_were_asked_for() -> None:
    """KIP-255's options."""
    claims = {
        "unsecuredLoginStringClaim_sub": "u",
        "unsecuredLoginListClaim_scope": ",a,b",
        "unsecuredLoginNumberClaim_level": "7",
    }
    header, body, signature = unsecured_token(claims, 1000.5).split(".")
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, body)]
    assert decoded[0] == {"alg": "none"}
    assert decoded[1] == {"iat": 1000, "exp": 4600, "sub": "u", "scope": ["a", "b"], "level": 7.0}
    assert signature == ""
    with pytest.raises(ConfigError, match="allowed is a number"):
        unsecured_token({"unsecuredLoginNumberClaim_x": "y"}, 0)


# Over a connection


class ScramServer:
    """Answers SASL requests as a broker that knows one user."""

    def __init__(self, *, lifetime_ms: int = 0, password: str = "pencil") -> None:
        self.lifetime_ms = lifetime_ms
        self.sessions = 0
        self._password = password
        self._signed = ""

    def handshake(self, request: Request) -> Any:
        """The mechanism, if it is ours."""
        known = request.body.mechanism == "SCRAM-SHA-256"
        code = ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism
        return response_to("SaslHandshake", error_code=code, mechanisms=("SCRAM-SHA-256",))

    def authenticate(self, request: Request) -> Any:
        """A challenge, then a verdict."""
        text = request.body.auth_bytes.decode()
        if text.startswith("n,,"):
            bare = text[3:]
            first = f"r={bare.partition('r=')[2]}server,s={base64.b64encode(b'salt').decode()},i=4096"
            self._signed = f"{bare},{first}"
            return response_to("SaslAuthenticate", auth_bytes=first.encode())
        without_proof, _, proof = text.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
            return response_to(
                "SaslAuthenticate",
                error_code=ErrorCode.sasl_authentication_failed,
                error_message="Authentication failed during authentication due to invalid credentials",
            )
        self.sessions += 1
        verdict = base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        )
        return response_to(
            "SaslAuthenticate",
            auth_bytes=b"v=" + verdict,
            session_lifetime=timedelta(milliseconds=self.lifetime_ms),
        )


def secured(server: ScramServer) -> FakeCluster:
    """A cluster that answers SASL with this server."""
    return FakeCluster(handlers={"SaslHandshake": server.handshake, "SaslAuthenticate": server.authenticate})


def login(password: str = "pencil", mechanism: Mechanism = Mechanism.SCRAM_SHA_256) -> SecurityConfig:
    """SASL_PLAINTEXT with this password."""
    sasl = SaslConfig(mechanism=mechanism, username="user", password=password)
    return SecurityConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=sasl)


def session_is_old(admin: AdminClient) -> None:
    """As if most of the session's life were over."""
    for connection in admin._transport._connections.values():
        assert connection._reauthenticate_at_s is not None
        connection._reauthenticate_at_s -= 60


async def test_a_connection_authenticates_before_anything_else() -> None:
    server = ScramServer()
    async with (
        secured(server) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=login()) as admin,
    ):
        await admin.describe_cluster()
        names = [request.api.name for request in cluster.nodes[1].requests]
    assert names[:4] == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    assert server.sessions == 1


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (login("wrong"), "invalid credentials"),
        (login(mechanism=Mechanism.PLAIN), "UNSUPPORTED_SASL_MECHANISM; 127.0.0.1 allows SCRAM-SHA-256"),
    ],
)
async def test_a_refusal_is_reported_at_once(security: SecurityConfig, said: str) -> None:
    async with (
        secured(ScramServer()) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=security) as admin,
    ):
        with pytest.raises(AuthenticationError, match=said):
            await admin.describe_cluster()
        assert cluster.nodes[1].connections == 1


async def test_a_listener_without_sasl_is_reported() -> None:
    async with (
        FakeCluster() as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=login()) as admin,
    ):
        del cluster.nodes[1].apis[17]
        with pytest.raises(AuthenticationError, match="is not a SASL listener"):
            await admin.describe_cluster()


async def test_a_session_that_ends_soon_is_renewed_on_the_same_connection() -> None:
    """KIP-368."""
    server = ScramServer(lifetime_ms=60_000)
    async with (
        secured(server) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=login()) as admin,
    ):
        await admin.describe_cluster()
        session_is_old(admin)
        await asyncio.gather(*(admin.describe_cluster() for _ in range(20)))
        node = cluster.nodes[1]
        assert node.connections == 1
        assert server.sessions == 2
        # Between the two messages of an authentication the server takes nothing else.
        names = [request.api.name for request in node.requests]
        for position, name in enumerate(names):
            if name == "SaslHandshake":
                assert names[position + 1 : position + 3] == ["SaslAuthenticate"] * 2


async def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    server = ScramServer(lifetime_ms=60_000)
    async with (
        secured(server) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=login()) as admin,
    ):
        await admin.describe_cluster()
        session_is_old(admin)
        server._password = "changed"
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            await admin.describe_cluster()
