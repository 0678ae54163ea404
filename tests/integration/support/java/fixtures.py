"""Fixtures with stock Kafka alone: its tools in one JVM, and clusters without a part of ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.java.tools import JavaTools


@pytest.fixture(scope="session")
def java_tool(kafka_jars: Path) -> Iterator[JavaTools]:
    """Runs Kafka's tools: `java_tool("org.apache.kafka.tools.TopicCommand", "--list", ...)` gives a `Ran`."""
    tools = JavaTools(kafka_jars)
    try:
        yield tools
    finally:
        tools.close()
