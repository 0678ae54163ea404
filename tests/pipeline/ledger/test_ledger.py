"""Every table of a lake against a ledger of what was done to the cluster.

QUORATE_LEDGER says whose controllers: python, java, or both with a comma between them; python without.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kit.history import (
    GHOST,
    LEVEL_AFTER,
    LEVEL_BEFORE,
    TOPICS,
    TRUNCATED_MIN,
    Entry,
    Ledger,
    Script,
    directories,
    found,
)
from kit.lake.fold import assert_same, plain
from kit.lake.lakes import ingest_into
from kit.lake.oracle.metadata_tables import TABLES as EXPECTED
from kit.lake.oracle.replay import Replay
from kit.lake.oracle.worlds import World, world_of
from kit.membership import Membership, quorate
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.table_reader import read_table
from pyspark_quorate.report.history import collect
from pyspark_quorate.report.sections import sections_of
from pyspark_quorate.tables.registry import TABLES
from quorate_admin.diagnosis import history

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordedCluster:
    """A ledger, and the lake of the directories of the cluster, whose nodes are stopped."""

    ledger: Ledger
    cluster: Membership
    sources: tuple[Path, ...]
    lake: Lake
    spark: SparkSession
    founders: tuple[int, ...]
    addresses: dict[int, str]

    def rows(self, table: str) -> list[Row]:
        """All rows of a table, times with a zone."""
        read = read_table(self.lake, table)
        assert read is not None, f"the lake has no {table}"
        assert read.is_all
        return [
            {
                key: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
                for key, value in row.items()
            }
            for row in read.rows
        ]


@pytest.fixture(scope="module", params=os.environ.get("QUORATE_LEDGER", "python").split(","))
def recorded(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka_jars: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RecordedCluster]:
    """The script's history, as ledger and as lake."""
    where = tmp_path_factory.mktemp(f"ledger-{request.param}")
    lost = where / "lost"
    with closing(found(where / "cluster", kafka_jars, java=request.param == "java")) as cluster:
        ledger = Script(cluster, lost).run()
        addresses = {
            controller: cluster.address(controller) for controller in (*cluster.controllers, *cluster.brokers)
        }
        # Brokers that were stopped in order would be something that happened, and not in the ledger.
        cluster.terminate(*(controller for controller in cluster.controllers if cluster.runs(controller)))
        cluster.kill(*cluster.brokers)
        sources = tuple(directories(cluster, lost))
        ingest_into(spark, where / "lake", *sources)
        lake = Lake.open(str(where / "lake"))
        yield RecordedCluster(ledger, cluster, sources, lake, spark, cluster.founders, addresses)


def test_the_tables_say_what_the_ledger_says(recorded: RecordedCluster) -> None:
    checks = (
        records,
        gaps,
        membership,
        controller_registrations,
        leadership,
        feature_levels,
        upgrade_blockers,
        advertised_addresses,
        broker_sessions,
        partitions,
        topics,
        config_changes,
        acl_changes,
        quotas,
        producer_id_blocks,
    )
    for check in checks:
        check(recorded)


def test_the_tables_are_what_a_replay_makes(recorded: RecordedCluster) -> None:
    replay = Replay()
    replay.run(newest_log(recorded))
    for table in TABLES:
        if table.name in EXPECTED:
            kinds = {field.name: field.dataType for field in table.schema.fields}
            found = [
                {name: plain(value, kinds[name]) for name, value in row.items()}
                for row in recorded.rows(table.name)
            ]
            assert_same(table, found, EXPECTED[table.name](replay))


def newest_log(recorded: RecordedCluster) -> World:
    """The complete log of a controller with the newest record."""
    cluster = recorded.cluster
    segments = [sorted(cluster.metadata(node).glob("*.log")) for node in cluster.controllers]
    worlds = [world_of("", paths) for paths in segments if paths and int(paths[0].stem) == 0]
    return max(worlds, key=lambda world: (world.log[-1].epoch, len(world.log)))


def test_the_report_finds_what_went_wrong(recorded: RecordedCluster) -> None:
    (history,) = collect(recorded.lake, None, None, None)
    sections = {section.title: section for section in sections_of(history)}
    findings = {title: section.finding for title, section in sections.items()}
    flapped = recorded.ledger.of("broker")[0].key[0]
    # A busy machine may have had a broker fenced once more than the script did.
    assert re.search(rf"broker {flapped} \((twice|\d+ times), ", findings["Brokers in and out of service"])
    assert f"controller {GHOST}" in {row[0] for row in sections["What blocked upgrades"].rows}
    # Not always first: a controller that joined by a snapshot lacks earlier records, which others have.
    assert "truncated-epoch" in findings["Missing records"].lower()
    assert "returned with another directory" in findings["Voters of the quorum"]


