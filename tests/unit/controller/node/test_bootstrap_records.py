"""Bootstrap records: in which file formatting of which release leaves them, and what is refused."""

import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from kit.metadata import batches_in
from quorate_controller.config import ControllerConfig
from quorate_controller.node import ControllerNode
from quorate_controller.node.assembly import open_node
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, ReplicaKey, SnapshotId, VersionRange, Voter
from quorate_controller.raft.startup import HardState
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.bootstrap import bootstrap_checkpoints
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.storage.errors import CorruptFileError, StorageError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.image.snapshot import read_checkpoint, write_checkpoint, write_records
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import MetadataRecord, decode_record, encode_record
from quorate_protocol.records.generated import (
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

NOW_MS = 1_000_000
ALICE = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
)
ME = UUID("18c84144-6502-49a8-9f28-cc7613f0f26e")


def levels(metadata_version: int, **others: int) -> tuple[MetadataRecord, ...]:
    """Return records of feature levels, with those of `others` as `group_version=1`."""
    named = {"metadata.version": metadata_version} | {
        name.replace("_", "."): level for name, level in others.items()
    }
    return tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in named.items())


def checkpoint(
    records: Sequence[MetadataRecord], kraft_version: int = 0, voters: VoterSet | None = None
) -> bytes:
    """A checkpoint as formatting writes it."""
    return b"".join(
        write_records(
            records,
            metadata_version=25,
            now_ms=1,
            kraft_version=kraft_version,
            voters=None if voters is None else voters.to_record(),
        )
    )


ONE_VOTER = VoterSet.of(
    [
        Voter(
            key=ReplicaKey(node_id=3000, directory_id=ME),
            endpoints=(),
            kraft_versions=VersionRange(lowest=0, highest=1),
        )
    ]
)


@pytest.fixture
def files(voter_config: ControllerConfig) -> tuple[Path, Path]:
    """0-0.checkpoint, which is not there, and bootstrap.checkpoint, which has metadata.version 20 alone."""
    first, second = bootstrap_checkpoints(voter_config.storage.metadata_log_dir)
    first.parent.mkdir(exist_ok=True)
    second.write_bytes(checkpoint(levels(20)))
    return first, second


def repairs(node: ControllerNode, bench_of: type) -> list[dict[str, object]]:
    """What the node logs of a repaired log until it is active."""
    found: list[dict[str, object]] = []
    finish = node._finish

    def finishing() -> object:
        effects = finish()
        found.extend(
            {**note.facts, "is_warning": note.is_warning}
            for note in effects.notes
            if note.event == "log_without_metadata_version_repaired"
        )
        return effects

    node._finish = finishing  # type: ignore[method-assign,assignment]
    bench_of(node)
    return found


def test_a_new_log_is_not_called_repaired(node_config: ControllerConfig, bench_of: type) -> None:
    node = opened(node_config)
    assert repairs(node, bench_of) == [], "a new cluster"
    node.close()


def test_a_log_with_records_and_no_metadata_version_is_repaired_with_a_warning(
    node_config: ControllerConfig, bench_of: type
) -> None:
    """The log warns of levels that were written into an old cluster (KAFKA-20839)."""
    storage = ControllerStorage.open(OsFileSystem(), node_config.storage)
    storage.save_hard_state(HardState(leader_epoch=1), kraft_version=1)
    storage.append(build_batch([encode_record(NoOpRecord())], 0, 1, NOW_MS))
    storage.flush()
    storage.close()
    node = opened(node_config)
    (repair,) = repairs(node, bench_of)
    assert repair["is_warning"]
    assert repair["written"] == {**dict(repair["written"]), "metadata.version": 33}  # type: ignore[call-overload]
    assert node.metadata.image.metadata_version == 33
    node.close()
    node = opened(node_config)
    assert repairs(node, bench_of) == []
    node.close()


def opened(config: ControllerConfig) -> ControllerNode:
    """The controller of this configuration, which a test closes."""
    return open_node(config, file_system=OsFileSystem(), rng=Random(1), clock=lambda: NOW_MS)


def bootstrap_of(config: ControllerConfig) -> tuple[MetadataRecord, ...]:
    """What the controller would write as the first leader."""
    node = opened(config)
    try:
        return node.storage.bootstrap_records()
    finally:
        node.close()


