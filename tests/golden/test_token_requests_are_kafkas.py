"""What a client of OAUTHBEARER sends to get its token is what Kafka's retrievers send."""

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kit.issuer import Issuer, new_key, rsa_key
from kit.java.programs import run_java
from kit.token_endpoint import TokenEndpoint, token_endpoint
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.security.assertions import ALLOWED_FILES
from quorate_protocol.security.oauth import ALLOWED_URLS, parse_oauth_login
from quorate_protocol.security.tokens import fetch_token

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ASSERTION = "sasl.oauthbearer.assertion"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
PASSPHRASE = "open sesame"
ASSERTIONS = ("assertion", "client_assertion")
CURVE_KEY = new_key("ES256")

pytestmark = pytest.mark.integration


def write_key(file: Path, key: Any) -> None:
    """A private key as PKCS #8 in PEM."""
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def rows(directory: Path, audience: str) -> list[tuple[str, dict[str, str]]]:
    """Retrievers and their properties, without those of the endpoint."""
    key = rsa_key("client")
    write_key(directory / "plain", key)
    write_key(directory / "curve", CURVE_KEY)
    # In a form that Java reads: what OpenSSL writes by default, it can't.
    locked = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", str(directory / "plain")]
    locked += ["-passout", f"pass:{PASSPHRASE}", "-out", str(directory / "locked")]
    subprocess.run(locked, check=True, capture_output=True, timeout=60)
    made = Issuer({"k": ("RS256", key)}).token(iss="client", sub="alice", aud=audience)
    (directory / "made").write_text(made)
    payload = {"sub": "template", "nested": {"a": [1, None, True]}, "iat": 7, "name": "ünï"}
    template = {"header": {"kid": "k1", "typ": "other"}, "payload": payload}
    (directory / "template").write_text(json.dumps(template))
    signed = {
        f"{ASSERTION}.private.key.file": str(directory / "plain"),
        f"{ASSERTION}.claim.iss": "client",
        f"{ASSERTION}.claim.sub": "alice",
        f"{ASSERTION}.claim.aud": audience,
    }
    with_passphrase = {
        f"{ASSERTION}.private.key.file": str(directory / "locked"),
        f"{ASSERTION}.private.key.passphrase": PASSPHRASE,
    }
    by_curve = {
        f"{ASSERTION}.private.key.file": str(directory / "curve"),
        f"{ASSERTION}.algorithm": "ES256",
        f"{ASSERTION}.claim.iss": "curve",
    }
    more = {
        f"{ASSERTION}.template.file": str(directory / "template"),
        f"{ASSERTION}.claim.exp.seconds": "60",
        f"{ASSERTION}.claim.nbf.seconds": "5",
        f"{ASSERTION}.claim.jti.include": "true",
        "sasl.oauthbearer.scope": "a b/ü",
    }
    from_file = {f"{ASSERTION}.file": str(directory / "made")}
    return [
        ("JwtBearerJwtRetriever", signed),
        ("JwtBearerJwtRetriever", {**signed, **with_passphrase, **more}),
        ("JwtBearerJwtRetriever", from_file),
        ("JwtBearerJwtRetriever", {**signed, **by_curve}),
        ("ClientCredentialsJwtRetriever", {**signed, CLIENT_ID: "client"}),
        ("DefaultJwtRetriever", {**signed, **more}),
        ("DefaultJwtRetriever", {**signed, **from_file, CLIENT_ID: "client", CLIENT_SECRET: "unused"}),
        (
            "DefaultJwtRetriever",
            {CLIENT_ID: "client", CLIENT_SECRET: "s€cret", "sasl.oauthbearer.scope": "a"},
        ),
    ]


def kafkas_tokens(lines: Sequence[str]) -> list[str]:
    """The tokens that Kafka's retrievers get, a line for each."""
    return run_java("TokenRequests", NEWEST_RELEASE, lines=lines)


def comparable(request: Mapping[str, str]) -> dict[str, Any]:
    """A request with its assertion decoded, and times as distances."""
    found: dict[str, Any] = dict(request)
    for name in ASSERTIONS:
        if name in found:
            claims = jwt.decode(found[name], options={"verify_signature": False})
            issued_at_s = claims.pop("iat")
            times = {name: claims.pop(name) - issued_at_s for name in ("exp", "nbf") if name in claims}
            has_jti = claims.pop("jti", None) is not None
            found[name] = [jwt.get_unverified_header(found[name]), claims, times, has_jti]
    return found


def test_token_requests_are_those_of_kafka(tmp_path: Path) -> None:
    with token_endpoint(Issuer.with_keys("ES256"), {"client": "s€cret"}) as endpoint:
        endpoint.assertion_keys = {
            "client": rsa_key("client").public_key(),
            "curve": CURVE_KEY.public_key(),
        }
        url = f"{endpoint.url}/token"
        allowed = {ALLOWED_URLS: url, ALLOWED_FILES: ",".join(map(str, files_of(tmp_path)))}
        asked = [
            (f"{PACKAGE}.{name}", {"sasl.oauthbearer.token.endpoint.url": url, **allowed, **properties})
            for name, properties in rows(tmp_path, endpoint.url)
        ]
        lines = ["\t".join([name, *(f"{key}={value}" for key, value in row.items())]) for name, row in asked]
        thrown = [line for line in kafkas_tokens(lines) if line.startswith("thrown: ")]
        assert thrown == []
        kafkas = sent_to(endpoint)
        for name, properties in asked:
            login = parse_oauth_login({**properties, "sasl.oauthbearer.jwt.retriever.class": name}, {}, {})
            asyncio.run(fetch_token(login))
        assert sent_to(endpoint) == kafkas
        assert len(kafkas) == len(asked)


def files_of(directory: Path) -> list[Path]:
    """The files that `rows` writes."""
    return [directory / name for name in ("plain", "curve", "locked", "made", "template")]


def sent_to(endpoint: TokenEndpoint) -> list[dict[str, Any]]:
    """The requests since this was called last."""
    found = [comparable(request) for request in endpoint.requests]
    endpoint.requests.clear()
    return found
