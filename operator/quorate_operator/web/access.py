"""Access to the status page: sessions, live pages, and the host names of requests. Pure but for randomness.

A site in a user's browser can point its own name at the address of this page (DNS rebinding) and would then read it.
Such a request has the site's name in its Host header, so that other names are refused.
"""

import hmac
import secrets
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

SESSION_MS: Final = 8 * 3_600_000
SESSIONS_MAX: Final = 100
FAILURES_MAX: Final = 10
FAILURES_WINDOW_MS: Final = 60_000
TOKEN_LENGTH_MIN: Final = 16
"""Characters of the token. An attacker may have many addresses, so its length is what limits guessing."""
ADDRESSES_MAX: Final = 1024
"""Addresses whose failures are remembered; the one that failed longest ago is forgotten."""
STREAMS_OF_STRANGERS_MAX: Final = 100
STREAMS_OF_ADDRESS_MAX: Final = 50
STREAMS_OF_ADMINISTRATORS_MAX: Final = 50
STREAMS_OF_SESSION_MAX: Final = 10


class TooManyFailuresError(Exception):
    """Too many wrong tokens of one address in a short time: no token of it is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An unlocked session. `csrf` is in each of its forms."""

    csrf: str
    until_ms: int


def check_token(token: str) -> str:
    """Return the token without white space around it. Raises ValueError if it is too short."""
    token = token.strip()
    if len(token) < TOKEN_LENGTH_MIN:
        raise ValueError(
            f"the token of the status page has {len(token)} characters; at least {TOKEN_LENGTH_MIN} are needed, "
            "long and random, as from `openssl rand -hex 20`; without a token the page is read-only"
        )
    return token


class Sessions:
    """The sessions of users who entered the token; without a token, no session is created."""

    def __init__(self, token: str | None) -> None:
        self._token = check_token(token) if token is not None else None
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, deque[int]] = {}

    @property
    def can_unlock(self) -> bool:
        return self._token is not None

    def unlock(self, token: str, address: str, now_ms: int) -> str | None:
        """Return the name of a new session; None for a wrong token. Raises TooManyFailuresError.

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
        self._sessions = {
            name: session for name, session in self._sessions.items() if session.until_ms > now_ms
        }
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
        """Return the session of this name, unless it has expired."""
        session = self._sessions.get(name or "")
        return session if session is not None and session.until_ms > now_ms else None

    def lock(self, name: str | None) -> None:
        self._sessions.pop(name or "", None)

    @staticmethod
    def is_genuine(session: Session, csrf: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(csrf.encode(), session.csrf.encode())


class TooManyStreamsError(Exception):
    """A share is used up. The message has the bound."""


class StreamShares:
    """Counts the open streams. An administrator is a user with a session."""

    def __init__(self) -> None:
        self._of_address: Counter[Hashable] = Counter()
        self._of_session: Counter[Hashable] = Counter()

    @contextmanager
    def taken(self, address: str, session: str | None) -> Iterator[None]:
        """Count a stream while the context is open. Raises TooManyStreamsError."""
        if session is None:
            counts, key = self._of_address, address
            bounds = (
                (STREAMS_OF_STRANGERS_MAX, "without a login"),
                (STREAMS_OF_ADDRESS_MAX, "of your address"),
            )
        else:
            counts, key = self._of_session, session
            bounds = (
                (STREAMS_OF_ADMINISTRATORS_MAX, "of administrators"),
                (STREAMS_OF_SESSION_MAX, "of your session"),
            )
        for count, (streams_max, whose) in zip((counts.total(), counts[key]), bounds, strict=True):
            if count >= streams_max:
                raise TooManyStreamsError(f"{streams_max} live pages {whose} are already open")
        counts[key] += 1
        try:
            yield
        finally:
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


class AllowedHosts:
    """IP addresses and localhost, which no site can have for a name, and the names that were configured."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allow(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this page."""
        name = _name_of(host)
        if name is None:
            return False
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def check_host(name: str) -> str:
    """Return a name that may be configured. Raises ValueError."""
    if _name_of(name) != name.lower() or ":" in name:
        raise ValueError(
            f"{name!r}: must be a host name without scheme and port, for instance quorate.example.com"
        )
    return name


def _name_of(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    if name is None or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return name.lower().rstrip(".") or None
