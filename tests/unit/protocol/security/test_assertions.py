"""Assertions of OAUTHBEARER: their settings, what is in them, and how a token is asked for with them (KIP-1139)."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from kit.issuer import Issuer, new_key
from kit.token_endpoint import TokenEndpoint
from quorate_protocol.security.assertions import (
    ALLOWED_FILES,
    AssertionNotMadeError,
    AssertionSettings,
    Template,
    assertion_parts,
    parse_assertion,
    parse_template,
    sign_assertion,
)
from quorate_protocol.security.oauth import OAuthLogin, TokenError, parse_oauth_login, token_request
from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tokens import fetch_token, read_or_make_assertion

PREFIX = "sasl.oauthbearer.assertion"
PASSPHRASE = "open sesame"
ALLOWED = {ALLOWED_FILES: "/run/key.pem, /run/template.json,/run/made"}
KEY_FILE = {f"{PREFIX}.private.key.file": "/run/key.pem", **ALLOWED}
RETRIEVER = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"


def pem(key: Any, passphrase: str | None = None) -> bytes:
    """A private key as PKCS #8 in PEM."""
    encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return found


def test_settings_have_kafkas_names_and_defaults() -> None:
    assert parse_assertion(KEY_FILE, {}) == AssertionSettings(private_key_file="/run/key.pem")
    everything = {
        **KEY_FILE,
        f"oauthbearer.{PREFIX}.private.key.passphrase": PASSPHRASE,
        f"{PREFIX}.algorithm": "es256",
        f"{PREFIX}.template.file": "/run/template.json",
        f"{PREFIX}.claim.aud": "issuer",
        f"{PREFIX}.claim.iss": "client",
        f"{PREFIX}.claim.sub": "alice",
        f"{PREFIX}.claim.exp.seconds": "60",
        f"{PREFIX}.claim.nbf.seconds": "0",
        f"{PREFIX}.claim.jti.include": "TRUE",
    }
    settings = parse_assertion(everything, {})
    assert settings == AssertionSettings(
        private_key_file="/run/key.pem",
        passphrase=PASSPHRASE,
        algorithm="ES256",
        template_file="/run/template.json",
        claims={"aud": "issuer", "iss": "client", "sub": "alice"},
        exp_s=60,
        nbf_s=0,
        has_jti=True,
    )
    assert PASSPHRASE not in repr(settings)
    assert parse_assertion({**everything, f"{PREFIX}.file": "/run/made"}, {}) == AssertionSettings(
        file="/run/made"
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({f"{PREFIX}.private.key.file": ""}, f"{PREFIX}.private.key.file is missing: give the key"),
        ({f"{PREFIX}.algorithm": "HS256"}, f"{PREFIX}.algorithm=HS256: allowed are RS256, ES256"),
        ({f"{PREFIX}.claim.jti.include": "yes"}, "jti.include=yes: allowed are true and false"),
        ({f"{PREFIX}.claim.exp.seconds": "86401"}, "exp.seconds=86401: must be a number from 0 to 86400"),
        ({f"{PREFIX}.claim.nbf.seconds": "-1"}, "nbf.seconds=-1: must be a number from 0 to 3600"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(SecurityConfigError, match=problem):
        parse_assertion({**KEY_FILE, **changes}, {})


@pytest.mark.parametrize("name", ["file", "private.key.file", "template.file"])
def test_files_have_to_be_allowed(name: str) -> None:
    key = f"{PREFIX}.{name}"
    properties = {**KEY_FILE, key: "/etc/shadow"}
    with pytest.raises(SecurityConfigError, match=f"{key}=/etc/shadow: the file is not allowed; add it to"):
        parse_assertion(properties, {})
    parse_assertion(properties, {"KAFKA_OPTS": f"-Xmx1g -D{ALLOWED_FILES}=/etc/shadow"})


def test_the_retriever_chooses_assertions() -> None:
    url = "https://issuer.test/token"
    properties = {
        **KEY_FILE,
        "sasl.oauthbearer.jwt.retriever.class": RETRIEVER,
        "sasl.oauthbearer.token.endpoint.url": url,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"{url},file:/run/token",
    }
    login = parse_oauth_login({**properties, "sasl.oauthbearer.scope": "a b"}, {}, {})
    assert (login.url, login.scope, login.client_secret) == (url, "a b", "")
    assert login.assertion == AssertionSettings(private_key_file="/run/key.pem")
    assert login.assertion_is_grant
    with pytest.raises(SecurityConfigError, match="needs an https: or http: URL"):
        parse_oauth_login({**properties, "sasl.oauthbearer.token.endpoint.url": "file:/run/token"}, {}, {})


def test_an_assertion_replaces_the_secret_of_client_credentials() -> None:
    url = "https://issuer.test/token"
    properties = {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "quorate",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": url,
    }
    named = {f"{PREFIX}.claim.iss": "quorate", **KEY_FILE}
    for settings in ({f"{PREFIX}.file": "/run/made", **ALLOWED}, named):
        login = parse_oauth_login({**properties, **settings}, {"scope": "a b"}, {})
        assert login.assertion is not None
        assert (login.client_id, login.scope, login.assertion_is_grant) == ("quorate", "a b", False)
        headers, body = token_request(login, "x.y.z")
        assert "Authorization" not in headers
        assert parse_qs(body) == {
            "grant_type": ["client_credentials"],
            "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
            "client_assertion": ["x.y.z"],
            "client_id": ["quorate"],
            "scope": ["a b"],
        }
    with pytest.raises(SecurityConfigError, match=r"client\.secret is missing"):
        parse_oauth_login({**properties, **KEY_FILE}, {}, {})


def test_later_layers_win() -> None:
    """The properties below the template, both below what depends on the time, as in Kafka."""
    template = Template(header={"kid": "k1", "alg": "none"}, payload={"sub": "t", "iat": 1, "extra": [1, 2]})
    settings = AssertionSettings(private_key_file="k", claims={"sub": "p", "aud": "p"}, exp_s=300, nbf_s=60)
    header, claims = assertion_parts(settings, template, 1000.9, "id-1")
    assert header == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    assert claims == {"sub": "t", "aud": "p", "extra": [1, 2], "iat": 1000, "exp": 1300, "nbf": 940}
    with_jti = AssertionSettings(private_key_file="k", has_jti=True)
    assert assertion_parts(with_jti, Template(), 0, "id-1")[1]["jti"] == "id-1"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "no JSON"), (b"[" * 100_000, "no JSON"), (b"[]", "an object"), (b'{"header": 1}', "an object")],
)
def test_a_template_that_is_none_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(AssertionNotMadeError, match=problem):
        parse_template(content)
    assert parse_template(b"{}") == Template()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("form", ["PEM", "encrypted PEM", "base64"])
