"""The tables of brokers, topics and security: against a replay of random and of real logs, and Kafka's own state."""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lake.directories import read_rows
from kit.lake.fold import Row, assert_promises, assert_same, fold_rows
from kit.lake.oracle import sources
from kit.lake.oracle.metadata_tables import TABLES as EXPECTED
from kit.lake.oracle.replay import REDACTED, Replay
from kit.lake.oracle.worlds import World, make_world, rows_of, world_of
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS
from pyspark_quorate.tables.registry import TABLES
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.framing import decode_record

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
LOG = f"{0:020}.log"
COMPARED = tuple(table for table in TABLES if table.name in EXPECTED)
ACL_STATE = (
    *("resource_type", "resource_name", "pattern_type", "principal", "host"),
    *("operation", "permission_type"),
)
CONFIG_NUMBERS = {"TOPIC": 2, "BROKER": 4, "CLIENT_METRICS": 16, "GROUP": 32}


def replayed(world: World) -> Replay:
    """What a reader of a world knows in the end."""
    replay = Replay()
    replay.run(world)
    return replay


def assert_tables_of(world: World, made: dict[str, list[Row]], tables: tuple[Table, ...]) -> None:
    """The tables of a world's cluster are what its replay gives."""
    replay = replayed(world)
    for table in tables:
        found = [row for row in made[table.name] if row["cluster_id"] == world.cluster_id]
        assert_promises(table, found)
        assert_same(table, found, EXPECTED[table.name](replay))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 60))
def test_tables_are_what_a_slow_replay_makes(seed: int, length: int) -> None:
    """The fold knows no more and no less than a reader that keeps everything."""
    assert {table.name for table in COMPARED} == set(EXPECTED)
    world = make_world(seed, length)
    raw = [*rows_of(world), *sources.reported_rows(world.cluster_id)]
    made = fold_rows(raw, TABLES)
    assert_tables_of(world, made, COMPARED)
    of_sources = {
        "records": sources.records(raw),
        "gaps": sources.gaps(world, {}),
    }
    for table in TABLES:
        if table.name in of_sources:
            assert_same(table, made[table.name], of_sources[table.name])


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """Directories of stock Kafka: a whole one, and one whose log lacks the records in its newest checkpoint."""
    shutil.copytree(GOLDEN / "current", tmp_path / "current")
    partial = tmp_path / "partial"
    shutil.copytree(GOLDEN / "current", partial)
    log = partial / LOG
    end = max(checkpoint_ends(partial))
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
    properties.write_text(properties.read_text().replace(cluster_id_of(partial), "partial"))
    return tmp_path


def checkpoint_ends(directory: Path) -> list[int]:
    """The end offsets of the checkpoints."""
    return [int(path.name.split("-")[0]) for path in directory.glob("*-*.checkpoint")]


def cluster_id_of(directory: Path) -> str:
    """The cluster id in meta.properties."""
    lines = (directory / "meta.properties").read_text().splitlines()
    (cluster_id,) = {line.partition("=")[2] for line in lines if line.startswith("cluster.id=")}
    return cluster_id


def raw_rows(directory: Path) -> list[tuple[Any, ...]]:
    """The rows of the source."""
    return [tuple(row.values()) for batch in read_rows(directory, noOps="true") for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["oldest", "current", "4.4.0/oldest", "4.4.0/current"])
def test_the_history_of_stock_kafka_is_its_replay(name: str) -> None:
    """All columns of all intervals and changes of a log that Kafka wrote."""
    directory = GOLDEN / name
    made = fold_rows(raw_rows(directory), COMPARED)
    assert_tables_of(world_of(cluster_id_of(directory), [directory / LOG]), made, COMPARED)


def test_the_history_of_stock_kafka_with_gaps_is_its_replay(captured: Path) -> None:
    """The same where checkpoints bridge gaps of the log."""
    world = world_of("partial", [GOLDEN / "current" / LOG])
    world.snapshots = set(checkpoint_ends(captured / "partial"))
    world.readable = set(range(max(world.snapshots), len(world.log)))
    assert_tables_of(world, fold_rows(raw_rows(captured), COMPARED), COMPARED)


def image_of(path: Path) -> MetadataImage:
    """The metadata after the log of a controller."""
    image = MetadataImage()
    for batch in decode_batches(path.read_bytes()):
        if not batch.is_control:
            for offset, record in enumerate(batch.records, start=batch.base_offset):
                assert record.value is not None
                image.replay(decode_record(record.value), offset)
        image.advance(end_offset=batch.last_offset + 1, epoch=batch.partition_leader_epoch, timestamp_ms=0)
    return image


def present_states(
    rows: list[Row], key: list[str], left_out: tuple[str, ...] = ()
) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> state of the intervals that are open."""
    spans = {"cluster_id", *(column.name for column in INTERVAL_COLUMNS), *key, *left_out}
    state = [name for name in rows[0] if name not in spans] if rows else []
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in rows:
        if row["valid_to"] is None:
            found[row["cluster_id"]][tuple(row[name] for name in key)] = tuple(row[name] for name in state)
    return found


def last_changes(rows: list[Row], key: list[str], states: list[str]) -> dict[str, dict[Any, Any]]:
    """Cluster -> key -> the state after the last change."""
    found: dict[str, dict[Any, Any]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["offset"]):
        found[row["cluster_id"]][tuple(row[name] for name in key)] = tuple(row[name] for name in states)
    return found


def test_the_present_is_the_image_of_stock_kafka(captured: Path) -> None:
    """Tables of files that Kafka wrote end where Kafka's metadata does, also after a bridged gap."""
    made = fold_rows(raw_rows(captured), COMPARED)
    topics = present_states(made["topics"], ["topic_id"], ("partitions", "previous_topic_id"))
    partitions = present_states(made["partition_leadership"], ["topic_id", "partition"], ("topic",))
    brokers = present_states(made["broker_sessions"], ["broker_id"], ("is_fencing", "fencings_in_hour"))
    quotas = present_states(made["quotas"], ["entity", "quota_key"])
    configs = last_changes(made["config_changes"], ["resource_type", "resource_name", "name"], ["new_value"])
    acls = last_changes(made["acl_changes"], ["acl_id"], [*ACL_STATE, "change"])
    until: dict[str, int] = {}
    for row in made["producer_id_blocks"]:
        until[row["cluster_id"]] = max(row["last_producer_id"] + 1, until.get(row["cluster_id"], 0))
    image = image_of(GOLDEN / "current" / LOG)
    known = Replay()
    known.know(image)
    expected = known.states()
    for name in ("current", "partial"):
        cluster_id = cluster_id_of(captured / name)
        assert topics.get(cluster_id, {}) == expected["topics"], name
        assert partitions.get(cluster_id, {}) == expected["partitions"], name
        assert brokers.get(cluster_id, {}) == expected["brokers"], name
        assert quotas.get(cluster_id, {}) == expected["quotas"], name
        values = {key: value for key, (value,) in configs.get(cluster_id, {}).items() if value is not None}
        assert values == {
            key: REDACTED if is_secret_config(CONFIG_NUMBERS[key[0]], key[2]) else value
            for key, (value, _) in expected["configs"].items()
        }, name
        entries = {key: state[:-1] for key, state in acls.get(cluster_id, {}).items() if state[-1] == "added"}
        assert entries == expected["acls"], name
        assert until.get(cluster_id, -1) == image.next_producer_id, name
    assert any(partitions.values())
