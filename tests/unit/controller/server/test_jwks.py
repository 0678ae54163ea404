"""The keys of tokens: from an endpoint on loopback and from a file, kept when they can't be read again."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.issuer import AUDIENCE, ISSUER, Issuer, new_key
from kit.java.tls import Certificates
from kit.token_endpoint import TokenEndpoint
from kit.waiting import until
from quorate_controller.config.listener_oauth import ListenerOauth
from quorate_controller.security.bearer import InvalidTokenError, TokenRules
from quorate_controller.server import jwks
from quorate_controller.server.jwks import JwksError, JwksValidator
from quorate_protocol.security.oauth_properties import AllowedUrl
from quorate_protocol.security.stores import Store, StoreType, TlsConfig

RULES = TokenRules(audiences=frozenset({AUDIENCE}), issuer=ISSUER)


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    """An endpoint that runs."""
    started = await TokenEndpoint(Issuer.with_keys("ES256"), {}).start()
    yield started
    await started.stop()


def validator(endpoint: TokenEndpoint, **changes: int) -> JwksValidator:
    """What validates tokens of the endpoint's issuer."""
    settings = {"retry_backoff_ms": 1, **changes}
    return JwksValidator("CONTROLLER", ListenerOauth(rules=RULES, url=f"{endpoint.url}/keys", **settings))


def is_valid(found: JwksValidator, token: str) -> bool:
    """Whether a token is."""
    try:
        return bool(found.validate(token))
    except InvalidTokenError:
        return False


async def test_new_keys_are_asked_for_when_a_token_names_one(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotated key works at the client's next attempt, and strangers can't have the endpoint asked all the
    time.
    """
    monkeypatch.setattr(jwks, "REFRESH_INTERVAL_S_MIN", 0.01)
    found = validator(endpoint)
    following = asyncio.create_task(found.follow())
    old = endpoint.issuer.token()
    await until(lambda: is_valid(found, old), "the keys are read")
    assert found.validate(old).name == "alice"
    asked = len(endpoint.requests)
    endpoint.issuer.keys["new"] = ("ES256", new_key("ES256"))
    new = endpoint.issuer.token("new")
    with pytest.raises(InvalidTokenError, match="no key with the id 'new'"):
        found.validate(new)
    await until(lambda: is_valid(found, new), "the new key is read")
    assert len(endpoint.requests) == asked + 1
    unknown = endpoint.issuer.token(header={"kid": "unknown"})
    for _ in range(20):
        assert not is_valid(found, unknown)
    await until(lambda: len(endpoint.requests) == asked + 2, "another request")
    assert not found._is_refresh_due.is_set()
    for _ in range(100):
        assert not is_valid(found, unknown)
    assert not found._is_refresh_due.is_set(), "it was asked for this key a short while ago"
    monkeypatch.setattr(jwks, "REFRESH_INTERVAL_S_MIN", 3600.0)
    for number in range(5 * jwks.UNKNOWN_KEYS_MAX):
        assert not is_valid(found, endpoint.issuer.token(header={"kid": f"other-{number}"}))
        # The endpoint is served by this loop: in this many passes it would be asked.
        await asyncio.sleep(0)
    assert len(endpoint.requests) == asked + 2, "an hour has not passed since the last request"
    assert len(found._unknown) <= jwks.UNKNOWN_KEYS_MAX
    following.cancel()


async def test_keys_stay_in_use_when_they_cant_be_read(
    endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    found = validator(endpoint, refresh_ms=1)
    await found.refresh()
    token = endpoint.issuer.token()
    assert is_valid(found, token)
    endpoint.status = 500
    with pytest.raises(JwksError, match=r"/keys: the endpoint responds with status 500"):
        await found.refresh()
    assert is_valid(found, token)
    following = asyncio.create_task(found.follow())
    found._is_refresh_due.set()
    await until(lambda: "jwks_refresh_failed" in caplog.text, "the failure is logged")
    endpoint.issuer.keys = {"new": ("ES256", new_key("ES256"))}
    endpoint.status = 200
    await until(lambda: is_valid(found, endpoint.issuer.token()), "the new key is read")
    assert not is_valid(found, token)
    following.cancel()
    await endpoint.stop()
    with pytest.raises(JwksError):
        await found.refresh()


async def test_keys_come_from_the_allowed_endpoint_alone(tmp_path: Path) -> None:
    """An attacker between the controller and the issuer can't choose the keys."""
    certificates = Certificates.create(tmp_path / "tls")
    attacker = await TokenEndpoint(Issuer.with_keys("ES256"), {}).start()
    issuer = await TokenEndpoint(
        Issuer.with_keys("ES256"), {}, certificate=certificates.server, redirects_to=attacker.url
    ).start()
    trust = Store(prefix="ssl.truststore", type=StoreType.PEM, location=str(certificates.authority))
    config = ListenerOauth(rules=RULES, url=AllowedUrl(f"{issuer.url}/keys"), tls=TlsConfig(truststore=trust))
    found = JwksValidator("CONTROLLER", config)
    try:
        with pytest.raises(JwksError, match="redirects with status 302 to 'http://127"):
            await found.refresh()
        assert not is_valid(found, attacker.issuer.token(sub="super"))
        assert attacker.requests == []
    finally:
        await issuer.stop()
        await attacker.stop()


async def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FILE_INTERVAL_S", 0.001)
    monkeypatch.setattr(jwks, "RESPONSE_SIZE_BYTES_MAX", 10_000)
    file, issuer = tmp_path / "jwks.json", Issuer.with_keys("ES256")
    config = ListenerOauth(rules=RULES, file=str(file), retry_backoff_ms=1, retry_backoff_max_ms=2)
    found = JwksValidator("CONTROLLER", config)
    for content, said in (
        (None, "No such file"),
        ("{", "it is no JSON web key set"),
        ('{"keys": 7}', "it is no JSON web key set"),
        ("x" * 10_001, "it has more than 10000 bytes"),
        (json.dumps({"keys": [{}] * 1001}), "it has 1001 keys"),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(JwksError, match=said):
            await found.refresh()
    following = asyncio.create_task(found.follow())
    for keys in (issuer, Issuer.with_keys("EdDSA"), Issuer({"x": ("ES256", new_key("ES256"))})):
        file.write_text(json.dumps(keys.jwks))
        await until(lambda keys=keys: is_valid(found, keys.token()), "the file is read")
    assert not is_valid(found, issuer.token())
    following.cancel()
