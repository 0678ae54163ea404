"""The tokens of SASL/OAUTHBEARER on the client's side: they are fetched, kept, and replaced before they end."""

import asyncio
import logging
import time
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from quorate_protocol.files import read_bounded
from quorate_protocol.security.assertions import (
    ASSERTION_FILE,
    PRIVATE_KEY_FILE,
    TEMPLATE_FILE,
    AssertionNotMadeError,
    AssertionSettings,
    Template,
    assertion_parts,
    parse_template,
    sign_assertion,
)
from quorate_protocol.security.oauth import (
    OAuthLogin,
    Token,
    TokenError,
    refresh_at_s,
    token_of,
    token_of_response,
    token_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

TOKEN_SIZE_BYTES_MAX: Final = 64 * 1024
FILE_INTERVAL_S: Final = 5.0
"""The interval in seconds at which a file is read again."""


async def fetch_token(login: OAuthLogin) -> Token:
    """Read the token of a file, or ask the endpoint, again for retry.backoff.max.ms after what may pass.

    Raises:
    TokenError: there is no token.
        SecurityConfigError: a trust store can't be used.
    """
    if login.file is not None:
        return await asyncio.to_thread(read_token, login.file)
    ends_at_s = time.monotonic() + login.retry_backoff_max_ms / 1000
    backoff_s = max(login.retry_backoff_ms, 1) / 1000
    while True:
        try:
            return await _ask(login)
        except TokenError as error:
            left_s = ends_at_s - time.monotonic()
            if error.is_final or left_s <= 0:
                raise
            await asyncio.sleep(min(backoff_s, left_s))
            backoff_s *= 2


def read_token(file: str) -> Token:
    """Read the token of a file. Raises TokenError."""
    try:
        content = read_bounded(Path(file), TOKEN_SIZE_BYTES_MAX)
    except OSError as error:
        raise TokenError(error.strerror or str(error)) from None
    except ValueError as error:
        raise TokenError(str(error)) from None
    return token_of(content.decode(errors="replace").strip())


def read_or_make_assertion(settings: AssertionSettings) -> str:
    """Read the assertion of a file, or sign one of now with the key of a file. Raises TokenError."""
    if settings.file is not None:
        return _file_of(ASSERTION_FILE, settings.file).decode(errors="replace").strip()
    assert settings.private_key_file is not None, "one of the two files is set"
    template = Template()
    at = f"{TEMPLATE_FILE}={settings.template_file}"
    try:
        if settings.template_file is not None:
            template = parse_template(_file_of(TEMPLATE_FILE, settings.template_file))
        at = f"{PRIVATE_KEY_FILE}={settings.private_key_file}"
        key = _file_of(PRIVATE_KEY_FILE, settings.private_key_file)
        header, claims = assertion_parts(settings, template, time.time(), str(uuid4()))
        return sign_assertion(header, claims, key, settings.passphrase, settings.algorithm)
    except AssertionNotMadeError as error:
        raise TokenError(f"{at}: {error}", is_final=True) from None


def _file_of(key: str, file: str) -> bytes:
    try:
        return read_bounded(Path(file), TOKEN_SIZE_BYTES_MAX)
    except OSError as error:
        raise TokenError(f"{key}={file}: {error.strerror or error}", is_final=True) from None
    except ValueError as error:
        raise TokenError(f"{key}={file}: {error}", is_final=True) from None


async def _ask(login: OAuthLogin) -> Token:
    from quorate_protocol.security.fetching import FetchError, fetch

    assert login.url is not None, "one of file and url is set"
    settings = login.assertion
    assertion = None if settings is None else await asyncio.to_thread(read_or_make_assertion, settings)
    headers, body = token_request(login, assertion)
    try:
        response = await fetch(
            login.url,
            tls=login.tls,
            headers=headers,
            body=body.encode(),
            connect_timeout_ms=login.connect_timeout_ms,
            read_timeout_ms=login.read_timeout_ms,
        )
    except FetchError as error:
        raise TokenError(str(error), is_final=error.is_final) from None
    return token_of_response(response.status, response.content)


class TokenKeeper:
    """Keeps a valid token, and replaces it in time.

    If its source gives no new one, the old one is used until it expires.
    """

    def __init__(
        self,
        login: OAuthLogin,
        *,
        now_s: "Callable[[], float]" = time.time,
        rng: Random | None = None,
    ) -> None:
        self.login = login
        self._now_s = now_s
        self._rng = rng or SystemRandom()
        self._token: Token | None = None
        self._refresh_at_s = 0.0
        self._reason = "it was not asked for yet"

    def current(self) -> Token:
        """Return the token. Raises TokenError without a token, or with an expired one."""
        token = self._token
        if token is None:
            raise TokenError(f"{self.login.source}: {self._reason}")
        if token.expires_at_s <= self._now_s():
            raise TokenError(f"{self.login.source}: the token has expired; {self._reason}")
        return token

    async def fresh(self) -> Token:
        """Return the token, after it was fetched if that is due. Raises TokenError, SecurityConfigError."""
        if self.login.file is not None or self._now_s() >= self._refresh_at_s:
            try:
                await self.refresh()
            except TokenError:
                if self._token is None:
                    raise
                # While the old token is valid, only one connection waits for the endpoint; others use the old token.
                self._refresh_at_s = self._now_s() + self.login.retry_backoff_max_ms / 1000
        return self.current()

    async def refresh(self) -> None:
        """Fetch a new token. Raises TokenError, SecurityConfigError."""
        try:
            token = await fetch_token(self.login)
        except TokenError as error:
            self._reason = str(error)
            raise TokenError(f"{self.login.source}: {error}") from None
        self._reason = "no newer one is there"
        self._token = token
        self._refresh_at_s = refresh_at_s(token, self._now_s(), self.login.refresh, self._rng.random())

    async def follow(self) -> None:
        """Fetch the token, and a new one whenever that is due, until cancelled. Failures are logged."""
        backoff_s, had_failed = 0.0, False
        while True:
            try:
                await self.refresh()
            except Exception as error:  # whatever it is, the next attempt may succeed
                backoff_s = min(max(2 * backoff_s, self.login.retry_backoff_ms / 1000, 0.1), FILE_INTERVAL_S)
                if not had_failed:
                    log.warning("token_refresh_failed", extra={"facts": {"reason": str(error)}})
                had_failed = True
                await asyncio.sleep(backoff_s)
                continue
            if had_failed or backoff_s:
                log.info("token_refreshed", extra={"facts": {"source": self.login.source}})
            backoff_s, had_failed = 0.0, False
            due_in_s = self._refresh_at_s - self._now_s()
            await asyncio.sleep(FILE_INTERVAL_S if self.login.file else max(due_in_s, 1.0))
