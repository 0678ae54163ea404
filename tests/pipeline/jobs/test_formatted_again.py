"""Clusters that are formatted again with the same cluster id: their two histories are not mixed."""

import shutil
from pathlib import Path

import pytest
from kit.lake.lakes import ingest_into, stored_lines
from kit.lake.logs import NodeLog, topic
from kit.lake.tasks import local_tasks
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.lake import Lake

OLD = NodeLog().elected(1).appended(topic("old")).elected(2).appended(topic("old too"))
WITHOUT_START = NodeLog(OLD.batches[2:], (OLD.batches[2].offset,), OLD.time_ms)
"""The beginning was deleted before anything was read."""
NEW = NodeLog().later(3_600_000).elected(1).appended(topic("new"))
NEW_WITH_EPOCH = NEW.appended(topic("more")).elected(2)


# Of another directory without a common offset or epoch, nothing shows that it is another history.
@pytest.mark.parametrize(
    ("old", "new", "directory"),
    [
        (OLD, NEW, "node"),
        (OLD, NEW, "another"),
        (OLD, NEW_WITH_EPOCH, "node"),
        (OLD, NEW_WITH_EPOCH, "another"),
        (WITHOUT_START, NEW, "node"),
        (WITHOUT_START, NEW_WITH_EPOCH, "node"),
        (WITHOUT_START, NEW_WITH_EPOCH, "another"),
    ],
)
def test_another_history_of_a_cluster_is_refused(
    tmp_path: Path, old: NodeLog, new: NodeLog, directory: str
) -> None:
    old.write(tmp_path / "node")
    lake = tmp_path / "lake"
    ingest_into(local_tasks(), lake, tmp_path / "node")
    before, state = stored_lines(lake, "topics,gaps"), Lake.open(str(lake)).state
    shutil.rmtree(tmp_path / "node")
    new.write(tmp_path / directory)
    with pytest.raises(LakeError, match="has another history than the lake has of this cluster"):
        ingest_into(local_tasks(), lake, tmp_path / directory)
    assert Lake.open(str(lake)).state == state
    assert stored_lines(lake, "topics,gaps") == before


def test_two_histories_at_once_are_refused(tmp_path: Path) -> None:
    OLD.write(tmp_path / "nodes" / "a")
    NEW.write(tmp_path / "nodes" / "b")
    with pytest.raises(LakeError, match=r"epoch 1 begins at offset 0 of .*, and at offset 0 of"):
        ingest_into(local_tasks(), tmp_path / "lake", tmp_path / "nodes")


def test_a_node_with_a_new_disk_goes_on_with_the_history(tmp_path: Path) -> None:
    """Its log has the same records, or begins behind them."""
    lake = tmp_path / "lake"
    OLD.write(tmp_path / "node")
    ingest_into(local_tasks(), lake, tmp_path / "node")
    for log in (OLD.appended(topic("more")), NodeLog(OLD.batches[3:], (OLD.batches[3].offset,), OLD.time_ms)):
        shutil.rmtree(tmp_path / "node")
        log.write(tmp_path / "node")
        ingest_into(local_tasks(), lake, tmp_path / "node")
    assert sum("'old" in row for row in stored_lines(lake, "topics")["topics"]) == 2


def test_older_segments_may_come_later(tmp_path: Path) -> None:
    """A directory to which a backup adds what Kafka has deleted."""
    lake = tmp_path / "lake"
    WITHOUT_START.write(tmp_path / "node")
    ingest_into(local_tasks(), lake, tmp_path / "node")
    OLD.write(tmp_path / "node")
    ingest_into(local_tasks(), lake, tmp_path / "node")
    assert sum("'old" in row for row in stored_lines(lake, "topics")["topics"]) == 2
