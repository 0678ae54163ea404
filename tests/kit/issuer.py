"""An issuer of tokens: its keys, its JSON web key set, and tokens that are right or wrong in each way."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AUDIENCE, ISSUER = "kafka", "https://issuer.test"
CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:  # noqa: ARG001 - each name has a key of its own
    """A key of RSA, the same for a name while the tests run: making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def new_key(algorithm: str, name: str = "") -> Any:
    """A private key for an algorithm."""
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm]())
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa_key(name)


def algorithm_of(name: str) -> Any:
    """PyJWT's implementation of an algorithm."""
    return jwt.get_algorithm_by_name(name)


def public_jwk(algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    """The public part of a key as a JSON web key; what is None in `more` is left out."""
    content = json.loads(algorithm_of(algorithm).to_jwk(key.public_key()))
    content = {"use": "sig", "alg": algorithm, **content, **more}
    content.pop("key_ops", None)
    return {name: value for name, value in content.items() if value is not None}


def encoded(part: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def sign(header: Mapping[str, Any], payload: bytes, key: Any) -> str:
    """A token with any header and any payload, signed by the algorithm in the header."""
    signed = f"{encoded(json.dumps(header).encode())}.{encoded(payload)}"
    signature = algorithm_of(str(header["alg"])).sign(signed.encode(), key)
    return f"{signed}.{encoded(signature)}"


@dataclass
class Issuer:
    """Keys by their ids, with the algorithm of each; the first signs unless another is named."""

    keys: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @classmethod
    def with_keys(cls, *algorithms: str) -> "Issuer":
        """An issuer with a key for each algorithm, whose id is the algorithm's name."""
        return cls({name: (name, new_key(name, f"issuer-{name}")) for name in algorithms})

    @property
    def jwks(self) -> dict[str, Any]:
        """The JSON web key set."""
        return {"keys": [public_jwk(name, key, kid=key_id) for key_id, (name, key) in self.keys.items()]}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims of a valid token for alice; what is None in `changes` is left out."""
        now_s = int(time.time())
        claims = {
            "sub": "alice",
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now_s - 10,
            "exp": now_s + 600,
            "scope": ["kafka"],
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, key_id: str | None = None, header: Mapping[str, Any] | None = None, **changes: Any
    ) -> str:
        """A token with changed claims; what is None in `header` is left out."""
        key_id = key_id or next(iter(self.keys))
        algorithm, key = self.keys[key_id]
        headers = {"alg": algorithm, "kid": key_id, "typ": "JWT", **(header or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        return sign(headers, json.dumps(self.claims(**changes)).encode(), key)

    def unsigned(self) -> str:
        """A token with alg=none."""
        header, payload = ({"alg": "none"}, self.claims())
        return f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(payload).encode())}."

    def forged_with_public_key(self, key_id: str) -> str:
        """A token with HS256, whose secret is the public key (as PEM) that everybody knows."""
        public = self.keys[key_id][1].public_key()
        secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        header = {"alg": "HS256", "kid": key_id}
        signed = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(self.claims()).encode())}"
        return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
