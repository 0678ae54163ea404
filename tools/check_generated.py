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
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES

TOOLS = Path(__file__).parent


def main() -> int:
    """The exit code."""
    scripts = ("api_table.py", "crds.py", "lake_tables.py", "reference_pages.py", "version.py")
    outdated = _outdated({script: [] for script in scripts})
    found: dict[str, Kafka] = {}
    problems = []
    for release in RELEASES:
        try:
            kafka = kafka_here(release)
            found[kafka.version] = kafka  # KAFKA_HOME's, whatever was asked for
        except KafkaUnavailableError as error:
            problems.append(str(error))
    problems += [f"Kafka {release} is not there" for release in RELEASES if release not in found]
    if problems:
        print(
            f"not all that is generated from Kafka's jars was checked: {'; '.join(problems)}", file=sys.stderr
        )
    if found:
        outdated += _outdated(_from_jars(found))
        checked = " and ".join(found)
        print(f"generated files: {'not up to date' if outdated else 'up to date'} with Kafka {checked}")
    is_required = "kafka" in os.environ.get("QUORATE_REQUIRE", "").split(",")
    return 1 if outdated or (problems and is_required) else 0


def _from_jars(found: Mapping[str, Kafka]) -> dict[str, list[str]]:
    """The scripts that read jars, with those of the releases found; messages are generated from the newest one.

    They run sources by the `java` of a JDK in PATH: what runs Kafka may have no compiler.
    """
    jars = [text for kafka in found.values() for text in ("--jars", str(kafka.libs))]
    from_messages = {"generate_records.py": jars} if NEWEST_RELEASE in found else {}
    newest = found.get(NEWEST_RELEASE)
    codes = {"generate_error_codes.py": ["--jars", str(newest.libs)]} if newest else {}
    return from_messages | codes | {"generate_config_schema.py": jars}


def _outdated(commands: Mapping[str, list[str]]) -> list[str]:
    """Those of the scripts, by their arguments, that would write something else than what is there."""
    return [
        name
        for name, arguments in commands.items()
        if subprocess.run([sys.executable, TOOLS / name, *arguments, "--check"], check=False).returncode
    ]


if __name__ == "__main__":
    sys.exit(main())
