"""Records that this version does not know: their bytes are stored, and the version that knows them decodes them."""

import json
from pathlib import Path

import pytest
from kit.lake.lakes import ingest_into, stored_lines
from kit.lake.logs import NodeLog, topic
from kit.lake.tasks import local_tasks
from pyspark_quorate.jobs.compaction import compact
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_reader import count_rows
from pyspark_quorate.stored.row_reader import StoredRows
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import RECORD_CLASSES, ConfigRecord, TopicRecord

NEWER = 99
"""The type of a record that only a newer Kafka has; it looks like a TopicRecord."""
TABLES = "topics,leadership,gaps"


def of_newer_kafka(name: str) -> bytes:
    """A record of the unknown type."""
    value = bytearray(topic(name))
    value[1] = NEWER
    return bytes(value)


LOG = NodeLog().elected(1).appended(topic("a"), of_newer_kafka("b"), topic("c")).appended(of_newer_kafka("d"))


def test_records_are_decoded_by_the_version_that_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is gone by then."""
    for node in ("a", "b"):
        LOG.write(tmp_path / "nodes" / node)
    LOG.appended(topic("e")).write(tmp_path / "later" / "a")
    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, tmp_path / "nodes")
    gaps = stored_lines(lake, "gaps")["gaps"]
    assert len(gaps) == 2, "each unknown record is counted once"
    assert all("unknown-record" in gap for gap in gaps)
    with Lake.writing(str(lake)) as found:
        compact(local_tasks(), found, Steps())
    assert stored_lines(lake, "gaps")["gaps"] == gaps

    monkeypatch.setitem(RECORD_CLASSES, NEWER, RECORD_CLASSES[TopicRecord.__api_key__])
    ingest_into(local_tasks(), lake, tmp_path / "later")
    ingest_into(local_tasks(), tmp_path / "known", tmp_path / "nodes")
    ingest_into(local_tasks(), tmp_path / "known", tmp_path / "later")
    assert stored_lines(lake, TABLES) == stored_lines(tmp_path / "known", TABLES)
    assert len(stored_lines(lake, "topics")["topics"]) == 5
    assert stored_lines(lake, "gaps")["gaps"] == []
    with Lake.writing(str(lake)) as found:
        compact(local_tasks(), found, Steps())
    ingest_into(local_tasks(), lake, tmp_path / "later", everything=True)
    assert stored_lines(lake, TABLES) == stored_lines(tmp_path / "known", TABLES)
    records = [count_rows(Lake.open(str(tmp_path / name)), "records") for name in ("lake", "known")]
    assert records == [LOG.end + 1, LOG.end + 1]


def test_tables_are_built_again_without_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.write(tmp_path / "node")
    ingest_into(local_tasks(), tmp_path / "lake", tmp_path / "node")
    monkeypatch.setitem(RECORD_CLASSES, NEWER, RECORD_CLASSES[TopicRecord.__api_key__])
    ingest_into(local_tasks(), tmp_path / "lake", tmp_path / "node")
    assert len(stored_lines(tmp_path / "lake", "topics")["topics"]) == 4


def test_bytes_that_may_have_secrets_are_not_kept(tmp_path: Path) -> None:
    """A version of a record with secrets that is not known."""
    secret = ConfigRecord(
        resource_type=4, resource_name="1", name="ssl.key.password", value="hunter2-hunter2"
    )
    value = bytearray(encode_record(secret))
    value[2] = 9
    NodeLog().elected(1).appended(bytes(value)).write(tmp_path / "node")
    ingest_into(local_tasks(), tmp_path / "lake", tmp_path / "node")
    (gap,) = stored_lines(tmp_path / "lake", "gaps")["gaps"]
    assert "unknown-record" in gap
    (folder,) = Lake.open(str(tmp_path / "lake")).rows.iterdir()
    (stored,) = StoredRows(folder).gaps().column("payload").to_pylist()
    assert json.loads(stored).keys() == {"endOffset", "detail"}
