"""The client's side of SASL mechanisms: the first message, and the response to each message of the server."""

from collections.abc import Mapping
from typing import Protocol

from quorate_protocol.security.scram import Challenged, ScramClient, check_server


class Dialogue(Protocol):
    """The client's side of a mechanism."""

    def first(self) -> bytes:
        """The first message."""

    def next(self, received: bytes) -> bytes | None:
        """The response to a message; None at the end. Raises ScramError."""


class PlainDialogue:
    """PLAIN (RFC 4616): one message has the name and the password."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """An empty authorization id, the name, the password."""
        return self._message

    def next(self, received: bytes) -> bytes | None:  # noqa: ARG002 - nothing is expected
        """The server has no message of its own."""
        return None


class ScramDialogue:
    """SCRAM (RFC 5802): the client answers the server's challenge, and checks the server's proof."""

    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._challenged: Challenged | None = None

    def first(self) -> bytes:
        """The name and the nonce."""
        return self._client.first_message()

    def next(self, received: bytes) -> bytes | None:
        """The client's proof for the challenge. None for the server's last message, after its proof was checked."""
        if self._challenged is None:
            self._challenged = self._client.challenged(received)
            return self._challenged.message
        check_server(self._challenged, received)
        return None


class BearerDialogue:
    """OAUTHBEARER (RFC 7628): the token, with SASL extensions; the server sends an error before it refuses."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = "".join(f"\x01{key}={value}" for key, value in (extensions or {}).items())
        self._message = f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()

    def first(self) -> bytes:
        """The token."""
        return self._message

    def next(self, received: bytes) -> bytes | None:
        """The response to an error; None for an empty message, which ends the dialogue."""
        return b"\x01" if received else None