def test_keys_are_read_in_each_form(algorithm: str, form: str) -> None:
    """PEM as the documentation says, and the bare base64 that Kafka reads."""
    key = new_key(algorithm, "assertions")
    passphrase = PASSPHRASE if form == "encrypted PEM" else None
    content = pem(key, passphrase)
    if form == "base64":
        der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        content = base64.b64encode(der)
    signed = sign_assertion({"kid": "k1", "alg": algorithm}, {"sub": "alice"}, content, passphrase, algorithm)
    assert jwt.decode(signed, key.public_key(), [algorithm]) == {"sub": "alice"}
    assert jwt.get_unverified_header(signed) == {"kid": "k1", "alg": algorithm, "typ": "JWT"}


@pytest.mark.parametrize(
    ("content", "passphrase", "problem"),
    [
        (b"no key", None, "no private key that can be read"),
        (b"-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----\n", None, "no private key"),
        (pem(new_key("RS256", "assertions"), PASSPHRASE), "wr0ng", "no private key"),
        (pem(new_key("RS256", "assertions"), PASSPHRASE), None, "no private key"),
        (pem(new_key("ES256")), None, "RS256: "),
    ],
)
def test_keys_that_do_not_fit_are_told(content: bytes, passphrase: str | None, problem: str) -> None:
    with pytest.raises(AssertionNotMadeError, match=problem) as refused:
        sign_assertion({}, {"sub": "alice"}, content, passphrase, "RS256")
    assert "wr0ng" not in str(refused.value)


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    """An endpoint that runs and has no client with a secret."""
    started = await TokenEndpoint(Issuer.with_keys("ES256"), {}).start()
    yield started
    await started.stop()


@pytest.mark.parametrize(("is_grant", "sent"), [(True, "assertion"), (False, "client_assertion")])
async def test_an_assertion_is_exchanged_for_a_token(
    endpoint: TokenEndpoint, tmp_path: Path, is_grant: bool, sent: str
) -> None:
    """RFC 7523's requests as Kafka sends them, and a key that is replaced."""
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "k1"}, "payload": {"aud": endpoint.url}}))
    settings = AssertionSettings(
        private_key_file=str(key_file),
        template_file=str(template),
        claims={"iss": "quorate", "sub": "alice"},
        has_jti=True,
    )
    url = f"{endpoint.url}/token"
    login = OAuthLogin(url=url, scope="a b", assertion=settings, assertion_is_grant=is_grant)
    for name in ("first", "second"):
        key = new_key("RS256", name)
        key_file.write_bytes(pem(key))
        with pytest.raises(TokenError, match="invalid_grant"):
            await fetch_token(login)
        endpoint.assertion_keys["quorate"] = key.public_key()
        token = await fetch_token(login)
        assert jwt.decode(token.value, options={"verify_signature": False})["sub"] == "alice"
    asked = endpoint.requests[-1]
    assert (asked["user"], asked["scope"]) == ("", "a b")
    assert jwt.get_unverified_header(asked[sent])["kid"] == "k1"
    assert len({request[sent] for request in endpoint.requests}) == len(endpoint.requests)

    made = tmp_path / "made"
    made.write_text(f"{read_or_make_assertion(settings)}\n")
    from_file = OAuthLogin(url=url, assertion=AssertionSettings(file=str(made)), assertion_is_grant=is_grant)
    assert (await fetch_token(from_file)).expires_at_s > 0
    assert "scope" not in endpoint.requests[-1]


@pytest.mark.parametrize("part", ["file", "private_key_file", "template_file"])
async def test_a_missing_file_is_named(part: str, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(pem(new_key("RS256", "assertions")))
    files = {"private_key_file": str(key), part: str(tmp_path / "absent")}
    settings = AssertionSettings(**files)  # type: ignore[arg-type]
    with pytest.raises(TokenError, match=rf"{PREFIX}.*absent: No such file") as refused:
        await fetch_token(OAuthLogin(url="http://127.0.0.1:1/token", assertion=settings))
    assert refused.value.is_final
