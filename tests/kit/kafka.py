"""Fixtures of stock Kafka beside our controllers: jars, ports, and the cluster that tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.requirements import missing
from quorate_operator.runtime.local import identity
from quorate_operator.runtime.local.stock_kafka import cache_directory

_HOW_TO_GET = (
    "Kafka 4.3.1's jars are missing: set QUORATE_KAFKA_JARS to a directory of them, or KAFKA_HOME to a "
    "distribution, or run `make play` once, which has Maven put them into a cache"
)


def find_kafka_jars() -> Path | None:
    """The directory with Kafka's jars: QUORATE_KAFKA_JARS, KAFKA_HOME/libs or the cache."""
    candidates = []
    if jars := os.environ.get("QUORATE_KAFKA_JARS"):
        candidates.append(Path(jars))
    if home := os.environ.get("KAFKA_HOME"):
        candidates.append(Path(home) / "libs")
    candidates.append(cache_directory(os.environ) / "kafka-4.3.1" / "libs")
    return next((path for path in candidates if any(path.glob("kafka-clients-*.jar"))), None)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The directory with Kafka 4.3.1's jars; skips the test when there is none."""
    return find_kafka_jars() or missing("kafka", _HOW_TO_GET)


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
