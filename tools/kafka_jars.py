"""`kafka_jars.py [--version V]`: where the jars of a Kafka are.

They are found as `quorate play` finds them: KAFKA_HOME, or a cache that Maven fills. Their AOT cache is made, too, if
Java can do that. Exits with 1, and says what is missing, when they can't be had.
"""

import argparse
import os
import sys

from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka, Progress, find_kafka, make_aot_cache


def kafka_here(version: str = KAFKA_VERSION) -> Kafka:
    """Return the Kafka of this machine, its jars fetched if need be. Raises KafkaUnavailableError."""
    return find_kafka(version, os.environ, _printed_once())


def _printed_once() -> Progress:
    printed: set[str] = set()

    def tell_once(text: str) -> None:
        what, _, _ = text.partition(":")  # behind the colon it counts
        if what not in printed:
            printed.add(what)
            print(what, file=sys.stderr)

    return tell_once


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=KAFKA_VERSION, help="the release (default %(default)s)")
    options = parser.parse_args()
    try:
        kafka = kafka_here(options.version)
        note = make_aot_cache(kafka, _printed_once())
        if note is not None:
            print(note, file=sys.stderr)
        print(kafka.libs)
    except KafkaUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
