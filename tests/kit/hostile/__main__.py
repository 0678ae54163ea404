"""`python -m kit.hostile [--seconds S] [--protocol P] [--attack A] [--java] [--write]`: figures of each attack.

Exit code 1 if an attack did what none may do. `--java` attacks stock Kafka, too, for comparison; nothing is required
of it.
"""

import argparse
import sys
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path

from kit.hostile.attacks import ATTACKS
from kit.hostile.report import label, markdown, violations, write
from kit.hostile.siege import PROTOCOLS, Figures, besieged
from kit.kafka import find_kafka_jars


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kit.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack (default %(default)s)")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="by default all")
    parser.add_argument("--attack", choices=tuple(ATTACKS), action="append", help="by default all")
    parser.add_argument("--java", action="store_true", help="attack stock Kafka, too")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/limits.md")
    return parser.parse_args()


def _besiege(protocol: str, jars: Path | None, options: argparse.Namespace) -> tuple[list[Figures], int]:
    found: list[Figures] = []
    failed = 0
    attacks = [
        name
        for name in options.attack or ATTACKS
        if ATTACKS[name].fits(protocol) and not (jars and ATTACKS[name].needs_page)
    ]
    waiting = deque(["", *attacks])
    while waiting:
        with (
            # What the clients that behave raise when their leader is lost, or when they are not served any more.
            suppress(*([OSError, AssertionError] if jars else [])),
            tempfile.TemporaryDirectory(prefix="quorate-hostile-") as directory,
            besieged(Path(directory), protocol, jars) as siege,
        ):
            while waiting:
                figures = siege.stand(waiting.popleft(), options.seconds)
                found.append(figures)
                wrong = [] if jars else violations(figures)
                failed += bool(wrong)
                sys.stdout.write(f"{protocol}, {label(figures)}: {'; '.join(wrong) or 'withstood'}\n")
                sys.stdout.flush()
                if figures.elections:
                    break  # the next attack is on a new quorum: the clients of this one have lost its leader
    return found, failed


def main() -> int:
    """Attack and print the tables."""
    options = _options()
    jars = find_kafka_jars() if options.java else None
    tables, failed = [], 0
    for protocol in options.protocol or PROTOCOLS:
        for title, theirs in (("Quorate", None), *([("Kafka 4.4.0", jars)] if jars else [])):
            figures, wrong = _besiege(protocol, theirs, options)
            tables.append((f"{title}, {protocol}", figures))
            failed += wrong
    text = markdown(tables)
    sys.stdout.write(f"\n{text}\n")
    if options.write:
        write(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
