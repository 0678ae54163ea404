"""Check that what is generated from Kafka's jars is what its scripts would write.

Where Kafka can't be had, say so and pass; with `kafka` in QUORATE_REQUIRE, a comma-separated list, fail.
"""

import os
import subprocess
import sys
from pathlib import Path

from kafka_jars import kafka_here
from quorate_operator.runtime.errors import KafkaUnavailableError

TOOLS = Path(__file__).parent


def main() -> int:
    """The exit code."""
    try:
        kafka = kafka_here()
    except KafkaUnavailableError as error:
        print(f"generated files were not checked: {error}", file=sys.stderr)
        return 1 if "kafka" in os.environ.get("QUORATE_REQUIRE", "").split(",") else 0
    commands = {
        "generate_records.py": ["--jars", str(kafka.libs)],
        "generate_config_schema.py": ["--jars", str(kafka.libs), "--java", kafka.java],
    }
    outdated = [
        name
        for name, arguments in commands.items()
        if subprocess.run([sys.executable, TOOLS / name, *arguments, "--check"], check=False).returncode
    ]
    print(f"generated files: {'not up to date' if outdated else 'up to date'} with Kafka {kafka.version}")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
