"""Clients of the shared cluster of stock Kafka."""

import pytest
from kit.asking import Asking
from kit.java.cluster import JavaCluster


@pytest.fixture
def ask(java_cluster: JavaCluster) -> Asking:
    """Ask brokers, as a super user."""
    return Asking(servers=java_cluster.bootstrap_servers)


@pytest.fixture
def ask_controllers(java_cluster: JavaCluster) -> Asking:
    """Ask the controller, as a super user."""
    return Asking(controllers=java_cluster.bootstrap_controllers)
