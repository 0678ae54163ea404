"""examples/oauth.yaml as a user plays it: clients log in with tokens of an issuer, nodes with passwords."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.cluster import free_ports
from kit.issuer import AUDIENCE, ISSUER, Issuer, new_key
from kit.java.tls import Certificates, signed
from kit.player import TIMEOUT_S, Player
from kit.token_endpoint import GivenToken, TokenEndpoint, token_endpoint
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AuthenticationError, ServerError
from quorate_admin.security.config import Mechanism, SaslConfig, SecurityConfig
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_operator.properties import render_properties
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ResourceType, SecurityProtocol
from quorate_protocol.properties import parse_properties
from quorate_protocol.security.oauth import ALLOWED_URLS
from quorate_protocol.security.stores import tls_from_properties

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"
CLASSES = "org.apache.kafka.common.security.oauthbearer"
CLIENTS = {"alice": "client-secret-of-alice", "broker": "client-secret-of-broker"}
TOPIC, CLUSTER_NAME = "orders", "kafka-cluster"
SESSION_S = 6
INVALID_TOKEN = '{"status":"invalid_token"}'
PARTNERS = """\
    - name: PARTNERS
      port: %d
      protocol: SASL_SSL
      tls: {secretName: brokers-tls}
      sasl:
        mechanisms: [PLAIN, OAUTHBEARER]
        reauthentication: 2s
        username: broker
        secretName: users
        oauth: {jwksSecretName: issuer, issuer: "https://partner.test", audiences: [kafka, partners]}
