"""Quorums of stock Java controllers and ours with a stock broker, whose controller listeners are secured.

Ours connect to Java, Java and the broker to ours. No connection is anonymous there: the principal of
nodes is a super user.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.cluster import PLAIN, SCRAM
from kit.java.tls import CLIENT_PRINCIPAL, Certificates
from kit.ledger import ContinuousTopics
from kit.membership import assert_same_everywhere, await_progress, lead_with
from kit.metadata import image_of
from kit.secured import allow, controllers_of
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ServerError
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.credentials import UserScramCredentialUpsertion
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ScramMechanism

pytestmark = pytest.mark.integration

NODE, NODE_PASSWORD = "node", "node-secret"
CLIENT, CLIENT_PASSWORD = "client", "client-secret"
REFUSED_TIMEOUT_MS = 2_000
"""A client takes a closed connection for a failure that may pass, and tries again for this long."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True)
class Secured:
    """A cluster, and how to ask its controllers: as a node, as another client, and in ways that are refused."""

    cluster: Cluster
    as_node: SecurityConfig
    as_client: SecurityConfig
    client_principal: str
    refused: dict[str, SecurityConfig]


def tls_properties(certificates: Certificates, keystore: Path | None) -> dict[str, str]:
    """Trust in the authority, and a key."""
    properties = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }
    return {key: value for key, value in properties.items() if keystore or "keystore" not in key}


def client(protocol: str, properties: dict[str, str]) -> SecurityConfig:
    return SecurityConfig.from_properties({"security.protocol": protocol, **properties})


def ssl_cluster(directory: Path, jars: Path) -> Secured:
    """Controller listeners with SSL, where clients need a certificate."""
    certificates = Certificates.create(directory / "certificates")
    cluster = Cluster.create(directory / "cluster", jars, manifests(java=(3000,), metadata_version="4.4"))
    for node_id in (*cluster.controllers, *cluster.brokers):
        cluster.configure(
            node_id,
            {
                "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
                **tls_properties(certificates, certificates.server),
                "listener.name.controller.ssl.client.auth": "required",
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:CN=server",
            },
        )
    cluster.controller_security = client("SSL", tls_properties(certificates, certificates.server))
    return Secured(
        cluster,
        as_node=cluster.controller_security,
        as_client=client("SSL", tls_properties(certificates, certificates.client)),
        client_principal=CLIENT_PRINCIPAL,
        refused={
            "plain text": client("PLAINTEXT", {}),
            "no certificate": client("SSL", tls_properties(certificates, None)),
        },
    )


def sasl_cluster(directory: Path, jars: Path) -> Secured:
    """Controller listeners with SASL_SSL: nodes log in with PLAIN, the client with SCRAM, and sessions are short."""
    certificates = Certificates.create(directory / "certificates")
    cluster = Cluster.create(directory / "cluster", jars, manifests(java=(3000,), metadata_version="4.4"))
    listener = "listener.name.controller"
    login = f'username="{NODE}" password="{NODE_PASSWORD}"'
    for node_id in (*cluster.controllers, *cluster.brokers):
        cluster.configure(
            node_id,
            {
                "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
                **tls_properties(certificates, certificates.server),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "sasl.mechanism.controller.protocol": "PLAIN",
                f"{listener}.plain.sasl.jaas.config": (
                    f'{PLAIN} required {login} user_{NODE}="{NODE_PASSWORD}";'
                ),
                f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
                f"{listener}.plain.connections.max.reauth.ms": "5000",
                "authorizer.class.name": AUTHORIZER,
                "super.users": f"User:{NODE}",
            },
        )
    trust = tls_properties(certificates, None)

    def sasl(mechanism: str, module: str, user: str, password: str) -> SecurityConfig:
        jaas = f'{module} required username="{user}" password="{password}";'
        return client("SASL_SSL", {**trust, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})

    cluster.controller_security = sasl("PLAIN", PLAIN, NODE, NODE_PASSWORD)
    return Secured(
        cluster,
        as_node=cluster.controller_security,
        as_client=sasl("SCRAM-SHA-512", SCRAM, CLIENT, CLIENT_PASSWORD),
        client_principal=f"User:{CLIENT}",
        refused={
            "plain text": client("PLAINTEXT", {}),
            "no login": client("SSL", trust),
            "a wrong password": sasl("PLAIN", PLAIN, NODE, "wrong"),
            "a wrong password of SCRAM": sasl("SCRAM-SHA-512", SCRAM, CLIENT, "wrong"),
            "an unknown user": sasl("SCRAM-SHA-512", SCRAM, "nobody", CLIENT_PASSWORD),
        },
    )