def test_the_doctor_tells_the_past_of_a_ghost(recorded: RecordedCluster, tmp_path: Path) -> None:
    cluster, ledger = recorded.cluster, Ledger()
    cluster.start(*cluster.controllers)
    cluster.await_quorum(*cluster.voters())
    leader = cluster.await_leader()
    ghost = next(controller for controller in cluster.controllers if controller != leader)
    directory_id = cluster.directory_id(ghost)
    with ledger.noting("left", ghost):
        cluster.remove(ghost, directory_id)
    cluster.terminate(ghost)
    with ledger.noting("blocker", ghost):
        cluster.leave_ghost(ghost)
    lake = shutil.copytree(recorded.lake.path, tmp_path / "lake")
    done = ingest_into(recorded.spark, Path(lake), *recorded.sources, tables=",".join(history.TABLES))
    assert 0 < done.changed_directories < done.directories, "the lost leader's has no news"

    command = ("doctor", "--bootstrap-controller", cluster.asks(), "--history", str(lake))
    ran = quorate(*command, "-o", "json")
    assert (ran.returncode, ran.stderr) == (1, "")
    findings = {
        (finding["nodeKind"], finding["nodeId"]): finding for finding in json.loads(ran.stdout)["findings"]
    }
    finding = findings["controller", ghost]
    assert finding["blocks"]
    past = finding["past"]
    (blocker,), (left,) = ledger.of("blocker"), ledger.of("left")
    assert past["blocksSince"].keys() == finding["blocks"].keys()
    for since in (*past["blocksSince"].values(), past["registeredAt"]):
        assert_json_time(since, blocker)
    assert_json_time(past["voterUntil"], left)
    assert past["directoryId"] == directory_id
    # When it was founded or came, when it was started again, and as a ghost.
    assert past["registrations"] >= 3
    printed = " ".join(quorate(*command).stdout.split())
    for feature, since in past["blocksSince"].items():
        assert f"{feature} from level {since['level']}" in printed
        assert f" since {printed_time(since)} UTC." in printed
    assert (
        f"It registered {past['registrations']} times, last {printed_time(past['registeredAt'])}" in printed
    )
    until = f"It was a voter until {printed_time(past['voterUntil'])} UTC, with the directory {directory_id}."
    assert until in printed


def assert_json_time(since: Row, entry: Entry) -> None:
    """An instant in JSON is when the ledger says so."""
    assert since["exact"]
    assert_when(datetime.fromisoformat(since["time"]), entry)


def printed_time(since: Row) -> str:
    """An instant in JSON as people read it, to the second."""
    return str(since["time"])[:19].replace("T", " ")


def records(recorded: RecordedCluster) -> None:
    """Each record once, also those of the lost leader; table `gaps` shows that no record is missing."""
    stored = recorded.spark.read.parquet(str(recorded.lake.table("records"))).where("kind = 'log'")
    (row,) = stored.agg(
        f.count("*").alias("lines"),
        f.count_distinct("offset", "epoch").alias("records"),
        f.count_distinct("offset").alias("offsets"),
    ).collect()
    assert row["lines"] == row["records"] > row["offsets"]
    assert row["offsets"] > len(recorded.ledger.entries)
    types = {row["type"] for row in stored.select("type").distinct().collect()}
    assert {
        "TopicRecord",
        "ConfigRecord",
        "VotersRecord",
        "LeaderChangeMessage",
        "AccessControlEntryRecord",
    } <= types


def gaps(recorded: RecordedCluster) -> None:
    """The lost leader's tail, and nothing that counts."""
    rows = recorded.rows("gaps")
    assert [row for row in rows if row["hides_records"]] == []
    truncated = [row for row in rows if row["reason"] == "truncated-epoch"]
    assert sum(row["end_offset"] - row["first_offset"] for row in truncated) >= TRUNCATED_MIN
    (lost,) = recorded.ledger.of("lost leader")
    assert all(row["not_after"] > lost.after for row in truncated)


def membership(recorded: RecordedCluster) -> None:
    """Voters that joined and left, with their directories."""
    rows = recorded.rows("membership")
    (founding,) = recorded.ledger.of("founded")
    begun = {(row["voter_id"], row["directory_id"]): row for row in reversed(by_time(rows))}
    ended = {(row["voter_id"], row["directory_id"]): row for row in by_time(rows)}
    joined = {entry.key: entry for entry in recorded.ledger.of("voter") if entry.value}
    left = {entry.key: entry for entry in recorded.ledger.of("voter") if not entry.value}
    assert {key[0] for key in set(begun) - set(joined)} == set(recorded.founders)
    for key, row in begun.items():
        assert_when(row["valid_from"], joined.get(key, founding))
        assert row["from_exact"]
    for key, row in ended.items():
        if key in left:
            assert_when(row["valid_to"], left[key])
        else:
            assert row["valid_to"] is None, f"{key} is a voter still"