"""
PARTNER = Issuer.with_keys("ES256")


@dataclass(frozen=True, slots=True)
class Sso:
    """An issuer behind TLS, whose authority is not that of the brokers."""

    endpoint: TokenEndpoint
    authority: Path

    @property
    def issuer(self) -> Issuer:
        return self.endpoint.issuer

    def secret(self, partner: Issuer) -> str:
        """The Secret that the example names, with the keys of another issuer, too."""
        values = {"ca.crt": self.authority.read_text(), "jwks.json": json.dumps(partner.jwks)}
        metadata = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "issuer"}}
        return json.dumps({**metadata, "stringData": values})


@pytest.fixture
def sso(tmp_path: Path) -> Iterator[Sso]:
    certificates = Certificates.create(tmp_path / "issuer")
    certificate = signed(tmp_path / "issuer", "sso", authority="other-ca")
    issuer = Issuer.with_keys("RS256", "ES256")
    with token_endpoint(issuer, CLIENTS, certificate=certificate) as endpoint:
        yield Sso(endpoint, certificates.other_authority)


@dataclass(frozen=True, slots=True)
class Played:
    """The example with a controller of each kind and a broker, and a listener whose keys are in a Secret."""

    player: Player
    sso: Sso
    servers: str
    """The listener of clients."""
    internal: str
    partners: str
    """The listener with the keys of a Secret."""
    controllers: tuple[str, str]
    """The listeners of the controller in Python and of that of stock Kafka."""

    @property
    def tls(self) -> dict[str, str]:
        authority = self.player.directory / "secrets" / "brokers-tls" / "ca.crt"
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}

    def tool(self, name: str, line: str, client: str, secret: str) -> subprocess.CompletedProcess[str]:
        """Run a stock tool as a client that asks the issuer for a token with its id and a secret."""
        options = (
            f'clientId="{client}" clientSecret="{secret}" ssl.truststore.type="PEM" '
            f'ssl.truststore.location="{self.sso.authority}"'
        )
        properties = {
            "security.protocol": "SASL_SSL",
            **self.tls,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{CLASSES}.OAuthBearerLoginModule required {options};",
            "sasl.login.callback.handler.class": f"{CLASSES}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"{self.sso.endpoint.url}/token",
        }
        file = self.player.path / "client.properties"
        file.write_text(render_properties(properties, "The test's."))
        script = self.player.directory / "bin" / name
        option = f"-D{ALLOWED_URLS}={self.sso.endpoint.url}/token"
        return subprocess.run(
            ["/bin/sh", "-c", f"{script} --bootstrap-server {self.servers} --command-config {file} {line}"],
            **{**self.player.surroundings, "env": {**self.player.environment, "JDK_JAVA_OPTIONS": option}},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def with_token(self, token: str, servers: str | None = None) -> AdminClient:
        """Our client, which shows this token to the listener of clients, to another, or to a controller."""
        sasl = SaslConfig(mechanism=Mechanism.OAUTHBEARER, tokens=GivenToken(token))
        security = SecurityConfig(
            protocol=SecurityProtocol.SASL_SSL, tls=tls_from_properties(self.tls), sasl=sasl
        )
        if servers in self.controllers:
            return AdminClient(bootstrap_controllers=[servers], security=security)
        return AdminClient(bootstrap_servers=[servers or self.servers], security=security)

    def as_user(self, user: str, servers: str) -> AdminClient:
        """Our client with the file that was written for a user of the manifest."""
        text = (self.player.directory / "clients" / f"{user}.properties").read_text()
        return AdminClient(AdminConfig.from_properties(parse_properties(text), bootstrap_servers=servers))


def partner_of(player: Player, sso: Sso, partner: Issuer) -> tuple[str, ...]:
    """Arguments of `quorate play`: the Secrets, among them the keys of a partner."""
    file = player.path / "issuer.yaml"
    file.write_text(sso.secret(partner))
    return ("-f", str(player.path / "made" / "secrets.yaml"), "-f", str(file))


@pytest.fixture
def played(player: Player, sso: Sso) -> Played:
    """Two controllers and one broker of the example, with the issuer of the test."""
    made = player.path / "made"
    subprocess.run([str(EXAMPLES / "secure" / "secrets.sh"), str(made)], check=True, timeout=TIMEOUT_S)
    ports = free_ports(5)
    text = (EXAMPLES / "oauth.yaml").read_text()
    for old, new, count in (
        ("replicas: 3\n  version", "replicas: 2\n  version", 1),
        (
            "nodeIds: {first: 3000}",
            "nodeIds: {first: 3000}\n  nodes: [{nodeId: 3001, implementation: java}]",
            1,
        ),
        ("replicas: 3", "replicas: 1", 1),
        ("- name: CONTROLLER\n", f"- name: CONTROLLER\n      port: {ports + 3}\n", 1),
        ("port: 9091", f"port: {ports}", 1),
        ("port: 9092", f"port: {ports + 1}", 1),
        (
            "https://sso.example.com/realms/shop/protocol/openid-connect/certs",
            f"{sso.endpoint.url}/keys",
            2,
        ),
        ("issuer: https://sso.example.com/realms/shop", f"issuer: {ISSUER}", 2),
        ("audiences: [kafka]", f"audiences: [{AUDIENCE}]", 2),
        ("subjectClaim: azp", "subjectClaim: sub\n          clockSkewSeconds: 0", 2),
    ):
        assert text.count(old) == count, old
        text = text.replace(old, new)
    player.write(text + PARTNERS % (ports + 2))
    player.play(*partner_of(player, sso, PARTNER))
    internal, servers, partners, *controllers = (f"127.0.0.1:{ports + place}" for place in range(5))
    python, java = controllers
    return Played(
        player, sso, servers=servers, internal=internal, partners=partners, controllers=(python, java)
    )


def allow_alice(played: Played) -> None:
    async def create() -> None:
        async with played.as_user("admin", played.internal) as admin:
            entry = AccessControlEntry(principal="User:alice", operation=AclOperation.ALL)
            patterns = (
                ResourcePattern(resource_type=ResourceType.TOPIC, name=TOPIC),
                ResourcePattern(resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME),
            )
            bindings = [AclBinding(pattern=pattern, entry=entry) for pattern in patterns]
            assert not (await admin.create_acls(bindings)).errors

    asyncio.run(create())


def refusal_of(client: AdminClient) -> str | None:
    """The error of a client that logs in; None if it gets in."""

    async def ask() -> str | None:
        async with client as admin:
            try:
                await admin.describe_cluster()
            except AuthenticationError as error:
                return str(error)
        return None

    return asyncio.run(ask())


def invalid(issuer: Issuer) -> dict[str, str]:
    """Tokens with a mistake each."""
    now_s = issuer.claims()["iat"]
    other = Issuer({"RS256": ("RS256", new_key("RS256", "stranger"))})
    return {
        "expired": issuer.token(exp=now_s - 5, iat=now_s - 100),
        "another issuer": issuer.token(iss="https://other.test"),
        "another audience": issuer.token(aud="other"),
        "another key": other.token("RS256"),
        "no signature": issuer.unsigned(),
    }


def await_refusal(admin: AdminClient, loop: asyncio.Runner) -> None:
    """Ask with the same client until its token is refused: its session has ended.

    Shortly before, it may be refused for another reason: it logs in again more than once a second.
    """

    def is_refused() -> bool:
        try:
            loop.run(admin.describe_cluster())
        except AuthenticationError as error:
            return INVALID_TOKEN in str(error)
        return False

    eventually(is_refused, TIMEOUT_S, "the token to be refused")


def test_clients_log_in_with_tokens_and_acls_hold_for_them(played: Played) -> None:
    """A manifest is all that stock brokers need to accept an issuer's tokens, and no others."""
    secret = CLIENTS["alice"]
    create = f"--create --topic {TOPIC} --partitions 1"
    denied = played.tool("kafka-topics", create, "alice", secret)
    assert "TopicAuthorizationException" in denied.stdout + denied.stderr
    allow_alice(played)
    created = played.tool("kafka-topics", create, "alice", secret)
    assert created.returncode == 0, created.stdout + created.stderr
    produced = played.tool("kafka-console-producer", f"--topic {TOPIC} <<EOF\nhello\nEOF", "alice", secret)
    assert (produced.returncode, "ERROR" in produced.stderr) == (0, False), produced.stderr
    stranger = played.tool("kafka-topics", "--list", "alice", "wrong")
    assert stranger.returncode != 0
    assert TOPIC not in stranger.stdout

    issuer = played.sso.issuer
    reported = {way: refusal_of(played.with_token(token)) for way, token in invalid(issuer).items()}
    assert [way for way, text in reported.items() if INVALID_TOKEN not in str(text)] == [], reported
    assert refusal_of(played.with_token(issuer.token(sub="alice"))) is None
    assert "SCRAM-SHA-512" in str(refusal_of(played.as_user("broker", played.servers)))
    assert "OAUTHBEARER" in str(refusal_of(played.with_token(issuer.token(), played.internal)))
    assert {request["path"] for request in played.sso.endpoint.requests} == {"/token", "/keys"}


