"""What all tests share: where Kafka's jars are, ports, and how hypothesis works."""

import os
from pathlib import Path

import hypothesis
import pytest
from kit.requirements import missing
from quorate_operator.runtime.local import identity
from quorate_operator.runtime.local.stock_kafka import cache_directory

pytest_plugins = ("kit.tiers", "kit.flaky")

# How long an example takes says more about the machine than about the code; hangs are what timeouts are for.
# A continuous integration draws the same examples each time: it judges a change, and luck would judge with it.
hypothesis.settings.register_profile("quorate", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("quorate")

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
