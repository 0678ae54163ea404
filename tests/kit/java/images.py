"""What Kafka's own classes make of metadata files: see ImageOfLog.java."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kit.java.class_archive import JVM, archive_options, node_java
from kit.java.compiled import compiled

PROGRAM: Final = Path(__file__).with_name("ImageOfLog.java")
TIMEOUT_S: Final = 120
UNORDERED: Final = ("endPoints", "features", "entity")
"""Lists of records that both keep as hash maps, so that their order has no meaning."""

Record = dict[str, Any]
"""A record as Kafka's MetadataJsonConverters write it: type, version, data."""


def records_of(checkpoint: Path) -> str:
    """The question for the records of a checkpoint."""
    return f"records\t{checkpoint}"


def image_at(log: Path, end_offset: int) -> str:
    """The question for the image at an offset of a log, as the records that Kafka writes of it."""
    return f"image\t{log}\t{end_offset}"


def ask_java(jars: Path, questions: Sequence[str]) -> list[list[Record]]:
    """The answer to each question: records, sorted."""
    ran = subprocess.run(
        [
            *(node_java().program, *JVM, *archive_options(jars)),
            *("-cp", f"{jars}/*:{compiled(PROGRAM, jars)}", PROGRAM.stem),
        ],
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [_sorted(json.loads(line)) for line in ran.stdout.splitlines()]


def _sorted(records: Sequence[Record]) -> list[Record]:
    for record in records:
        data = record["data"]
        for name in UNORDERED:
            if name in data:
                data[name].sort(key=repr)
    return sorted(records, key=repr)
