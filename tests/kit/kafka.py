"""Fixtures of stock Kafka beside our controllers: jars, ports, and the cluster that tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.class_archive import node_java
from kit.releases import RELEASE
from kit.requirements import missing
from quorate_operator.runtime.local import identity
from quorate_operator.runtime.local.stock_kafka import BORROWED_SHELL, Kafka, KafkaShell, has_tools
from quorate_protocol.files import cache_directory


def find_kafka_jars(version: str = RELEASE) -> Path | None:
    """The directory with the jars of a release: QUORATE_KAFKA_JARS, KAFKA_HOME/libs or the cache."""
    candidates = []
    if jars := os.environ.get("QUORATE_KAFKA_JARS"):
        candidates.append(Path(jars))
    if home := os.environ.get("KAFKA_HOME"):
        candidates.append(Path(home) / "libs")
    candidates.append(cache_directory(os.environ) / f"kafka-{version}" / "libs")
    clients = f"kafka-clients-{version}.jar"
    return next((path for path in candidates if (path / clients).exists() and has_tools(path)), None)


def jars_of(version: str) -> Path:
    """The directory with the jars of a release; skips the test without them."""
    return find_kafka_jars(version) or missing(
        "kafka",
        f"Kafka {version}'s jars are missing: set QUORATE_KAFKA_JARS to a directory of them, or KAFKA_HOME to a "
        f"distribution, or have Maven put them into a cache with `tools/kafka_jars.py --version {version}`",
    )


def stock_kafka_of(version: str) -> Kafka:
    """A release with its command line tools; skips the test when there are no jars."""
    lender = BORROWED_SHELL.get(version)
    shell = KafkaShell(version=lender, libs=jars_of(lender)) if lender else None
    return Kafka(version=version, java=node_java().program, libs=jars_of(version), shell=shell)


@pytest.fixture(scope="session")
def stock_kafka() -> Kafka:
    """The release of this test run, with its command line tools; skips the test when there are no jars."""
    return stock_kafka_of(RELEASE)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The directory with the jars of the release of this test run; skips the test without them."""
    return jars_of(RELEASE)


@pytest.fixture
def own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters look for ports where no other test process and no server of this machine is likely to be."""
    # Controllers' ports are scattered by directory; brokers' begin where a broker of this machine may be.
    monkeypatch.setattr(identity, "BROKER_PORT_FIRST", 12_000 + os.getpid() % 80 * 100)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """Three Python controllers and a stock broker, running. Tests use names of their own in it."""
    cluster = Cluster.create(tmp_path_factory.mktemp("shared") / "cluster", kafka_jars, manifests())
    try:
        yield cluster.start_all()
    finally:
        cluster.close()
