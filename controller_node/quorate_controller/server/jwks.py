"""The keys with which tokens of OAUTHBEARER are verified: a JSON web key set from a file or an endpoint (KIP-768).

Keys are read again in the background. If that fails, the former ones stay in use. A token that names an unknown
key is refused, and the endpoint is read at once, at most once a second, and once a minute for each such name: the
client's next attempt finds the key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate_protocol.files import read_bounded
from quorate_protocol.security.fetching import RESPONSE_SIZE_BYTES_MAX, FetchError, fetch

from quorate_controller.security.bearer_tokens import InvalidKeysError, UnknownKeyError, parse_keys, validate

if TYPE_CHECKING:
    from quorate_controller.config.listener_oauth import ListenerOauth
    from quorate_controller.security.bearer import BearerToken
    from quorate_controller.security.bearer_tokens import VerificationKey

log = logging.getLogger(__name__)

FILE_INTERVAL_S: Final = 5.0
UNKNOWN_KEYS_MAX: Final = 16
UNKNOWN_KEY_INTERVAL_S: Final = 60.0
REFRESH_INTERVAL_S_MIN: Final = 1.0
"""The shortest time between two requests to the endpoint because of unknown keys."""
KEY_ID_LENGTH_MAX: Final = 1000


class JwksError(Exception):
    """The keys can't be read."""


class JwksValidator:
    """Validates tokens by the rules and the current keys of a listener."""

    def __init__(self, listener: str, config: ListenerOauth) -> None:
        self._listener = listener
        self._config = config
        self._keys: tuple[VerificationKey, ...] = ()
        self._content: bytes | None = None
        self._is_refresh_due = asyncio.Event()
        self._unknown: OrderedDict[str, float] = OrderedDict()

    def validate(self, token: str) -> BearerToken:
        """Return the claims of a token. Raises InvalidTokenError."""
        try:
            return validate(token, self._keys, self._config.rules, time.time())
        except UnknownKeyError as error:
            self._request_refresh(error.key_id)
            raise

    def _request_refresh(self, key_id: str) -> None:
        """Have the endpoint read at once, unless it was for this key within the last minute."""
        now_s = time.monotonic()
        if len(key_id) > KEY_ID_LENGTH_MAX or self._unknown.get(key_id, 0.0) > now_s:
            return
        self._unknown[key_id] = now_s + UNKNOWN_KEY_INTERVAL_S
        self._unknown.move_to_end(key_id)
        if len(self._unknown) > UNKNOWN_KEYS_MAX:
            self._unknown.popitem(last=False)
        self._is_refresh_due.set()

    async def refresh(self) -> None:
        """Read the keys. Raises JwksError, and keeps the former ones."""
        try:
            content = await (self._read_file() if self._config.file is not None else self._read_endpoint())
            if content == self._content:
                return
            keys = parse_keys(content)
        except (FetchError, InvalidKeysError, OSError, ValueError) as error:
            raise JwksError(f"{self._config.source}: {error or type(error).__name__}") from None
        self._keys, self._content = keys, content
        for key in keys:
            self._unknown.pop(key.key_id or "", None)
        facts = {"listener": self._listener, "source": self._config.source, "keys": len(keys)}
        log.info("jwks_loaded", extra={"facts": facts})

    async def _read_file(self) -> bytes:
        assert self._config.file is not None, "one of file and url is set"
        try:
            return await asyncio.to_thread(read_bounded, Path(self._config.file), RESPONSE_SIZE_BYTES_MAX)
        except OSError as error:
            raise JwksError(f"{self._config.source}: {error.strerror}") from None

    async def _read_endpoint(self) -> bytes:
        assert self._config.url is not None, "one of file and url is set"
        response = await fetch(self._config.url, tls=self._config.tls, headers={"Accept": "application/json"})
        if response.status != 200:
            raise JwksError(f"{self._config.source}: the endpoint responds with status {response.status}")
        return response.content

    async def follow(self) -> None:
        """Read the keys again and again, and at once when a key is unknown, until cancelled."""
        interval_s = FILE_INTERVAL_S if self._config.file is not None else self._config.refresh_ms / 1000
        backoff_s, asked_at_s = 0.0, -REFRESH_INTERVAL_S_MIN
        while True:
            due_in_s = backoff_s or (max(interval_s, 1.0) if self._content is not None else 0.0)
            try:
                await asyncio.wait_for(self._is_refresh_due.wait(), due_in_s)
            except TimeoutError:
                pass  # the next regular reading is due
            else:
                # Clients that name a new key each time must not cause requests to the endpoint all the time.
                await asyncio.sleep(max(0.0, asked_at_s + REFRESH_INTERVAL_S_MIN - time.monotonic()))
            self._is_refresh_due.clear()
            asked_at_s = time.monotonic()
            try:
                await self.refresh()
            except JwksError as error:
                if not backoff_s:
                    facts = {"listener": self._listener, "reason": str(error)}
                    log.warning("jwks_refresh_failed", extra={"facts": facts})
                first_s, last_s = (
                    self._config.retry_backoff_ms / 1000,
                    self._config.retry_backoff_max_ms / 1000,
                )
                backoff_s = max(0.05, min(2 * backoff_s or first_s, last_s))
            else:
                backoff_s = 0.0
