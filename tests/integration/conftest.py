"""The cluster that tests share as long as they leave its nodes alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.fixtures import java_cluster, java_tool, new_java_cluster
from kit.player import player

__all__ = ["java_cluster", "java_tool", "new_java_cluster", "player"]


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """Three Python controllers and a stock broker, running. Tests use names of their own in it."""
    cluster = Cluster.create(tmp_path_factory.mktemp("shared") / "cluster", kafka_jars, manifests())
    try:
        yield cluster.start_all()
    finally:
        cluster.close()
