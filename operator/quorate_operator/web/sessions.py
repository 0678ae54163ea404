"""Sessions of users who entered the token, in memory, each with a CSRF token. Pure but for randomness."""

import hmac
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Final

SESSION_MS: Final = 8 * 3_600_000
SESSIONS_MAX: Final = 100
FAILURES_MAX: Final = 10
FAILURES_WINDOW_MS: Final = 60_000
TOKEN_LENGTH_MIN: Final = 16
"""Characters of the token. An attacker may have many addresses, so its length is what limits guessing."""
ADDRESSES_MAX: Final = 1024
"""Addresses whose failures are remembered; the one that failed longest ago is forgotten."""


class TooManyFailuresError(Exception):
    """Too many wrong tokens of one address in a short time: no token of it is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An unlocked session. `csrf` is in each of its forms."""

    csrf: str
    until_ms: int


def check_token(token: str) -> str:
    """Returns the token without white space around it. Raises ValueError if it is too short."""
    token = token.strip()
    if len(token) < TOKEN_LENGTH_MIN:
        raise ValueError(
            f"the token of the status page has {len(token)} characters; at least {TOKEN_LENGTH_MIN} are needed, "
            "long and random, as from `openssl rand -hex 20`; without a token the page is read-only"
        )
    return token


class Sessions:
    """The sessions of users who entered the token; without a token there are none."""

    def __init__(self, token: str | None) -> None:
        self._token = check_token(token) if token is not None else None
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, deque[int]] = {}

    @property
    def can_unlock(self) -> bool:
        return self._token is not None

    def unlock(self, token: str, address: str, now_ms: int) -> str | None:
        """Returns the name of a new session; None for a wrong token. Raises TooManyFailuresError.

        An address with too many failures learns nothing: its tokens are not compared. Other addresses are not
        affected, and neither are sessions.
        """
        if self._token is None:
            return None
        failures = self._failures.get(address, deque())
        while failures and failures[0] <= now_ms - FAILURES_WINDOW_MS:
            failures.popleft()
        if len(failures) >= FAILURES_MAX:
            raise TooManyFailuresError
        if not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            self._note_failure(address, failures, now_ms)
            return None
        self._sessions = {name: one for name, one in self._sessions.items() if one.until_ms > now_ms}
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.pop(next(iter(self._sessions)))
        name = secrets.token_urlsafe(32)
        self._sessions[name] = Session(csrf=secrets.token_urlsafe(32), until_ms=now_ms + SESSION_MS)
        return name

    def _note_failure(self, address: str, failures: deque[int], now_ms: int) -> None:
        failures.append(now_ms)
        # Stored again at the end: the first one failed longest ago.
        self._failures.pop(address, None)
        self._failures[address] = failures
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def find(self, name: str | None, now_ms: int) -> Session | None:
        """Returns the session of this name, unless it has expired."""
        session = self._sessions.get(name or "")
        return session if session is not None and session.until_ms > now_ms else None

    def lock(self, name: str | None) -> None:
        self._sessions.pop(name or "", None)

    @staticmethod
    def is_genuine(session: Session, csrf: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(csrf.encode(), session.csrf.encode())
