"""The admin client at stock Kafka's secured listeners: TLS with and without certificates of its own, SASL."""

from collections.abc import Mapping

import pytest
from kit.java.cluster import SCRAM_USER, JavaCluster
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AuthenticationError, UnreachableError

pytestmark = pytest.mark.integration


def config(
    properties: Mapping[str, str], *, servers: str | None = None, controllers: str | None = None
) -> AdminConfig:
    """A client's configuration as the tools make it."""
    return AdminConfig.from_properties(
        {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000", **properties},
        bootstrap_servers=servers,
        bootstrap_controllers=controllers,
    )


async def asks(settings: AdminConfig) -> str:
    """The cluster id, asked with these settings."""
    async with AdminClient(settings) as admin:
        return (await admin.describe_cluster()).cluster_id


@pytest.mark.parametrize(("user", "mechanism"), [("admin", "PLAIN"), (SCRAM_USER, "SCRAM-SHA-256")])
async def test_sasl_over_tls(java_cluster: JavaCluster, user: str, mechanism: str) -> None:
    properties = java_cluster.sasl_properties(user, mechanism=mechanism)
    assert (
        await asks(config(properties, servers=java_cluster.sasl_servers))
        == java_cluster.layout.identity.cluster_id
    )


async def test_sasl_at_controllers(java_cluster: JavaCluster) -> None:
    settings = config(java_cluster.sasl_properties(), controllers=java_cluster.sasl_controllers)
    async with AdminClient(settings) as admin:
        versions = await admin.node_api_versions(settings.bootstrap[0])
        assert 60 in versions.api_versions


@pytest.mark.parametrize(("user", "mechanism"), [("admin", "PLAIN"), (SCRAM_USER, "SCRAM-SHA-256")])
async def test_a_wrong_password_is_reported_at_once(
    java_cluster: JavaCluster, user: str, mechanism: str
) -> None:
    """No minute of retries for what can't get better."""
    properties = java_cluster.sasl_properties(user, password="wrong", mechanism=mechanism)
    with pytest.raises(AuthenticationError, match=r"(?i)authentication failed"):
        await asks(config(properties, servers=java_cluster.sasl_servers))


async def test_a_mechanism_that_the_server_lacks_is_reported(java_cluster: JavaCluster) -> None:
    properties = java_cluster.sasl_properties() | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin";',
    }
    with pytest.raises(AuthenticationError, match=r"UNSUPPORTED_SASL_MECHANISM.*PLAIN"):
        await asks(config(properties, servers=java_cluster.sasl_servers))


async def test_tls_with_a_certificate_of_our_own(java_cluster: JavaCluster) -> None:
    files = java_cluster.ssl_properties()
    assert (
        await asks(config(files, servers=java_cluster.ssl_servers)) == java_cluster.layout.identity.cluster_id
    )
    certificates = java_cluster.certificates
    text = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.authority.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": certificates.client_key.read_text(),
        "ssl.keystore.certificate.chain": certificates.client_certificate.read_text(),
    }
    assert (
        await asks(config(text, servers=java_cluster.ssl_servers)) == java_cluster.layout.identity.cluster_id
    )


async def test_tls_without_a_certificate_is_refused(java_cluster: JavaCluster) -> None:
    properties = {key: value for key, value in java_cluster.ssl_properties().items() if "keystore" not in key}
    with pytest.raises(AuthenticationError, match="TLS failed"):
        await asks(config(properties, servers=java_cluster.ssl_servers))


async def test_a_server_that_is_not_trusted_is_refused(java_cluster: JavaCluster) -> None:
    properties = java_cluster.ssl_properties() | {
        "ssl.truststore.location": str(java_cluster.certificates.other_authority)
    }
    with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
        await asks(config(properties, servers=java_cluster.ssl_servers))


async def test_the_wrong_protocol_is_reported(java_cluster: JavaCluster) -> None:
    plain = java_cluster.bootstrap_servers
    impatient = {"default.api.timeout.ms": "1500", "request.timeout.ms": "1000"}
    with pytest.raises(UnreachableError, match="is it a TLS listener"):
        await asks(config(java_cluster.ssl_properties() | impatient, servers=plain))
    with pytest.raises(UnreachableError, match=r"security\.protocol must be SSL"):
        await asks(config(impatient, servers=java_cluster.ssl_servers))
