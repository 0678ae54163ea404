"""How many live pages are served: strangers and administrators have shares of their own. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

STREAMS_OF_STRANGERS_MAX: Final = 100
STREAMS_OF_ADDRESS_MAX: Final = 50
STREAMS_OF_ADMINISTRATORS_MAX: Final = 50
STREAMS_OF_SESSION_MAX: Final = 10


class TooManyStreamsError(Exception):
    """A share is used up. The message has the bound."""


class StreamShares:
    """Counts the open streams. An administrator is a user with a session."""

    def __init__(self) -> None:
        self._of_address: Counter[Hashable] = Counter()
        self._of_session: Counter[Hashable] = Counter()

    @contextmanager
    def taken(self, address: str, session: str | None) -> Iterator[None]:
        """Counts a stream while the context is open. Raises TooManyStreamsError."""
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
