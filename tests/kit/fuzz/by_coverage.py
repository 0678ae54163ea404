"""`python -m kit.fuzz.by_coverage NAME INPUTS`: one target under libFuzzer, which ends the process.

A separate module, because atheris must be imported before the code that it instruments.
"""

import logging
import sys
from collections import deque
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(
    include=[
        *("quorate_protocol", "quorate_controller", "quorate_operator"),
        *("quorate_admin", "quorate", "pyspark_quorate"),
    ]
):
    from kit.fuzz.target import Target
    from kit.fuzz.targets import targets

from kit.fuzz.mutations import SIZE_BYTES_MAX
from kit.fuzz.simulated_controller import REQUESTS_MAX

REPORTS: Final = Path("test-reports") / "fuzz"
INPUT_TIMEOUT_S: Final = 5
MEMORY_MIB_MAX: Final = 2_048


def fuzz(target: Target, inputs: int) -> None:
    """Try `count` inputs. Does not return."""
    reports = REPORTS / target.name
    corpus = reports / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.corpus()):
        (corpus / f"good-{number}").write_bytes(data)
    logging.getLogger().addHandler(logging.NullHandler())  # what readers log about damage is not printed
    recent: deque[bytes] = deque(maxlen=REQUESTS_MAX)

    def attempt(data: bytes) -> None:
        recent.append(data)
        try:
            target.attempt(data)
        except BaseException:
            last = reports / "last"
            last.mkdir(exist_ok=True)
            for number, recent_input in enumerate(recent):
                (last / f"{number:05}").write_bytes(recent_input)
            replay = f"python -m kit.fuzz --target {target.name} --replay {last}/*"
            print(f"\n{target.name} broke; try it again: PYTHONPATH=tests {replay}")  # noqa: T201
            raise

    options = {
        "runs": inputs,
        "timeout": INPUT_TIMEOUT_S,
        "rss_limit_mb": MEMORY_MIB_MAX,
        "max_len": SIZE_BYTES_MAX,
        "artifact_prefix": f"{reports}/",
        "print_final_stats": 1,
    }
    atheris.Setup(
        [sys.argv[0], str(corpus), *(f"-{name}={value}" for name, value in options.items())], attempt
    )
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(targets()[sys.argv[1]], int(sys.argv[2]))
