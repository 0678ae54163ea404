"""`python -m kit.soak --minutes N [--seed S]`: faults for N minutes, then the verdict. Exit code 1 for violations.

`--judge test-reports/soak/S/history.jsonl` judges a history that was kept again.
"""

import argparse
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from kit.kafka import find_kafka_jars
from kit.soak.checker import check
from kit.soak.history import read
from kit.soak.mistakes import MISTAKES
from kit.soak.runner import REPORTS, missing_parts, soak
from kit.soak.summary import markdown, replay_command, text

SEEDS = 100_000
MINUTES_MAX = 24 * 60


def _minutes(given: str) -> float:
    try:
        minutes = float(given)
    except ValueError:
        minutes = 0
    if not 0 < minutes <= MINUTES_MAX:
        raise argparse.ArgumentTypeError(f"{given!r}: allowed is a number above 0 and up to {MINUTES_MAX}")
    return minutes


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kit.soak", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="how long (default %(default)s)")
    parser.add_argument("--seed", type=int, help="of the faults (default: by chance)")
    parser.add_argument(
        "--mistake", choices=MISTAKES, default="", help="that Python controllers make: the soak has to fail"
    )
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge this history, and run nothing")
    return parser.parse_args()


def _judge(history: Path) -> int:
    try:
        events = read(history)
    except (OSError, ValueError, KeyError) as error:
        _say(
            f"{history} can't be read: {error!r}; allowed is the history.jsonl of a soak that came to its end"
        )
        return 2
    violations = check(events)
    sys.stdout.write(text(events, violations) + "\n\n" + markdown(events, violations) + "\n")
    return 1 if violations else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _leave(code: int) -> NoReturn:
    """End at once: threads of faults may still wait, for minutes, for nodes that were removed."""
    sys.stdout.flush()
    os._exit(code)


def main() -> int:
    """Run a soak and print the summary."""
    options = _options()
    if options.judge is not None:
        return _judge(options.judge)
    seed = random.randrange(SEEDS) if options.seed is None else options.seed
    jars = find_kafka_jars()
    missing = [*missing_parts(), *([] if jars else ["Kafka's jars (tools/kafka_jars.py)"])]
    if os.geteuid() != 0:
        missing.append("root, for namespaces and mounts")
    if missing or jars is None:
        _say(f"a soak needs what is missing here: {', '.join(missing)}")
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what was made is removed
        signal.signal(number, _end)
    again = replay_command(seed, options.minutes, options.mistake)
    _say(f"{again}; the history goes to {REPORTS / str(seed)}")
    try:
        result = soak(seed, options.minutes, jars, _say, mistake=options.mistake)
    except Exception:
        _say(f"the soak could not be carried to its end:\n{traceback.format_exc()}\nrun it again: {again}")
        _leave(1)
    except KeyboardInterrupt:
        _leave(128 + signal.SIGINT)
    except SystemExit as ended:
        _leave(int(str(ended.code)))
    (result.kept / "summary.md").write_text(markdown(result.events, result.violations) + "\n")
    sys.stdout.write(text(result.events, result.violations) + "\n")
    if result.violations:
        _say(f"failed; history and logs are in {result.kept}; run it again: {again}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
