"""Tokens of OAUTHBEARER on the client's side: from an endpoint and from files, and how they are replaced."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from kit.issuer import Issuer
from kit.token_endpoint import TokenEndpoint
from kit.waiting import turn_until, until
from quorate_protocol.security import fetching, tokens
from quorate_protocol.security.oauth import (
    OAuthLogin,
    RefreshTimes,
    Token,
    TokenError,
    refresh_at_s,
    token_of,
    token_of_response,
    token_request,
)
from quorate_protocol.security.tokens import TokenKeeper, fetch_token, read_token

CLIENTS = {"alice": "s€cret"}


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    """An endpoint that runs."""
    started = await TokenEndpoint(Issuer.with_keys("ES256"), CLIENTS).start()
    yield started
    await started.stop()


def login(endpoint: TokenEndpoint, **changes: object) -> OAuthLogin:
    """The login of alice."""
    settings = {"client_id": "alice", "client_secret": CLIENTS["alice"], "scope": "a b", **changes}
    return OAuthLogin(url=f"{endpoint.url}/token", **settings)  # type: ignore[arg-type]


async def test_credentials_are_exchanged_for_a_token(endpoint: TokenEndpoint) -> None:
    """RFC 6749's grant as Kafka asks for it."""
    token = await fetch_token(login(endpoint))
    assert token.issued_at_s is not None
    assert token.expires_at_s - token.issued_at_s == 610
    fields = {"path": "/token", "user": "alice", "grant_type": "client_credentials", "scope": "a b"}
    assert endpoint.requests == [fields]
    assert token.value not in repr(token)


def test_the_header_is_encoded_if_that_is_configured() -> None:
    plain = OAuthLogin(url="http://x", client_id="a", client_secret="b: c")
    encoded = OAuthLogin(url="http://x", client_id="a", client_secret="b: c", is_header_encoded=True)
    assert token_request(plain)[0]["Authorization"] == "Basic YTpiOiBj"
    assert token_request(encoded)[0]["Authorization"] == "Basic YTpiJTNBK2M="


async def test_a_refusal_is_final_and_tells_why(endpoint: TokenEndpoint) -> None:
    with pytest.raises(TokenError, match=r"status 401: invalid_client - who\?") as refused:
        await fetch_token(login(endpoint, client_secret="wr0ng"))
    assert refused.value.is_final
    assert "wr0ng" not in str(refused.value)
    assert len(endpoint.requests) == 1


async def test_what_may_pass_is_tried_again_for_a_while(endpoint: TokenEndpoint) -> None:
    endpoint.status = 503
    asked = asyncio.create_task(fetch_token(login(endpoint, retry_backoff_ms=1)))
    await turn_until(lambda: len(endpoint.requests) >= 2)
    endpoint.status = 200
    assert await asked
    endpoint.status = 503
    for nobody in (False, True):
        if nobody:
            await endpoint.stop()
        with pytest.raises(TokenError) as refused:
            await fetch_token(login(endpoint, retry_backoff_ms=1, retry_backoff_max_ms=20))
        assert not refused.value.is_final


async def test_a_response_is_read_up_to_a_size(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "RESPONSE_SIZE_BYTES_MAX", 100)
    with pytest.raises(TokenError, match="more than 100 bytes"):
        await fetch_token(login(endpoint))


async def test_a_redirection_does_not_get_the_secret(endpoint: TokenEndpoint) -> None:
    application = web.Application()

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{endpoint.url}/token")

    application.add_routes([web.post("/token", redirect)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    with pytest.raises(TokenError, match="status 307"):
        await fetch_token(
            OAuthLogin(url=url, client_id="alice", client_secret=CLIENTS["alice"], retry_backoff_max_ms=0)
        )
    await runner.cleanup()
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "no access_token"),
        (b"[]", "no access_token"),
        (b"\xff", "no access_token"),
        (b"[" * 100_000, "no access_token"),
        (b'{"access_token": ""}', "no access_token"),
        (b'{"access_token": "a.b"}', "three sections"),
        (b'{"access_token": "a.b.c"}', "its claims can't be read"),
        (b'{"access_token": "e30.e30.e30"}', "its claim exp is missing"),
    ],
)
def test_a_response_without_a_token_is_told(body: bytes, said: str) -> None:
    with pytest.raises(TokenError, match=said):
        token_of_response(200, body)


