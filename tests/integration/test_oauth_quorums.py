"""A quorum of a stock Java controller and ours, and a stock broker: all log in with OAUTHBEARER over TLS."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.issuer import AUDIENCE, ISSUER, Issuer, new_key
from kit.java.tls import Certificates
from kit.kafka import stock_kafka_of
from kit.ledger import ContinuousTopics
from kit.membership import assert_same_everywhere, await_progress, lead_with
from kit.releases import RELEASE
from kit.secured import allow, controllers_of
from kit.token_endpoint import GivenToken, TokenEndpoint, token_endpoint
from kit.waiting import eventually
from quorate_admin.errors import AuthenticationError, ServerError
from quorate_admin.security.config import Mechanism, SaslConfig, SecurityConfig
from quorate_operator.properties import render_properties
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, SecurityProtocol
from quorate_protocol.kafka.releases import version_key
from quorate_protocol.security.oauth import ALLOWED_URLS

pytestmark = pytest.mark.integration

CLASSES = "org.apache.kafka.common.security.oauthbearer"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLIENTS = {"node": "node-secret", "client": "client-secret"}
LIFETIME_S = 15
"""Of a token: sessions end and are renewed while the tests run."""
RENEWED_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Federated:
    """A cluster and the issuer of its tokens."""

    cluster: Cluster
    endpoint: TokenEndpoint
    certificates: Certificates
    system_property: str
    """What allows Java to ask the endpoint, and to read the keys."""

    @property
    def issuer(self) -> Issuer:
        return self.endpoint.issuer

    def properties(self, client: str) -> dict[str, str]:
        """How a client logs in, for Kafka's tools and for ours."""
        return {
            "security.protocol": "SASL_SSL",
            **trust(self.certificates),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{CLASSES}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{CLASSES}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"{self.endpoint.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": client,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENTS[client],
        }

    def as_client(self, client: str) -> SecurityConfig:
        """Our client's settings."""
        allowed = {ALLOWED_URLS: f"{self.endpoint.url}/token"}
        return SecurityConfig.from_properties({**self.properties(client), **allowed})

    def with_token(self, token: str) -> SecurityConfig:
        """A client that shows this token."""
        own = self.as_client("client")
        sasl = SaslConfig(mechanism=Mechanism.OAUTHBEARER, tokens=GivenToken(token))
        return SecurityConfig(protocol=SecurityProtocol.SASL_SSL, tls=own.tls, sasl=sasl)


def trust(certificates: Certificates) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority)}


def node_properties(found: Federated, jwks: str) -> dict[str, str]:
    """Of a controller, or a broker at its controllers."""
    listener = "listener.name.controller.oauthbearer"
    certificates, endpoint = found.certificates, found.endpoint
    login = f'clientId="node" clientSecret="{CLIENTS["node"]}" scope="kafka" extension_cluster="blue"'
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
        **trust(certificates),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{CLASSES}.OAuthBearerLoginModule required {login};",
        f"{listener}.sasl.server.callback.handler.class": f"{CLASSES}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.login.callback.handler.class": f"{CLASSES}.OAuthBearerLoginCallbackHandler",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": jwks,
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{listener}.sasl.oauthbearer.clock.skew.seconds": "0",
        f"{listener}.sasl.oauthbearer.token.endpoint.url": f"{endpoint.url}/token",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:node",
    }


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Federated]:
    """A Java controller, two of ours and a stock broker, serving. A controller of ours reads the keys by HTTP."""
    if version_key(RELEASE) < version_key("4.4"):
        pytest.skip(f"the properties are those of Kafka 4.4, this is {RELEASE}")
    directory = tmp_path_factory.mktemp("federated")
    with ExitStack() as stack:
        issuer = Issuer.with_keys("RS256", "ES256")
        endpoint = stack.enter_context(token_endpoint(issuer, CLIENTS, lifetime_s=LIFETIME_S))
        file = directory / "jwks.json"
        file.write_text(json.dumps(issuer.jwks))
        urls = (file.as_uri(), f"{endpoint.url}/token", f"{endpoint.url}/keys")
        cluster = Cluster.create(
            directory / "cluster", kafka_jars, manifests(java=(3000,), metadata_version="4.4")
        )
        stack.callback(cluster.close)
        system_property = f"-D{ALLOWED_URLS}={','.join(urls)}"
        options = f"{cluster.environment['KAFKA_HEAP_OPTS']} {system_property}"
        cluster.environment = {**cluster.environment, "KAFKA_HEAP_OPTS": options}
        certificates = Certificates.create(directory / "certificates")
        found = Federated(cluster, endpoint, certificates, system_property)
        *_, asks = cluster.controllers_in("python")
        for node_id in (*cluster.controllers, *cluster.brokers):
            properties = node_properties(found, urls[2 if node_id == asks else 0])
            if node_id in cluster.controllers_in("python"):
                properties[ALLOWED_URLS] = ",".join(urls)
            cluster.configure(node_id, properties)
        cluster.controller_security = found.as_client("node")
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        allow(
            found.cluster, found.as_client("node"), "User:ANONYMOUS", AclOperation.ALL
        )  # clients of the broker, at its listener without TLS
        cluster.start_all()
        yield found