def controller_registrations(recorded: RecordedCluster) -> None:
    """All controllers are registered, and the ghost between registration and refresh with its old levels."""
    rows = recorded.rows("controller_registrations")
    controllers = {address for address in recorded.addresses if address >= min(recorded.founders)}
    assert {row["controller_id"] for row in rows if row["valid_to"] is None} == controllers | {GHOST}
    came, refreshed = recorded.ledger.of("blocker")
    first, second = by_time([row for row in rows if row["controller_id"] == GHOST])
    assert_when(first["valid_from"], came)
    assert_when(first["valid_to"], refreshed)
    assert second["endpoints"] == []


def leadership(recorded: RecordedCluster) -> None:
    """The leaders that the script observed; no epoch went back."""
    rows = by_time(recorded.rows("leadership"))
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(set(epochs))
    leaders = {row["epoch"]: row for row in rows}
    noted = recorded.ledger.of("leader")
    assert len({entry.key for entry in noted}) >= 2
    for entry in noted:
        row = leaders[entry.key[0]]
        assert row["leader_id"] == entry.value
        assert row["valid_from"] <= entry.after
        assert row["valid_to"] is None or row["valid_to"] >= entry.after


def feature_levels(recorded: RecordedCluster) -> None:
    """The level from the beginning until the upgrade, and the one after it."""
    before, after = by_time(
        [row for row in recorded.rows("feature_levels") if row["feature"] == "metadata.version"]
    )
    (upgrade,) = recorded.ledger.of("level")
    assert (before["level"], after["level"]) == (LEVEL_BEFORE, LEVEL_AFTER)
    assert_when(before["valid_to"], upgrade)
    assert_when(after["valid_from"], upgrade)
    assert after["valid_to"] is None


def upgrade_blockers(recorded: RecordedCluster) -> None:
    """The ghost alone blocked the level, while the ledger says so."""
    rows = [
        row
        for row in recorded.rows("upgrade_blockers")
        if (row["feature"], row["level"]) == ("metadata.version", LEVEL_AFTER)
    ]
    assert {(row["role"], row["node_id"]) for row in rows} == {("controller", GHOST)}
    came, refreshed = recorded.ledger.of("blocker")
    assert_when(rows[0]["valid_from"], came)
    assert_when(rows[-1]["valid_to"], refreshed)
    assert all(row["is_ghost"] for row in rows)


def advertised_addresses(recorded: RecordedCluster) -> None:
    """Where each node could be found, and the ghost for a while."""
    rows = recorded.rows("advertised_addresses")
    held = {(f"{row['host']}:{row['port']}", row["node_id"]) for row in rows if row["valid_to"] is None}
    assert held == {(address, node_id) for node_id, address in recorded.addresses.items()}
    assert [row for row in rows if row["reused_from_node_id"] is not None] == []
    came, refreshed = recorded.ledger.of("blocker")
    (ghost,) = [row for row in rows if row["node_id"] == GHOST]
    assert_when(ghost["valid_from"], came)
    assert_when(ghost["valid_to"], refreshed)


def broker_sessions(recorded: RecordedCluster) -> None:
    """Each time that a broker left service and came back."""
    rows = by_time(recorded.rows("broker_sessions"))
    flapping = recorded.ledger.of("broker")[0].key[0]
    (calm,) = {row["broker_id"] for row in rows} - {flapping}
    assert [state for state, _ in turns_of(rows, calm)] == ["fenced", "unfenced"]
    turns = turns_of(rows, flapping)
    # It begins fenced, and comes into service when it is founded.
    entries = recorded.ledger.of("broker")
    assert [state for state, _ in turns] == ["fenced", "unfenced", *(entry.value for entry in entries)]
    for (_, moment), entry in zip(turns[2:], entries, strict=True):
        assert_when(moment, entry)


def turns_of(rows: Sequence[Row], broker_id: int) -> list[tuple[str, datetime]]:
    """When a broker went out of service or came into it; about to stop counts as out."""
    turns: list[tuple[str, datetime]] = []
    for row in rows:
        state = "unfenced" if row["state"] == "unfenced" else "fenced"
        if row["broker_id"] == broker_id and (not turns or turns[-1][0] != state):
            turns.append((state, row["valid_from"]))
    return turns