@pytest.mark.parametrize(
    ("issued", "expires", "chance", "expected"),
    [
        (1000.0, 4600.0, 0.0, 3880.0),  # 80 % of an hour
        (1000.0, 4600.0, 1.0, 4060.0),  # 85 %
        (1000.0, 2000.0, 0.0, 1700.0),  # not in the last 300 s
        (1000.0, 1400.0, 0.0, 1100.0),  # 300 s before the end
        (1000.0, 1361.0, 0.0, 1061.0),  # not within 60 s
        (1000.0, 1100.0, 0.0, 1080.0),  # too short for both bounds
        (None, 1100.0, 0.5, 1082.5),
        (0.0, 1010.0, 0.0, 1000.0),  # late already: at once
    ],
)
def test_tokens_are_replaced_in_time(
    issued: float | None, expires: float, chance: float, expected: float
) -> None:
    """KIP-255's sasl.login.refresh.*."""
    token = Token(value="x", issued_at_s=issued, expires_at_s=expires)
    assert refresh_at_s(token, 1000.0, RefreshTimes(), chance) == pytest.approx(expected)


async def test_a_keeper_asks_again_when_it_is_time_and_keeps_what_is_valid(endpoint: TokenEndpoint) -> None:
    """One token for all connections, and a failing endpoint does no harm until it ends."""
    now_s = [float(endpoint.issuer.claims()["iat"])]
    keeper = TokenKeeper(login(endpoint, retry_backoff_ms=1, retry_backoff_max_ms=5), now_s=lambda: now_s[0])
    with pytest.raises(TokenError, match="not asked for yet"):
        keeper.current()
    first = await keeper.fresh()
    assert await keeper.fresh() is first
    assert len(endpoint.requests) == 1
    now_s[0] += 590
    second = await keeper.fresh()
    assert second is not first
    endpoint.status = 503
    now_s[0] = second.expires_at_s - 1
    assert await keeper.fresh() is second
    asked = len(endpoint.requests)
    assert await keeper.fresh() is second
    assert len(endpoint.requests) == asked
    now_s[0] = second.expires_at_s
    with pytest.raises(TokenError, match="has expired; the endpoint responds with status 503"):
        await keeper.fresh()


def has(keeper: TokenKeeper, value: str) -> bool:
    """Whether it has a token."""
    try:
        return keeper.current().value == value
    except TokenError:
        return False


async def test_a_keeper_follows_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokens, "FILE_INTERVAL_S", 0.001)
    issuer, file = Issuer.with_keys("ES256"), tmp_path / "token"
    keeper = TokenKeeper(OAuthLogin(file=str(file), retry_backoff_ms=1))
    following = asyncio.create_task(keeper.follow())
    values = [issuer.token(sub=name) for name in ("alice", "bob")]
    await until(lambda: caplog.records, "the failure is logged")
    for value in values:
        renewed = tmp_path / "renewed"
        renewed.write_text(f"{value}\n")
        renewed.replace(file)  # atomically, so that no half of it is read
        await until(lambda value=value: has(keeper, value), "the token is read")
    following.cancel()
    assert [record.message for record in caplog.records].count("token_refresh_failed") == 1


def test_a_file_has_one_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    value = Issuer.with_keys("ES256").token()
    file.write_text(f" {value}\n")
    assert read_token(str(file)) == token_of(value)
    file.write_text("x" * (tokens.TOKEN_SIZE_BYTES_MAX + 1))
    with pytest.raises(TokenError, match="it has more than"):
        read_token(str(file))
    with pytest.raises(TokenError, match="No such file"):
        read_token(str(tmp_path / "absent"))
    file.write_text(json.dumps({"access_token": value}))
    with pytest.raises(TokenError, match="three sections"):
        read_token(str(file))
