"""The server's side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, KIP-84), as Kafka's servers do it.

Messages go in and come out; nonces are parameters. Messages to clients contain nothing that is secret.

Kafka's servers refuse an unknown user before the challenge. Here SCRAM challenges it with a decoy, so that no
stranger can list users: its salt is as Kafka's tools make it, always the same for a name and a mechanism, and no
password matches it.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from quorate_protocol.image.security import ScramCredential
from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN, ScramMechanism
from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.oauth import OAUTHBEARER
from quorate_protocol.security.scram import SALT_BITS, salt_of

PLAIN: Final = "PLAIN"
SCRAM_MECHANISMS: Final = {
    mechanism.mechanism_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_TEXT: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_TEXT})*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,"
    rf"(?P<bare>(?:m={_TEXT},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)

_COST: Final = 2**14
"""Of scrypt: 16 MiB and some 50 ms, once in a process. A guess at the text from its decoys costs as much."""


def decoy_secret(shared: str, cluster_id: str) -> bytes:
    """The secret of the decoys of a cluster, from a text that all its controllers have and no stranger knows."""
    return hashlib.scrypt(
        shared.encode(), salt=f"decoys of {cluster_id}".encode(), n=_COST, r=8, p=1, dklen=32
    )


class Decoys:
    """The credentials of users that do not exist."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def credential(self, mechanism: ScramMechanism, name: str, iterations: int) -> ScramCredential:
        """The decoy of a name. `iterations` are those that users of the mechanism have."""
        salt = self._derived(f"salt {mechanism.mechanism_name} {name}", "sha256")
        key = self._derived(f"key {mechanism.mechanism_name} {name}", mechanism.hash_name)
        return ScramCredential(
            salt=salt_of(int.from_bytes(salt) >> (8 * len(salt) - SALT_BITS)),
            stored_key=key,
            server_key=key,
            iterations=iterations,
        )

    def _derived(self, text: str, hash_name: str) -> bytes:
        return hmac.digest(self._secret, text.encode(errors="surrogatepass"), hash_name)


class SaslRefusalError(Exception):
    """The client is refused. `shown` is the message for it; None: that its credentials are invalid."""

    def __init__(self, reason: str, *, shown: str | None = None, is_guess: bool = False) -> None:
        super().__init__(reason)
        self.shown = shown
        self.is_guess = is_guess
        """Whether the password was wrong, or the user unknown."""


class LoginHeldBackError(Exception):
    """Too many logins from the client's address have failed: its credentials are not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The authenticated client."""

    name: str
    token_authenticated: bool = False
    expires_at_ms: int | None = None
    """Unix time at which a token expires, one of delegation or of OAUTHBEARER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCredential:
    """The data that authenticates a client with a delegation token (KIP-48)."""

    credential: ScramCredential
    owner: str
    """The name of the principal without its type."""
    expires_at_ms: int


class Credentials(Protocol):
    """The credentials in the metadata."""

    def of_user(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """The credential of a user, or None."""

    def usual_iterations(self, mechanism: ScramMechanism) -> int:
        """The iterations that most users of a mechanism have."""

    def of_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """The credential of a delegation token, or None."""


class SaslServer(Protocol):
    """The server's side of one authentication."""

    @property
    def authenticated(self) -> Authenticated | None:
        """The authenticated client; None until authentication has succeeded."""

    @property
    def claimed_name(self) -> str:
        """The name that the client has given; empty until it has."""

    def evaluate(self, message: bytes) -> bytes:
        """Return the response to a message. Raises SaslRefusalError, LoginHeldBackError."""


def _always(_name: str) -> bool:
    return True


class Passwords:
    """The passwords of PLAIN. A check takes as long for each name and password of a length."""

    def __init__(self, passwords: Mapping[str, str], key: bytes) -> None:
        """`key` is secret, random, and another one in each process."""
        self._key = key
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._unknown = bytes(len(self._digest("")))

    def are_right(self, name: str, password: str) -> bool:
        """Whether a user has a password."""
        expected = self._digests.get(name, self._unknown)
        return hmac.compare_digest(self._digest(password), expected)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(errors="surrogatepass"), "sha256")


