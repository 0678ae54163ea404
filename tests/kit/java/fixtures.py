"""Fixtures with stock Kafka alone: its tools in one JVM, and clusters without a part of ours."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.releases import SHELL_LEVEL
from quorate_operator.runtime.local.stock_kafka import Kafka

NewJavaCluster = Callable[..., JavaCluster]


@pytest.fixture(scope="session")
def java_tool(stock_kafka: Kafka) -> Iterator[JavaTools]:
    """Run Kafka's tools: `java_tool("org.apache.kafka.tools.TopicCommand", "--list", ...)` gives a `Ran`."""
    tools = JavaTools(stock_kafka)
    try:
        yield tools
    finally:
        tools.close()


@pytest.fixture(scope="session")
def java_cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[JavaCluster]:
    """A Java controller and two Java brokers, running. Tests use names of their own in it, and stop nothing."""
    directory = tmp_path_factory.mktemp("java") / "cluster"
    cluster = JavaCluster.prepared(directory, kafka_jars, java_tool, brokers=2)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def shell_cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[JavaCluster]:
    """A Java controller and a broker at the highest level that Kafka's metadata shell reads, running."""
    directory = tmp_path_factory.mktemp("shell") / "cluster"
    cluster = JavaCluster.prepared(directory, kafka_jars, java_tool, metadata_version=SHELL_LEVEL)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture
def new_java_cluster(tmp_path: Path, kafka_jars: Path, java_tool: JavaTools) -> Iterator[NewJavaCluster]:
    """Make clusters for one test, with the options of `JavaCluster.prepared`; they are not started yet."""
    names = (f"java-{number}" for number in count())
    with ExitStack() as closing:

        def make(**options: Any) -> JavaCluster:
            cluster = JavaCluster.prepared(tmp_path / next(names), kafka_jars, java_tool, **options)
            closing.callback(cluster.close)
            return cluster

        yield make
