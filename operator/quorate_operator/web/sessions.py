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
"""Characters of the token. Nothing but its length limits guessing: all users may share one address."""


class TooManyFailuresError(Exception):
    """Too many wrong tokens in a short time; the right one is still accepted."""


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
        self._failures: deque[int] = deque(maxlen=FAILURES_MAX)

    @property
    def can_unlock(self) -> bool:
        return self._token is not None

    def unlock(self, token: str, now_ms: int) -> str | None:
        """Returns the name of a new session; None for a wrong token. Raises TooManyFailuresError.

        Wrong tokens never keep the right one out: anybody can send them, and users behind a proxy have one address.
        """
        if self._token is None or not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            while self._failures and self._failures[0] <= now_ms - FAILURES_WINDOW_MS:
                self._failures.popleft()
            if len(self._failures) == FAILURES_MAX:
                raise TooManyFailuresError
            self._failures.append(now_ms)
            return None
        self._sessions = {name: one for name, one in self._sessions.items() if one.until_ms > now_ms}
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.pop(next(iter(self._sessions)))
        name = secrets.token_urlsafe(32)
        self._sessions[name] = Session(csrf=secrets.token_urlsafe(32), until_ms=now_ms + SESSION_MS)
        return name

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
