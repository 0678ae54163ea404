"""Check that what is generated, from the models and from Kafka's jars, is what its scripts would write.

Where Kafka can't be had, say so and check the rest; with `kafka` in QUORATE_REQUIRE, a comma-separated list, fail.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kafka_jars import kafka_here
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka

TOOLS = Path(__file__).parent


def main() -> int:
    """The exit code."""
    outdated = _outdated({"crds.py": [], "lake_tables.py": [], "reference_pages.py": [], "version.py": []})
    try:
        kafka = kafka_here()
    except KafkaUnavailableError as error:
        print(f"what is generated from Kafka's jars was not checked: {error}", file=sys.stderr)
        return 1 if outdated or "kafka" in os.environ.get("QUORATE_REQUIRE", "").split(",") else 0
    outdated += _outdated(_from_jars(kafka))
    print(f"generated files: {'not up to date' if outdated else 'up to date'} with Kafka {kafka.version}")
    return 1 if outdated else 0


def _from_jars(kafka: Kafka) -> dict[str, list[str]]:
    return {
        "generate_records.py": ["--jars", str(kafka.libs)],
        "generate_config_schema.py": ["--jars", str(kafka.libs), "--java", kafka.java],
    }


def _outdated(commands: Mapping[str, list[str]]) -> list[str]:
    """Those of the scripts, by their arguments, that would write something else than what is there."""
    return [
        name
        for name, arguments in commands.items()
        if subprocess.run([sys.executable, TOOLS / name, *arguments, "--check"], check=False).returncode
    ]


if __name__ == "__main__":
    sys.exit(main())
