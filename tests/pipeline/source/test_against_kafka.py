"""Payloads beside what Kafka's own kafka-dump-log prints of the same files."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from kit.lake.directories import read_rows
from pyspark_quorate import rows
from quorate_operator.runtime.local.stock_kafka import Kafka

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
FILES = sorted([*GOLDEN.glob("*/0*.log"), *GOLDEN.glob("*/0*.checkpoint")])
SECRETS = ("salt", "storedKey", "serverKey")
CONTROL_NAMES = {
    "LeaderChange:": "LeaderChangeMessage",
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
}
PRINTED = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .*? headerKeys: \[\] (\S+) (\{.*\})")


def dump(kafka: Kafka, files: list[Path]) -> dict[str, list[tuple[int, int, str, int, dict[str, Any]]]]:
    """What kafka-dump-log prints: (offset, time in milliseconds, record, version, fields) by file."""
    arguments = ("--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    command = kafka.command("org.apache.kafka.tools.DumpLogSegments", *arguments, jvm=("-Xmx256m",))
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: dict[str, list[tuple[int, int, str, int, dict[str, Any]]]] = {}
    current = ""
    for line in printed.splitlines():
        if line.startswith("Dumping "):
            current = line.removeprefix("Dumping ")
            found[current] = []
        elif match := PRINTED.match(line):
            offset, time_ms, label, text = int(match[1]), int(match[2]), match[3], json.loads(match[4])
            if label == "payload:":
                name = "".join(part.capitalize() for part in text["type"].split("_"))
                found[current].append((offset, time_ms, name, text["version"], text["data"]))
            else:
                found[current].append((offset, time_ms, CONTROL_NAMES[label], text["version"], text))
    return found


def assert_says(ours: Any, theirs: Any, where: str) -> None:
    """Everything that Kafka says is said. What is said beyond it, it left out because it is a default."""
    if isinstance(theirs, dict):
        assert set(theirs) <= set(ours), where
        for name, value in theirs.items():
            if name in SECRETS or ours[name] == "[redacted]":
                continue
            assert_says(ours[name], value, f"{where}.{name}")
        for name in set(ours) - set(theirs):
            assert ours[name] in (None, [], False, 0, -1, -2, "A" * 22), f"{where}.{name}"
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_says(our_item, their_item, where)
    else:
        assert ours == theirs, where


def test_payloads_are_those_of_kafka_dump_log(stock_kafka: Kafka) -> None:
    """Names, values, times, versions and offsets are Kafka's."""
    printed = dump(stock_kafka, FILES)
    assert set(printed) == {str(path) for path in FILES}
    ours: dict[str, list[dict[str, Any]]] = {}
    for row in (row for batch in read_rows(GOLDEN, noOps="true") for row in batch.to_pylist()):
        ours.setdefault(row["source"], []).append(row)
    compared = set()
    for source, theirs in printed.items():
        is_log = source.endswith(".log")
        found = [row for row in ours[source] if row["kind"] != rows.GAP]
        assert len(found) == len(theirs) > 0
        for row, (offset, time_ms, name, version, fields) in zip(found, theirs, strict=True):
            where = f"{source} {offset} {name}"
            assert (row["offset"] if is_log else row["ordinal"]) == offset, where
            assert not is_log or round(row["time"].timestamp() * 1000) == time_ms, where
            assert (row["type"], row["version"]) == (name, version), where
            assert_says(json.loads(row["payload"]), fields, where)
            compared.add(name)
    assert len(compared) > 20, sorted(compared)
