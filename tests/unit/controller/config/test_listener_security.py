"""How controller listeners are secured: keys with and without a prefix, and what is refused in words that help."""

from collections.abc import Mapping

import pytest
from quorate_controller.config import ConfigError, ControllerConfig, parse_config
from quorate_controller.security.bearer import TokenRules
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.security.tls import ClientAuth

BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER,OTHER",
    "listeners": "CONTROLLER://127.0.0.1:9093,OTHER://127.0.0.1:9094",
    "listener.security.protocol.map": "CONTROLLER:SSL,OTHER:PLAINTEXT",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/key.pem",
}
SECRET = "geheim"


def parse(changes: Mapping[str, str], without: str = "") -> ControllerConfig:
    """The configuration with changes."""
    return parse_config({key: value for key, value in {**BASE, **changes}.items() if key != without})


def assert_refused(changes: Mapping[str, str], problem: str) -> None:
    """The text is in a reported problem, and no problem shows a secret."""
    with pytest.raises(ConfigError) as refused:
        parse(changes)
    assert any(problem in text for text in refused.value.problems), refused.value.problems
    assert SECRET not in str(refused.value)


def test_a_prefix_takes_precedence() -> None:
    config = parse(
        {
            "ssl.client.auth": "none",
            "listener.name.controller.ssl.client.auth": "Required",
            "listener.name.controller.ssl.keystore.location": "/own.pem",
            "listener.name.controller.ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/",
            "ssl.protocol": "TLSv1.3",
        }
    )
    secured, other = config.listener_security["CONTROLLER"], config.listener_security["OTHER"]
    assert (secured.protocol, other.protocol) == (SecurityProtocol.SSL, SecurityProtocol.PLAINTEXT)
    assert other.tls is None
    assert secured.tls is not None
    assert secured.tls.tls.keystore is not None
    assert secured.tls.tls.keystore.location == "/own.pem"
    assert secured.tls.client_auth is ClientAuth.REQUIRED
    assert len(secured.tls.mapping_rules) == 1
    assert config.notes == ()


def test_keys_without_a_listener_that_reads_them_are_noted() -> None:
    config = parse({"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"})
    assert [note.partition(" ")[0] for note in config.notes] == ["ssl.keystore.location", "ssl.keystore.type"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth=maybe: "),
        (
            {"listener.name.controller.ssl.client.auth": "x"},
            "ssl.client.auth=x: allowed are none, requested, required",
        ),
        ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS: allowed are PEM, PKCS12, JKS"),
        ({"ssl.enabled.protocols": "TLSv9"}, "ssl.enabled.protocols: TLSv9 is unknown"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3: allowed are TLS, TLSv1, "),
        ({"ssl.principal.mapping.rules": "RULE:a/b"}, "ssl.principal.mapping.rules=RULE:a/b: "),
        (
            {"ssl.principal.mapping.rules": "RULE:(/b/"},
            "( is no regular expression that is supported: ",
        ),
        ({"ssl.principal.mapping.rules": "RULE:a/$1/"}, "refers to a group that the pattern does not have"),
        ({"ssl.keystore.password": SECRET}, "ssl.keystore.password is not for PEM files"),
        ({"ssl.keystore.key": SECRET}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class=x.Y: Java classes can't run here"),
        ({"ssl.keystore.pasword": SECRET}, "ssl.keystore.pasword: there is no such key"),
    ],
)
def test_what_is_wrong_is_refused(changes: Mapping[str, str], problem: str) -> None:
    assert_refused(changes, problem)


def test_a_key_store_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"listener CONTROLLER: ssl\.keystore\.location is missing"):
        parse({}, without="ssl.keystore.location")


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = "listener.name.controller.plain.sasl.jaas.config"
SASL = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,OTHER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    JAAS: f'{PLAIN} required username="c" password="{SECRET}" user_c="{SECRET}" user_alice="x";',
    "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
}


def test_sasl_of_a_listener_is_read() -> None:
    config = parse(
        {
            **SASL,
            "connections.max.reauth.ms": "60000",
            "listener.name.controller.plain.connections.max.reauth.ms": "5000",
            "connection.failed.authentication.delay.ms": "7",
            "sasl.server.max.receive.size": "1000",
            "sasl.jaas.config": f"{PLAIN} required;",  # without a mechanism, which Kafka ignores, too
        }
    )
    sasl = config.listener_security["CONTROLLER"].sasl
    assert sasl is not None
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert sasl.passwords == {"c": SECRET, "alice": "x"}
    assert sasl.reauthentication_ms == {"PLAIN": 5_000, "SCRAM-SHA-512": 60_000}
    assert (sasl.receive_size_bytes_max, sasl.failure_delay_ms) == (1_000, 7)
    assert config.login is not None
    assert (config.login.mechanism, config.login.username, config.login.password) == ("PLAIN", "c", SECRET)
    ignored = ["sasl.jaas.config", "ssl.keystore.location", "ssl.keystore.type"]
    assert [note.partition(" ")[0] for note in config.notes] == ignored
    assert SECRET not in repr(config)