@pytest.fixture(scope="module", params=[ssl_cluster, sasl_cluster], ids=["SSL", "SASL_SSL"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path
) -> Iterator[Secured]:
    """One Java controller, two of ours and a stock broker, which serve."""
    found: Secured = request.param(tmp_path_factory.mktemp("secured"), kafka_jars)
    try:
        found.cluster.start(*found.cluster.controllers)
        found.cluster.await_quorum()
        allow(
            found.cluster, found.as_node, "User:ANONYMOUS", AclOperation.ALL
        )  # clients of the broker, at its listener without TLS
        found.cluster.start_all()
        create_client(found)
        yield found
    finally:
        found.cluster.close()


def create_client(secured: Secured) -> None:
    """Create the credential of the client that logs in with SCRAM."""

    async def create() -> None:
        async with AdminClient(bootstrap_servers=secured.cluster.bootstrap_servers.split(",")) as admin:
            credential = UserScramCredentialUpsertion(
                user=CLIENT, mechanism=ScramMechanism.SCRAM_SHA_512, password=CLIENT_PASSWORD.encode()
            )
            assert not (await admin.alter_user_scram_credentials([credential])).errors

    asyncio.run(create())


def test_leadership_passes_between_java_and_python(secured: Secured) -> None:
    """Votes, fetches, forwarded requests and heartbeats cross the secured listeners both ways."""
    cluster = secured.cluster
    with ContinuousTopics(cluster.bootstrap_servers, "secured") as topics:
        for implementation in ("python", "java"):
            leader = lead_with(cluster, implementation)
            await_progress(cluster, topics)
            cluster.terminate(leader)
            cluster.await_leader(other_than=leader)
            await_progress(cluster, topics)
            cluster.start(leader)
    assert_same_everywhere(cluster, topics.acknowledged)


def test_registrations_say_how_listeners_are_secured(secured: Secured) -> None:
    """Others learn the protocol (KIP-919)."""
    cluster = secured.cluster
    high_watermark = cluster.await_quorum().high_watermark
    image = image_of(cluster.metadata(cluster.controllers_in("python")[0]), high_watermark)
    protocols = {
        node_id: [listener.security_protocol for listener in controller.listeners.values()]
        for node_id, controller in image.cluster.controllers.items()
    }
    assert protocols == {controller: [secured.as_node.protocol] for controller in cluster.controllers}


def test_others_are_refused_alike(secured: Secured) -> None:
    """A client that is no node has the rights that ACLs give, and no rights without authentication."""

    async def describe(security: SecurityConfig, leader: int, timeout_ms: int = 10_000) -> int:
        async with controllers_of(secured.cluster, security, leader, retries=0) as admin:
            return (await admin.describe_metadata_quorum(timeout_ms=timeout_ms)).leader_id

    for implementation in ("python", "java"):
        leader = lead_with(secured.cluster, implementation)
        with pytest.raises(ServerError) as denied:
            asyncio.run(describe(secured.as_client, leader))
        assert denied.value.error_code is ErrorCode.cluster_authorization_failed
        for way, security in secured.refused.items():
            try:
                asyncio.run(describe(security, leader, REFUSED_TIMEOUT_MS))
            except AdminError:
                continue
            pytest.fail(f"{implementation} serves {way}")
    allow(secured.cluster, secured.as_node, secured.client_principal, AclOperation.ALTER)
    for implementation in ("java", "python"):
        leader = lead_with(secured.cluster, implementation)
        assert asyncio.run(describe(secured.as_client, leader)) == leader