def test_keys_in_a_secret_are_followed_without_a_restart(played: Played) -> None:
    """An issuer that brokers can't reach may change its keys."""
    player, claims = played.player, {"iss": "https://partner.test", "aud": "partners"}
    changed = Issuer({"ES256": ("ES256", new_key("ES256", "changed"))})

    def refusals() -> list[str | None]:
        tokens = [signer.token(**claims) for signer in (PARTNER, changed)]
        return [refusal_of(played.with_token(token, played.partners)) for token in tokens]

    former, later = refusals()
    assert former is None
    assert later is not None
    before = {process.pid for process in player.processes()}
    with asyncio.Runner() as loop:
        admin = played.with_token(PARTNER.token(**claims), played.partners)
        loop.run(admin.describe_cluster())
        player.edit(player.manifest.read_text(), *partner_of(player, played.sso, changed))
        former, later = refusals()
        assert later is None
        assert former is not None
        await_refusal(admin, loop)
        loop.run(admin.close())
    assert {process.pid for process in player.processes()} == before


def test_administrators_log_in_at_controllers_with_tokens(played: Played) -> None:
    """Both kinds of controllers accept an issuer's tokens while nodes log in with PLAIN (KIP-919)."""
    allow_alice(played)
    issuer = played.sso.issuer
    for controller in played.controllers:
        reported = {
            way: refusal_of(played.with_token(token, controller)) for way, token in invalid(issuer).items()
        }
        assert [way for way, text in reported.items() if INVALID_TOKEN not in str(text)] == [], reported
        assert refusal_of(played.with_token(issuer.token(sub="alice"), controller)) is None
        with pytest.raises(ServerError) as denied:
            refusal_of(played.with_token(issuer.token(sub="nobody"), controller))
        assert denied.value.error_code is ErrorCode.cluster_authorization_failed
        with asyncio.Runner() as loop:
            expiring = issuer.token(sub="alice", exp=int(time.time()) + SESSION_S)
            admin = played.with_token(expiring, controller)
            loop.run(admin.describe_cluster())
            await_refusal(admin, loop)
            loop.run(admin.close())
