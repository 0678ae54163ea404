"""Tables of brokers, topics and security: against the slow way on random histories, and on Kafka's own files."""

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.folding import Row, collected, fold_lines, fold_rows, microseconds
from kit.lake.oracle_replay import REDACTED, Replay, timeline_lines
from kit.lake.oracle_tables import ORACLES
from kit.lake.oracle_worlds import make_world
from kit.lake.tables import assert_promises
from pyspark.sql import SparkSession
from pyspark_quorate.tables.evidence import Evidence
from pyspark_quorate.tables.fold import ClusterFold
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS
from pyspark_quorate.tables.lines import Line
from pyspark_quorate.tables.registry import TABLES
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.framing import decode_record

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
MINE = tuple(table for table in TABLES if table.name in ORACLES)
ACL_STATE = (
    *("resource_type", "resource_name", "pattern_type", "principal", "host"),
    *("operation", "permission_type"),
)
CONFIG_NUMBERS = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 60))
def test_tables_are_what_a_slow_replay_makes(seed: int, length: int) -> None:
    """The fold knows no more and no less than one who keeps everything."""
    assert {table.name for table in MINE} == set(ORACLES)
    world = make_world(seed, length)
    lines = (
        Line(
            *(offset, ordinal, epoch, microseconds(time), kind),
            *(json.loads(payload) if payload else {}, run, is_snapshot),
        )
        for _, offset, ordinal, epoch, time, kind, _, payload, run, is_snapshot in timeline_lines(world)
    )
    made = fold_lines(lines, world.cluster_id, ClusterFold(Evidence(), MINE), MINE)
    replay = Replay()
    replay.run(world)
    for table in MINE:
        assert_promises(table, made[table.name])
        wanted = sorted(ORACLES[table.name](replay), key=repr)
        seen = sorted((tuple(row.values())[1:] for row in made[table.name]), key=repr)
        assert seen == wanted, f"{table.name} of {world.cluster_id}"


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """Directories of stock Kafka: a whole one, and one of which the log lacks what its newest checkpoint tells."""
    shutil.copytree(GOLDEN / "current", tmp_path / "current")
    partial = tmp_path / "partial"
    shutil.copytree(GOLDEN / "current", partial)
    log = partial / f"{0:020}.log"
    checkpoint = max(path for path in partial.glob("*-*.checkpoint"))
    end = int(checkpoint.name.split("-")[0])
    whole = log.read_bytes()
    log.unlink()
    position = 0
    for batch in decode_batches(whole):
        size_bytes = 12 + int.from_bytes(whole[position + 8 : position + 12], "big")
        if batch.base_offset >= end:
            (partial / f"{batch.base_offset:020}.log").write_bytes(whole[position:])
            break
        position += size_bytes
    properties = partial / "meta.properties"
    text = properties.read_text()
    (line,) = [one for one in text.splitlines() if one.startswith("cluster.id=")]
    properties.write_text(text.replace(line, "cluster.id=partial"))
    return tmp_path


def image_of(path: Path) -> MetadataImage:
    """What the log of a controller leads to."""
    image = MetadataImage()
    for batch in decode_batches(path.read_bytes()):
        if not batch.is_control:
            for offset, record in enumerate(batch.records, start=batch.base_offset):
                assert record.value is not None
                image.replay(decode_record(record.value), offset)
        image.advance(end_offset=batch.last_offset + 1, epoch=batch.partition_leader_epoch, timestamp_ms=0)
    return image


def still_so(rows: list[Row], key: list[str], leaves_out: tuple[str, ...] = ()) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> state of the intervals that are open."""
    spans = {"cluster_id", *(one.name for one in INTERVAL_COLUMNS), *key, *leaves_out}
    state = [name for name in rows[0] if name not in spans] if rows else []
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in rows:
        if row["valid_to"] is None:
            found[row["cluster_id"]][tuple(row[name] for name in key)] = tuple(row[name] for name in state)
    return found


def last_told(rows: list[Row], key: list[str], states: list[str]) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> what the last change led to, where that is something."""
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in sorted(rows, key=lambda one: one["offset"]):
        found[row["cluster_id"]][tuple(row[name] for name in key)] = tuple(row[name] for name in states)
    return found


def test_what_is_so_now_is_the_image_of_stock_kafka(spark: SparkSession, captured: Path) -> None:
    """Tables of files that Kafka wrote end where Kafka's metadata does, also behind a bridged gap."""
    raw = spark.read.format("quorate").option("noOps", "true").load(str(captured))
    made = fold_rows(collected(raw), MINE)
    topics = still_so(made["topics"], ["topic_id"], ("partitions", "previous_topic_id"))
    partitions = still_so(made["partition_leadership"], ["topic_id", "partition"], ("topic",))
    brokers = still_so(made["broker_sessions"], ["broker_id"], ("is_fencing", "fencings_in_hour"))
    quotas = still_so(made["quotas"], ["entity", "quota_key"])
    configs = last_told(made["config_changes"], ["resource_type", "resource_name", "name"], ["new_value"])
    acls = last_told(made["acl_changes"], ["acl_id"], [*ACL_STATE, "change"])
    until: dict[str, int] = {}
    for row in made["producer_id_blocks"]:
        until[row["cluster_id"]] = max(row["last_producer_id"] + 1, until.get(row["cluster_id"], 0))
    for name in ("current", "partial"):
        image = image_of(GOLDEN / "current" / f"{0:020}.log")
        (cluster_id,) = {
            line.partition("=")[2]
            for line in (captured / name / "meta.properties").read_text().splitlines()
            if line.startswith("cluster.id=")
        }
        known = Replay()
        known.know(image)
        wanted = known.states()
        assert topics.get(cluster_id, {}) == wanted["topics"], name
        assert partitions.get(cluster_id, {}) == wanted["partitions"], name
        assert brokers.get(cluster_id, {}) == wanted["brokers"], name
        assert quotas.get(cluster_id, {}) == wanted["quotas"], name
        values = {key: value for key, (value,) in configs.get(cluster_id, {}).items() if value is not None}
        assert values == {
            key: REDACTED if is_secret_config(CONFIG_NUMBERS[key[0]], key[2]) else value
            for key, (value, _) in wanted["configs"].items()
        }, name
        entries = {key: one[:-1] for key, one in acls.get(cluster_id, {}).items() if one[-1] == "added"}
        assert entries == wanted["acls"], name
        assert until.get(cluster_id, -1) == image.next_producer_id, name
    assert any(partitions.values())