class PlainServer:
    """PLAIN, with the passwords of all users. `may_guess` returns whether the password of a user may be checked."""

    def __init__(self, passwords: Passwords, may_guess: Callable[[str], bool] = _always) -> None:
        self._passwords = passwords
        self._may_guess = may_guess
        self.authenticated: Authenticated | None = None
        self.claimed_name = ""

    def evaluate(self, message: bytes) -> bytes:
        """See `SaslServer`."""
        parts = message.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise shown_refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise shown_refusal("Authentication failed: username not specified")
        if not password:
            raise shown_refusal("Authentication failed: password not specified")
        self.claimed_name = name
        if not self._may_guess(name):
            raise LoginHeldBackError
        if not self._passwords.are_right(name, password):
            raise shown_refusal("Authentication failed: Invalid username or password", is_guess=True)
        if authorization_id not in ("", name):
            raise shown_refusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authenticated = Authenticated(name=name)
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Challenge:
    first_bare: str
    server_first: str
    nonce: str
    credential: ScramCredential
    client: Authenticated | None
    """The client if its proof is right; None for a decoy, for which no proof is right."""
    reason: str
    """Why the client is refused otherwise, for the log."""


class ScramServer:
    """SCRAM with the credentials in the metadata, those of delegation tokens among them.

    A client without a credential gets the challenge of a decoy, and is refused like a user with a wrong password.
    `may_guess` returns whether the credentials of a user may be checked.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        make_nonce: Callable[[], str],
        decoys: Decoys,
        may_guess: Callable[[str], bool] = _always,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._make_nonce = make_nonce
        self._decoys = decoys
        self._may_guess = may_guess
        self._challenge: _Challenge | None = None
        self.authenticated: Authenticated | None = None
        self.claimed_name = ""

    def evaluate(self, message: bytes) -> bytes:
        """See `SaslServer`."""
        text = message.decode(errors="replace")
        if self._challenge is None:
            self._challenge = self._challenged(text)
            return self._challenge.server_first.encode()
        return self._verified(text, self._challenge)

    def _challenged(self, text: str) -> _Challenge:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslRefusalError("the client's first message is malformed")
        self.claimed_name = name = match["name"].replace("=2C", ",").replace("=3D", "=")
        if not self._may_guess(name):
            raise LoginHeldBackError
        authorization_id = match["authorization_id"]
        if authorization_id not in (None, "", name):
            raise shown_refusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential, client, reason = self._known(name, is_token=_is_token(match["extensions"]))
        nonce = match["nonce"] + self._make_nonce()
        salt = base64.b64encode(credential.salt).decode()
        return _Challenge(
            first_bare=match["bare"],
            server_first=f"r={nonce},s={salt},i={credential.iterations}",
            nonce=nonce,
            credential=credential,
            client=client,
            reason=reason,
        )

    def _known(self, name: str, *, is_token: bool) -> tuple[ScramCredential, Authenticated | None, str]:
        """The credential of a client, or a decoy, which is made in any case: it takes some time."""
        usual = self._credentials.usual_iterations(self._mechanism)
        decoy = self._decoys.credential(self._mechanism, name, usual)
        if is_token:
            token = self._credentials.of_token(self._mechanism, name)
            if token is None:
                # As the credentials of tokens are, see `ImageCredentials`.
                decoy = replace(decoy, salt=name.encode(errors="replace"), iterations=SCRAM_ITERATIONS_MIN)
                return decoy, None, "there is no such token"
            client = Authenticated(
                name=token.owner, token_authenticated=True, expires_at_ms=token.expires_at_ms
            )
            return token.credential, client, "the password is wrong"
        credential = self._credentials.of_user(self._mechanism, name)
        if credential is None:
            return decoy, None, "there is no such user"
        if credential.iterations < SCRAM_ITERATIONS_MIN:
            return decoy, None, f"the credential has fewer than {SCRAM_ITERATIONS_MIN} iterations"
        return credential, Authenticated(name=name), "the password is wrong"

    def _verified(self, text: str, challenge: _Challenge) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None or match["nonce"] != challenge.nonce:
            raise SaslRefusalError("the client's final message is malformed")
        if not self._may_guess(self.claimed_name):
            raise LoginHeldBackError
        name, credential = self._mechanism.hash_name, challenge.credential
        signed = f"{challenge.first_bare},{challenge.server_first},{match['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, signed, name)
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            proof = b""
        if len(proof) != len(signature):
            raise SaslRefusalError("the client's proof has the wrong length")
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
        if not is_right or challenge.client is None:
            raise SaslRefusalError(challenge.reason, is_guess=True)
        self.authenticated = challenge.client
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, name))


def shown_refusal(message: str, *, is_guess: bool = False) -> SaslRefusalError:
    """Return a refusal whose reason the client gets, too."""
    return SaslRefusalError(message, shown=message, is_guess=is_guess)


def _is_token(extensions: str) -> bool:
    values = dict(part.split("=", 1) for part in extensions.split(",") if part)
    return values.get("tokenauth", "").lower() == "true"