def partitions(recorded: RecordedCluster) -> None:
    """While the broker was away, every partition lacked it; nothing was without a leader."""
    entries = recorded.ledger.of("broker")
    away = [entry for entry in entries if entry.value == "fenced"]
    back = recorded.ledger.of("in sync")
    broker = entries[0].key[0]
    places = {(topic, number) for topic, count in TOPICS.items() for number in range(count)}
    risks = recorded.rows("under_replicated")
    changes = recorded.rows("isr_changes")
    for gone, come in zip(away, back, strict=True):
        rows = [row for row in risks if gone.after <= row["valid_from"] <= gone.before]
        assert {(row["topic"], row["partition"]) for row in rows} == places
        assert all(row["missing"] == [broker] and row["isr_size_min"] == 1 for row in rows)
        assert all(gone.after <= row["valid_to"] <= come.before for row in rows if not row["is_offline"])
        shrunk = [row for row in changes if row["change"] == "shrink" and gone.holds(row["time"])]
        grown = [row for row in changes if row["change"] == "expand" and come.holds(row["time"])]
        for rows in (shrunk, grown):
            assert {(row["topic"], row["partition"]) for row in rows} == places
    assert [row for row in risks if row["is_offline"]] == []
    now = [row for row in recorded.rows("partition_leadership") if row["valid_to"] is None]
    assert {row["topic"] for row in now} == {"orders", "short-lived", "after-the-loss"}
    assert all(len(row["isr"]) == len(row["replicas"]) == 2 for row in now)


def topics(recorded: RecordedCluster) -> None:
    """Created, deleted, and created again with the same name."""
    rows = by_time(recorded.rows("topics"))
    entries = recorded.ledger.of("topic")
    created = [entry for entry in entries if entry.value]
    assert [(row["topic"], row["partitions"]) for row in rows] == [
        (entry.key[0], entry.value) for entry in created
    ]
    for row, entry in zip(rows, created, strict=True):
        assert_when(row["valid_from"], entry)
    (deleted,) = [entry for entry in entries if not entry.value]
    first, again = [row for row in rows if row["topic"] == "short-lived"]
    assert_when(first["valid_to"], deleted)
    assert again["previous_topic_id"] == first["topic_id"]
    assert [row["topic"] for row in rows if row["valid_to"] is None] == [
        "orders",
        "after-the-loss",
        "short-lived",
    ]


def config_changes(recorded: RecordedCluster) -> None:
    """Each value that a config was given."""
    rows = sorted(recorded.rows("config_changes"), key=lambda row: row["offset"])
    entries = recorded.ledger.of("config")
    for key in dict.fromkeys(entry.key for entry in entries):
        of_key = [entry for entry in entries if entry.key == key]
        seen = [row for row in rows if (row["resource_type"], row["resource_name"], row["name"]) == key]
        assert [row["new_value"] for row in seen] == [entry.value for entry in of_key]
        assert [row["old_value"] for row in seen] == [None, *(entry.value for entry in of_key[:-1])]
        assert_each(seen, of_key)


def acl_changes(recorded: RecordedCluster) -> None:
    """Each entry that was added and removed."""
    rows = sorted(recorded.rows("acl_changes"), key=lambda row: row["offset"])
    entries = recorded.ledger.of("acl")
    assert entries
    assert [((row["resource_name"], row["principal"], row["operation"]), row["change"]) for row in rows] == [
        (entry.key, entry.value) for entry in entries
    ]
    assert_each(rows, entries)


def quotas(recorded: RecordedCluster) -> None:
    """The limits, each until the next one."""
    rows = by_time(recorded.rows("quotas"))
    entries = recorded.ledger.of("quota")
    assert entries
    assert [row["quota"] for row in rows] == [entry.value for entry in entries if entry.value is not None]
    for row, begin, end in zip(rows, entries, entries[1:], strict=False):
        assert tuple((part["entity_type"], part["entity_name"]) for part in row["entity"]) == begin.key[0]
        assert_when(row["valid_from"], begin)
        assert_when(row["valid_to"], end)


def producer_id_blocks(recorded: RecordedCluster) -> None:
    """A block for the producer."""
    (asked,) = recorded.ledger.of("producer")
    rows = recorded.rows("producer_id_blocks")
    assert any(asked.holds(row["time"]) for row in rows)
    assert all(row["last_producer_id"] - row["first_producer_id"] == 999 for row in rows)


def by_time(rows: Sequence[Row]) -> list[Row]:
    """Intervals in the order in which they begin."""
    return sorted(rows, key=lambda row: row["from_offset"])


def assert_when(moment: datetime | None, entry: Entry) -> None:
    """It was when the ledger says so."""
    assert moment is not None, entry
    assert entry.holds(moment), f"{moment} is not within {entry}"


def assert_each(rows: Sequence[Row], entries: Sequence[Entry]) -> None:
    """Each was when the ledger says so."""
    for row, entry in zip(rows, entries, strict=True):
        assert_when(row["time"], entry)
        assert row["exact"]
