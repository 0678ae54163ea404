"""Tokens of OAUTHBEARER are valid where they are for Kafka's BrokerJwtValidator, and say the same."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import jwt
import pytest
from kit.issuer import AUDIENCE, ISSUER, Issuer, encoded, new_key, public_jwk, rsa_key, sign
from kit.java.programs import run_java
from quorate_controller.security.bearer import InvalidTokenError, TokenRules
from quorate_controller.security.bearer_tokens import parse_keys, validate
from quorate_protocol.kafka.releases import NEWEST_RELEASE

TOKENS = 1_500
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

pytestmark = pytest.mark.integration

RULES = (
    TokenRules(audiences=frozenset({AUDIENCE, "other"}), issuer=ISSUER),
    TokenRules(clock_skew_s=0),
    TokenRules(audiences=frozenset({AUDIENCE}), issuer=ISSUER, scope_claim="scp", sub_claim="client_id"),
)


def kafkas_decisions(commands: Sequence[Sequence[object]]) -> list[str]:
    """A line for each token."""
    lines = ("\t".join(map(str, command)) for command in commands)
    return run_java("TokenVerdicts", NEWEST_RELEASE, lines=lines)


def verdict(token: str, keys: Any, rules: TokenRules) -> str:
    """What we say of a token, as a line of Kafka's."""
    try:
        valid = validate(token, keys, rules, time.time())
    except InvalidTokenError as error:
        return f"refused\t{error}"
    return "\t".join(("valid", valid.name, str(valid.expires_at_ms), ",".join(sorted(valid.scopes))))


class Tokens:
    """Tokens that happen to be, most of them with something wrong, and the keys of their issuer."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.issuer = Issuer.with_keys(*ALGORITHMS)
        self.strangers = Issuer({name: (name, new_key(name, f"stranger-{name}")) for name in ALGORITHMS})
        self.jwks: dict[str, Any] = {
            "keys": [
                *self.issuer.jwks["keys"],
                public_jwk("RS256", rsa_key("short", 1024), kid="short"),
                public_jwk("RS256", rsa_key("enc"), kid="enc", use="enc"),
                public_jwk("RS256", rsa_key("plain"), kid="plain", use=None, alg=None),
                public_jwk("ES256", new_key("ES256"), kid=None),
                {"kty": "oct", "kid": "secret", "k": encoded(b"s" * 32)},
                {"kty": "unknown", "kid": "unknown"},
            ]
        }

    def claims(self) -> dict[str, Any]:
        """Claims, of which some are missing, of another type or of another value."""
        rng, now_s = self.rng, int(time.time())
        claims = self.issuer.claims(client_id="bob", scp="read")
        odd = (
            None,
            True,
            "",
            "  ",
            "x",
            7,
            -7,
            1.5,
            [],
            ["x"],
            {},
            [AUDIENCE, 7],
            10**30,
            [""],
            ["a", "a"],
            ["a", " a"],
        )
        times = (now_s - 5000, now_s - 100, now_s + 100, now_s + 5000, now_s + 100.7, str(now_s + 100), 0)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            name = rng.choice(("sub", "iss", "aud", "iat", "exp", "nbf", "scope", "scp", "client_id", "jti"))
            kind = rng.random()
            if kind < 0.25:
                claims.pop(name, None)
            elif name in ("iat", "exp", "nbf") and kind < 0.8:
                claims[name] = rng.choice(times)
            elif name == "aud" and kind < 0.8:
                claims[name] = rng.choice((AUDIENCE, "other", "wrong", ["wrong", "other"], ["wrong"], [], ""))
            elif kind < 0.6:
                claims[name] = rng.choice(("alice", " alice ", "\u00e4", ISSUER, "a b", "a\u2003"))
            else:
                claims[name] = rng.choice(odd)
        return claims

    def any(self) -> tuple[str, str]:
        """A token, and in which way it is one that only ours refuses."""
        rng = self.rng
        key_id = rng.choice(ALGORITHMS)
        issuer = self.strangers if rng.random() < 0.1 else self.issuer
        algorithm, key = issuer.keys[key_id]
        header: dict[str, Any] = {"alg": algorithm, "kid": key_id, "typ": "JWT"}
        stricter = ""
        way = rng.random()
        if way < 0.05:
            del header["kid"]
        elif way < 0.1:
            header["kid"] = rng.choice(("absent", "", "ES256", "RS256", "enc"))
        elif way < 0.14:
            header["kid"], key = rng.choice((("short", rsa_key("short", 1024)), ("plain", rsa_key("plain"))))
            header["alg"] = rng.choice(("RS256", "PS256", "RS512"))
        elif way < 0.17:
            header["alg"] = {"RS256": "RS512", "RS512": "PS256"}.get(algorithm, algorithm)
            stricter = "algorithm of the key" if header["alg"] != algorithm else ""
        elif way < 0.2:
            header |= rng.choice(({"crit": ["x"], "x": 1}, {"cty": "JWT"}, {"typ": "at+jwt"}, {"x5t": "abc"}))
            stricter = "nested" if "cty" in header else ""
        token = sign(header, json.dumps(self.claims()).encode(), key)
        if rng.random() < 0.15:
            token = self.damaged(token)
        return token, stricter

    def damaged(self, token: str) -> str:
        """A token with another form."""
        header, payload, signature = token.split(".")
        twice = encoded(b'{"sub":"alice","sub":"eve","exp":9999999999,"iat":1}')
        return self.rng.choice(
            (
                *(
                    f"{header}.{payload}.",
                    f"{header}.{payload}",
                    f".{payload}.{signature}",
                    f"{token}.x",
                    "x",
                    "..",
                    ".",
                ),
                *(f"{header}.{twice}.{signature}", f"{encoded(b'[]')}.{payload}.{signature}"),
                *(f"{encoded(b'{}')}.{payload}.{signature}", f"{header}.{encoded(b'7')}.{signature}"),
                *(
                    self.issuer.unsigned(),
                    self.issuer.unsigned() + "x",
                    self.issuer.forged_with_public_key("RS256"),
                ),
                self.issuer.forged_with_public_key("ES256"),
            )
        )


def test_tokens_are_judged_as_by_kafka(tmp_path: Path) -> None:
    tokens = Tokens(Random(13))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(tokens.jwks))
    keys = parse_keys(file.read_bytes())
    commands: list[tuple[object, ...]] = []
    asked, ours = [], []
    for rules in RULES:
        commands.append(
            (
                *("begin", file.as_uri(), ",".join(sorted(rules.audiences)), rules.issuer or ""),
                *(rules.clock_skew_s, rules.scope_claim, rules.sub_claim),
            )
        )
        for _ in range(TOKENS // len(RULES)):
            token, stricter = tokens.any()
            commands.append(("ask", token))
            asked.append((token, stricter))
            ours.append(verdict(token, keys, rules))
    theirs = kafkas_decisions(commands)
    different = []
    for (token, stricter), our, their in zip(asked, ours, theirs, strict=True):
        is_same = our == their if their.startswith("valid") else our.startswith("refused")
        if not is_same and not (stricter and our.startswith("refused")):
            header = jwt.get_unverified_header(token) if token.count(".") == 2 else {}
            different.append((our, their, header, token))
    assert not different, (len(different), min(different, key=lambda difference: len(difference[3])))
    valid = sum(their.startswith("valid") for their in theirs)
    assert TOKENS / 10 < valid < TOKENS * 0.9, "the tokens are too good or too bad to tell anything"
