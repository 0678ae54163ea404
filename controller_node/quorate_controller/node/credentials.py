"""The SCRAM credentials in the metadata image: of users, and of delegation tokens, derived from their HMAC."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from quorate_protocol.image.security import ScramCredential
from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN

from quorate_controller.control.delegation_tokens import token_hmac
from quorate_controller.control.scram_credentials import credential_record
from quorate_controller.security.sasl import TokenCredential

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.kafka.enums import ScramMechanism

CACHED_MAX: Final = 10_000
COUNTED_MAX: Final = 64
"""Credentials that are counted to find the usual number of iterations."""


class ImageCredentials:
    """Implements `sasl.Credentials`. Without the secret of the cluster there are no tokens."""

    def __init__(self, image: MetadataImage, token_secret: str | None) -> None:
        self._image = image
        self._token_secret = token_secret
        self._of_tokens: dict[tuple[ScramMechanism, str], ScramCredential] = {}

    def of_user(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """See `sasl.Credentials`."""
        return self._image.scram.get((mechanism, name))

    def usual_iterations(self, mechanism: ScramMechanism) -> int:
        """See `sasl.Credentials`. A few credentials decide, so that it takes as little time for each login."""
        of_some = islice(self._image.scram.items(), COUNTED_MAX)
        counts = Counter(credential.iterations for (kind, _), credential in of_some if kind is mechanism)
        return max(
            counts, key=lambda iterations: (counts[iterations], iterations), default=SCRAM_ITERATIONS_MIN
        )

    def of_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """See `sasl.Credentials`."""
        token = self._image.delegation_tokens.get(token_id)
        if token is None or self._token_secret is None:
            return None
        credential = self._of_tokens.get((mechanism, token_id))
        if credential is None:
            if len(self._of_tokens) >= CACHED_MAX:
                self._of_tokens.clear()
            credential = _derived(mechanism, token_id, self._token_secret)
            self._of_tokens[mechanism, token_id] = credential
        return TokenCredential(
            credential=credential,
            owner=token.owner.partition(":")[2],
            expires_at_ms=token.expiration_timestamp_ms,
        )


def _derived(mechanism: ScramMechanism, token_id: str, secret: str) -> ScramCredential:
    """The credential of a token. The salt need not be random: the password, the HMAC, is like a key."""
    password, salt = base64.b64encode(token_hmac(secret, token_id)), token_id.encode()
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, SCRAM_ITERATIONS_MIN)
    record = credential_record(
        token_id, mechanism, salt=salt, salted_password=salted, iterations=SCRAM_ITERATIONS_MIN
    )
    return ScramCredential.from_record(record)