def test_sasl_over_tls_asks_for_certificates_only_if_the_listener_says_so() -> None:
    protocols = {"listener.security.protocol.map": "CONTROLLER:SASL_SSL,OTHER:PLAINTEXT"}
    for prefix, expected in (("", ClientAuth.NONE), ("listener.name.controller.", ClientAuth.REQUIRED)):
        config = parse({**SASL, **protocols, f"{prefix}ssl.client.auth": "required"})
        tls = config.listener_security["CONTROLLER"].tls
        assert tls is not None
        assert tls.client_auth is expected


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "GSSAPI is not supported; allowed are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (
            {"sasl.mechanism.controller.protocol": "GSSAPI"},
            "sasl.mechanism.controller.protocol=GSSAPI: is not supported",
        ),
        (
            {"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"},
            "scram-sha-256.sasl.jaas.config is missing",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "listener.name.controller.scram-sha-256.sasl.jaas.config is",
        ),
        ({JAAS: f'{PLAIN} required user_a="{SECRET}";'}, f"{JAAS}: username is missing"),
        ({JAAS: f'{PLAIN} required username="{SECRET}"'}, f"{JAAS}: the semicolon at the end is missing"),
        (
            {JAAS: f'{SCRAM} required username="{SECRET}";'},
            f"{JAAS}: {SCRAM} is not for PLAIN; allowed is {PLAIN}",
        ),
        ({"connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms=soon: "),
        (
            {"listener.name.controller.plain.connections.max.reauth.ms": "x"},
            "plain.connections.max.reauth.ms=x: must",
        ),
        (
            {"connection.failed.authentication.delay.ms": "600000"},
            "must be less than connections.max.idle.ms=600000",
        ),
        (
            {"sasl.server.callback.handler.class": "a.B"},
            "sasl.server.callback.handler.class=a.B: Java classes can't",
        ),
    ],
)
def test_what_is_wrong_with_sasl_is_refused(changes: Mapping[str, str], problem: str) -> None:
    assert_refused({**SASL, **changes}, problem)


OAUTH = "listener.name.controller.oauthbearer"
JWKS, TOKENS = "file:/run/jwks.json", "https://issuer.test/token"
CLASSES = "org.apache.kafka.common.security.oauthbearer"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
OAUTHBEARER = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,OTHER:PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    f"{OAUTH}.sasl.jaas.config": (
        f'{CLASSES}.OAuthBearerLoginModule required clientSecret="{SECRET}" scope="a b" extension_cluster="blue" '
        'ssl.truststore.type="PEM" ssl.truststore.location="/run/ca.pem";'
    ),
    f"{OAUTH}.sasl.server.callback.handler.class": f"{CLASSES}.OAuthBearerValidatorCallbackHandler",
    f"{OAUTH}.sasl.login.callback.handler.class": f"{CLASSES}.OAuthBearerLoginCallbackHandler",
    f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url": JWKS,
    "sasl.oauthbearer.token.endpoint.url": TOKENS,
    "sasl.oauthbearer.client.credentials.client.id": "controller",
    "sasl.oauthbearer.expected.audience": "kafka, quorate",
    "listener.name.controller.sasl.oauthbearer.expected.issuer": "https://issuer.test",
    ALLOWED: f"{JWKS},{TOKENS}",
}


