"""Damage that a controller finds: a snapshot on its way, a checkpoint on its disk, records that do not fit."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from quorate_controller.config import ControllerConfig
from quorate_controller.node import ControllerNode
from quorate_controller.node.assembly import open_node
from quorate_controller.raft.events import Ready, SnapshotChunk, SnapshotRefused, SnapshotRestored
from quorate_controller.raft.model import SnapshotId
from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.features import METADATA_VERSION
from quorate_protocol.image.snapshot import write_records
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import FeatureLevelRecord, TopicRecord

FETCHED = SnapshotId(offset=500, epoch=3)
LEVEL = 25
NOW_MS = 1_000_000
CHECKPOINT = b"".join(
    write_records(
        [
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL),
            *(TopicRecord(name=f"t{index}", topic_id=UUID(int=index + 2)) for index in range(20)),
        ],
        metadata_version=LEVEL,
        now_ms=1,
        epoch=FETCHED.epoch,
    )
)


@pytest.fixture
def open_it(voter_config: ControllerConfig) -> Callable[[], ControllerNode]:
    """Open the controller; a test closes it."""
    return lambda: open_node(voter_config, file_system=OsFileSystem(), rng=Random(1), clock=lambda: NOW_MS)


def flipped(byte: int) -> bytes:
    """The checkpoint with one bit of that byte flipped."""
    return CHECKPOINT[:byte] + bytes([CHECKPOINT[byte] ^ 4]) + CHECKPOINT[byte + 1 :]


def fetch_snapshot(node: ControllerNode, data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Have raft ask for the restore of a fetched snapshot. Returns what the node answers to raft."""
    responses: list[object] = []

    def step(event: object, _now_ms: int) -> Ready:
        responses.append(event)
        return Ready()

    with monkeypatch.context() as patch:
        patch.setattr(node.raft, "step", step)
        chunk = SnapshotChunk(snapshot_id=FETCHED, position=0, data=data)
        node._perform(Ready(snapshot_chunk=chunk, restore=FETCHED))
        node._load_snapshot()
    return responses


def test_fetched_snapshot_is_verified_before_it_replaces_the_log(
    open_it: Callable[[], ControllerNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_it()
    record = encode_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL))
    node.storage.append(build_batch([record], 0, 1, 1))
    node.storage.flush()
    files = sorted(path.name for path in (tmp_path / "data/__cluster_metadata-0").iterdir())
    damaged = [CHECKPOINT[:-1], CHECKPOINT[:100], CHECKPOINT + b"x"]
    damaged.extend(flipped(byte) for byte in range(0, len(CHECKPOINT), 7))
    for data in damaged:
        (response,) = fetch_snapshot(node, data, monkeypatch)
        assert isinstance(response, SnapshotRefused)
        assert response.snapshot_id == FETCHED
        assert response.reason
        assert (node.storage.log.end_offset, node.storage.snapshots.ids) == (1, ())
        assert not node.metadata.image.topics.by_name
    assert sorted(path.name for path in (tmp_path / "data/__cluster_metadata-0").iterdir()) == files
    node.close()
    node = open_it()
    (response,) = fetch_snapshot(node, CHECKPOINT, monkeypatch)
    assert isinstance(response, SnapshotRestored)
    assert node.storage.log.start_offset == FETCHED.offset
    assert len(node.metadata.image.topics.by_name) == 20
    node.close()
    open_it().close()


def test_damaged_checkpoint_is_named_at_start(
    open_it: Callable[[], ControllerNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = open_it()
    fetch_snapshot(node, CHECKPOINT, monkeypatch)
    node.close()
    path = tmp_path / "data/__cluster_metadata-0/00000000000000000500-0000000003.checkpoint"
    path.chmod(0o600)
    for byte in (17, len(CHECKPOINT) // 2, len(CHECKPOINT) - 1):
        path.write_bytes(flipped(byte))
        with pytest.raises(CorruptFileError) as caught:
            open_it()
        text = str(caught.value)
        assert text.startswith(f"{path}: the checkpoint cannot be read (")
        assert "in the batch at offset" in text
        assert "remove this node from the voter set" in text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (encode_record(TopicRecord(name="t", topic_id=UUID(int=7))) + b"rest", "remove this node"),
        (b"\x01\x7f\x00\x00", "A newer version wrote it: run at least that version"),
    ],
    ids=["damaged", "unknown"],
)
def test_record_that_cannot_be_replayed_is_named(
    open_it: Callable[[], ControllerNode], value: bytes, message: str
) -> None:
    """File, offset and way out for a committed record that cannot be read."""
    node = open_it()
    level = encode_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL))
    node.storage.append(build_batch([level], 0, 1, 1) + build_batch([value], 1, 1, 1))
    node.storage.flush()
    with pytest.raises(CorruptFileError) as caught:
        node.metadata.catch_up(node.storage, 2, NOW_MS)
    text = str(caught.value)
    assert "00000000000000000000.log: the batch at offset 1 cannot be read (" in text
    assert message in text
    node.close()
