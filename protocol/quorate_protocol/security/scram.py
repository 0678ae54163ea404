"""The client's side of SCRAM (RFC 5802) as in Kafka (KIP-84). Pure: the nonce is a parameter.

Unlike other SCRAM servers, Kafka does not normalize names and passwords with SASLprep, and it accepts delegation
tokens with the extension `tokenauth=true` (KIP-48).
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN
from quorate_protocol.plain_data import dataclass

ITERATIONS_MAX: Final = 1_000_000
"""A higher count is rejected, because it would only waste processor time: Kafka's own maximum is 16384."""
SALT_BITS: Final = 130
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[^,]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,10})(,.*)?"
)
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9+/=]+)(,.*)?")
_NO_CHANNEL_BINDING = "n,,"


def salt_of(number: int) -> bytes:
    """A salt from a random number of SALT_BITS, as Kafka's ScramFormatter writes salts: in digits of base 36.

    All salts look alike then, whatever tool has made the credential, and a server can make up one (`decoys`).
    """
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.encode()


class ScramError(Exception):
    """The server's message is not valid SCRAM, or the server does not know the password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenged:
    """The client's last message, and the signature that proves that the server knows the password."""

    message: bytes
    server_signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramClient:
    """One authentication. `nonce` is printable text without commas, new and secret each time."""

    mechanism: str
    username: str
    password: str
    nonce: str
    is_token: bool = False

    def first_message(self) -> bytes:
        """The client's first message, with the name and the nonce."""
        return (_NO_CHANNEL_BINDING + self._first_bare()).encode()

    def challenged(self, server_first: bytes) -> Challenged:
        """The response to the server's challenge. Raises ScramError."""
        text = _text(server_first)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise ScramError("the server's first message is malformed")
        if not match["nonce"].startswith(self.nonce) or match["nonce"] == self.nonce:
            raise ScramError("the server's nonce does not begin with ours")
        iterations = int(match["iterations"])
        if not SCRAM_ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"{iterations} iterations; allowed are {SCRAM_ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        name = HASHES[self.mechanism]
        salted = hashlib.pbkdf2_hmac(name, self.password.encode(), _decoded(match["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        channel = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={channel},r={match['nonce']}"
        signed = f"{self._first_bare()},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return Challenged(
            message=f"{without_proof},p={base64.b64encode(proof).decode()}".encode(),
            server_signature=hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name),
        )

    def _first_bare(self) -> str:
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}" + (",tokenauth=true" if self.is_token else "")


def check_server(challenged: Challenged, server_final: bytes) -> None:
    """Check that the server knows the password too. Raises ScramError if it does not."""
    match = _SERVER_FINAL.fullmatch(_text(server_final))
    if match is None or not hmac.compare_digest(_decoded(match["signature"]), challenged.server_signature):
        raise ScramError("the server does not know the password")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the server's message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("the server's message is not base64") from None
