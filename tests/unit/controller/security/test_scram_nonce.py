"""SCRAM's final message has to repeat the nonce that the server extended (RFC 5802, section 5.1)."""

import base64
import hashlib
import hmac

import pytest
from quorate_controller.control.scram_credentials import credential_record
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.security.sasl import Decoys, SaslRefusalError, ScramServer
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.enums import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT, ITERATIONS = b"salt", 4096
CLIENT_NONCE, SERVER_NONCE = "client", "server"


def final_message(salted: bytes, server_first: str, nonce: str) -> bytes:
    """The final message of a client that knows the password, with that nonce and the proof that goes with it."""
    without_proof = f"c=biws,r={nonce}"
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"n=user,r={CLIENT_NONCE},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(left ^ other for left, other in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("nonce", "is_accepted"),
    [
        (CLIENT_NONCE + SERVER_NONCE, True),
        (CLIENT_NONCE, False),
        (CLIENT_NONCE + "other", False),
        (CLIENT_NONCE + SERVER_NONCE + "more", False),
    ],
)
def test_the_final_message_has_the_nonce_of_both(nonce: str, is_accepted: bool) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, ITERATIONS)
    image = MetadataImage()
    record = credential_record("user", SHA_256, salt=SALT, salted_password=salted, iterations=ITERATIONS)
    image.replay_all([record], base_offset=0)
    server = ScramServer(SHA_256, ImageCredentials(image, None), lambda: SERVER_NONCE, Decoys(b"secret"))
    server_first = server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode()).decode()
    message = final_message(salted, server_first, nonce)
    if is_accepted:
        server.evaluate(message)
        assert server.authenticated is not None
    else:
        with pytest.raises(SaslRefusalError, match="final message is malformed"):
            server.evaluate(message)
        assert server.authenticated is None
