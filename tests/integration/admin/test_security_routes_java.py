"""Finding one's way in a cluster of stock Kafka: nodes of the wrong kind, and the listener one came through."""

import pytest
from kit.java.cluster import JavaCluster
from kit.java.fixtures import NewJavaCluster
from kit.releases import RELEASE
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import MismatchedEndpointError, ServerError, UnsupportedByServerError
from quorate_protocol.kafka.releases import version_key

pytestmark = pytest.mark.integration


async def test_each_kind_of_node_differs_from_the_other(java_cluster: JavaCluster) -> None:
    """KIP-919's mistakes at Kafka 4.3.1."""
    async with AdminClient(bootstrap_controllers=java_cluster.bootstrap_servers.split(",")) as admin:
        with pytest.raises(MismatchedEndpointError, match="is a broker, not a controller"):
            await admin.describe_metadata_quorum()
    async with AdminClient(bootstrap_servers=java_cluster.bootstrap_controllers.split(",")) as admin:
        with pytest.raises(MismatchedEndpointError, match="is a controller, not a broker"):
            await admin.describe_metadata_quorum()


async def test_the_quorum_and_the_features_are_reported_through_both(java_cluster: JavaCluster) -> None:
    reported = []
    for kind, addresses in (
        ("bootstrap_servers", java_cluster.bootstrap_servers),
        ("bootstrap_controllers", java_cluster.bootstrap_controllers),
    ):
        async with AdminClient(**{kind: addresses.split(",")}) as admin:  # type: ignore[arg-type]
            quorum = await admin.describe_metadata_quorum()
            features = await admin.describe_features()
            reported.append((quorum.leader_id, quorum.leader_epoch, quorum.nodes, features.finalized))
            assert admin.misrouted_connections == 0
    assert reported[0] == reported[1]
    assert set(reported[0][2]) == set(java_cluster.controllers)


async def test_the_advertised_listener_is_that_of_the_one_we_came_through(java_cluster: JavaCluster) -> None:
    config = AdminConfig.from_properties(
        java_cluster.sasl_properties(), bootstrap_servers=java_cluster.sasl_servers.split(",")[0]
    )
    async with AdminClient(config) as admin:
        for broker_id in java_cluster.brokers:
            assert 3 in (await admin.node_api_versions(broker_id)).api_versions


@pytest.fixture
def below_kip_1312(new_java_cluster: NewJavaCluster) -> JavaCluster:
    """A controller at metadata.version 4.3-IV0."""
    return new_java_cluster(brokers=0, metadata_version="4.3").start_all()


async def test_what_a_release_lacks_is_reported(below_kip_1312: JavaCluster) -> None:
    """UnregisterController needs Kafka 4.4 and its metadata.version."""
    refusal, words = (
        (UnsupportedByServerError, "supports no version of UnregisterController")
        if version_key(RELEASE) < (4, 4)
        else (ServerError, "UNSUPPORTED_VERSION")
    )
    async with AdminClient(bootstrap_controllers=below_kip_1312.bootstrap_controllers.split(",")) as admin:
        with pytest.raises(refusal, match=words):
            await admin.unregister_controller(99)
