"""Challenges of SCRAM for users that do not exist. They look like those of users, so that no stranger can list users.

Kafka's servers refuse an unknown user before the challenge. A decoy has a salt as Kafka's tools make it, always the
same one for a name and a mechanism, and no password fits it.
"""

import hashlib
import hmac
from typing import Final

from quorate_protocol.image.security import ScramCredential
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.security.scram import SALT_BITS, salt_of

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
