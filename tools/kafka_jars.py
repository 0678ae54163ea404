"""Print where Kafka's jars are, found as `quorate play` finds them: KAFKA_HOME, or a cache that Maven fills.

Exits with 1, and says what is missing, when they can't be had.
"""

import os
import sys

from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka, find_kafka


def kafka_here() -> Kafka:
    """The Kafka of this machine, its jars fetched if need be. Raises KafkaUnavailableError."""
    printed: set[str] = set()

    def tell_once(text: str) -> None:
        what, _, _ = text.partition(":")  # behind the colon it counts
        if what not in printed:
            printed.add(what)
            print(what, file=sys.stderr)

    return find_kafka(KAFKA_VERSION, os.environ, tell_once)


def main() -> int:
    """The exit code."""
    try:
        print(kafka_here().libs)
    except KafkaUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
