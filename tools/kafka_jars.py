"""`kafka_jars.py [--version V]`: where the jars of a Kafka are.

They are found as `quorate play` finds them: KAFKA_HOME, or a cache that Maven fills. Exits with 1, and says what is
missing, when they can't be had.
"""

import argparse
import os
import sys

from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka, find_kafka


def kafka_here(version: str = KAFKA_VERSION) -> Kafka:
    """Return the Kafka of this machine, its jars fetched if need be. Raises KafkaUnavailableError."""
    printed: set[str] = set()

    def tell_once(text: str) -> None:
        what, _, _ = text.partition(":")  # behind the colon it counts
        if what not in printed:
            printed.add(what)
            print(what, file=sys.stderr)

    return find_kafka(version, os.environ, tell_once)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=KAFKA_VERSION, help="the release (default %(default)s)")
    options = parser.parse_args()
    try:
        print(kafka_here(options.version).libs)
    except KafkaUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
