"""The clusters of stock Kafka that tests compare with: their listeners serve the right users."""

import pytest
from kit.java.cluster import SCRAM_USER, JavaCluster
from kit.java.fixtures import NewJavaCluster
from kit.java.tools import JavaTools

CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.mark.parametrize("flag", ["--bootstrap-server", "--bootstrap-controller"])
@pytest.mark.parametrize(("user", "mechanism"), [("admin", "PLAIN"), (SCRAM_USER, "SCRAM-SHA-256")])
def test_sasl_ssl_listeners_know_their_users(
    java_cluster: JavaCluster, java_tool: JavaTools, flag: str, user: str, mechanism: str
) -> None:
    addresses = java_cluster.sasl_servers if flag == "--bootstrap-server" else java_cluster.sasl_controllers
    config = java_cluster.client_config(
        f"{user}-{mechanism}", java_cluster.sasl_properties(user, mechanism=mechanism)
    )
    ran = java_tool(CLUSTER, "cluster-id", flag, addresses, "--command-config", config).succeeded()
    assert ran.stdout == f"Cluster ID: {java_cluster.layout.identity.cluster_id}\n"


def test_an_ordinary_user_may_do_what_acls_allow(java_cluster: JavaCluster, java_tool: JavaTools) -> None:
    config = java_cluster.client_config("alice", java_cluster.sasl_properties("alice"))
    ran = java_tool(
        *(TOPICS, "--bootstrap-server", java_cluster.sasl_servers, "--command-config", config),
        *("--create", "--topic", "of-alice"),
    )
    assert ran.exit_code == 1
    assert "Authorization failed" in ran.stdout


def test_the_ssl_listener_takes_the_client_certificate(
    java_cluster: JavaCluster, java_tool: JavaTools
) -> None:
    properties = java_cluster.ssl_properties()
    config = java_cluster.client_config("certificate", properties)
    command = (CLUSTER, "cluster-id", "--bootstrap-server", java_cluster.ssl_servers, "--command-config")
    java_tool(*command, config).succeeded()
    without = {key: value for key, value in properties.items() if "keystore" not in key}
    ran = java_tool(*command, java_cluster.client_config("no-certificate", without))
    assert ran.exit_code == 1


def test_clusters_of_a_test_have_their_own_level(
    new_java_cluster: NewJavaCluster, java_tool: JavaTools
) -> None:
    cluster = new_java_cluster(metadata_version="4.1").start_all()
    ran = java_tool(FEATURES, "--bootstrap-server", cluster.bootstrap_servers, "describe").succeeded()
    assert "FinalizedVersionLevel: 4.1-IV1" in ran.stdout
