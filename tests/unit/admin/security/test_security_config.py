"""Security settings from Kafka's client properties: what is read, and what is refused in words that help."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_admin.errors import ConfigError
from quorate_admin.security.config import Mechanism, SecurityConfig
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.security.jaas import parse_jaas
from quorate_protocol.security.oauth import ALLOWED_URLS
from quorate_protocol.security.stores import StoreType

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SASL = {"security.protocol": "SASL_PLAINTEXT"}


def test_nothing_said_is_plain_text() -> None:
    assert SecurityConfig.from_properties({}).protocol is SecurityProtocol.PLAINTEXT


def test_tls_settings_are_read() -> None:
    security = SecurityConfig.from_properties(
        {
            "security.protocol": "ssl",
            "ssl.truststore.location": "/trust.p12",
            "ssl.truststore.type": "pkcs12",
            "ssl.truststore.password": "secret-1",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "KEY",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.key.password": "secret-2",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "A, B",
        }
    )
    tls = security.tls
    assert tls.truststore is not None
    assert tls.keystore is not None
    assert (tls.truststore.type, tls.truststore.location) == (StoreType.PKCS12, "/trust.p12")
    assert tls.keystore.pem == "KEY\nCHAIN\n"
    assert (tls.is_checking_host, tls.enabled_protocols, tls.cipher_suites) == (
        False,
        ("TLSv1.3",),
        ("A", "B"),
    )
    assert "secret" not in repr(security)


@pytest.mark.parametrize(
    ("mechanism", "module", "options", "is_token"),
    [
        ("PLAIN", PLAIN, "", False),
        ("SCRAM-SHA-256", SCRAM, "", False),
        ("SCRAM-SHA-512", SCRAM, 'tokenauth="true"', True),
        ("SCRAM-SHA-512", SCRAM, "tokenauth=false", False),
    ],
)
def test_names_and_passwords_are_read(mechanism: str, module: str, options: str, is_token: bool) -> None:
    login = f'{module} required username="u" password="pass\\"word" {options};'
    sasl = SecurityConfig.from_properties(
        SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    ).sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.username, sasl.password) == (Mechanism(mechanism), "u", 'pass"word')
    assert sasl.is_token is is_token
    assert "pass" not in repr(sasl).replace("password", "")


@pytest.mark.parametrize("url", ["file:/run/token", "file:///run/token"])
def test_oauth_tokens_come_from_a_file(url: str) -> None:
    properties = {
        **SASL,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH} required;",
        "sasl.oauthbearer.token.endpoint.url": url,
        ALLOWED_URLS: f"https://other, {url}",
    }
    sasl = SecurityConfig.from_properties(properties).sasl
    assert sasl is not None
    assert sasl.tokens is not None
    assert sasl.tokens.login.file == "/run/token"


WRONG = [
    ({"security.protocol": "TLS"}, "security.protocol=TLS: allowed are PLAINTEXT, SSL"),
    (
        {"security.protocol": "SSL", "ssl.truststore.location": "x", "ssl.truststore.type": "BKS"},
        "allowed are PEM",
    ),
    (
        {"security.protocol": "SSL", "ssl.truststore.certificates": "x"},
        "needs ssl.truststore.type=PEM, not JKS",
    ),
    (
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "x",
            "ssl.truststore.location": "y",
        },
        "allowed is one of the two",
    ),
    (
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.password": "p",
            "ssl.truststore.location": "y",
        },
        "ssl.truststore.password is not for PEM files",
    ),
    ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain is missing"),
    ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "allowed are https"),
    ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "SSLv3 is unknown; allowed are TLSv1,"),
    (SASL, "this client does not support Kerberos; allowed are PLAIN"),
    (SASL | {"sasl.mechanism": "GSSAPI"}, "does not support Kerberos"),
    (SASL | {"sasl.mechanism": "DIGEST"}, "sasl.mechanism=DIGEST: allowed are PLAIN, SCRAM-SHA-256"),
    (SASL | {"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
    (
        SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} required;"},
        "is not for sasl.mechanism=PLAIN",
    ),
    (SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required;"}, "username is missing"),
    (
        SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=u;"},
        "password is missing",
    ),
    (
        SASL
        | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH} required;",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        },
        "https://idp/token: the URL is not allowed; add it to org.apache.kafka.sasl.oauthbearer.allowed.urls",
    ),
    (
        SASL | {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH} required;"},
        "sasl.oauthbearer.token.endpoint.url is missing: set it, and org.apache.kafka.sasl",
    ),
]


@pytest.mark.parametrize(("properties", "said"), WRONG)
def test_wrong_settings_name_key_value_and_what_is_allowed(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SecurityConfig.from_properties(properties)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("M REQUIRED a=b;", {"a": "b"}),
        ("M required\n  a='b c'\n  d=\"e;=f\" ;", {"a": "b c", "d": "e;=f"}),
        ("// why\nM optional /* and\nthis */ a=b;", {"a": "b"}),
        (r'M required a="\"\\\t\101";', {"a": '"\\\tA'}),
    ],
)
def test_jaas_texts_read_as_in_java(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, dict(module.options)) == ("M", options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a login module is missing"),
        ("M", "control flag is missing"),
        ("M perhaps;", "control flag is missing"),
        ("M required a=b", "the semicolon at the end"),
        ("M required a;", "option a has no value"),
        ("M required a=;", "option a has no value"),
        ('M required password="se cret;', "is a quote missing"),
        ("M required; N required;", "more than one login module"),
    ],
)
def test_wrong_jaas_texts_are_reported_without_their_secrets(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        parse_jaas(text)
    assert "cret" not in str(refused.value)


@given(st.text())
def test_any_jaas_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_jaas(text).name
