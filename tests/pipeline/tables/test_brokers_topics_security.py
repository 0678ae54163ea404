"""Tables of brokers, topics and security: against the slow way on random histories, and on Kafka's own files."""

import shutil
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit.lake.oracle_replay import REDACTED, Replay, timeline_lines
from kit.lake.oracle_tables import ORACLES
from kit.lake.oracle_worlds import make_world
from kit.lake.tables import assert_promises
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_quorate.source.redaction import is_secret_config
from pyspark_quorate.tables import timeline
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS
from pyspark_quorate.tables.registry import TABLES, make_all
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.framing import decode_record

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
MINE = tuple(table for table in TABLES if table.name in ORACLES)
ACL_STATE = (
    *("resource_type", "resource_name", "pattern_type", "principal", "host"),
    *("operation", "permission_type"),
)
CONFIG_NUMBERS = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}
Lines = dict[str, list[tuple[Any, ...]]]
"""Cluster -> lines of a table, sorted."""


def plain(value: Any) -> Any:
    """A value of Spark as one that compares with those of the oracles."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(plain(one) for one in value) if isinstance(value, list | Row) else value


def by_cluster(frame: DataFrame) -> Lines:
    """What a table has of each cluster."""
    found: Lines = defaultdict(list)
    for cluster_id, *line in frame.collect():
        found[cluster_id].append(plain(line))
    return {cluster_id: sorted(lines, key=repr) for cluster_id, lines in found.items()}


def make(raw: DataFrame, tables: tuple[Table, ...]) -> dict[str, DataFrame]:
    """The tables of the rows of the data source."""
    return make_all(raw.localCheckpoint(), tables, lambda frame: frame.localCheckpoint())


# Hypothesis tries 0 first, always; without it, its one example is another one.
@settings(
    max_examples=1,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32).filter(bool))
def test_tables_are_what_a_slow_replay_makes(spark: SparkSession, seed: int) -> None:
    """Goal: windows and joins know no more and no less than one who reads record after record.

    Method: random clusters, with lost ranges and checkpoints, as timelines that the oracle makes, all in one frame:
    a frame costs Spark seconds to plan, a cluster in it next to nothing.
    """
    assert {table.name for table in MINE} == set(ORACLES)
    worlds = [make_world(seed + number, 20 + number % 41) for number in range(140)]
    schema = StructType(
        [
            one if one.name != "payload" else StructField("payload", StringType())
            for one in timeline.SCHEMA.fields
        ]
    )
    lines = spark.createDataFrame([line for one in worlds for line in timeline_lines(one)], schema)
    made = {"timeline": lines.withColumn("payload", f.parse_json("payload")).localCheckpoint()}
    for table in MINE:
        made[table.name] = table.make(made).localCheckpoint()
        assert_promises(table, made[table.name])
    found = {table.name: by_cluster(made[table.name]) for table in MINE}
    for world in worlds:
        replay = Replay()
        replay.run(world)
        for name, oracle in ORACLES.items():
            wanted = sorted(oracle(replay), key=repr)
            seen = found[name].get(world.cluster_id, [])
            assert seen == wanted, f"{name} of {world.cluster_id}"


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


def still_so(frame: DataFrame, key: list[str], leaves_out: tuple[str, ...] = ()) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> state of the intervals that are open."""
    spans = {"cluster_id", *(one.name for one in INTERVAL_COLUMNS), *key, *leaves_out}
    state = [name for name in frame.columns if name not in spans]
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in frame.where("valid_to is null").collect():
        found[row.cluster_id][plain([row[name] for name in key])] = plain([row[name] for name in state])
    return found


def last_told(frame: DataFrame, key: list[str], states: list[str]) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> what the last change led to, where that is something."""
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in sorted(frame.collect(), key=lambda one: one.offset):
        found[row.cluster_id][plain([row[name] for name in key])] = plain([row[name] for name in states])
    return found


def test_what_is_so_now_is_the_image_of_stock_kafka(spark: SparkSession, captured: Path) -> None:
    """Goal: tables of files that Kafka wrote end where Kafka's metadata does, also behind a bridged gap.

    Method: a captured log, and the same where a checkpoint has to tell the beginning:
    intervals that are open and changes that were the last, beside an image that replayed the same log.
    """
    made = make(spark.read.format("quorate").option("noOps", "true").load(str(captured)), MINE)
    topics = still_so(made["topics"], ["topic_id"], ("partitions", "previous_topic_id"))
    partitions = still_so(made["partition_leadership"], ["topic_id", "partition"], ("topic",))
    brokers = still_so(made["broker_sessions"], ["broker_id"], ("is_fencing", "fencings_in_hour"))
    quotas = still_so(made["quotas"], ["entity", "quota_key"])
    configs = last_told(made["config_changes"], ["resource_type", "resource_name", "name"], ["new_value"])
    acls = last_told(made["acl_changes"], ["acl_id"], [*ACL_STATE, "change"])
    blocks = made["producer_id_blocks"].groupBy("cluster_id").agg({"last_producer_id": "max"}).collect()
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
        until = {row.cluster_id: row[1] + 1 for row in blocks}
        assert until.get(cluster_id, -1) == image.next_producer_id, name
    assert any(partitions.values())