def describe(found: Federated, security: SecurityConfig, node_id: int) -> int:
    """The leader as a controller reports it."""

    async def ask() -> int:
        async with controllers_of(found.cluster, security, node_id) as admin:
            return (await admin.describe_metadata_quorum(timeout_ms=20_000)).leader_id

    return asyncio.run(ask())


def test_leadership_passes_while_tokens_are_replaced(federated: Federated) -> None:
    """Nodes of both kinds get in at each other, and stay in when their tokens end (KIP-368)."""
    cluster, endpoint = federated.cluster, federated.endpoint
    with ContinuousTopics(cluster.bootstrap_servers, "federated") as topics:
        for implementation in ("python", "java"):
            leader = lead_with(cluster, implementation)
            await_progress(cluster, topics)
            asked, nodes = len(endpoint.requests), len(cluster.controllers) + len(cluster.brokers)
            eventually(
                lambda asked=asked, nodes=nodes: (
                    sum(request["path"] == "/token" for request in endpoint.requests[asked:]) >= 2 * nodes
                ),
                RENEWED_TIMEOUT_S,
                "each node has got a new token twice",
            )
            assert cluster.await_quorum().leader_id == leader
            await_progress(cluster, topics)
            cluster.terminate(leader)
            cluster.await_leader(other_than=leader)
            await_progress(cluster, topics)
            cluster.start(leader)
    assert_same_everywhere(cluster, topics.acknowledged)
    for node_id in cluster.controllers_in("python"):
        assert "its session is over" not in cluster.log_of(node_id)
    assert {request.get("scope", "kafka") for request in endpoint.requests} == {"kafka"}


def test_tokens_are_refused_alike(federated: Federated) -> None:
    """Our controllers refuse the tokens that Kafka's refuse, with the same response."""
    issuer = federated.issuer
    now_s = issuer.claims()["iat"]
    stranger = Issuer({"RS256": ("RS256", new_key("RS256", "stranger"))})
    tokens = {
        "expired": issuer.token(exp=now_s - 5, iat=now_s - 100),
        "another audience": issuer.token(aud="other"),
        "another issuer": issuer.token(iss="https://other.test"),
        "another key": stranger.token("RS256"),
        "an unknown key": issuer.token(header={"kid": "unknown"}),
        "no signature": issuer.unsigned() + "x",
        "alg=none": issuer.unsigned(),
        "a public key as a secret": issuer.forged_with_public_key("RS256"),
        "no subject": issuer.token(sub=None),
        "no expiry": issuer.token(exp=None),
        "no time of issue": issuer.token(iat=None),
        "no audience": issuer.token(aud=None),
        "no token": "nonsense",
    }
    python, java = (
        federated.cluster.controllers_in(implementation)[0] for implementation in ("python", "java")
    )
    for way, token in tokens.items():
        said = []
        for node_id in (python, java):
            with pytest.raises(AuthenticationError) as refused:
                describe(federated, federated.with_token(token), node_id)
            said.append(str(refused.value).partition(": ")[2])
        assert said == ['{"status":"invalid_token"}'] * 2, way
    for implementation in ("python", "java"):
        leader = lead_with(federated.cluster, implementation)
        for key_id in issuer.keys:
            with pytest.raises(ServerError) as denied:
                describe(federated, federated.with_token(issuer.token(key_id, sub="client")), leader)
            assert denied.value.error_code is ErrorCode.cluster_authorization_failed


def test_stock_tools_get_a_token_and_get_in(federated: Federated, tmp_path: Path) -> None:
    allow(federated.cluster, federated.as_client("node"), "User:client", AclOperation.DESCRIBE)
    allow(federated.cluster, federated.as_client("node"), "User:client", AclOperation.ALTER)
    kafka = stock_kafka_of(RELEASE)

    def ask(node_id: int, **changes: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "client.properties"
        file.write_text(render_properties({**federated.properties("client"), **changes}, "The test's."))
        return subprocess.run(
            [
                "java",
                federated.system_property,
                "-cp",
                f"{kafka.libs_of(METADATA_QUORUM)}/*",
                METADATA_QUORUM,
                "--bootstrap-controller",
                federated.cluster.address(node_id),
                "--command-config",
                str(file),
                "describe",
                "--status",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for node_id in federated.cluster.controllers:
        ran = ask(node_id)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "LeaderId:" in ran.stdout
        assert describe(federated, federated.as_client("client"), node_id) >= 0
    secret = "sasl.oauthbearer.client.credentials.client.secret"
    assert ask(federated.cluster.controllers_in("python")[0], **{secret: "wrong"}).returncode != 0