@pytest.mark.parametrize(
    ("kraft_version", "voters"),
    [
        pytest.param(0, None, id="static voters"),
        pytest.param(1, ONE_VOTER, id="dynamic voters"),
        pytest.param(1, None, id="joins later"),
    ],
)
def test_the_first_checkpoint_comes_before_bootstrap_checkpoint(
    voter_config: ControllerConfig,
    files: tuple[Path, Path],
    kraft_version: int,
    voters: VoterSet | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is lost of what Kafka 4.4 writes (KIP-1170)."""
    caplog.set_level(logging.INFO)
    given = (*levels(25, group_version=1), ALICE)
    files[0].write_bytes(checkpoint(given, kraft_version, voters))
    node = opened(voter_config)
    assert node.storage.bootstrap_records() == given
    assert node.storage.log_state().snapshot_id == BOOTSTRAP_SNAPSHOT_ID
    assert (node.metadata.image.features, node.metadata.applied_offset) == ({}, 0)
    node.close()
    facts = [vars(record)["facts"] for record in caplog.records if record.msg == "bootstrap_records_found"]
    assert {"file": str(files[0]), "records": 3} in facts


@pytest.mark.parametrize("voters", [ONE_VOTER, None])
def test_a_checkpoint_with_voters_alone_leaves_it_to_bootstrap_checkpoint(
    voter_config: ControllerConfig, files: tuple[Path, Path], voters: VoterSet | None
) -> None:
    """What Kafka 4.3 and we format starts as ever."""
    files[0].write_bytes(checkpoint((), 1, voters))
    assert bootstrap_of(voter_config) == levels(20)


def test_without_both_files_there_are_no_records(
    voter_config: ControllerConfig, files: tuple[Path, Path]
) -> None:
    files[1].unlink()
    assert bootstrap_of(voter_config) == ()


@pytest.mark.parametrize("number", [0, 1], ids=["0-0.checkpoint", "bootstrap.checkpoint"])
def test_a_damaged_file_is_named(
    voter_config: ControllerConfig, files: tuple[Path, Path], number: int
) -> None:
    path = files[number]
    data = checkpoint((*levels(25), ALICE))
    damaged = [data[:-1], data[: len(data) // 2]]
    damaged.extend(
        data[:byte] + bytes([data[byte] ^ 4]) + data[byte + 1 :] for byte in range(130, len(data), 9)
    )
    for damage in damaged:
        path.write_bytes(damage)
        with pytest.raises(CorruptFileError) as caught:
            opened(voter_config)
        assert str(caught.value).startswith(f"{path}: ")
        assert "format the directory again" in str(caught.value)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ((ALICE,), r"checkpoint: has bootstrap records, but none for metadata\.version\. Copy the file"),
        (levels(99), r"level 99 is not supported; supported are 7 to .* again with --release-version$"),
        ((*levels(25), TopicRecord(name="t", topic_id=UUID(int=0))), "cannot begin a cluster with"),
    ],
    ids=["no level", "level of the future", "record that does not fit"],
)
def test_records_that_no_cluster_can_begin_with_are_refused(
    voter_config: ControllerConfig, files: tuple[Path, Path], records: Sequence[MetadataRecord], message: str
) -> None:
    """The message comes at the start, not from the first leader."""
    files[0].write_bytes(checkpoint(records))
    with pytest.raises(StorageError, match=message):
        opened(voter_config)


def test_a_log_needs_no_bootstrap_records(voter_config: ControllerConfig, files: tuple[Path, Path]) -> None:
    """A cluster that a newer release began, and that came down to our level since, is not refused."""
    node = opened(voter_config)
    node.storage.append(build_batch([encode_record(NoOpRecord())], 0, 1, 1))
    node.storage.flush()
    node.close()
    files[0].write_bytes(checkpoint(levels(99)))
    assert bootstrap_of(voter_config) == levels(99)


def test_the_first_leader_writes_the_records_once(node_config: ControllerConfig) -> None:
    """Brokers learn what Kafka 4.4 formatted, and 0-0.checkpoint may go then."""
    first, second = bootstrap_checkpoints(node_config.storage.metadata_log_dir)
    formatted = read_checkpoint([first.read_bytes()])
    first.chmod(0o600)
    first.write_bytes(
        b"".join(
            write_records(
                (*levels(25, group_version=1), ALICE),
                metadata_version=25,
                now_ms=1,
                kraft_version=formatted.kraft_version,
                voters=formatted.voters,
            )
        )
    )
    second.unlink()
    for starts in range(1, 4):
        node = opened(node_config)
        make_active(node)
        image = node.metadata.image
        assert image.features["group.version"] == 1
        assert image.metadata_version == 25
        assert [user for _, user in image.scram] == ["alice"]
        if starts == 2:
            take_snapshot(node)
            node.storage.clean(now_ms=10**12)
            assert BOOTSTRAP_SNAPSHOT_ID not in node.storage.snapshots.ids
            assert node.storage.bootstrap_records() == ()
        written = [
            record
            for batch in batches_in(first.parent)
            if not batch.is_control
            for record in map(decode_record, (record_value.value or b"" for record_value in batch.records))
        ]
        assert written.count(ALICE) == 1
        node.close()


def make_active(node: ControllerNode) -> None:
    """Take turns when they are due, until the node is active and has committed what it began with."""
    now_ms = NOW_MS
    node.start(now_ms)
    while not node.is_active or node.metadata.applied_offset < node.storage.log.end_offset:
        now_ms = max(now_ms, node.deadline_ms)
        node.turn([], now_ms)


def take_snapshot(node: ControllerNode) -> None:
    """Write a checkpoint of all that is committed, as the node does."""
    stable = node.metadata.image.stable
    writer = node.storage.create_snapshot(SnapshotId(offset=stable.end_offset, epoch=stable.epoch))
    voters = node.raft.voters_at(stable.end_offset - 1)
    assert voters is not None
    for data in write_checkpoint(
        node.metadata.image.committed_copy(), now_ms=NOW_MS, kraft_version=1, voters=voters.to_record()
    ):
        writer.append(data)
    writer.freeze()