def test_oauthbearer_of_a_listener_is_read() -> None:
    """Kafka's keys, with the prefixes of listener and mechanism and without."""
    config = parse(
        {**OAUTHBEARER, "sasl.oauthbearer.sub.claim.name": "name", "sasl.login.retry.backoff.ms": "7"}
    )
    sasl, login = config.listener_security["CONTROLLER"].sasl, config.login
    assert sasl is not None
    assert sasl.oauth is not None
    assert (sasl.oauth.file, sasl.oauth.url, sasl.oauth.refresh_ms) == ("/run/jwks.json", None, 3_600_000)
    assert sasl.oauth.rules == TokenRules(
        audiences=frozenset({"kafka", "quorate"}), issuer="https://issuer.test", sub_claim="name"
    )
    assert login is not None
    assert login.oauth is not None
    asked = login.oauth
    assert (asked.url, asked.client_id, asked.client_secret) == (TOKENS, "controller", SECRET)
    assert (asked.scope, asked.extensions, asked.retry_backoff_ms) == ("a b", {"cluster": "blue"}, 7)
    assert asked.tls.truststore is not None
    assert asked.tls.truststore.location == "/run/ca.pem"
    assert not [note for note in config.notes if "oauth" in note or "sasl" in note]
    assert SECRET not in repr(config)


def test_assertions_of_a_controller_are_read() -> None:
    """KIP-1139's keys with the listener's prefix and without."""
    config = parse(
        {
            **OAUTHBEARER,
            "sasl.oauthbearer.jwt.retriever.class": f"{CLASSES}.JwtBearerJwtRetriever",
            f"{OAUTH}.sasl.oauthbearer.assertion.private.key.file": "/run/key.pem",
            "org.apache.kafka.sasl.oauthbearer.allowed.files": "/run/key.pem",
            "sasl.oauthbearer.assertion.private.key.passphrase": SECRET,
            "sasl.oauthbearer.assertion.claim.sub": "controller",
        }
    )
    assert config.login is not None
    assert config.login.oauth is not None
    assertion = config.login.oauth.assertion
    assert assertion is not None
    assert (assertion.private_key_file, assertion.passphrase) == ("/run/key.pem", SECRET)
    assert assertion.claims == {"sub": "controller"}
    assert not [note for note in config.notes if "oauth" in note or "sasl" in note]
    assert SECRET not in repr(config)


def test_allowed_urls_are_also_a_system_property(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {key: value for key, value in OAUTHBEARER.items() if key != ALLOWED}
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1G -D{ALLOWED}={TOKENS},{JWKS} -Dother=1")
    assert parse(properties).login is not None
    monkeypatch.setenv("KAFKA_OPTS", f"-D{ALLOWED}={TOKENS}")
    with pytest.raises(ConfigError, match=r"file:/run/jwks\.json: the URL is not allowed"):
        parse(properties)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {f"{OAUTH}.sasl.server.callback.handler.class": ""},
            "sasl.server.callback.handler.class is missing: Kafka takes unsecured tokens then; allowed is org.apache",
        ),
        (
            {f"{OAUTH}.sasl.server.callback.handler.class": "a.B"},
            "sasl.server.callback.handler.class=a.B: Java classes can't run here; allowed is org.apache",
        ),
        (
            {f"{OAUTH}.sasl.login.callback.handler.class": ""},
            "sasl.login.callback.handler.class is missing: Kafka makes unsecured tokens then",
        ),
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience is missing"),
        (
            {"listener.name.controller.sasl.oauthbearer.expected.issuer": ""},
            "sasl.oauthbearer.expected.issuer is missing",
        ),
        (
            {f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url": ""},
            "sasl.oauthbearer.jwks.endpoint.url is missing",
        ),
        (
            {f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url": "ftp://x/y"},
            "jwks.endpoint.url=ftp://x/y: allowed are https:, http: and file: URLs",
        ),
        ({ALLOWED: TOKENS}, f"jwks.endpoint.url={JWKS}: the URL is not allowed; add it to {ALLOWED}"),
        ({ALLOWED: JWKS}, f"token.endpoint.url={TOKENS}: the URL is not allowed"),
        (
            {"sasl.oauthbearer.client.credentials.client.id": ""},
            "sasl.oauthbearer.client.credentials.client.id is missing, or clientId in sasl.jaas.config",
        ),
        (
            {"sasl.login.refresh.window.factor": "0.3"},
            "sasl.login.refresh.window.factor=0.3: must be from 0.5",
        ),
        (
            {"sasl.oauthbearer.jwt.validator.class": f"{CLASSES}.ClientJwtValidator"},
            "allowed are org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": "a.B"},
            "sasl.oauthbearer.jwt.retriever.class=a.B: allowed are org.apache",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": f"{CLASSES}.JwtBearerJwtRetriever"},
            "sasl.oauthbearer.assertion.private.key.file is missing",
        ),
    ],
)
def test_what_is_wrong_with_oauthbearer_is_refused(changes: Mapping[str, str], problem: str) -> None:
    assert_refused({**OAUTHBEARER, **changes}, problem)
